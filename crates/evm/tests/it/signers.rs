//! Signatures that a real node takes, keys from every kind of file, and a signer that cheats.

use std::path::PathBuf;
use std::time::Duration;

use alloy_primitives::{Address, B256, Bytes, U256, hex};
use gapless_core::fees::{Fees, Gas, GasPrice, Wei};
use gapless_core::ids::Nonce;
use gapless_core::intent::AccessListItem;
use gapless_core::outcome::SendOutcome;
use gapless_core::ports::chain::{Chain, Unsigned};
use gapless_core::ports::signer::{SignError, Signer};
use gapless_core::submitter::SubmitterId;
use gapless_evm::{LocalSigner, RemoteOptions, RemoteSigner, SignerError};
use gapless_testkit::anvil::Anvil;
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use serde_json::{Value, json};

use crate::common::*;

const LEGACY: Fees = Fees::Legacy { gas_price: GasPrice(20_000_000_000) };
const WORDS: &str = "test test test test test test test test test test test junk\n";

/// The same key, locked with Python's hashlib and cryptography so that nothing of ours made it.
const KEYSTORE: &str = r#"{"address":"f39fd6e51aad88f6f4ce6ab8827279cfffb92266",
"crypto":{"cipher":"aes-128-ctr","cipherparams":{"iv":"000102030405060708090a0b0c0d0e0f"},"ciphertext":"24529ca1b17fd6aca6bdf56e6c623e290e75f0909bbe5c19541a814c7a4715e8",
"kdf":"scrypt","kdfparams":{"dklen":32,"n":1024,"p":1,"r":8,"salt":"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"},
"mac":"437d78245b271e49b77de61f47774bf4e01d29ee8afe1edf435eca7ed93f1287"},"id":"a1f0c3b2-0000-4000-8000-000000000000","version":3}"#;

/// One of each type, from nonce 0 on.
fn one_of_each() -> Vec<(Unsigned, &'static str)> {
    let list = vec![AccessListItem {
        address: Address::repeat_byte(0xee),
        storage_keys: vec![B256::repeat_byte(1)],
    }];
    let mut of_type = vec![(DYNAMIC, false, "0x2"), (DYNAMIC, true, "0x2")];
    of_type.extend([(LEGACY, true, "0x1"), (LEGACY, false, "0x0")]);
    let build = |(nonce, (fees, listed, kind)): (u64, (Fees, bool, &'static str))| {
        let mut unsigned = Unsigned { fees, gas_limit: Gas(60_000), ..transfer(nonce) };
        unsigned.payload.data = Bytes::from_static(&[1, 2, 3]);
        if listed {
            unsigned.payload.access_list.clone_from(&list);
        }
        (unsigned, kind)
    };
    (0..).zip(of_type).map(build).collect()
}

async fn accepted_by(node: &Anvil, signer: &dyn Signer) {
    let chain = chain_of(node.url());
    let (unsigned, kinds): (Vec<_>, Vec<_>) = one_of_each().into_iter().unzip();
    let (signed, error) = signer.sign(&unsigned).await;
    assert_eq!(error, None);
    for ((unsigned, signed), kind) in unsigned.iter().zip(signed).zip(kinds) {
        let attempt = stored(unsigned, signed, gapless_core::attempt::Route::Public);
        assert_eq!(chain.send(&[&attempt]).await, [SendOutcome::Accepted], "{kind}");
        assert!(receipt_of(&chain, attempt.hash).await.succeeded);
        let seen = node.rpc("eth_getTransactionByHash", json!([attempt.hash])).await.unwrap();
        assert_eq!(seen["from"], format!("{ACCOUNT:#x}"));
        assert_eq!(
            (&seen["type"], &seen["nonce"]),
            (&json!(kind), &json!(format!("{:#x}", unsigned.nonce.0)))
        );
        assert_eq!(seen["accessList"].as_array().map_or(0, Vec::len), unsigned.payload.access_list.len());
    }
}

#[tokio::test]
async fn every_type_signed_locally_is_accepted() {
    let node = eager_node().await;
    accepted_by(&node, &LocalSigner::from_hex(KEY, Some(ACCOUNT)).unwrap()).await;
}

#[tokio::test]
async fn a_failure_truncates_and_what_was_signed_stands() {
    let signer = LocalSigner::from_hex(KEY, None).unwrap();
    let mut run: Vec<Unsigned> = (0..4).map(transfer).collect();
    run[2].submitter = SubmitterId::evm(CHAIN, Address::repeat_byte(1));
    let (signed, error) = signer.sign(&run).await;
    assert_eq!(signed, sign(&run[..2]).await);
    assert!(matches!(error, Some(SignError::Refused(_))));
    assert!(signer.can_fill_slots());
    assert!(!format!("{signer:?}").contains("ac0974"));
}

#[test]
fn keys_come_from_files_of_every_kind() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| -> PathBuf {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let key = file("key", &format!("{KEY}\n"));
    assert_eq!(LocalSigner::from_key_file(&key, Some(ACCOUNT)).unwrap().address(), ACCOUNT);

    let words = file("words", WORDS);
    let path = "m/44'/60'/0'/0/0";
    assert_eq!(LocalSigner::from_mnemonic_file(&words, path, None).unwrap().address(), ACCOUNT);
    let found = LocalSigner::from_mnemonic_file(&words, "m/44'/60'/0'/0/1", Some(ACCOUNT)).unwrap_err();
    let SignerError::Address { expected, found } = found else { panic!("{found}") };
    assert_eq!(expected, ACCOUNT);
    assert_eq!(found, alloy_primitives::address!("70997970C51812dc3A010C7d01b50e0d17dc79C8"));

    let (keystore, password) = (file("keystore", KEYSTORE), file("password", "pässword\n"));
    assert_eq!(LocalSigner::from_keystore(&keystore, &password, None).unwrap().address(), ACCOUNT);
    let wrong = file("wrong", "password\n");
    assert_eq!(
        LocalSigner::from_keystore(&keystore, &wrong, None).unwrap_err().code(),
        "signer-wrong-password"
    );
    for broken in
        ["", "{}", &KEYSTORE[..KEYSTORE.len() / 2], &KEYSTORE.replace("\"dklen\":32", "\"dklen\":1")]
    {
        let broken = file("broken", broken);
        let error = LocalSigner::from_keystore(&broken, &password, None).unwrap_err();
        assert_eq!(error.code(), "signer-keystore-malformed", "{error}");
    }

    let missing = LocalSigner::from_key_file(&dir.path().join("missing"), None).unwrap_err();
    assert_eq!(missing.code(), "signer-file-unreadable");
    assert!(missing.to_string().contains("missing"));
    std::fs::write(&key, [0xff, 0xfe]).unwrap();
    assert_eq!(LocalSigner::from_key_file(&key, None).unwrap_err().code(), "signer-file-unreadable");
    std::fs::write(&key, "0x12").unwrap();
    assert_eq!(LocalSigner::from_key_file(&key, None).unwrap_err().code(), "signer-key-invalid");
}

fn remote(url: &str) -> RemoteSigner {
    let options = RemoteOptions { timeout: Duration::from_millis(500), ..RemoteOptions::new(url, ACCOUNT) };
    RemoteSigner::new(&options).unwrap()
}

#[tokio::test]
async fn every_type_signed_by_a_remote_signer_is_accepted() {
    let node = eager_node().await;
    // The node holds the key as well, and signs as Web3signer does.
    let signer = RemoteSigner::new(&RemoteOptions::new(node.url(), ACCOUNT)).unwrap();
    accepted_by(&node, &signer).await;
}

/// A signer that holds the key and signs something else than it was asked to.
fn cheat(with: impl Fn(&mut Unsigned) + Send + Sync + 'static) -> Fault {
    Fault::result(move |call, _| {
        let asked = &call["params"][0];
        let number = |field: &str| U256::from_str_radix(&asked[field].as_str().unwrap()[2..], 16).unwrap();
        let mut unsigned = transfer(number("nonce").to::<u64>());
        unsigned.payload.value = Wei(number("value"));
        with(&mut unsigned);
        let signer = LocalSigner::from_hex(KEY, None).unwrap();
        let (signed, _) = futures::executor::block_on(signer.sign(&[unsigned]));
        json!({"jsonrpc": "2.0", "id": call["id"], "result": signed[0].raw})
    })
}

#[tokio::test]
async fn a_signer_that_signs_something_else_is_found_out() {
    let node = eager_node().await;
    let proxy = RpcProxy::start(node.url()).unwrap();
    let signer = remote(&proxy.url());
    let result = async |fault: Fault| {
        let rule = proxy.rule("eth_signTransaction", fault);
        let (signed, error) = signer.sign(&[transfer(5)]).await;
        proxy.remove(rule);
        (signed.len(), error)
    };
    assert_eq!(result(cheat(|_| ())).await, (1, None));

    type Change = fn(&mut Unsigned);
    let changes: [(&str, Change); 9] = [
        ("to", |u| u.payload.to = Some(Address::repeat_byte(0x66))),
        ("to", |u| u.payload.to = None),
        ("value", |u| u.payload.value = Wei(U256::from(1_000_000))),
        ("data", |u| u.payload.data = Bytes::from_static(&[1])),
        ("nonce", |u| u.nonce = Nonce(6)),
        ("gas", |u| u.gas_limit = Gas(22_000)),
        ("chain id", |u| u.submitter = SubmitterId::evm(1, ACCOUNT)),
        ("type", |u| u.fees = LEGACY),
        ("access list", |u| {
            u.payload.access_list =
                vec![AccessListItem { address: Address::repeat_byte(1), storage_keys: vec![] }];
        }),
    ];
    for (field, change) in changes {
        let (signed, error) = result(cheat(change)).await;
        let Some(SignError::Tampered(text)) = error else { panic!("{field}: {error:?}") };
        assert!(signed == 0 && text.as_str().starts_with(field), "{field}: {text}");
    }
    for (total, tip, field) in [(1, 1, "max fee"), (20_000_000_000, 2, "max priority fee")] {
        let fees =
            Fees::Dynamic { max_fee_per_gas: GasPrice(total), max_priority_fee_per_gas: GasPrice(tip) };
        let (_, error) = result(cheat(move |u| u.fees = fees)).await;
        assert!(
            matches!(&error, Some(SignError::Tampered(text)) if text.as_str().starts_with(field)),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_signature_of_somebody_else_or_no_transaction_at_all_is_found_out() {
    let node = eager_node().await;
    let proxy = RpcProxy::start(node.url()).unwrap();
    let signer = remote(&proxy.url());
    let good = sign(&[transfer(5)]).await.remove(0).raw;
    let mut longer = good.to_vec();
    longer.push(0);
    let mut other = good.to_vec();
    // Within s: another signature, and so another sender.
    let last = other.len() - 1;
    other[last] ^= 1;
    for (what, answer) in [
        ("another sender", json!(hex::encode_prefixed(other))),
        ("a byte too many", json!(hex::encode_prefixed(longer))),
        ("nothing", json!("0x")),
        ("null", Value::Null),
        ("a number", json!(7)),
        ("noise", json!("0x02c0ffee")),
    ] {
        let rule = proxy.rule("eth_signTransaction", Fault::FixedResult(answer));
        let (signed, error) = signer.sign(&[transfer(5)]).await;
        assert!(signed.is_empty() && matches!(error, Some(SignError::Tampered(_))), "{what}: {error:?}");
        proxy.remove(rule);
    }
    let wrapped = json!({"raw": good, "tx": {"hash": "0x"}});
    proxy.rule("eth_signTransaction", Fault::FixedResult(wrapped));
    assert_eq!(signer.sign(&[transfer(5)]).await.1, None);
}

#[tokio::test]
async fn a_remote_signer_that_refuses_or_is_silent_is_told_apart() {
    let node = eager_node().await;
    let proxy = RpcProxy::start(node.url()).unwrap();
    let signer = remote(&proxy.url());
    for (fault, unavailable) in [
        (Fault::Hang, true),
        (Fault::DropAnswer, true),
        (Fault::HttpStatus(503), true),
        (Fault::HttpStatus(429), true),
        (Fault::HttpStatus(404), false),
        (Fault::ErrorWithoutForward { code: -32000, message: "not signing for this account".into() }, false),
    ] {
        let rule = proxy.rule("eth_signTransaction", fault.clone());
        let (signed, error) = signer.sign(&[transfer(0)]).await;
        assert!(signed.is_empty());
        let told = matches!(error, Some(SignError::Unavailable(_)));
        assert!(
            told == unavailable && !matches!(error, None | Some(SignError::Tampered(_))),
            "{fault:?}: {error:?}"
        );
        proxy.remove(rule);
    }
    let failing = gapless_testkit::rpc_proxy::Rule::new("eth_signTransaction", Fault::HttpStatus(503));
    proxy.add(failing.every(3));
    let run: Vec<Unsigned> = (0..3).map(transfer).collect();
    let in_order = RemoteOptions { max_in_flight: 1, ..RemoteOptions::new(proxy.url(), ACCOUNT) };
    let (signed, error) = RemoteSigner::new(&in_order).unwrap().sign(&run).await;
    assert!(signed.len() == 2 && matches!(error, Some(SignError::Unavailable(_))), "{error:?}");
    assert!(RemoteSigner::new(&RemoteOptions::new("ftp://x", ACCOUNT)).is_err());
}
