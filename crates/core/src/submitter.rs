//! Submitters: an account on a chain, named by its CAIP-10 id.
//!
//! Inside, an id is one canonical lower-case text, so that two spellings of one account can never
//! become two lanes. On display an EVM address carries its checksum.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use alloy_primitives::Address;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use thiserror::Error;

/// Why a text is not a submitter.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SubmitterError {
    /// Not `namespace:reference:account`.
    #[error("a submitter is written namespace:reference:account, for example eip155:1:0xabc…")]
    Shape,
    /// A namespace without an adapter.
    #[error("unknown chain namespace `{0}`; known are eip155 and stellar")]
    Namespace(String),
    /// The chain reference does not fit the namespace.
    #[error("`{0}` is not a chain reference of this namespace")]
    Reference(String),
    /// The account does not fit the namespace.
    #[error("`{0}` is not an account of this namespace")]
    Account(String),
    /// Mixed case that is not the address's EIP-55 checksum.
    #[error("the address's checksum is wrong; it should read {expected}")]
    Checksum {
        /// The right spelling.
        expected: String,
    },
}

impl SubmitterError {
    /// Stable code for API answers.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        "invalid-request"
    }
}

/// A chain, named by its CAIP-2 id: `eip155:31337`, `stellar:testnet`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId(Arc<str>);

impl ChainId {
    /// The canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The EVM chain number, if this is an EVM chain.
    #[must_use]
    pub fn evm(&self) -> Option<u64> {
        self.0.strip_prefix("eip155:")?.parse().ok()
    }
}

impl fmt::Display for ChainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ChainId {
    type Err = SubmitterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, reference) = text.split_once(':').ok_or(SubmitterError::Shape)?;
        check_reference(namespace, reference)?;
        Ok(Self(text.into()))
    }
}

fn check_reference(namespace: &str, reference: &str) -> Result<(), SubmitterError> {
    let fits = match namespace {
        "eip155" => {
            !reference.starts_with('0')
                && reference.bytes().all(|b| b.is_ascii_digit())
                && reference.parse::<u64>().is_ok()
        }
        "stellar" => matches!(reference, "pubnet" | "testnet" | "futurenet" | "local"),
        other => return Err(SubmitterError::Namespace(other.to_owned())),
    };
    if fits { Ok(()) } else { Err(SubmitterError::Reference(reference.to_owned())) }
}

/// An account on a chain in canonical spelling.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubmitterId(Arc<str>);

impl SubmitterId {
    /// An EVM account.
    #[must_use]
    pub fn evm(chain: u64, address: Address) -> Self {
        Self(format!("eip155:{chain}:{address:#x}").into())
    }

    /// The canonical text, as stored and compared.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The chain this account lives on.
    #[must_use]
    pub fn chain(&self) -> ChainId {
        let end = self.0.rfind(':').unwrap_or(self.0.len());
        ChainId(self.0[..end].into())
    }

    /// The account without its chain.
    #[must_use]
    pub fn account(&self) -> &str {
        self.0.rsplit(':').next().unwrap_or_default()
    }

    /// The EVM address, if this is an EVM account.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        self.0.starts_with("eip155:").then(|| self.account().parse().ok()).flatten()
    }
}

impl FromStr for SubmitterId {
    type Err = SubmitterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (chain, account) = text.rsplit_once(':').ok_or(SubmitterError::Shape)?;
        let (namespace, reference) = chain.split_once(':').ok_or(SubmitterError::Shape)?;
        check_reference(namespace, reference)?;
        if namespace == "stellar" {
            let fits = account.len() == 56
                && account.starts_with('G')
                && account.bytes().all(|b| matches!(b, b'A'..=b'Z' | b'2'..=b'7'));
            return if fits {
                Ok(Self(text.into()))
            } else {
                Err(SubmitterError::Account(account.to_owned()))
            };
        }
        let address = parse_evm_address(account)?;
        Ok(Self(format!("{chain}:{address:#x}").into()))
    }
}

/// Reads an EVM address: all lower-case, all upper-case, or with a right EIP-55 checksum.
pub fn parse_evm_address(text: &str) -> Result<Address, SubmitterError> {
    let wrong = || SubmitterError::Account(text.to_owned());
    let digits = text.strip_prefix("0x").filter(|d| d.len() == 40).ok_or_else(wrong)?;
    let address: Address = text.parse().map_err(|_| wrong())?;
    let uniform =
        !digits.bytes().any(|b| b.is_ascii_uppercase()) || !digits.bytes().any(|b| b.is_ascii_lowercase());
    let expected = address.to_checksum(None);
    if uniform || expected == text { Ok(address) } else { Err(SubmitterError::Checksum { expected }) }
}

impl fmt::Display for SubmitterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address() {
            Some(address) => write!(f, "{}:{}", self.chain(), address.to_checksum(None)),
            None => f.write_str(&self.0),
        }
    }
}

impl Serialize for SubmitterId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SubmitterId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKSUMMED: &str = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";

    #[test]
    fn every_spelling_of_an_account_is_one_submitter() {
        let spellings = [
            CHECKSUMMED.to_owned(),
            CHECKSUMMED.to_lowercase(),
            format!("0x{}", CHECKSUMMED[2..].to_uppercase()),
        ];
        for spelling in spellings {
            let id: SubmitterId = format!("eip155:31337:{spelling}").parse().unwrap();
            assert_eq!(id.as_str(), format!("eip155:31337:{}", CHECKSUMMED.to_lowercase()));
            assert_eq!(id.to_string(), format!("eip155:31337:{CHECKSUMMED}"));
            assert_eq!(id.chain().evm(), Some(31337));
        }
    }

    #[test]
    fn a_stellar_account_keeps_its_case() {
        let text = format!("stellar:testnet:G{}", "A".repeat(55));
        let id: SubmitterId = text.parse().unwrap();
        assert_eq!((id.as_str(), id.to_string()), (text.as_str(), text.clone()));
        assert_eq!(id.address(), None);
    }

    #[test]
    fn nonsense_is_named() {
        let parse = |t: &str| t.parse::<SubmitterId>().unwrap_err();
        assert_eq!(parse("0xabc"), SubmitterError::Shape);
        assert_eq!(parse("eip155:0xabc"), SubmitterError::Shape);
        assert_eq!(parse("solana:x:y"), SubmitterError::Namespace("solana".into()));
        assert_eq!(parse(&format!("eip155:01:{CHECKSUMMED}")), SubmitterError::Reference("01".into()));
        assert_eq!(parse("eip155:1:0x12"), SubmitterError::Account("0x12".into()));
        let wrong = CHECKSUMMED.replace("0xf39F", "0xF39F");
        assert_eq!(
            parse(&format!("eip155:1:{wrong}")),
            SubmitterError::Checksum { expected: CHECKSUMMED.into() }
        );
    }
}
