//! A request as it comes over the wire, and its way into the domain's types.
//!
//! Read here rather than by the domain's own types because strangers are read more strictly than our own database:
//! an address must have a right checksum, bytes must carry `0x`, and a number is never a quantity.

use alloy_primitives::{Address, B256, Bytes, hex};
use gapless_core::fees::{FeeWishes, Gas, Speed, Wei};
use gapless_core::intent::{AccessListItem, Intent, OnExpiry, Options, Payload};
use gapless_core::limits::MAX_METADATA_BYTES;
use gapless_core::record::Metadata;
use gapless_core::submitter::parse_evm_address;
use gapless_core::time::Timestamp;
use gapless_engine::commands::Resolution;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::problem::{Code, Problem};

/// The body of `POST /tx`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TxBody {
    pub(crate) submitter: String,
    #[serde(default)]
    pub(crate) request_id: Option<String>,
    payload: PayloadBody,
    #[serde(default)]
    fees: Option<FeeWishes>,
    #[serde(default)]
    speed: Option<Speed>,
    #[serde(default)]
    valid_until: Option<Timestamp>,
    #[serde(default)]
    on_expiry: Option<OnExpiry>,
    #[serde(default)]
    metadata: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PayloadBody {
    #[serde(default)]
    to: Option<Checked>,
    #[serde(default)]
    value: Option<Wei>,
    #[serde(default)]
    data: Option<Hex>,
    #[serde(default)]
    gas_limit: Option<Gas>,
    #[serde(default)]
    access_list: Option<Vec<AccessBody>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AccessBody {
    address: Checked,
    storage_keys: Vec<Hex>,
}

/// An address in one of its right spellings.
#[derive(Debug)]
struct Checked(Address);

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_evm_address(&text).map(Self).map_err(D::Error::custom)
    }
}

/// Bytes as 0x-hex.
#[derive(Debug)]
struct Hex(Vec<u8>);

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits =
            text.strip_prefix("0x").ok_or_else(|| D::Error::custom("expected bytes as 0x-hex text"))?;
        hex::decode(digits)
            .map(Self)
            .map_err(|error| D::Error::custom(format!("expected bytes as 0x-hex text: {error}")))
    }
}

/// What and how, and the caller's notes.
pub(crate) struct Parts {
    pub(crate) submitter: String,
    pub(crate) request_id: Option<String>,
    pub(crate) intent: Intent,
    pub(crate) metadata: Option<Metadata>,
}

impl TxBody {
    /// Into the domain's types.
    pub(crate) fn into_parts(self) -> Result<Parts, Problem> {
        let metadata = match self.metadata {
            Some(raw) => Some(Metadata::parse(raw.get()).ok_or_else(|| {
                let detail = format!("metadata is longer than {MAX_METADATA_BYTES} bytes");
                Problem::new(Code::PayloadTooLarge, detail)
            })?),
            None => None,
        };
        let payload = self.payload.into_payload()?;
        let options = Options {
            fees: self.fees.unwrap_or_default(),
            speed: self.speed.unwrap_or_default(),
            valid_until: self.valid_until,
            on_expiry: self.on_expiry.unwrap_or_default(),
            deferred: false,
        };
        let Self { submitter, request_id, .. } = self;
        Ok(Parts { submitter, request_id, intent: Intent { payload, options }, metadata })
    }
}

impl PayloadBody {
    fn into_payload(self) -> Result<Payload, Problem> {
        Ok(Payload {
            to: self.to.map(|to| to.0),
            value: self.value.unwrap_or_default(),
            data: self.data.map(|data| Bytes::from(data.0)).unwrap_or_default(),
            gas_limit: self.gas_limit,
            access_list: access_list(self.access_list.unwrap_or_default())?,
        })
    }
}

fn access_list(items: Vec<AccessBody>) -> Result<Vec<AccessListItem>, Problem> {
    let key = |key: Hex| {
        B256::try_from(key.0.as_slice())
            .map_err(|_| Problem::invalid("payload.accessList: a storage key has 32 bytes"))
    };
    let item = |item: AccessBody| {
        let storage_keys = item.storage_keys.into_iter().map(key).collect::<Result<_, _>>()?;
        Ok(AccessListItem { address: item.address.0, storage_keys })
    };
    items.into_iter().map(item).collect()
}

/// The body of `POST /tx/{txId}/replace`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReplaceBody {
    #[serde(default)]
    payload: Option<PayloadBody>,
    #[serde(default)]
    fees: Option<FeeWishes>,
}

impl ReplaceBody {
    /// Into the domain's types; something must be asked for.
    pub(crate) fn into_parts(self) -> Result<(Option<Payload>, Option<FeeWishes>), Problem> {
        let payload = self.payload.map(PayloadBody::into_payload).transpose()?;
        if payload.is_none() && self.fees.is_none_or(|fees| fees == FeeWishes::default()) {
            return Err(Problem::invalid("nothing to replace: give `payload`, `fees` or both"));
        }
        Ok((payload, self.fees))
    }
}

/// The body of `POST /tx/{txId}/resolve`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveBody {
    pub(crate) action: Resolution,
}

/// The body of `POST /submitters/{id}/reset-nonce`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResetBody {
    #[serde(default)]
    pub(crate) force: bool,
}

/// The body of `POST /submitters`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RegisterBody {
    pub(crate) submitter: String,
}

/// The body of `POST /submitters/{id}/unprotect`. A nonce is no quantity of coin or gas: a JSON number is as good as
/// a text, and the views show it as a number.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct UnprotectBody {
    pub(crate) acknowledged_nonce: Count,
}

/// A count, as a number or as 0x-hex or decimal text.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
pub(crate) enum Count {
    Number(u64),
    Text(Gas),
}

impl Count {
    pub(crate) const fn get(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Text(text) => text.0,
        }
    }
}

/// A body that may be absent, and says nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NothingBody {}
