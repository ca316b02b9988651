//! How one submitter is to be run.

use std::time::Duration;

use gapless_core::fees::{Fees, GasPrice};
use gapless_core::ids::Nonce;
use gapless_core::plan::{Mode, NonceRules, ReleaseAt};

/// Ceilings that nothing may exceed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FeeCaps {
    /// On the total per gas (or the legacy price).
    pub max_fee_per_gas: Option<GasPrice>,
    /// On the tip.
    pub max_priority_fee_per_gas: Option<GasPrice>,
}

impl FeeCaps {
    /// Fees within the caps.
    #[must_use]
    pub fn apply(&self, fees: Fees) -> Fees {
        let below = |price: GasPrice, cap: Option<GasPrice>| cap.map_or(price, |cap| price.min(cap));
        match fees {
            Fees::Dynamic { max_fee_per_gas, max_priority_fee_per_gas } => {
                let total = below(max_fee_per_gas, self.max_fee_per_gas);
                let tip = below(max_priority_fee_per_gas, self.max_priority_fee_per_gas).min(total);
                Fees::Dynamic { max_fee_per_gas: total, max_priority_fee_per_gas: tip }
            }
            Fees::Legacy { gas_price } => Fees::Legacy { gas_price: below(gas_price, self.max_fee_per_gas) },
        }
    }
}

/// The settings of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneSettings {
    /// Strict or pipelined, and when the next nonce may go.
    pub rules: NonceRules,
    /// What the start nonce must be, if the operator insists.
    pub start_from: Option<Nonce>,
    /// Blocks after inclusion that make an end.
    pub confirmations: u64,
    /// How often to send the same bytes again; none never does.
    pub resubmit: Option<Duration>,
    /// How often to compare with the chain while live.
    pub reconcile: Duration,
    /// How often to ask for receipts although no block said so.
    pub stale_receipts: Duration,
    /// How long to wait before trying what did not work again.
    pub retry: Duration,
    /// Fee ceilings.
    pub caps: FeeCaps,
}

/// As good as never.
const NEVER: Duration = Duration::from_secs(86_400 * 365);

impl LaneSettings {
    /// When the same bytes are due again although a node has them.
    #[must_use]
    pub const fn resubmit_after(&self) -> Duration {
        match self.resubmit {
            Some(interval) => interval,
            None => NEVER,
        }
    }
}

impl Default for LaneSettings {
    fn default() -> Self {
        Self {
            rules: NonceRules { mode: Mode::Strict, release_at: ReleaseAt::Mined, max_in_flight: 64 },
            start_from: None,
            confirmations: 20,
            resubmit: Some(Duration::from_secs(60)),
            reconcile: Duration::from_secs(5),
            stale_receipts: Duration::from_secs(60),
            retry: Duration::from_secs(1),
            caps: FeeCaps::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caps_keep_the_tip_below_the_total() {
        let caps = FeeCaps { max_fee_per_gas: Some(GasPrice(10)), max_priority_fee_per_gas: None };
        let fees = Fees::Dynamic { max_fee_per_gas: GasPrice(100), max_priority_fee_per_gas: GasPrice(50) };
        let capped = Fees::Dynamic { max_fee_per_gas: GasPrice(10), max_priority_fee_per_gas: GasPrice(10) };
        assert_eq!(caps.apply(fees), capped);
        assert_eq!(FeeCaps::default().apply(fees), fees);
    }
}
