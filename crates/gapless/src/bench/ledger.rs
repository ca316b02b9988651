//! What the chain itself says, read without any of our own parts.

use std::collections::BTreeMap;

use alloy_primitives::Address;
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

/// A chain's JSON-RPC.
pub(super) struct Ledger {
    http: reqwest::Client,
    url: String,
}

/// The mined transactions of an account: (block, nonce), as they stand on the chain.
pub(super) type Mined = BTreeMap<Address, Vec<(u64, u64)>>;

impl Ledger {
    pub(super) fn new(url: String) -> anyhow::Result<Self> {
        Ok(Self { http: reqwest::Client::builder().no_proxy().build()?, url })
    }

    pub(super) async fn call(&self, method: &str, params: Value) -> anyhow::Result<Value> {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer: Value = self.http.post(&self.url).json(&call).send().await?.json().await?;
        match answer.get("result") {
            Some(result) => Ok(result.clone()),
            None => bail!("{method}: {}", answer["error"]),
        }
    }

    pub(super) async fn height(&self) -> anyhow::Result<u64> {
        number(&self.call("eth_blockNumber", json!([])).await?)
    }

    /// Everything these accounts have on the chain above a block.
    pub(super) async fn mined_above(&self, block: u64, accounts: &[Address]) -> anyhow::Result<Mined> {
        let mut mined: Mined = accounts.iter().map(|address| (*address, Vec::new())).collect();
        for height in block + 1..=self.height().await? {
            let found = self.call("eth_getBlockByNumber", json!([format!("{height:#x}"), true])).await?;
            for tx in found["transactions"].as_array().context("a block without transactions")? {
                let sender: Address = serde_json::from_value(tx["from"].clone())?;
                if let Some(of_sender) = mined.get_mut(&sender) {
                    of_sender.push((height, number(&tx["nonce"])?));
                }
            }
        }
        Ok(mined)
    }
}

/// Fails unless every account has exactly `each` transactions with the nonces from 0 without a hole.
pub(super) fn contiguous(mined: &Mined, each: u64) -> anyhow::Result<()> {
    for (address, found) in mined {
        let nonces: Vec<u64> = found.iter().map(|(_, nonce)| *nonce).collect();
        ensure!(
            nonces == (0..each).collect::<Vec<_>>(),
            "the chain shows nonces {nonces:?} of {address}, expected 0 to {}",
            each - 1
        );
    }
    Ok(())
}

fn number(value: &Value) -> anyhow::Result<u64> {
    let text = value.as_str().context("a quantity is a text")?;
    u64::from_str_radix(text.trim_start_matches("0x"), 16).with_context(|| format!("`{text}` is no quantity"))
}
