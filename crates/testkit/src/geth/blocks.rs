//! Blocks to order, and chains that change their mind.

use std::{
    sync::atomic::Ordering,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use alloy_primitives::{Address, B256, Bytes, U256};
use serde_json::{Value, json};

use super::{Geth, Mining};
use crate::{Error, Result, wait::eventually};

const SOON: Duration = Duration::from_secs(20);

/// The latest block, as far as it matters here.
pub(super) struct Head {
    pub(super) hash: B256,
    /// Whether the node made it unasked.
    pub(super) by_itself: bool,
    pub(super) base_fee: u64,
    pub(super) gas_limit: u64,
    number: u64,
    time: u64,
}

impl Geth {
    /// Mines so many blocks, the first with what the pool holds.
    pub async fn mine(&self, blocks: u64) -> Result<()> {
        self.settled().await?;
        for _ in 0..blocks {
            self.block(Value::Null, json!([])).await?;
        }
        self.settled().await
    }

    /// Mines a block with exactly these transactions, whatever the pool holds.
    pub async fn mine_these(&self, raw: &[Bytes]) -> Result<()> {
        self.block(json!(raw), json!([])).await
    }

    /// Replaces the last blocks by as many empty ones. What was in them is in no pool afterwards.
    pub async fn reorg(&self, depth: u64) -> Result<()> {
        let below = self.head().await?.number.checked_sub(depth);
        let below = below.ok_or_else(|| Error::Misuse(format!("there are no {depth} blocks to replace")))?;
        self.rpc("debug_setHead", json!([format!("{below:#x}")])).await?;
        for _ in 0..depth {
            self.mine_these(&[]).await?;
        }
        Ok(())
    }

    /// Gives an account money, in a block that is mined for it; by no transaction, so no nonce is used.
    /// The pool learns of it a moment later.
    pub async fn fund(&self, account: Address, gwei: u64) -> Result<()> {
        let unique = self.made.fetch_add(1, Ordering::Relaxed);
        let gift = json!({
            "index": format!("{unique:#x}"), "validatorIndex": "0x0",
            "address": account, "amount": format!("{gwei:#x}"),
        });
        if self.options.mining == Mining::WhenTold {
            return self.block(json!([]), json!([gift])).await;
        }
        let before = self.balance(account).await?;
        self.rpc("dev_addWithdrawal", json!([gift])).await?;
        eventually(SOON, "the money", || async {
            self.balance(account).await.is_ok_and(|now| now > before).then_some(())
        })
        .await
    }

    pub(super) async fn head(&self) -> Result<Head> {
        let block = self.rpc("eth_getBlockByNumber", json!(["latest", false])).await?;
        Ok(Head {
            hash: text(&block["hash"])?.parse().map_err(|_| odd(&block))?,
            by_itself: text(&block["miner"])?.parse::<Address>().map_err(|_| odd(&block))? != Address::ZERO,
            base_fee: quantity(&block["baseFeePerGas"])?,
            gas_limit: quantity(&block["gasLimit"])?,
            number: quantity(&block["number"])?,
            time: quantity(&block["timestamp"])?,
        })
    }

    async fn balance(&self, account: Address) -> Result<U256> {
        let balance = self.rpc("eth_getBalance", json!([account, "latest"])).await?;
        text(&balance)?.parse().map_err(|_| odd(&balance))
    }

    /// Mines one block: with the pool's transactions if there is no list of others.
    async fn block(&self, transactions: Value, withdrawals: Value) -> Result<()> {
        #[expect(clippy::disallowed_methods, reason = "blocks of a real chain carry the real time")]
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let time = now.max(self.head().await?.time + 1);
        let unique = U256::from(self.made.fetch_add(1, Ordering::Relaxed));
        let attributes = json!({
            "timestamp": format!("{time:#x}"),
            // So that no two blocks are alike, even if they are as empty and follow the same one.
            "prevRandao": B256::from(unique),
            "suggestedFeeRecipient": Address::ZERO,
            "withdrawals": withdrawals,
            "parentBeaconBlockRoot": B256::ZERO,
        });
        self.rpc("testing_commitBlockV1", json!([attributes, transactions, null])).await.map(drop)
    }

    /// Waits until the pool has sorted what it was sent and what was mined: geth answers first, and finds out
    /// afterwards what could go into the next block and what went into the last.
    async fn settled(&self) -> Result<()> {
        let sorted = || async { self.is_sorted().await.is_ok_and(|sorted| sorted).then_some(()) };
        eventually(SOON, "the pool to be sorted", sorted).await
    }

    async fn is_sorted(&self) -> Result<bool> {
        let pool = self.rpc("txpool_content", json!([])).await?;
        for (part, tag) in [("queued", "pending"), ("pending", "latest")] {
            for (account, held) in pool[part].as_object().ok_or_else(|| odd(&pool))? {
                let count = self.rpc("eth_getTransactionCount", json!([account, tag])).await?;
                let count = quantity(&count)?;
                let nonces = held.as_object().ok_or_else(|| odd(&pool))?.keys();
                let lowest = nonces.filter_map(|nonce| nonce.parse::<u64>().ok()).min();
                let is_due = |nonce| if part == "queued" { nonce <= count } else { nonce < count };
                if lowest.is_some_and(is_due) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().ok_or_else(|| odd(value))
}

pub(super) fn quantity(value: &Value) -> Result<u64> {
    u64::from_str_radix(text(value)?.trim_start_matches("0x"), 16).map_err(|_| odd(value))
}

fn odd(value: &Value) -> Error {
    Error::Misuse(format!("geth answered oddly: {value}"))
}
