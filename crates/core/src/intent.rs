//! What a business asked for. An [`Intent`] never changes after acceptance and never holds a nonce.

use alloy_primitives::{Address, B256, Bytes};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::fees::{FeeWishes, Gas, Speed, Wei};
use crate::limits::{MAX_ACCESS_LIST_ENTRIES, MAX_DATA_BYTES};
use crate::time::Timestamp;

/// One entry of an EIP-2930 access list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessListItem {
    /// The account to warm.
    pub address: Address,
    /// Its storage slots to warm.
    pub storage_keys: Vec<B256>,
}

/// What should happen on chain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Payload {
    /// The receiver; none creates a contract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Address>,
    /// Coin to move.
    #[serde(default, skip_serializing_if = "is_default")]
    pub value: Wei,
    /// Calldata or init code.
    #[serde(default, skip_serializing_if = "is_default")]
    pub data: Bytes,
    /// Gas limit, if the caller insists; otherwise estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gas_limit: Option<Gas>,
    /// Access list.
    #[serde(default, skip_serializing_if = "is_default")]
    pub access_list: Vec<AccessListItem>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What happens when `validUntil` passes after the bytes were stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnExpiry {
    /// Go on: the limit concerns binding only.
    #[default]
    Keep,
    /// Let a placeholder compete for the nonce.
    Cancel,
}

/// How it should happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Options {
    /// Fees asked for.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fees: FeeWishes,
    /// Speed tier for what is quoted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub speed: Speed,
    /// Not to be bound after this (database time).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<Timestamp>,
    /// What expiry means once bound.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_expiry: OnExpiry,
    /// The payload is not known yet: a closure in the process that asked makes it once it has a nonce.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deferred: bool,
}

/// A request in full, but for its identity and metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Intent {
    /// What.
    pub payload: Payload,
    /// How.
    pub options: Options,
}

/// Why an intent cannot be accepted at all.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IntentError {
    /// Calldata too long.
    #[error("payload.data has {bytes} bytes, at most {limit} are allowed")]
    DataTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Access list too long.
    #[error("payload.accessList has {entries} entries, at most {limit} are allowed")]
    AccessListTooLong {
        /// Its length.
        entries: usize,
        /// The limit.
        limit: usize,
    },
    /// Neither a receiver nor init code.
    #[error("payload has neither `to` nor `data`: nothing to call and nothing to create")]
    Empty,
    /// A tip above the total.
    #[error("fees.maxPriorityFeePerGas is above fees.maxFeePerGas")]
    TipAboveTotal,
    /// Both fee kinds at once.
    #[error("fees.gasPrice excludes maxFeePerGas and maxPriorityFeePerGas")]
    MixedFees,
}

impl IntentError {
    /// Stable code for API answers.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::DataTooLong { .. } | Self::AccessListTooLong { .. } => "payload-too-large",
            Self::Empty | Self::TipAboveTotal | Self::MixedFees => "invalid-request",
        }
    }
}

impl Intent {
    /// Refuses what no node could ever take, before anything is written.
    pub fn check(&self) -> Result<(), IntentError> {
        let Payload { to, data, access_list, .. } = &self.payload;
        if data.len() > MAX_DATA_BYTES {
            return Err(IntentError::DataTooLong { bytes: data.len(), limit: MAX_DATA_BYTES });
        }
        let entries = access_list.iter().map(|item| 1 + item.storage_keys.len()).sum::<usize>();
        if entries > MAX_ACCESS_LIST_ENTRIES {
            return Err(IntentError::AccessListTooLong { entries, limit: MAX_ACCESS_LIST_ENTRIES });
        }
        if to.is_none() && data.is_empty() && !self.options.deferred {
            return Err(IntentError::Empty);
        }
        let fees = &self.options.fees;
        match (fees.gas_price, fees.max_fee_per_gas, fees.max_priority_fee_per_gas) {
            (Some(_), Some(_), _) | (Some(_), _, Some(_)) => Err(IntentError::MixedFees),
            (None, Some(total), Some(tip)) if tip > total => Err(IntentError::TipAboveTotal),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fees::GasPrice;

    fn to_somebody() -> Intent {
        Intent {
            payload: Payload { to: Some(Address::repeat_byte(1)), ..Default::default() },
            ..Default::default()
        }
    }

    #[test]
    fn limits_and_contradictions_are_refused_with_codes() {
        assert_eq!(to_somebody().check(), Ok(()));
        assert_eq!(Intent::default().check(), Err(IntentError::Empty));
        let deferred = Options { deferred: true, ..Options::default() };
        assert_eq!(Intent { options: deferred, ..Intent::default() }.check(), Ok(()));

        let mut long = to_somebody();
        long.payload.data = vec![0; MAX_DATA_BYTES + 1].into();
        assert_eq!(long.check().unwrap_err().code(), "payload-too-large");

        let mut mixed = to_somebody();
        mixed.options.fees.gas_price = Some(GasPrice(1));
        mixed.options.fees.max_fee_per_gas = Some(GasPrice(1));
        assert_eq!(mixed.check(), Err(IntentError::MixedFees));

        let mut upside_down = to_somebody();
        upside_down.options.fees.max_fee_per_gas = Some(GasPrice(1));
        upside_down.options.fees.max_priority_fee_per_gas = Some(GasPrice(2));
        assert_eq!(upside_down.check(), Err(IntentError::TipAboveTotal));
    }

    #[test]
    fn defaults_leave_no_trace_in_json() {
        let intent = to_somebody();
        assert_eq!(
            serde_json::to_string(&intent.payload).unwrap(),
            r#"{"to":"0x0101010101010101010101010101010101010101"}"#
        );
        assert_eq!(serde_json::to_string(&intent.options).unwrap(), "{}");
        assert_eq!(serde_json::from_str::<Options>("{}").unwrap(), Options::default());
    }
}
