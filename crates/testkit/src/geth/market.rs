//! A market to order: full blocks make the next ones dearer by an eighth, empty ones cheaper.

use alloy_primitives::{Address, Bytes};
use serde_json::json;

use super::{Geth, blocks::quantity};
use crate::{Error, Result};

/// A contract that burns whatever gas it is given.
pub(super) const BURNER: (Address, [u8; 1]) = (Address::repeat_byte(0xfe), [0xfe]);
/// The most gas that one transaction may ask for.
const MOST_GAS: u64 = 1 << 24;
/// Above it, a full block's fee is more than the node lets anybody pay.
const HIGHEST: u64 = 50_000_000_000;
const ENOUGH: usize = 200;

impl Geth {
    /// What a unit of gas costs in the latest block, in wei.
    pub async fn base_fee(&self) -> Result<u64> {
        Ok(self.head().await?.base_fee)
    }

    /// Mines full blocks until gas costs this much. What the pool holds is in none of them.
    pub async fn raise_base_fee(&self, to: u64) -> Result<()> {
        if to > HIGHEST {
            return Err(Error::Misuse(format!("no dearer than {HIGHEST} wei")));
        }
        self.until(to, |now| now >= to, true).await
    }

    /// Mines empty blocks until gas costs no more than this. What the pool holds is in none of them.
    pub async fn lower_base_fee(&self, to: u64) -> Result<()> {
        self.until(to, |now| now <= to, false).await
    }

    async fn until(&self, to: u64, reached: impl Fn(u64) -> bool, full: bool) -> Result<()> {
        for _ in 0..ENOUGH {
            if reached(self.base_fee().await?) {
                return Ok(());
            }
            let filling = if full { vec![self.filling().await?] } else { Vec::new() };
            self.mine_these(&filling).await?;
        }
        Err(Error::Misuse(format!("{ENOUGH} blocks did not bring the base fee to {to}")))
    }

    /// A transaction of the account whose key geth holds that fills a block.
    async fn filling(&self) -> Result<Bytes> {
        let head = self.head().await?;
        let own = self.rpc("eth_accounts", json!([])).await?[0].take();
        let nonce = self.rpc("eth_getTransactionCount", json!([own, "latest"])).await?;
        let gas = head.gas_limit.min(MOST_GAS);
        let price = format!("{:#x}", head.base_fee + head.base_fee / 8 + 1);
        let signed = self
            .rpc(
                "eth_signTransaction",
                json!([{
                    "from": own, "to": BURNER.0, "nonce": format!("{:#x}", quantity(&nonce)?),
                    "gas": format!("{gas:#x}"), "maxFeePerGas": price, "maxPriorityFeePerGas": "0x1",
                }]),
            )
            .await?;
        let raw = signed["raw"].as_str().and_then(|raw| raw.parse().ok());
        raw.ok_or_else(|| Error::Misuse(format!("geth did not sign: {signed}")))
    }
}
