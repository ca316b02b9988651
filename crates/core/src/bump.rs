//! What a dearer attempt must offer, as arithmetic.
//!
//! A node replaces a pooled transaction only if every fee component rises by a tenth; less is refused, and a component
//! that stayed behind makes the whole bid worthless. So a bid is made per component, rounded up, over the dearest price
//! the slot ever saw, and it is made within the caps or not at all.

use std::time::Duration;

use crate::attempt::StoredAttempt;
use crate::fees::{FeeCaps, FeeWishes, Fees, GasPrice};
use crate::ports::policy::{BumpContext, GasBumpPolicy};

/// By how much a bid exceeds the last one, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Multiplier(pub u32);

impl Multiplier {
    /// A price times this, rounded up; none beyond all prices.
    fn of(self, price: GasPrice) -> Option<GasPrice> {
        let (whole, rest) = (price.0 / 1_000_000, price.0 % 1_000_000);
        let factor = u128::from(self.0);
        let rest = (rest * factor).div_ceil(1_000_000);
        whole.checked_mul(factor)?.checked_add(rest).map(GasPrice)
    }
}

/// When and how much dearer attempts are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BumpRules {
    /// Whether at all.
    pub enabled: bool,
    /// Not sooner after the slot's last attempt.
    pub min_interval: Duration,
    /// Most attempts that only differ in price, per slot.
    pub max_attempts: u32,
    /// By how much.
    pub multiplier: Multiplier,
}

impl Default for BumpRules {
    fn default() -> Self {
        Self {
            enabled: false,
            min_interval: Duration::from_secs(60),
            max_attempts: 10,
            multiplier: Multiplier(1_125_000),
        }
    }
}

/// The dearest price of a slot, component by component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dearest {
    /// The highest total.
    pub ceiling: GasPrice,
    /// The highest tip.
    pub tip: GasPrice,
}

impl Dearest {
    /// Of these attempts, whoever's they are; none if there are none.
    #[must_use]
    pub fn of(attempts: &[StoredAttempt]) -> Option<Self> {
        let ceiling = attempts.iter().map(|attempt| attempt.fees.ceiling()).max()?;
        let tip = attempts.iter().map(|attempt| attempt.fees.tip()).max()?;
        Some(Self { ceiling, tip })
    }

    /// Of one price.
    #[must_use]
    pub const fn price(fees: Fees) -> Self {
        Self { ceiling: fees.ceiling(), tip: fees.tip() }
    }

    /// Whether fees asked for could be enough: what is not said is quoted to be.
    #[must_use]
    pub fn admits(&self, wishes: FeeWishes) -> bool {
        let any = GasPrice(u128::MAX);
        self.is_outbid_by(match wishes.gas_price {
            Some(gas_price) => Fees::Legacy { gas_price },
            None => Fees::Dynamic {
                max_fee_per_gas: wishes.max_fee_per_gas.unwrap_or(any),
                max_priority_fee_per_gas: wishes.max_priority_fee_per_gas.unwrap_or(any),
            },
        })
    }

    /// Whether fees are enough to take its place in a pool.
    #[must_use]
    pub fn is_outbid_by(&self, fees: Fees) -> bool {
        let enough = |old: GasPrice, new: GasPrice| a_tenth_more(old).is_some_and(|least| new >= least);
        enough(self.ceiling, fees.ceiling()) && enough(self.tip, fees.tip())
    }
}

/// What came of making a bid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bid {
    /// Pay this.
    To(Fees),
    /// No bid that a node would take fits under the cap.
    AtCap {
        /// The cap that is in the way.
        cap: GasPrice,
        /// What a node would have to be offered.
        needed: GasPrice,
    },
}

/// The least that takes the place of a price: a tenth more, rounded up, and more in any case.
fn a_tenth_more(price: GasPrice) -> Option<GasPrice> {
    price.0.checked_add(price.0.div_ceil(10).max(1)).map(GasPrice)
}

/// Bids over a slot's dearest price: the multiplier, the market or the tenth, whichever is most, within the caps.
#[must_use]
pub fn outbid(dearest: Dearest, market: Fees, multiplier: Multiplier, caps: &FeeCaps) -> Bid {
    let highest = GasPrice(u128::MAX);
    let none = Bid::AtCap { cap: highest, needed: highest };
    let (Some(least_total), Some(least_tip)) = (a_tenth_more(dearest.ceiling), a_tenth_more(dearest.tip))
    else {
        return none;
    };
    let wanted = |price: GasPrice, least: GasPrice, market: GasPrice| {
        multiplier.of(price).unwrap_or(highest).max(least).max(market)
    };
    let (bid, least_total) = match market {
        Fees::Dynamic { max_fee_per_gas, max_priority_fee_per_gas } => {
            let tip = wanted(dearest.tip, least_tip, max_priority_fee_per_gas);
            // Where only the market's tip is above the cap, the least that a node takes is still a bid.
            let tip = caps.max_priority_fee_per_gas.map_or(tip, |cap| tip.min(cap));
            let total = wanted(dearest.ceiling, least_total, max_fee_per_gas).max(tip);
            let bid = Fees::Dynamic { max_fee_per_gas: total, max_priority_fee_per_gas: tip };
            (caps.apply(bid), least_total.max(least_tip))
        }
        Fees::Legacy { gas_price } => {
            let least = least_total.max(least_tip);
            let bid = Fees::Legacy { gas_price: wanted(dearest.ceiling.max(dearest.tip), least, gas_price) };
            (caps.apply(bid), least)
        }
    };
    if bid.ceiling() < least_total {
        let cap = caps.max_fee_per_gas.unwrap_or(highest);
        return Bid::AtCap { cap, needed: least_total };
    }
    if bid.tip() < least_tip {
        let cap = caps.max_priority_fee_per_gas.unwrap_or(highest);
        return Bid::AtCap { cap, needed: least_tip };
    }
    Bid::To(bid)
}

/// The policy that comes with Gapless: the rules of the settings, as arithmetic.
#[derive(Debug, Clone, Copy, Default)]
pub struct ByRules;

impl GasBumpPolicy for ByRules {
    fn bump(&self, context: &BumpContext<'_>) -> Option<Fees> {
        let dearest = Dearest::of(context.attempts)?;
        match outbid(dearest, context.market, context.rules.multiplier, context.caps) {
            Bid::To(fees) => Some(fees),
            Bid::AtCap { .. } => None,
        }
    }
}

#[cfg(test)]
#[path = "bump_tests.rs"]
mod tests;
