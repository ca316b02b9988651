//! One private key on libsecp256k1: a third of the time that a pure Rust curve takes per signature.
//! Signatures are deterministic (RFC 6979) and low-s, so the same request gives the same bytes.

use std::fmt;
use std::sync::LazyLock;

use alloy_primitives::{Address, B256, Signature, U256, hex, keccak256};
use secp256k1::ecdsa::{RecoverableSignature, RecoveryId};
use secp256k1::{All, Message, PublicKey, Secp256k1, SecretKey};
use zeroize::{Zeroize, Zeroizing};

use super::SignerError;

static CURVE: LazyLock<Secp256k1<All>> = LazyLock::new(Secp256k1::new);

/// A key that wipes itself.
pub(super) struct Key {
    // Boxed, so that moving the owner leaves no copy behind.
    secret: Box<SecretKey>,
    address: Address,
}

impl Key {
    /// Loads a key and proves it: what it signs must lead back to its address.
    pub(super) fn new(bytes: &[u8; 32]) -> Result<Self, SignerError> {
        let mut copy = *bytes;
        let secret = SecretKey::from_byte_array(copy).map_err(|_| SignerError::Key);
        copy.zeroize();
        let secret = Box::new(secret?);
        let address = address_of(&PublicKey::from_secret_key(&CURVE, &secret));
        let key = Self { secret, address };
        let fixed = keccak256("Gapless proves a key");
        if recover(&key.sign(fixed), fixed) != Some(address) {
            return Err(SignerError::Unproven);
        }
        Ok(key)
    }

    /// Reads 64 hex digits, with or without `0x`.
    pub(super) fn from_hex(text: &str) -> Result<Self, SignerError> {
        let mut bytes = Zeroizing::new([0; 32]);
        hex::decode_to_slice(text.trim(), &mut *bytes).map_err(|_| SignerError::Key)?;
        Self::new(&bytes)
    }

    pub(super) const fn address(&self) -> Address {
        self.address
    }

    pub(super) fn sign(&self, digest: B256) -> Signature {
        let signed = CURVE.sign_ecdsa_recoverable(Message::from_digest(digest.0), &self.secret);
        let (parity, compact) = signed.serialize_compact();
        let (r, s) = compact.split_at(32);
        Signature::new(U256::from_be_slice(r), U256::from_be_slice(s), i32::from(parity) & 1 == 1)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.secret.non_secure_erase();
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Who signed; nobody if the signature is none that a node would take (high s included).
pub(super) fn recover(signature: &Signature, digest: B256) -> Option<Address> {
    if signature.normalize_s().is_some() {
        return None;
    }
    let mut compact = [0; 64];
    compact[..32].copy_from_slice(&signature.r().to_be_bytes::<32>());
    compact[32..].copy_from_slice(&signature.s().to_be_bytes::<32>());
    let parity = if signature.v() { RecoveryId::One } else { RecoveryId::Zero };
    let signature = RecoverableSignature::from_compact(&compact, parity).ok()?;
    let public = CURVE.recover_ecdsa(Message::from_digest(digest.0), &signature).ok()?;
    Some(address_of(&public))
}

fn address_of(public: &PublicKey) -> Address {
    Address::from_raw_public_key(&public.serialize_uncompressed()[1..])
}

#[cfg(test)]
mod tests {
    use alloy_primitives::address;

    use super::*;

    const FIRST: &str = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";

    #[test]
    fn a_known_key_has_its_known_address_and_signs_the_same_twice() {
        let key = Key::from_hex(FIRST).unwrap();
        assert_eq!(key.address(), address!("f39Fd6e51aad88F6F4ce6aB8827279cffFb92266"));
        assert_eq!(Key::from_hex(&FIRST[2..]).unwrap().address(), key.address());
        let digest = keccak256("x");
        assert_eq!(key.sign(digest), key.sign(digest));
        assert_eq!(recover(&key.sign(digest), digest), Some(key.address()));
        assert_ne!(recover(&key.sign(digest), keccak256("y")), Some(key.address()));
    }

    #[test]
    fn a_high_s_signature_is_nobodys() {
        let key = Key::from_hex(FIRST).unwrap();
        let digest = keccak256("x");
        let low = key.sign(digest);
        let order =
            U256::from_str_radix("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141", 16);
        let high = Signature::new(low.r(), order.unwrap() - low.s(), !low.v());
        assert_eq!(recover(&high, digest), None);
    }

    #[test]
    fn what_is_no_key_is_refused_and_no_key_is_shown() {
        for bad in ["", "0x", "12", &"0".repeat(64), &"f".repeat(64), &"g".repeat(64), &FIRST[..65]] {
            assert_eq!(Key::from_hex(bad).unwrap_err(), SignerError::Key, "{bad}");
        }
        assert!(!format!("{:?}", Key::from_hex(FIRST).unwrap()).contains("ac0974"));
    }
}
