//! A real Ethereum node for tests: Foundry's `anvil`, killed, frozen and restarted like any server.

mod binary;
mod options;

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};

pub use options::AnvilOptions;

use crate::{
    Error, Result, json_rpc,
    process::{Guarded, Launch, ScratchDir, Signal, free_port},
};

const READY: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(10);

/// A running node. Dropping it stops the node and removes its folder.
#[derive(Debug)]
pub struct Anvil {
    // Before the folder, so that the node is told to stop first.
    server: Mutex<Option<Guarded>>,
    launch: Launch,
    port: u16,
    dir: ScratchDir,
}

impl Anvil {
    /// Starts a node and waits until it answers.
    pub async fn start(options: AnvilOptions) -> Result<Self> {
        let program = binary::find()?;
        let dir = ScratchDir::new("gapless-anvil-", None)?;
        let port = free_port()?;
        let mut launch = Launch::new(program).args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        // By default it writes below the user's home folder.
        launch = launch.arg("--cache-path").arg(dir.path().join("cache"));
        launch = launch.args(options.args(dir.path()));
        launch.stop = Signal::SIGINT;

        let node = Self { server: Mutex::new(None), launch, port, dir };
        node.launch().await?;
        Ok(node)
    }

    /// Where it answers JSON-RPC over HTTP.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Where it answers JSON-RPC over WebSocket.
    pub fn ws_url(&self) -> String {
        format!("ws://127.0.0.1:{}", self.port)
    }

    /// The loopback port it listens on; the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The node's process id.
    pub fn pid(&self) -> Result<i32> {
        self.with_server(|server| Ok(server.pid()))
    }

    /// The file that keeps its chain over an orderly restart, if [`AnvilOptions::keep_state`] is set.
    pub fn state_file(&self) -> PathBuf {
        options::state_file(self.dir.path())
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> Result<String> {
        self.with_server(|server| Ok(server.log_tail()))
    }

    /// Kills the node, and returns when it is gone. Its chain since the last orderly stop is lost.
    pub async fn kill9(&self) -> Result<()> {
        let server = self.take_server()?;
        server.kill9()?;
        server.wait_status(STOP).await?;
        Ok(())
    }

    /// Stops the node in an orderly way.
    pub async fn stop(&self) -> Result<()> {
        let server = self.take_server()?;
        server.signal(Signal::SIGINT)?;
        server.wait_status(STOP).await?;
        Ok(())
    }

    /// Starts the node again on the same port, after stopping it if it runs. The chain is the kept one, or a new
    /// one if none was kept.
    pub async fn restart(&self) -> Result<()> {
        if self.pid().is_ok() {
            self.stop().await?;
        }
        self.launch().await
    }

    /// Stops the node in mid-step: connections stay open, and nothing is answered or mined.
    pub async fn freeze(&self) -> Result<()> {
        let pid = self.pid()?;
        crate::process::send(pid, Signal::SIGSTOP)?;
        crate::process::wait_stopped(pid).await
    }

    /// Lets a frozen node go on.
    pub fn thaw(&self) -> Result<()> {
        self.with_server(Guarded::thaw)
    }

    /// Calls one method and returns its result.
    pub async fn rpc(&self, method: &str, params: Value) -> Result<Value> {
        json_rpc::call(&self.url(), method, params).await
    }

    async fn launch(&self) -> Result<()> {
        let server = Guarded::start(&self.dir, &self.launch)?;
        server.wait_ready(READY, || async { self.rpc("eth_chainId", json!([])).await.is_ok() }).await?;
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        Ok(())
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
    Error::Misuse("the node is not running".into())
}
