//! Accounts for a run: drawn from a number, their keys in files, funded on the local chain.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use alloy_primitives::{Address, hex, keccak256};
use gapless_evm::LocalSigner;
use serde_json::json;

use super::ledger::Ledger;

/// An account and where its key lies.
pub(super) struct Account {
    pub(super) address: Address,
    pub(super) key_file: PathBuf,
}

/// A thousand ether, in wei.
const FUNDS: &str = "0x3635c9adc5dea00000";

/// Makes and funds so many accounts.
pub(super) async fn make(folder: &Path, count: u16, chain: &Ledger) -> anyhow::Result<Vec<Account>> {
    let accounts = (0..count).map(|number| account(folder, number)).collect::<anyhow::Result<Vec<_>>>()?;
    for account in &accounts {
        chain.call("anvil_setBalance", json!([account.address, FUNDS])).await?;
    }
    Ok(accounts)
}

fn account(folder: &Path, number: u16) -> anyhow::Result<Account> {
    let key = hex::encode_prefixed(keccak256(format!("gapless bench {number}")));
    let key_file = folder.join(format!("bench-key-{number}"));
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&key_file)?;
    file.write_all(key.as_bytes())?;
    let signer = LocalSigner::from_hex(&key, None)?;
    Ok(Account { address: signer.address(), key_file })
}
