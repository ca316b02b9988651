//! A key in this process.

use std::path::Path;
use std::sync::Arc;

use alloy_primitives::Address;
use async_trait::async_trait;
use gapless_core::ports::chain::{Signed, Unsigned};
use gapless_core::ports::signer::{SignError, Signer};
use gapless_core::text::NodeText;
use zeroize::Zeroizing;

use super::key::Key;
use super::{SignerError, keystore, mnemonic, read_secret, tx};

/// So many signatures, about a millisecond's work, are made where they are asked for. More are shared between threads that may
/// block, so that other tasks go on meanwhile.
const RUN: usize = 32;

/// Signs with a key held in memory.
#[derive(Debug)]
pub struct LocalSigner {
    key: Arc<Key>,
}

impl LocalSigner {
    /// A key as hex text. `expected` is the account it must belong to.
    pub fn from_hex(text: &str, expected: Option<Address>) -> Result<Self, SignerError> {
        Self::of(Key::from_hex(text)?, expected)
    }

    /// A file that holds a key as hex text.
    pub fn from_key_file(path: &Path, expected: Option<Address>) -> Result<Self, SignerError> {
        Self::from_hex(&read_secret(path)?, expected)
    }

    /// An encrypted keystore (Web3 Secret Storage, version 3) and a file that holds its password. Takes as
    /// long as the keystore's author wanted it to: call it where blocking is allowed.
    pub fn from_keystore(
        keystore: &Path,
        password: &Path,
        expected: Option<Address>,
    ) -> Result<Self, SignerError> {
        let key = keystore::open(&read_secret(keystore)?, &read_secret(password)?)?;
        Self::of(Key::new(&key)?, expected)
    }

    /// A file that holds an English BIP-39 mnemonic, and a BIP-32 path such as `m/44'/60'/0'/0/0`.
    pub fn from_mnemonic_file(
        path: &Path,
        derivation: &str,
        expected: Option<Address>,
    ) -> Result<Self, SignerError> {
        let key: Zeroizing<[u8; 32]> = mnemonic::derive(&read_secret(path)?, derivation)?;
        Self::of(Key::new(&key)?, expected)
    }

    fn of(key: Key, expected: Option<Address>) -> Result<Self, SignerError> {
        match expected {
            Some(expected) if expected != key.address() => {
                Err(SignerError::Address { expected, found: key.address() })
            }
            _ => Ok(Self { key: Arc::new(key) }),
        }
    }

    /// Whose key it is.
    #[must_use]
    pub fn address(&self) -> Address {
        self.key.address()
    }
}

fn sign_one(key: &Key, unsigned: &Unsigned) -> Result<Signed, SignError> {
    if unsigned.submitter.address() != Some(key.address()) {
        let text = format!("the key of {} cannot sign for {}", key.address(), unsigned.submitter);
        return Err(SignError::Refused(NodeText::new(&text)));
    }
    let refused = || SignError::Refused(NodeText::new("not an account of an EVM chain"));
    let tx = tx::build(unsigned).ok_or_else(refused)?;
    let signature = key.sign(tx::digest(&tx));
    Ok(tx::encode(tx, signature))
}

fn sign_run(key: &Key, unsigned: &[Unsigned]) -> (Vec<Signed>, Option<SignError>) {
    let mut signed = Vec::with_capacity(unsigned.len());
    for unsigned in unsigned {
        match sign_one(key, unsigned) {
            Ok(one) => signed.push(one),
            Err(error) => return (signed, Some(error)),
        }
    }
    (signed, None)
}

#[async_trait]
impl Signer for LocalSigner {
    async fn sign(&self, unsigned: &[Unsigned]) -> (Vec<Signed>, Option<SignError>) {
        if unsigned.len() <= RUN {
            return sign_run(&self.key, unsigned);
        }
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let share = unsigned.len().div_ceil(threads).max(RUN);
        let shares: Vec<_> = unsigned
            .chunks(share)
            .map(|share| {
                let (key, share) = (Arc::clone(&self.key), share.to_vec());
                tokio::task::spawn_blocking(move || sign_run(&key, &share))
            })
            .collect();
        let mut signed = Vec::with_capacity(unsigned.len());
        for share in shares {
            let stopped = || SignError::Unavailable(NodeText::new("signing was stopped"));
            let (more, failed) = share.await.unwrap_or_else(|_| (Vec::new(), Some(stopped())));
            signed.extend(more);
            // What follows a failure would leave a hole.
            if failed.is_some() {
                return (signed, failed);
            }
        }
        (signed, None)
    }

    fn can_fill_slots(&self) -> bool {
        true
    }
}
