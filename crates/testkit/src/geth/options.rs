//! How a node is set up.

use std::time::Duration;

use alloy_primitives::{Address, Bytes};

/// When blocks come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mining {
    /// With each transaction, and only then: nothing gets deeper by itself.
    OnDemand,
    /// At this distance, in whole seconds.
    Every(Duration),
    /// When [`Geth::mine`](super::Geth::mine) says so, and one empty block at each start.
    WhenTold,
}

/// How to set up a node.
#[derive(Clone, Debug)]
pub struct GethOptions {
    /// The chain's id; by default anvil's, so that a test's accounts are the same on either node.
    pub chain_id: u64,
    /// When blocks come.
    pub mining: Mining,
    /// Contracts that are there from the start.
    pub code: Vec<(Address, Bytes)>,
    /// Whether the pool is kept over a restart, as geth does unless told otherwise; it is back ten seconds later.
    ///
    /// With it comes another habit: what a full pool or a price above its own turned away is answered with success,
    /// kept aside and tried again later. Without it, every refusal is told, and a restart empties the pool.
    pub keep_pool: bool,
    /// Further command line arguments.
    pub extra_args: Vec<String>,
}

impl Default for GethOptions {
    fn default() -> Self {
        Self {
            chain_id: 31337,
            mining: Mining::OnDemand,
            code: Vec::new(),
            keep_pool: false,
            extra_args: Vec::new(),
        }
    }
}

impl GethOptions {
    /// All but where its files and ports are.
    pub(super) fn args(&self) -> Vec<String> {
        const NEVER: u64 = 86_400 * 365;
        let period = match self.mining {
            Mining::OnDemand => 0,
            Mining::Every(distance) => distance.as_secs().max(1),
            Mining::WhenTold => NEVER,
        };
        let apis = "eth,net,web3,txpool,admin,debug,miner,dev,testing";
        let mut args: Vec<String> = ["--dev", "--dev.period"].map(Into::into).into();
        args.push(period.to_string());
        args.extend(["--http", "--http.addr", "127.0.0.1", "--http.api", apis].map(Into::into));
        args.extend(["--ws", "--ws.addr", "127.0.0.1", "--ws.api", apis].map(Into::into));
        // Of a machine with two processors and a dozen nodes. The port is one that nobody else asks for.
        args.extend(["--cache", "32", "--verbosity", "2", "--ipcdisable", "--nodiscover"].map(Into::into));
        args.extend(
            ["--maxpeers", "0", "--port", "0", "--nat", "none", "--authrpc.port", "0"].map(Into::into),
        );
        if !self.keep_pool {
            args.push("--txpool.nolocals".into());
        }
        args.extend(self.extra_args.iter().cloned());
        args
    }
}
