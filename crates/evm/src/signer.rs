//! Signers. A key is proven once when it is loaded; what a remote signer returns is believed only
//! after every field and the sender have been compared. Secrets are wiped when dropped and shown to
//! nobody, `Debug` included.

mod key;
mod keystore;
mod local;
mod mnemonic;
mod remote;
pub(crate) mod tx;

use std::path::{Path, PathBuf};

use alloy_primitives::Address;
use thiserror::Error;
use zeroize::Zeroizing;

pub use local::LocalSigner;
pub use remote::{RemoteOptions, RemoteSigner};

use crate::options::EvmError;

/// Why a signer cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SignerError {
    /// A file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Not a private key. Its text is not repeated.
    #[error("this is not a private key: it takes 64 hex digits of a number within the curve's order")]
    Key,
    /// Not a keystore we can read.
    #[error("the keystore is malformed: {reason}")]
    Keystore {
        /// What is wrong.
        reason: String,
    },
    /// The keystore does not open.
    #[error("the password does not open the keystore")]
    Password,
    /// Not a mnemonic. Its words are not repeated.
    #[error("this is not a mnemonic: {reason}")]
    Mnemonic {
        /// What is wrong.
        reason: String,
    },
    /// Not a derivation path.
    #[error("`{path}` is not a derivation path; an example is m/44'/60'/0'/0/0")]
    Path {
        /// As given.
        path: String,
    },
    /// The key is another account's.
    #[error("the key belongs to {found}, not to {expected}")]
    Address {
        /// Configured.
        expected: Address,
        /// The key's.
        found: Address,
    },
    /// A signature made with the key does not lead back to it.
    #[error("a signature made with the key does not lead back to it")]
    Unproven,
    /// The remote signer's address or options are wrong.
    #[error("the remote signer cannot be set up: {0}")]
    Remote(EvmError),
}

impl SignerError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "signer-file-unreadable",
            Self::Key => "signer-key-invalid",
            Self::Keystore { .. } => "signer-keystore-malformed",
            Self::Password => "signer-wrong-password",
            Self::Mnemonic { .. } => "signer-mnemonic-invalid",
            Self::Path { .. } => "signer-path-invalid",
            Self::Address { .. } => "signer-address-mismatch",
            Self::Unproven => "signer-unproven",
            Self::Remote(_) => "signer-remote-invalid",
        }
    }
}

/// A secret text file without its line end.
fn read_secret(path: &Path) -> Result<Zeroizing<String>, SignerError> {
    let unreadable = |reason: String| SignerError::Unreadable { path: path.to_owned(), reason };
    let bytes = Zeroizing::new(std::fs::read(path).map_err(|error| unreadable(error.to_string()))?);
    let text = std::str::from_utf8(&bytes).map_err(|_| unreadable("it is not a text".to_owned()))?;
    Ok(Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned()))
}
