//! A server under a watchdog.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use nix::{sys::signal, unistd::Pid};

use super::{
    Owner, ScratchDir, Signal,
    inspect::{is_alive, is_stopped},
    scratch::collect,
};
use crate::{Error, Result, wait::eventually};

/// Starts the server, reports its id, and blocks until the pipe on its input closes or is told to let go.
///
/// It never collects the server before that, so the id it reported cannot be taken by another process while
/// somebody may still send signals to it. A frozen server is woken, or it would not see the signal to stop.
const WATCHDOG: &str = r#"
log=$1 signal=$2 tries=$3
shift 3
"$@" </dev/null >>"$log" 2>&1 &
pid=$!
trap '' HUP INT TERM PIPE
echo "$pid"
read -r word
if [ "$word" != collect ]; then
  kill -s "$signal" "$pid"
  kill -s CONT "$pid"
  n=0
  while kill -0 "$pid" && [ "$n" -lt "$tries" ]; do
    sleep 0.05
    n=$((n + 1))
  done
  [ "$n" -lt "$tries" ] || kill -s KILL "$pid"
fi
wait "$pid"
echo "$?"
"#;

/// How much of a server's log an error shows.
const TAIL_LINES: usize = 25;

/// What to start and how to end it.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program's file.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// The user to run as, where not ourselves.
    pub owner: Option<Owner>,
    /// The log's file name inside the scratch folder; appended to if it exists.
    pub log: String,
    /// The signal that asks the server to stop.
    pub stop: Signal,
    /// How long it may take over that before it is killed.
    pub grace: Duration,
}

impl Launch {
    /// The program without arguments, run as ourselves, asked to stop by `SIGTERM` and given five seconds.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let program = program.into();
        let log = program.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        Self {
            log: format!("{log}.log"),
            program,
            args: Vec::new(),
            owner: None,
            stop: Signal::SIGTERM,
            grace: Duration::from_secs(5),
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds several arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }
}

/// A running server that is stopped when this value is dropped or this process ends, however it ends.
#[derive(Debug)]
pub struct Guarded {
    name: String,
    pid: i32,
    log: PathBuf,
    watchdog: Option<(Child, ChildStdin, BufReader<ChildStdout>)>,
}

impl Guarded {
    /// Starts the server; its output goes to a log in `dir`, which stays at least as long as the server.
    pub fn start(dir: &ScratchDir, launch: &Launch) -> Result<Self> {
        let name = launch.program.display().to_string();
        let log = dir.path().join(&launch.log);
        let starting = || format!("starting {name} under its watchdog");
        let signal = launch.stop.as_str().trim_start_matches("SIG");
        let tries = (launch.grace.as_millis() / 50).max(1).to_string();

        let mut command = Command::new("sh");
        command.args(["-c", WATCHDOG, "watchdog"]).arg(&log).args([signal, &tries]);
        command.arg(&launch.program).args(&launch.args).current_dir(dir.path()).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // The watchdog has nothing to say on this channel; holding it open is what keeps the folder.
        command.stderr(dir.hold().map_err(Error::io(starting()))?);
        if let Some(owner) = launch.owner {
            command.uid(owner.uid).gid(owner.gid);
        }
        let mut child = command.spawn().map_err(Error::io(starting()))?;

        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Misuse(starting()));
        };
        let mut stdout = BufReader::new(stdout);
        let pid = read_number(&mut stdout).map_err(Error::io(starting()))?;
        Ok(Self { name, pid, log, watchdog: Some((child, stdin, stdout)) })
    }

    /// The server's own process id, not its watchdog's.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Where its output goes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its output.
    pub fn log_tail(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    /// Sends a signal to the server.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        send(self.pid, signal)
    }

    /// Ends the server without giving it a chance to tidy up. [`Self::wait_gone`] tells when it has ended.
    pub fn kill9(&self) -> Result<()> {
        self.signal(Signal::SIGKILL)
    }

    /// Stops the server in mid-step, as a long pause of its machine would. Returns when it stands still.
    pub async fn freeze(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        wait_stopped(self.pid).await
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Whether the server is still running (a frozen one is).
    pub fn is_alive(&self) -> bool {
        is_alive(self.pid)
    }

    /// Waits until the server has ended.
    pub async fn wait_gone(&self, timeout: Duration) -> Result<()> {
        let what = format!("{} (process {}) to end", self.name, self.pid);
        eventually(timeout, &what, || async { (!self.is_alive()).then_some(()) }).await
    }

    /// Waits until the server has ended by itself, clears its entry from the process table, and returns its
    /// exit status as a shell counts it: 128 and the signal's number if a signal ended it.
    pub async fn wait_status(mut self, timeout: Duration) -> Result<i32> {
        self.wait_gone(timeout).await?;
        let collecting = || format!("collecting {} (process {})", self.name, self.pid);
        let Some((mut child, mut stdin, mut stdout)) = self.watchdog.take() else {
            return Err(Error::Misuse(collecting()));
        };
        // Short and blocking: the server has ended, so the shell answers at once.
        stdin.write_all(b"collect\n").map_err(Error::io(collecting()))?;
        let status = read_number(&mut stdout).map_err(Error::io(collecting()))?;
        child.wait().map_err(Error::io(collecting()))?;
        Ok(status)
    }

    /// Waits until `probe` finds the server ready; fails with the end of its log if it ends or takes too long.
    pub async fn wait_ready<F, Fut>(&self, timeout: Duration, mut probe: F) -> Result<()>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = bool>,
    {
        let look = || {
            let ready = probe();
            async move {
                if ready.await {
                    return Some(Ok(()));
                }
                (!self.is_alive()).then(|| Err(self.ended()))
            }
        };
        match eventually(timeout, "the server to become ready", look).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.not_ready(timeout)),
        }
    }

    fn ended(&self) -> Error {
        let (program, log) = (self.name.clone(), self.log.clone());
        Error::Ended { program, status: None, log, tail: self.log_tail() }
    }

    fn not_ready(&self, waited: Duration) -> Error {
        Error::NotReady { program: self.name.clone(), waited, log: self.log.clone(), tail: self.log_tail() }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some((child, stdin, stdout)) = self.watchdog.take() {
            drop((stdin, stdout));
            collect(child);
        }
    }
}

/// Sends a signal to one process.
pub fn send(pid: i32, signal: Signal) -> Result<()> {
    signal::kill(Pid::from_raw(pid), signal).map_err(|source| Error::Signal {
        signal: signal.as_str(),
        pid,
        source,
    })
}

/// Waits until a process to which `SIGSTOP` was sent stands still.
pub(crate) async fn wait_stopped(pid: i32) -> Result<()> {
    let what = format!("process {pid} to stand still");
    eventually(Duration::from_secs(5), &what, || async { (is_stopped(pid) || !is_alive(pid)).then_some(()) })
        .await
}

fn read_number(from: &mut impl BufRead) -> std::io::Result<i32> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    line.trim().parse().map_err(|_| std::io::Error::other(format!("the watchdog said `{}`", line.trim())))
}
