//! Hex quantities, read strictly: `0x`, at least one digit, no sign, and it fits. A number that a node
//! wrote otherwise is a malformed answer, never a guess. (Leading zeros are harmless and let through:
//! several clients write them.)

use std::fmt;
use std::marker::PhantomData;

use alloy_primitives::U256;
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A number that JSON-RPC writes as `"0x…"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quantity<T>(pub T);

pub(crate) trait FromHex: Sized {
    fn from_hex(digits: &str) -> Option<Self>;
}

macro_rules! from_hex {
    ($($int:ty),+) => {
        $(impl FromHex for $int {
            fn from_hex(digits: &str) -> Option<Self> {
                <$int>::from_str_radix(digits, 16).ok()
            }
        })+
    };
}

from_hex!(u64, u128, U256);

/// Reads a quantity.
pub(crate) fn parse<T: FromHex>(text: &str) -> Option<T> {
    let digits = text.strip_prefix("0x")?;
    let hex = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    hex.then(|| T::from_hex(digits)).flatten()
}

/// Writes a quantity as nodes want it: no leading zeros.
pub(crate) fn hex(number: impl fmt::LowerHex) -> String {
    format!("{number:#x}")
}

struct QuantityVisitor<T>(PhantomData<T>);

impl<T: FromHex> Visitor<'_> for QuantityVisitor<T> {
    type Value = Quantity<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a 0x-hex quantity that fits")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        parse(text).map(Quantity).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }
}

impl<'de, T: FromHex> Deserialize<'de> for Quantity<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(QuantityVisitor(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hex_that_fits_is_a_quantity() {
        assert_eq!(parse::<u64>("0x0"), Some(0));
        assert_eq!(parse::<u64>("0xfF"), Some(255));
        assert_eq!(parse::<u64>("0x00ff"), Some(255));
        assert_eq!(parse::<u64>("0xffffffffffffffff"), Some(u64::MAX));
        for bad in ["", "0x", "ff", "255", "0x+1", "0x-1", "0x 1", "0xg", "0X1", "0x10000000000000000"] {
            assert_eq!(parse::<u64>(bad), None, "{bad}");
        }
        assert!(serde_json::from_str::<Quantity<u64>>("255").is_err());
        assert_eq!(hex(0u64), "0x0");
        assert_eq!(hex(U256::from(255)), "0xff");
    }
}
