//! One server: started, broken, and started again on the same data and port.

use std::{
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use sqlx::{ConnectOptions, Connection};
use tokio::sync::OnceCell;

use super::{PgOptions, binaries, template::Templates};
use crate::{
    Error, Result,
    process::{self, Guarded, Launch, Owner, ScratchDir, Signal, free_port},
    wait::eventually,
};

/// Crash recovery of a test's worth of data takes a second or two, on a machine that is busy with other tests.
const READY: Duration = Duration::from_secs(120);
/// How long backends may take to notice that their postmaster is gone before they are killed as well.
const ORPHANS: Duration = Duration::from_secs(3);
const STOP: Duration = Duration::from_secs(30);

/// A PostgreSQL server with a data folder of its own. Dropping it stops the server and removes the folder.
#[derive(Debug)]
pub struct PgCluster {
    // Before the folder, so that the server is told to stop first.
    server: Mutex<Option<Guarded>>,
    launch: Launch,
    port: u16,
    data: PathBuf,
    dir: ScratchDir,
    pub(super) templates: Templates,
}

impl PgCluster {
    /// Makes a new cluster and waits until it accepts connections.
    pub async fn start(options: PgOptions) -> Result<Self> {
        let bin = binaries::find()?;
        // The server refuses to run as root.
        let owner = Owner::if_root("postgres")?;
        let dir = ScratchDir::new("gapless-pg-", owner)?;
        let data = dir.path().join("data");

        let mut initdb = Launch::new(bin.join("initdb")).arg("-D").arg(&data);
        initdb = initdb.args(["--no-sync", "--no-instructions", "-A", "trust", "-U", "postgres"]);
        initdb = initdb.args(["--no-locale", "-E", "UTF8"]);
        initdb.owner = owner;
        let running = Guarded::start(&dir, &initdb)?;
        let log = running.log().to_owned();
        let status = running.wait_status(READY).await?;
        if status != 0 {
            let tail = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(Error::Ended { program: "initdb".into(), status: Some(status), log, tail });
        }

        let port = free_port()?;
        let mut launch = Launch::new(bin.join("postgres")).arg("-D").arg(&data);
        launch = launch.arg("-k").arg(dir.path()).args(["-h", "127.0.0.1", "-p", &port.to_string()]);
        for (name, value) in options.all() {
            launch = launch.arg("-c").arg(format!("{name}={value}"));
        }
        launch.owner = owner;
        // An immediate shutdown: nobody will read this data again, so nothing is worth tidying up.
        launch.stop = Signal::SIGQUIT;

        let server = Mutex::new(None);
        let cluster = Self { server, launch, port, data, dir, templates: Templates::default() };
        cluster.launch().await?;
        Ok(cluster)
    }

    /// The one cluster that the tests of this process share, started by whoever asks first.
    ///
    /// It is never dropped: it ends with the process, when the watchdog's pipe closes.
    pub async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<PgCluster> = OnceCell::const_new();
        SHARED.get_or_try_init(|| Self::start(PgOptions::default())).await
    }

    /// The loopback port it listens on; the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of one of its databases.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The postmaster's process id.
    pub fn pid(&self) -> Result<i32> {
        self.with_server(|server| Ok(server.pid()))
    }

    /// The folder that holds its data, socket and log.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The folder of its data alone, for tests that change it while the server is stopped.
    pub fn data_dir(&self) -> &Path {
        &self.data
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> Result<String> {
        self.with_server(|server| Ok(server.log_tail()))
    }

    /// Kills the postmaster, and returns when every process of the cluster is gone, so that [`Self::restart`]
    /// finds its port and shared memory free.
    ///
    /// Backends notice the loss by themselves; one in the middle of a statement may finish it first, as it
    /// might have in a real crash.
    pub async fn kill9(&self) -> Result<()> {
        let server = self.take_server()?;
        // Standing still it forks no more, so that the list of its children is complete.
        server.freeze().await?;
        let orphans = children(server.pid())?;
        server.kill9()?;
        // Collected, not only ended: while its entry is in the process table its lock file looks valid.
        server.wait_status(STOP).await?;
        if wait_all_gone(&orphans, ORPHANS).await.is_err() {
            for orphan in &orphans {
                // It may have ended by itself this very moment.
                let _ = process::send(*orphan, Signal::SIGKILL);
            }
            wait_all_gone(&orphans, STOP).await?;
        }
        self.wait_port_free().await?;
        // Its process id may by now be somebody else's, which would make a new postmaster refuse to start.
        match std::fs::remove_file(self.data.join("postmaster.pid")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("removing a stale postmaster.pid")(error))
            }
            _ => Ok(()),
        }
    }

    /// Stops the server in an orderly way: sessions are cut, committed data is written out. The data stays.
    pub async fn stop(&self) -> Result<()> {
        let server = self.take_server()?;
        server.signal(Signal::SIGINT)?;
        server.wait_status(STOP).await?;
        Ok(())
    }

    /// Starts the server again on the same data and port, after stopping it if it runs.
    pub async fn restart(&self) -> Result<()> {
        if self.pid().is_ok() {
            self.stop().await?;
        }
        self.launch().await
    }

    /// Stops every process of the cluster in mid-step: connections stay open and nothing is answered.
    pub async fn freeze(&self) -> Result<()> {
        let postmaster = self.pid()?;
        process::send(postmaster, Signal::SIGSTOP)?;
        process::wait_stopped(postmaster).await?;
        for child in children(postmaster)? {
            // A backend may end between being listed and being stopped.
            if process::send(child, Signal::SIGSTOP).is_ok() {
                process::wait_stopped(child).await?;
            }
        }
        Ok(())
    }

    /// Lets a frozen cluster go on.
    pub fn thaw(&self) -> Result<()> {
        let postmaster = self.pid()?;
        for child in children(postmaster)? {
            let _ = process::send(child, Signal::SIGCONT);
        }
        process::send(postmaster, Signal::SIGCONT)
    }

    async fn launch(&self) -> Result<()> {
        let server = Guarded::start(&self.dir, &self.launch)?;
        server.wait_ready(READY, || self.answers()).await?;
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        Ok(())
    }

    /// Whether a whole round trip works: the port opens some time before statements are taken.
    async fn answers(&self) -> bool {
        let Ok(mut connection) = self.connect_options("postgres").connect().await else { return false };
        let answer = sqlx::query("SELECT 1").execute(&mut connection).await;
        connection.close().await.is_ok() && answer.is_ok()
    }

    async fn wait_port_free(&self) -> Result<()> {
        let what = format!("port {} to be free", self.port);
        let refused = || TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err();
        eventually(STOP, &what, || async { refused().then_some(()) }).await
    }

    fn take_server(&self) -> Result<Guarded> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(not_running)
    }

    fn with_server<T>(&self, f: impl FnOnce(&Guarded) -> Result<T>) -> Result<T> {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        server.as_ref().ok_or_else(not_running).and_then(f)
    }
}

fn not_running() -> Error {
    Error::Misuse("the PostgreSQL cluster is not running".into())
}

fn children(pid: i32) -> Result<Vec<i32>> {
    process::children(pid).map_err(Error::io("listing the backends of the cluster"))
}

async fn wait_all_gone(pids: &[i32], timeout: Duration) -> Result<()> {
    let gone = || pids.iter().all(|pid| !process::is_alive(*pid));
    eventually(timeout, "all backends to end", || async { gone().then_some(()) }).await
}
