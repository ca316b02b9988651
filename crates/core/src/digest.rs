//! The canonical digest of a request: what "the same request" means (invariant *same-request-same-tx*).
//!
//! Each field is written as a tag and a length before its bytes, so no two different requests share
//! an encoding. The digest covers everything but metadata, and survives replacement of a payload: it
//! speaks of what was *asked*, not of what is now being tried.

use std::fmt;

use crate::fees::{GasPrice, Speed};
use crate::ids::Scope;
use crate::intent::{Intent, OnExpiry};

/// Digest of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({})", alloy_primitives::hex::encode(self.0))
    }
}

/// Raise it when the encoding below changes; stored digests keep the version they were made with.
const ENCODING: u8 = 1;

struct Canon(blake3::Hasher);

impl Canon {
    fn field(&mut self, tag: u8, bytes: &[u8]) {
        self.0.update(&[tag]);
        self.0.update(&(bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    fn maybe(&mut self, tag: u8, bytes: Option<impl AsRef<[u8]>>) {
        if let Some(bytes) = bytes {
            self.field(tag, bytes.as_ref());
        }
    }

    fn price(&mut self, tag: u8, price: Option<GasPrice>) {
        self.maybe(tag, price.map(|p| p.0.to_be_bytes()));
    }
}

impl Digest {
    /// The digest of a request addressed to `scope`.
    #[must_use]
    pub fn of(scope: &Scope, intent: &Intent) -> Self {
        let mut canon = Canon(blake3::Hasher::new());
        canon.0.update(&[ENCODING]);
        let (payload, options) = (&intent.payload, &intent.options);
        canon.field(1, scope.as_str().as_bytes());
        canon.maybe(2, payload.to.map(|to| to.into_array()));
        canon.field(3, &payload.value.0.to_be_bytes::<32>());
        canon.field(4, &payload.data);
        canon.maybe(5, payload.gas_limit.map(|gas| gas.0.to_be_bytes()));
        for item in &payload.access_list {
            canon.field(6, item.address.as_slice());
            for key in &item.storage_keys {
                canon.field(7, key.as_slice());
            }
        }
        canon.price(8, options.fees.max_fee_per_gas);
        canon.price(9, options.fees.max_priority_fee_per_gas);
        canon.price(10, options.fees.gas_price);
        canon.field(
            11,
            &[match options.speed {
                Speed::Slow => 0,
                Speed::Standard => 1,
                Speed::Fast => 2,
            }],
        );
        canon.maybe(12, options.valid_until.map(|at| at.as_micros().to_be_bytes()));
        canon.field(
            13,
            &[match options.on_expiry {
                OnExpiry::Keep => 0,
                OnExpiry::Cancel => 1,
            }],
        );
        canon.maybe(14, options.deferred.then_some([1]));
        Self(*canon.0.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fees::{FeeWishes, Gas, Wei};
    use crate::intent::{AccessListItem, Options, Payload};
    use crate::time::Timestamp;
    use alloy_primitives::{Address, B256, U256};
    use std::collections::BTreeSet;

    #[test]
    fn every_field_counts() {
        let scope = Scope::parse("pool").unwrap();
        let base =
            || Payload { to: Some(Address::repeat_byte(1)), data: vec![1, 2].into(), ..Default::default() };
        let plain = |payload| Intent { payload, ..Default::default() };
        let with = |options| Intent { payload: base(), options };
        let list = |address, keys| {
            plain(Payload {
                access_list: vec![AccessListItem {
                    address: Address::repeat_byte(address),
                    storage_keys: keys,
                }],
                ..base()
            })
        };
        let variants = [
            plain(base()),
            plain(Payload { to: None, ..base() }),
            plain(Payload { to: Some(Address::repeat_byte(2)), ..base() }),
            plain(Payload { value: Wei(U256::from(1)), ..base() }),
            plain(Payload { data: vec![1].into(), ..base() }),
            plain(Payload { gas_limit: Some(Gas(21000)), ..base() }),
            list(1, vec![]),
            list(2, vec![]),
            list(1, vec![B256::ZERO]),
            with(Options {
                fees: FeeWishes { gas_price: Some(GasPrice(1)), ..Default::default() },
                ..Default::default()
            }),
            with(Options {
                fees: FeeWishes { max_fee_per_gas: Some(GasPrice(1)), ..Default::default() },
                ..Default::default()
            }),
            with(Options {
                fees: FeeWishes { max_priority_fee_per_gas: Some(GasPrice(1)), ..Default::default() },
                ..Default::default()
            }),
            with(Options { speed: Speed::Fast, ..Default::default() }),
            with(Options { valid_until: Some(Timestamp::from_micros(1)), ..Default::default() }),
            with(Options { on_expiry: OnExpiry::Cancel, ..Default::default() }),
            with(Options { deferred: true, ..Default::default() }),
        ];
        let mut digests: BTreeSet<_> = variants.iter().map(|intent| Digest::of(&scope, intent)).collect();
        digests.insert(Digest::of(&Scope::parse("other").unwrap(), &variants[0]));
        assert_eq!(digests.len(), variants.len() + 1, "two different requests share a digest");
        assert_eq!(Digest::of(&scope, &variants[0]), Digest::of(&scope, &variants[0].clone()));
    }
}
