//! A local chain that ends with this process, however that ends.
//!
//! A killed process runs no destructors. So the chain runs under a small `sh` that reads a pipe whose other end this
//! process holds: when the pipe closes, for whatever reason, the chain is ended and its folder removed.

use std::env;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};

const WATCHDOG: &str = r#"
folder=$1
shift
"$@" </dev/null >"$folder/anvil.log" 2>&1 &
pid=$!
trap '' HUP INT TERM PIPE
echo "$pid"
read -r word
kill -s INT "$pid"
n=0
while kill -0 "$pid" && [ "$n" -lt 40 ]; do
  sleep 0.05
  n=$((n + 1))
done
kill -s KILL "$pid"
wait "$pid"
rm -rf -- "$folder"
"#;

/// How long it may take to answer.
const TRIES: u32 = 300;
const PAUSE: Duration = Duration::from_millis(100);

/// A running chain.
pub(crate) struct Anvil {
    port: u16,
    watchdog: Child,
    lifeline: Option<ChildStdin>,
}

impl Anvil {
    /// Starts a chain with a block a second. The folder is removed when it ends.
    pub(crate) async fn start(folder: &Path) -> anyhow::Result<Self> {
        let program = find()?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut command = Command::new("sh");
        command.args(["-c", WATCHDOG, "gapless-dev-watchdog"]).arg(folder).arg(program);
        command.args([
            "--host",
            "127.0.0.1",
            "--port",
            &port.to_string(),
            "--chain-id",
            "31337",
            "--block-time",
            "1",
        ]);
        // By default it writes below the user's home folder.
        command.arg("--cache-path").arg(folder.join("cache"));
        // A group of its own: an interrupt typed at the terminal is for us; we then close the pipe.
        command
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut watchdog = command.spawn().context("starting the chain")?;
        let (lifeline, stdout) = (watchdog.stdin.take(), watchdog.stdout.take());
        let mut line = String::new();
        BufReader::new(stdout.context("starting the chain")?)
            .read_line(&mut line)
            .context("starting the chain")?;
        let chain = Self { port, watchdog, lifeline };
        for _ in 0..TRIES {
            if chain.answers().await {
                return Ok(chain);
            }
            tokio::time::sleep(PAUSE).await;
        }
        let log = std::fs::read_to_string(folder.join("anvil.log")).unwrap_or_default();
        bail!("the local chain (anvil) does not answer:\n{log}")
    }

    /// Where it answers JSON-RPC.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    async fn answers(&self) -> bool {
        let Ok(client) = reqwest::Client::builder().no_proxy().build() else { return false };
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": [] });
        let Ok(response) = client.post(self.url()).json(&call).send().await else { return false };
        response.json::<Value>().await.is_ok_and(|answer| answer["result"] == "0x7a69")
    }
}

impl Drop for Anvil {
    fn drop(&mut self) {
        self.lifeline = None;
        // Without waiting here, the shell could still be at work when the next start looks for the port.
        let _ = self.watchdog.wait();
    }
}

/// The program named in `GAPLESS_ANVIL`, or one in a `.tools` folder here or above, or one in `PATH`.
///
/// npm's `.bin/anvil` is a wrapper that starts the chain as its child; signals must reach the chain itself, so the
/// native program beside the wrapper is taken.
fn find() -> anyhow::Result<PathBuf> {
    if let Some(named) = env::var_os("GAPLESS_ANVIL").map(PathBuf::from) {
        return native(&named).with_context(|| format!("GAPLESS_ANVIL={} is no program", named.display()));
    }
    let here = env::current_dir()?;
    let in_tools = here.ancestors().map(|folder| folder.join(".tools/node_modules/.bin/anvil"));
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|folder| folder.join("anvil"));
    let found = in_tools.chain(in_path.collect::<Vec<_>>()).find_map(|candidate| native(&candidate));
    found.context(
        "anvil, the local chain, is not installed; install it with `npm install --prefix .tools @foundry-rs/anvil`, or \
         name the program in GAPLESS_ANVIL",
    )
}

/// A candidate itself, or the native program that an npm wrapper would start.
fn native(candidate: &Path) -> Option<PathBuf> {
    let file = candidate.canonicalize().ok().filter(|file| file.is_file())?;
    if file.extension().is_none_or(|extension| extension != "mjs") {
        return Some(file);
    }
    let scope = file.parent()?.parent()?;
    let system = if cfg!(target_os = "macos") { "darwin" } else { "linux" };
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    Some(scope.join(format!("anvil-{system}-{machine}/bin/anvil"))).filter(|native| native.is_file())
}
