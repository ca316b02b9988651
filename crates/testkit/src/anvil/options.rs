//! How a node is set up.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

/// How to set up a node.
#[derive(Clone, Debug)]
pub struct AnvilOptions {
    /// The chain's id.
    pub chain_id: u64,
    /// Time between blocks; `None` mines each transaction as it comes.
    pub block_time: Option<Duration>,
    /// How many funded accounts the node holds keys of.
    pub accounts: u32,
    /// Whether the chain is kept over an orderly stop and restart.
    pub keep_state: bool,
    /// Further command line arguments.
    pub extra_args: Vec<String>,
}

impl Default for AnvilOptions {
    fn default() -> Self {
        Self { chain_id: 31337, block_time: None, accounts: 10, keep_state: false, extra_args: Vec::new() }
    }
}

impl AnvilOptions {
    pub(super) fn args(&self, dir: &Path) -> Vec<OsString> {
        let mut args: Vec<OsString> = Vec::new();
        let mut option = |name: &str, value: OsString| args.extend([name.into(), value]);
        option("--chain-id", self.chain_id.to_string().into());
        option("--accounts", self.accounts.to_string().into());
        if let Some(block_time) = self.block_time {
            option("--block-time", block_time.as_secs_f64().to_string().into());
        }
        if self.keep_state {
            option("--state", state_file(dir).into());
        }
        args.extend(self.extra_args.iter().map(OsString::from));
        args
    }
}

pub(super) fn state_file(dir: &Path) -> PathBuf {
    dir.join("state.json")
}
