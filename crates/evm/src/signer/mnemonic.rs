//! From words to a key: BIP-39 for the seed, BIP-32 for the path.

use bip39::{Language, Mnemonic};
use hmac::{Hmac, KeyInit, Mac};
use secp256k1::{PublicKey, Scalar, Secp256k1, SecretKey, SignOnly};
use sha2::Sha512;
use zeroize::{Zeroize, Zeroizing};

use super::SignerError;

const HARDENED: u32 = 1 << 31;
/// No wallet goes deeper.
const MAX_DEPTH: usize = 16;

/// The key at a path below a mnemonic without a passphrase.
pub(super) fn derive(words: &str, path: &str) -> Result<Zeroizing<[u8; 32]>, SignerError> {
    let steps = parse_path(path).ok_or_else(|| SignerError::Path { path: path.to_owned() })?;
    let words = Zeroizing::new(words.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase());
    let mnemonic = Mnemonic::parse_in_normalized(Language::English, &words)
        .map_err(|error| SignerError::Mnemonic { reason: reason(&error) })?;
    let seed = Zeroizing::new(mnemonic.to_seed_normalized(""));
    let curve = Secp256k1::signing_only();
    let mut node = Node::root(&*seed)?;
    for step in steps {
        node = node.child(step, &curve)?;
    }
    Ok(node.key)
}

/// In words that repeat none of the mnemonic's.
fn reason(error: &bip39::Error) -> String {
    match error {
        bip39::Error::BadWordCount(count) => format!("it has {count} words"),
        bip39::Error::UnknownWord(place) => format!("its word number {} is in no list", place + 1),
        bip39::Error::InvalidChecksum => "its checksum is wrong".to_owned(),
        _ => "it cannot be read".to_owned(),
    }
}

fn parse_path(path: &str) -> Option<Vec<u32>> {
    let rest = path.strip_prefix("m/")?;
    let step = |text: &str| {
        let (digits, hardened) = match text.strip_suffix(['\'', 'h']) {
            Some(digits) => (digits, HARDENED),
            None => (text, 0),
        };
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let number: u32 = digits.parse().ok().filter(|number| plain && *number < HARDENED)?;
        Some(number | hardened)
    };
    let steps: Option<Vec<u32>> = rest.split('/').map(step).collect();
    steps.filter(|steps| steps.len() <= MAX_DEPTH)
}

/// A key and the chain code that leads to its children.
struct Node {
    key: Zeroizing<[u8; 32]>,
    code: Zeroizing<[u8; 32]>,
}

impl Node {
    fn root(seed: &[u8]) -> Result<Self, SignerError> {
        let (key, code) = hmac(b"Bitcoin seed", &[seed])?;
        Ok(Self { key, code })
    }

    fn child(&self, step: u32, curve: &Secp256k1<SignOnly>) -> Result<Self, SignerError> {
        let mut secret = SecretKey::from_byte_array(*self.key).map_err(|_| SignerError::Key)?;
        let number = step.to_be_bytes();
        let derived = if step & HARDENED == 0 {
            hmac(&*self.code, &[&PublicKey::from_secret_key(curve, &secret).serialize(), &number])
        } else {
            hmac(&*self.code, &[&[0], &*self.key, &number])
        };
        let tweaked = derived.and_then(|(left, code)| {
            let tweak = Scalar::from_be_bytes(*left).map_err(|_| SignerError::Key)?;
            let mut child = secret.add_tweak(&tweak).map_err(|_| SignerError::Key)?;
            let key = Zeroizing::new(child.secret_bytes());
            child.non_secure_erase();
            Ok(Self { key, code })
        });
        secret.non_secure_erase();
        tweaked
    }
}

type Halves = (Zeroizing<[u8; 32]>, Zeroizing<[u8; 32]>);

fn hmac(key: &[u8], parts: &[&[u8]]) -> Result<Halves, SignerError> {
    let mut mac = Hmac::<Sha512>::new_from_slice(key).map_err(|_| SignerError::Key)?;
    for part in parts {
        mac.update(part);
    }
    let mut whole = mac.finalize().into_bytes();
    let (mut left, mut right) = (Zeroizing::new([0; 32]), Zeroizing::new([0; 32]));
    left.copy_from_slice(&whole[..32]);
    right.copy_from_slice(&whole[32..]);
    whole.as_mut_slice().zeroize();
    Ok((left, right))
}

#[cfg(test)]
mod tests {
    use alloy_primitives::hex;

    use super::*;

    const WORDS: &str = "test test test test test test test test test test test junk";

    #[test]
    fn the_development_mnemonic_gives_its_known_keys() {
        let key = |path| hex::encode(*derive(WORDS, path).unwrap());
        assert_eq!(
            key("m/44'/60'/0'/0/0"),
            "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
        );
        assert_eq!(
            key("m/44h/60h/0h/0/1"),
            "59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d"
        );
        assert_eq!(*derive(&format!("  {WORDS}\n"), "m/0").unwrap(), *derive(WORDS, "m/0").unwrap());
    }

    #[test]
    fn the_first_published_vector_of_bip32_comes_out() {
        let mut node = Node::root(&hex!("000102030405060708090a0b0c0d0e0f")).unwrap();
        for step in parse_path("m/0'/1/2'").unwrap() {
            node = node.child(step, &Secp256k1::signing_only()).unwrap();
        }
        assert_eq!(*node.key, hex!("cbce0d719ecf7431d88e6a89fa1483e02e35092af60c042b1df2ff59fa424dca"));
    }

    #[test]
    fn bad_words_and_paths_are_named_without_repeating_a_word() {
        let wrong = |words: &str| derive(words, "m/0").unwrap_err();
        assert_eq!(wrong("test test"), SignerError::Mnemonic { reason: "it has 2 words".into() });
        let typo = wrong(&WORDS.replace("junk", "jnuk"));
        assert_eq!(typo, SignerError::Mnemonic { reason: "its word number 12 is in no list".into() });
        assert_eq!(wrong(&WORDS.replace("junk", "test")).code(), "signer-mnemonic-invalid");
        for path in ["", "m", "m/", "44/60", "m/x", "m/-1", "m/+1", "m/2147483648", "m/0''", "m/1/"] {
            assert_eq!(derive(WORDS, path), Err(SignerError::Path { path: path.into() }));
        }
        assert!(parse_path(&format!("m{}", "/0".repeat(17))).is_none());
    }
}
