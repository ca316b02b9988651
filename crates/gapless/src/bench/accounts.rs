//! Accounts for a run: drawn from a word, their keys in files, funded on the chain.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use alloy_primitives::{Address, hex, keccak256};
use gapless_evm::LocalSigner;
use serde_json::json;

use super::ledger::Ledger;

/// An account and its key.
pub(super) struct Account {
    pub(super) address: Address,
    pub(super) signer: LocalSigner,
    key: String,
}

/// A million ether, in wei: enough for any window of any node that gives its coin away.
const FUNDS: &str = "0xd3c21bcecceda1000000";

/// Draws so many accounts. Another word gives others, whose nonces begin at zero.
pub(super) fn draw(word: &str, count: u64) -> anyhow::Result<Vec<Account>> {
    (0..count).map(|number| account(word, number)).collect()
}

/// Draws and funds so many accounts.
pub(super) async fn make(word: &str, count: u64, chain: &Ledger) -> anyhow::Result<Vec<Account>> {
    let accounts = draw(word, count)?;
    fund(&accounts, chain).await?;
    Ok(accounts)
}

/// Gives each account coin, on a node that gives it away.
pub(super) async fn fund(accounts: &[Account], chain: &Ledger) -> anyhow::Result<()> {
    let funding: Vec<_> =
        accounts.iter().map(|account| ("anvil_setBalance", json!([account.address, FUNDS]))).collect();
    chain.batch::<serde_json::Value>(&funding).await?;
    Ok(())
}

fn account(word: &str, number: u64) -> anyhow::Result<Account> {
    let key = hex::encode_prefixed(keccak256(format!("gapless bench {word} {number}")));
    let signer = LocalSigner::from_hex(&key, None)?;
    Ok(Account { address: signer.address(), signer, key })
}

impl Account {
    /// Writes the key where only its owner can read it.
    pub(super) fn key_file(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let path = folder.join(format!("bench-key-{}", self.address));
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(self.key.as_bytes())?;
        Ok(path)
    }
}
