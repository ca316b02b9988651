//! Encrypted keystores (Web3 Secret Storage, version 3).
//!
//! A keystore is a file somebody else wrote, and one malformed file has taken whole processes down:
//! every length is checked before it is used, and the cost of opening is bounded, so that a file
//! cannot ask for all the memory there is.

use aes::Aes128;
use aes::cipher::{KeyIvInit, StreamCipher};
use alloy_primitives::{hex, keccak256};
use ctr::Ctr128BE;
use serde::Deserialize;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::SignerError;

/// As much memory as the key derivation may take; common keystores take 256 MiB at most.
const MAX_SCRYPT_BYTES: u64 = 1 << 30;
/// As many rounds as it may take; common keystores take 262,144.
const MAX_ROUNDS: u64 = 10_000_000;

#[derive(Deserialize)]
struct Keystore {
    version: u64,
    #[serde(alias = "Crypto")]
    crypto: Crypto,
}

#[derive(Deserialize)]
struct Crypto {
    cipher: String,
    cipherparams: CipherParams,
    ciphertext: String,
    kdf: String,
    kdfparams: KdfParams,
    mac: String,
}

#[derive(Deserialize)]
struct CipherParams {
    iv: String,
}

#[derive(Deserialize)]
struct KdfParams {
    dklen: u64,
    salt: String,
    n: Option<u64>,
    r: Option<u64>,
    p: Option<u64>,
    c: Option<u64>,
    prf: Option<String>,
}

fn malformed(reason: impl Into<String>) -> SignerError {
    SignerError::Keystore { reason: reason.into() }
}

/// The key inside.
pub(super) fn open(text: &str, password: &str) -> Result<Zeroizing<[u8; 32]>, SignerError> {
    let Keystore { version, crypto } =
        serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
    if version != 3 {
        return Err(malformed(format!("version {version} is not supported, only 3")));
    }
    if crypto.cipher != "aes-128-ctr" {
        return Err(malformed("only the cipher aes-128-ctr is supported"));
    }
    let iv: [u8; 16] = exactly("iv", &crypto.cipherparams.iv)?;
    let ciphertext: [u8; 32] = exactly("ciphertext", &crypto.ciphertext)?;
    let mac: [u8; 32] = exactly("mac", &crypto.mac)?;
    let derived = derive(&crypto.kdf, &crypto.kdfparams, password)?;
    let (cipher_key, mac_key) = derived.split_at(16);
    let found = keccak256(Zeroizing::new([mac_key, &ciphertext].concat()));
    if found != mac {
        return Err(SignerError::Password);
    }
    let mut key = Zeroizing::new(ciphertext);
    let mut cipher = Ctr128BE::<Aes128>::new_from_slices(cipher_key, &iv)
        .map_err(|_| malformed("the cipher's key or iv is too short"))?;
    cipher.apply_keystream(&mut *key);
    Ok(key)
}

fn exactly<const N: usize>(what: &str, text: &str) -> Result<[u8; N], SignerError> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes)
        .map_err(|_| malformed(format!("{what} is not {N} bytes of hex")))?;
    Ok(bytes)
}

fn derive(kdf: &str, params: &KdfParams, password: &str) -> Result<Zeroizing<[u8; 32]>, SignerError> {
    if params.dklen != 32 {
        return Err(malformed("dklen is not 32"));
    }
    let salt = hex::decode(&params.salt).map_err(|_| malformed("salt is not hex"))?;
    let mut derived = Zeroizing::new([0; 32]);
    match kdf {
        "scrypt" => {
            let (Some(n), Some(r), Some(p)) = (params.n, params.r, params.p) else {
                return Err(malformed("scrypt takes n, r and p"));
            };
            let fits = n.is_power_of_two()
                && n > 1
                && (1..=64).contains(&p)
                && r > 0
                && n.checked_mul(r).and_then(|nr| nr.checked_mul(128)).is_some_and(|b| b <= MAX_SCRYPT_BYTES);
            let number =
                |value: u64| u32::try_from(value).map_err(|_| malformed("scrypt's cost is out of range"));
            if !fits {
                return Err(malformed("scrypt's cost is out of range"));
            }
            let log_n = u8::try_from(n.trailing_zeros()).unwrap_or(u8::MAX);
            let params = scrypt::Params::new(log_n, number(r)?, number(p)?)
                .map_err(|_| malformed("scrypt's cost is out of range"))?;
            scrypt::scrypt(password.as_bytes(), &salt, &params, &mut *derived)
                .map_err(|_| malformed("scrypt refuses these parameters"))?;
        }
        "pbkdf2" => {
            if params.prf.as_deref() != Some("hmac-sha256") {
                return Err(malformed("only hmac-sha256 is supported as prf"));
            }
            let rounds = params.c.filter(|rounds| (1..=MAX_ROUNDS).contains(rounds));
            let rounds = rounds.and_then(|rounds| u32::try_from(rounds).ok());
            let rounds = rounds.ok_or_else(|| malformed("c is missing or out of range"))?;
            pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), &salt, rounds, &mut *derived);
        }
        _ => return Err(malformed("only scrypt and pbkdf2 are supported as kdf")),
    }
    Ok(derived)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const KEY: [u8; 32] = hex!("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80");

    /// Locks a key the way wallets do, with a cost that tests can bear.
    fn lock(key: [u8; 32], password: &str, kdf: &str) -> Value {
        let params = match kdf {
            "scrypt" => json!({"dklen": 32, "salt": "aabb", "n": 16, "r": 8, "p": 1}),
            _ => json!({"dklen": 32, "salt": "aabb", "c": 10, "prf": "hmac-sha256"}),
        };
        let derived = derive(kdf, &serde_json::from_value(params.clone()).unwrap(), password).unwrap();
        let (iv, mut ciphertext) = ([7; 16], key);
        Ctr128BE::<Aes128>::new_from_slices(&derived[..16], &iv).unwrap().apply_keystream(&mut ciphertext);
        let mac = keccak256([&derived[16..], &ciphertext].concat());
        json!({"version": 3, "id": "x", "address": "y", "crypto": {
            "cipher": "aes-128-ctr", "cipherparams": {"iv": hex::encode(iv)},
            "ciphertext": hex::encode(ciphertext), "kdf": kdf, "kdfparams": params, "mac": hex::encode(mac),
        }})
    }

    fn opened(keystore: &Value, password: &str) -> Result<[u8; 32], SignerError> {
        open(&keystore.to_string(), password).map(|key| *key)
    }

    #[test]
    fn a_locked_key_comes_back_with_its_password_only() {
        for kdf in ["scrypt", "pbkdf2"] {
            let keystore = lock(KEY, "pässword", kdf);
            assert_eq!(opened(&keystore, "pässword"), Ok(KEY));
            assert_eq!(opened(&keystore, "password"), Err(SignerError::Password));
        }
    }

    #[test]
    fn the_published_vector_opens() {
        // From the definition of Web3 Secret Storage.
        let keystore = json!({"version": 3, "crypto": {
            "cipher": "aes-128-ctr", "cipherparams": {"iv": "6087dab2f9fdbbfaddc31a909735c1e6"},
            "ciphertext": "5318b4d5bcd28de64ee5559e671353e16f075ecae9f99c7a79a38af5f869aa46", "kdf": "pbkdf2",
            "kdfparams": {"c": 262_144, "dklen": 32, "prf": "hmac-sha256",
                "salt": "ae3cd4e7013836a3df6bd7241b12db061dbe2c6785853cce422d148a624ce0bd"},
            "mac": "517ead924a9d0dc3124507e3393d175ce3ff7c1e96529c6c555ce9e51205e9b2",
        }});
        let key = hex!("7a28b5ba57c53603b0b07b56bba752f7784bf506fa95edc395f5cf6c7514fe9d");
        assert_eq!(opened(&keystore, "testpassword"), Ok(key));
    }

    #[test]
    fn a_malformed_keystore_is_an_error_with_a_reason() {
        let broken = |pointer: &str, value: Value| {
            let mut keystore = lock(KEY, "p", "scrypt");
            *keystore.pointer_mut(pointer).unwrap() = value;
            opened(&keystore, "p").unwrap_err().code()
        };
        for (pointer, value) in [
            ("/version", json!(1)),
            ("/crypto/cipher", json!("aes-256-cbc")),
            ("/crypto/cipherparams/iv", json!("00")),
            ("/crypto/ciphertext", json!("")),
            ("/crypto/ciphertext", json!("zz")),
            ("/crypto/mac", json!("00")),
            ("/crypto/kdf", json!("argon2")),
            ("/crypto/kdf", json!("pbkdf2")),
            ("/crypto/kdfparams/dklen", json!(16)),
            ("/crypto/kdfparams/dklen", json!(0)),
            ("/crypto/kdfparams/n", json!(0)),
            ("/crypto/kdfparams/n", json!(15)),
            ("/crypto/kdfparams/n", json!(1_u64 << 40)),
            ("/crypto/kdfparams/n", json!(u64::MAX)),
            ("/crypto/kdfparams/r", json!(0)),
            ("/crypto/kdfparams/r", json!(u64::MAX)),
            ("/crypto/kdfparams/p", json!(1_000_000)),
            ("/crypto/kdfparams/n", Value::Null),
            ("/crypto/kdfparams/salt", json!("xyz")),
            ("/crypto", json!([])),
        ] {
            assert_eq!(broken(pointer, value.clone()), "signer-keystore-malformed", "{pointer} = {value}");
        }
        for text in ["", "{}", "null", "[]", "not json"] {
            assert_eq!(open(text, "p").unwrap_err().code(), "signer-keystore-malformed");
        }
    }

    proptest! {
        #[test]
        fn no_file_panics(text in ".{0,80}") {
            let _ = open(&text, "p");
        }

        #[test]
        fn no_parameters_panic(dklen in 0u64..70, n in any::<u64>(), r in 0u64..5, p in 0u64..3, salt in ".{0,6}") {
            // Large but legal costs are legal; they would only slow this test.
            prop_assume!(n < 64 || !n.is_power_of_two() || n > 1 << 32);
            let mut keystore = lock(KEY, "p", "scrypt");
            keystore["crypto"]["kdfparams"] = json!({"dklen": dklen, "salt": salt, "n": n, "r": r, "p": p});
            let _ = opened(&keystore, "p");
        }
    }
}
