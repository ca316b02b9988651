//! A second real Ethereum node for tests: `geth --dev`, which holds to rules that anvil does not know.
//!
//! A replacement must be dearer by a tenth in both its fees, refusals come in the words of most of the world's nodes,
//! and its pool forgets. Its accounts and their money are anvil's.

mod binary;
mod blocks;
mod genesis;
mod market;
mod options;

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use alloy_primitives::B256;
use serde_json::{Value, json};

pub use options::{GethOptions, Mining};

use crate::{
    Error, Result, json_rpc,
    process::{Guarded, Launch, ScratchDir, Signal, free_port},
    wait::eventually,
};

const READY: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(30);

/// A running node. Dropping it stops the node and removes its folder.
#[derive(Debug)]
pub struct Geth {
    // Before the folder, so that the node is told to stop first.
    server: Mutex<Option<Guarded>>,
    program: PathBuf,
    options: GethOptions,
    port: u16,
    /// The block that the latest start brought.
    first: Mutex<B256>,
    /// How many blocks and gifts were ordered: each carries its number.
    made: AtomicU64,
    dir: ScratchDir,
}

impl Geth {
    /// Starts a node and waits until it answers.
    pub async fn start(options: GethOptions) -> Result<Self> {
        let (program, port) = (binary::find()?, free_port()?);
        let dir = ScratchDir::new("gapless-geth-", None)?;
        let (server, first, made) = (Mutex::new(None), Mutex::new(B256::ZERO), AtomicU64::new(1));
        let node = Self { server, program, options, port, first, made, dir };
        genesis::lay(&node.program, node.dir.path(), &node.data(), &node.options).await?;
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

    /// The chain's id.
    pub fn chain_id(&self) -> u64 {
        self.options.chain_id
    }

    /// The node's process id.
    pub fn pid(&self) -> Result<i32> {
        self.with_server(|server| Ok(server.pid()))
    }

    /// The folder of its chain, its pool's journal and its keys.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> Result<String> {
        self.with_server(|server| Ok(server.log_tail()))
    }

    /// Kills the node, and returns when it is gone. Blocks since the last orderly stop may be lost.
    pub async fn kill9(&self) -> Result<()> {
        let server = self.take_server()?;
        server.kill9()?;
        server.wait_status(STOP).await.map(drop)
    }

    /// Stops the node in an orderly way.
    pub async fn stop(&self) -> Result<()> {
        let server = self.take_server()?;
        server.signal(Signal::SIGINT)?;
        server.wait_status(STOP).await.map(drop)
    }

    /// Starts the node again on the same port with the same chain, after stopping it if it runs. Its pool is empty
    /// unless [`GethOptions::keep_pool`] is set.
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
        let port = self.port.to_string();
        let mut launch = Launch::new(&self.program).arg("--datadir").arg(self.data());
        launch = launch.args(["--http.port", &port, "--ws.port", &port]).args(self.options.args());
        launch.stop = Signal::SIGINT;
        let server = Guarded::start(&self.dir, &launch)?;
        server.wait_ready(READY, || async { self.rpc("eth_chainId", json!([])).await.is_ok() }).await?;
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        if self.options.mining == Mining::WhenTold { self.first_block().await } else { Ok(()) }
    }

    /// Waits for the block that comes with a start, lest it comes in between the blocks of a test.
    async fn first_block(&self) -> Result<()> {
        let before = *self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let first = eventually(READY, "the block that comes with a start", || async {
            let head = self.head().await.ok()?;
            (head.by_itself && head.hash != before).then_some(head.hash)
        })
        .await?;
        *self.first.lock().unwrap_or_else(PoisonError::into_inner) = first;
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
