//! What the market asks. Tips are the middle of what recent blocks took at a percentile per speed, empty
//! blocks left out; the total leaves room for the base fee to double. One reading serves everybody
//! until the head moves or a second has passed, so a burst of quotes costs one call.

use std::time::Duration;

use gapless_core::fees::{FeeWishes, Fees, GasPrice, Speed};
use gapless_core::intent::Options;
use gapless_core::ports::chain::{ChainResult, Quote};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::decode;
use crate::quantity::Quantity;
use crate::rpc::pool::Pool;
use crate::rpc::{Call, Reply, RpcError, Trouble};

const FRESH: Duration = Duration::from_secs(1);
const BLOCKS: &str = "0xa";
/// Slow, standard, fast.
const PERCENTILES: [u8; 3] = [20, 50, 90];
/// A legacy price per speed, in percent of what the node suggests.
const LEGACY_PERCENT: [u128; 3] = [100, 110, 125];

/// Prices read at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Market {
    Dynamic { base_fee: u128, next_base_fee: u128, tips: [u128; 3] },
    Legacy { gas_price: u128 },
}

/// The last reading.
#[derive(Debug, Default)]
pub(crate) struct MarketCache {
    last: Mutex<Option<(Market, Instant, u64)>>,
}

impl MarketCache {
    /// The market; `head` is the highest block anybody has seen.
    pub(crate) async fn market(&self, pool: &Pool, head: u64) -> ChainResult<Market> {
        let mut last = self.last.lock().await;
        if let Some((market, at, seen)) = *last
            && seen >= head
            && at.elapsed() < FRESH
        {
            return Ok(market);
        }
        let at = Instant::now();
        let market = read(pool).await?;
        *last = Some((market, at, head));
        Ok(market)
    }
}

async fn read(pool: &Pool) -> ChainResult<Market> {
    let calls = [
        Call::new("eth_getBlockByNumber", json!(["latest", false])),
        Call::new("eth_gasPrice", json!([])),
        Call::new("eth_feeHistory", json!([BLOCKS, "latest", PERCENTILES])),
    ];
    pool.read(&calls, |_, replies| Ok(market_of(replies)?)).await
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BaseFee {
    #[serde(default)]
    base_fee_per_gas: Option<Quantity<u128>>,
}

/// `eth_feeHistory`, as much as is used.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireHistory {
    base_fee_per_gas: Vec<Quantity<u128>>,
    #[serde(default)]
    gas_used_ratio: Vec<f64>,
    #[serde(default)]
    reward: Option<Vec<Vec<Quantity<u128>>>>,
}

fn market_of(replies: &[Reply]) -> Result<Market, Trouble> {
    let [head, gas_price, history] = replies else {
        return Err(Trouble::malformed("three answers were expected"));
    };
    let head: BaseFee = decode::required(answer(head)?)?;
    let Some(Quantity(base_fee)) = head.base_fee_per_gas else {
        return Ok(Market::Legacy { gas_price: decode::required::<Quantity<u128>>(answer(gas_price)?)?.0 });
    };
    let history: WireHistory = decode::required(answer(history)?)?;
    let next_base_fee = history.base_fee_per_gas.last().map_or(base_fee, |fee| fee.0);
    // When nobody has tipped lately, what the node would add to the base fee.
    let suggested = match gas_price {
        Ok(raw) => decode::required::<Quantity<u128>>(raw)?.0.saturating_sub(base_fee),
        Err(RpcError::Node(_)) => 0,
        Err(RpcError::Trouble(trouble)) => return Err(trouble.clone()),
    };
    Ok(Market::Dynamic {
        base_fee,
        next_base_fee,
        tips: [0, 1, 2].map(|speed| history.tip(speed, suggested)),
    })
}

fn answer(reply: &Reply) -> Result<&serde_json::value::RawValue, Trouble> {
    match reply {
        Ok(raw) => Ok(raw),
        Err(RpcError::Node(error)) => Err(crate::rpc::wire::refusal(error, "no price")),
        Err(RpcError::Trouble(trouble)) => Err(trouble.clone()),
    }
}

impl WireHistory {
    fn tip(&self, speed: usize, suggested: u128) -> u128 {
        let blocks = self.reward.iter().flatten().enumerate();
        // A block that used nothing says nothing; without the ratio, all count.
        let used = blocks.filter(|(at, _)| self.gas_used_ratio.get(*at).is_none_or(|ratio| *ratio > 0.0));
        let mut tips: Vec<u128> = used.filter_map(|(_, block)| Some(block.get(speed)?.0)).collect();
        tips.sort_unstable();
        tips.get(tips.len() / 2).copied().unwrap_or(suggested)
    }
}

/// Fees for a caller's wishes: what was asked stands, the market fills the rest.
pub(crate) fn quote(market: Market, options: &Options) -> Quote {
    let Options { fees: wishes, speed, .. } = options;
    let tier = match speed {
        Speed::Slow => 0,
        Speed::Standard => 1,
        Speed::Fast => 2,
    };
    let base_fee = match market {
        Market::Dynamic { base_fee, .. } => Some(GasPrice(base_fee)),
        Market::Legacy { .. } => None,
    };
    Quote { fees: fees(market, wishes, tier), base_fee }
}

fn fees(market: Market, wishes: &FeeWishes, tier: usize) -> Fees {
    if let Some(gas_price) = wishes.gas_price {
        return Fees::Legacy { gas_price };
    }
    match market {
        Market::Legacy { gas_price } => {
            let price = gas_price.saturating_mul(LEGACY_PERCENT[tier]).div_ceil(100);
            // A total that was wished for is a ceiling here: there is no base fee to fall short of it.
            Fees::Legacy {
                gas_price: GasPrice(wishes.max_fee_per_gas.map_or(price, |most| price.min(most.0))),
            }
        }
        Market::Dynamic { next_base_fee, tips, .. } => {
            let tip = wishes.max_priority_fee_per_gas.map_or(tips[tier], |tip| tip.0);
            let doubled = next_base_fee.saturating_mul(2).saturating_add(tip);
            let total = wishes.max_fee_per_gas.map_or(doubled, |total| total.0);
            Fees::Dynamic {
                max_fee_per_gas: GasPrice(total),
                max_priority_fee_per_gas: GasPrice(tip.min(total)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, value::RawValue};

    use super::*;
    use crate::rpc::NodeError;

    fn ok(value: Value) -> Reply {
        Ok(RawValue::from_string(value.to_string()).unwrap())
    }

    fn refused() -> Reply {
        Err(RpcError::Node(NodeError { code: -32601, message: "no such method".into(), data: None }))
    }

    const MARKET: Market = Market::Dynamic { base_fee: 90, next_base_fee: 100, tips: [1, 2, 3] };

    fn dynamic(total: u128, tip: u128) -> Fees {
        Fees::Dynamic { max_fee_per_gas: GasPrice(total), max_priority_fee_per_gas: GasPrice(tip) }
    }

    #[test]
    fn wishes_stand_and_the_market_fills_the_rest() {
        let none = FeeWishes::default();
        let total = |n| FeeWishes { max_fee_per_gas: Some(GasPrice(n)), ..none };
        let tip = |n| FeeWishes { max_priority_fee_per_gas: Some(GasPrice(n)), ..none };
        assert_eq!(fees(MARKET, &none, 1), dynamic(202, 2));
        assert_eq!(fees(MARKET, &none, 2), dynamic(203, 3));
        assert_eq!(fees(MARKET, &total(50), 1), dynamic(50, 2));
        assert_eq!(fees(MARKET, &total(1), 1), dynamic(1, 1));
        assert_eq!(fees(MARKET, &tip(9), 0), dynamic(209, 9));
        let legacy = |n| Fees::Legacy { gas_price: GasPrice(n) };
        let price = FeeWishes { gas_price: Some(GasPrice(7)), ..none };
        assert_eq!(fees(MARKET, &price, 1), legacy(7));
        let old = Market::Legacy { gas_price: 100 };
        assert_eq!(fees(old, &none, 0), legacy(100));
        assert_eq!(fees(old, &none, 2), legacy(125));
        assert_eq!(fees(old, &total(60), 2), legacy(60));
        assert_eq!(fees(old, &price, 2), legacy(7));
        assert_eq!(quote(MARKET, &Options::default()).base_fee, Some(GasPrice(90)));
        let greedy = Market::Dynamic { base_fee: 0, next_base_fee: u128::MAX, tips: [u128::MAX; 3] };
        assert_eq!(fees(greedy, &none, 1), dynamic(u128::MAX, u128::MAX));
    }

    #[test]
    fn tips_are_the_middle_of_blocks_that_held_something() {
        let history = json!({
            "oldestBlock": "0x1", "baseFeePerGas": ["0x5a", "0x5a", "0x5a", "0x5a", "0x64"],
            "gasUsedRatio": [0.5, 0.0, 0.5, 0.5],
            "reward": [["0x1", "0x2", "0x3"], ["0x0", "0x0", "0x0"], ["0x1", "0x4", "0x9"], ["0x7", "0x8", "0x9"]],
        });
        let market =
            market_of(&[ok(json!({"baseFeePerGas": "0x5a"})), ok(json!("0x5b")), ok(history)]).unwrap();
        assert_eq!(market, Market::Dynamic { base_fee: 90, next_base_fee: 100, tips: [1, 4, 9] });
        let empty = json!({"baseFeePerGas": ["0x5a", "0x64"], "gasUsedRatio": [0.0], "reward": [["0x0", "0x0", "0x0"]]});
        let market =
            market_of(&[ok(json!({"baseFeePerGas": "0x5a"})), ok(json!("0x5b")), ok(empty)]).unwrap();
        assert_eq!(market, Market::Dynamic { base_fee: 90, next_base_fee: 100, tips: [1; 3] });
    }

    #[test]
    fn a_chain_without_a_base_fee_is_asked_for_its_gas_price_only() {
        let head = || ok(json!({"number": "0x1"}));
        let market = market_of(&[head(), ok(json!("0x64")), refused()]).unwrap();
        assert_eq!(market, Market::Legacy { gas_price: 100 });
        assert!(market_of(&[head(), refused(), refused()]).is_err());
        assert!(market_of(&[ok(Value::Null), ok(json!("0x64")), refused()]).is_err());
    }
}
