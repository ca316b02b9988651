//! Amounts and fees with their units. Written as 0x-hex text wherever they are serialised, so that
//! no reader can round them through a floating-point number.

use std::fmt;

use alloy_primitives::U256;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// An amount of the chain's native coin in its smallest unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wei(pub U256);

/// A price per unit of gas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GasPrice(pub u128);

/// An amount of gas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gas(pub u64);

macro_rules! hex_quantity {
    ($name:ident, $inner:ty) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                let parsed = match text.strip_prefix("0x") {
                    Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
                        <$inner>::from_str_radix(hex, 16).ok()
                    }
                    None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
                    _ => None,
                };
                let wrong = || D::Error::custom("expected a 0x-hex or decimal string that fits");
                parsed.filter(|_| !text.is_empty() && text != "0x").map(Self).ok_or_else(wrong)
            }
        }
    };
}

hex_quantity!(Wei, U256);
hex_quantity!(GasPrice, u128);
hex_quantity!(Gas, u64);

/// What an attempt pays per gas, as signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged, rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Fees {
    /// EIP-1559.
    Dynamic {
        /// The most it pays in all.
        max_fee_per_gas: GasPrice,
        /// The most it pays to the block producer.
        max_priority_fee_per_gas: GasPrice,
    },
    /// Before EIP-1559.
    Legacy {
        /// What it pays.
        gas_price: GasPrice,
    },
}

impl Fees {
    /// The most this attempt can pay per gas: what "dearest" compares first.
    #[must_use]
    pub const fn ceiling(&self) -> GasPrice {
        match self {
            Self::Dynamic { max_fee_per_gas, .. } => *max_fee_per_gas,
            Self::Legacy { gas_price } => *gas_price,
        }
    }

    /// The most an attempt with this much gas and value can cost.
    #[must_use]
    pub fn max_cost(&self, gas: Gas, value: Wei) -> Wei {
        let per_gas = U256::from(self.ceiling().0);
        Wei(value.0.saturating_add(per_gas.saturating_mul(U256::from(gas.0))))
    }

    /// The tip component; a legacy price is its own tip.
    #[must_use]
    pub const fn tip(&self) -> GasPrice {
        match self {
            Self::Dynamic { max_priority_fee_per_gas, .. } => *max_priority_fee_per_gas,
            Self::Legacy { gas_price } => *gas_price,
        }
    }
}

/// Ceilings that nothing may exceed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FeeCaps {
    /// On the total per gas (or the legacy price).
    pub max_fee_per_gas: Option<GasPrice>,
    /// On the tip.
    pub max_priority_fee_per_gas: Option<GasPrice>,
    /// On what all the gas of one attempt may cost.
    pub max_cost: Option<Wei>,
}

impl FeeCaps {
    /// The caps for an attempt with so much gas: what it may cost in all bounds its price.
    #[must_use]
    pub fn for_gas(&self, gas: Gas) -> Self {
        let by_cost = self.max_cost.map(|cost| {
            let price = cost.0.checked_div(U256::from(gas.0)).unwrap_or(U256::MAX);
            GasPrice(price.saturating_to::<u128>())
        });
        let total = [self.max_fee_per_gas, by_cost].into_iter().flatten().min();
        Self { max_fee_per_gas: total, ..*self }
    }

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

/// Fees a caller asked for; what is missing is quoted from the market.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FeeWishes {
    /// EIP-1559 total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_fee_per_gas: Option<GasPrice>,
    /// EIP-1559 tip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_priority_fee_per_gas: Option<GasPrice>,
    /// Legacy price; excludes the other two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gas_price: Option<GasPrice>,
}

/// How much of the market price a caller wants to pay for speed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Speed {
    /// Cheap, may wait.
    Slow,
    /// The market's middle.
    #[default]
    Standard,
    /// The next block or so.
    Fast,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_hex_out_and_hex_or_decimal_text_in() {
        assert_eq!(serde_json::to_string(&Wei(U256::from(255))).unwrap(), "\"0xff\"");
        assert_eq!(serde_json::from_str::<Wei>("\"0xff\"").unwrap(), Wei(U256::from(255)));
        assert_eq!(serde_json::from_str::<GasPrice>("\"255\"").unwrap(), GasPrice(255));
        for bad in ["255", "\"\"", "\"0x\"", "\"0xzz\"", "\"-1\"", "\"+1\"", "1.5"] {
            assert!(serde_json::from_str::<GasPrice>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn caps_keep_the_tip_below_the_total() {
        let caps = FeeCaps { max_fee_per_gas: Some(GasPrice(10)), ..FeeCaps::default() };
        let fees = Fees::Dynamic { max_fee_per_gas: GasPrice(100), max_priority_fee_per_gas: GasPrice(50) };
        let capped = Fees::Dynamic { max_fee_per_gas: GasPrice(10), max_priority_fee_per_gas: GasPrice(10) };
        assert_eq!(caps.apply(fees), capped);
        assert_eq!(FeeCaps::default().apply(fees), fees);
    }

    #[test]
    fn what_an_attempt_may_cost_bounds_its_price() {
        let caps = FeeCaps {
            max_fee_per_gas: Some(GasPrice(10)),
            max_cost: Some(Wei(U256::from(210_000))),
            ..FeeCaps::default()
        };
        assert_eq!(caps.for_gas(Gas(21_000)).max_fee_per_gas, Some(GasPrice(10)));
        assert_eq!(caps.for_gas(Gas(42_000)).max_fee_per_gas, Some(GasPrice(5)));
        assert_eq!(caps.for_gas(Gas(0)).max_fee_per_gas, Some(GasPrice(10)));
    }

    #[test]
    fn fees_keep_their_kind_through_json() {
        for fees in [
            Fees::Dynamic { max_fee_per_gas: GasPrice(30), max_priority_fee_per_gas: GasPrice(2) },
            Fees::Legacy { gas_price: GasPrice(7) },
        ] {
            let text = serde_json::to_string(&fees).unwrap();
            assert_eq!(serde_json::from_str::<Fees>(&text).unwrap(), fees);
        }
    }
}
