//! What geth answers to a send, word for word, and what we make of it. The words stand here so that a newer geth which
//! chooses others is noticed.

use alloy_primitives::{Address, Bytes, U256};
use gapless_core::fees::{Fees, Gas, GasPrice, Wei};
use gapless_core::ids::Nonce;
use gapless_core::outcome::SendOutcome;
use gapless_core::ports::chain::{Chain, Unsigned};
use gapless_core::submitter::SubmitterId;
use gapless_testkit::Error;
use gapless_testkit::geth::{Geth, GethOptions, Mining};
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};

use super::patient;
use crate::common::*;

const GWEI: u128 = 1_000_000_000;

fn priced(nonce: u64, max_fee: u128, tip: u128) -> Unsigned {
    let fees = Fees::Dynamic { max_fee_per_gas: GasPrice(max_fee), max_priority_fee_per_gas: GasPrice(tip) };
    Unsigned { fees, ..transfer(nonce) }
}

fn with_gas(nonce: u64, gas: u64) -> Unsigned {
    Unsigned { gas_limit: Gas(gas), ..transfer(nonce) }
}

fn moving(nonce: u64, ether: u64) -> Unsigned {
    let mut unsigned = transfer(nonce);
    unsigned.payload.value = Wei(U256::from(ether) * U256::from(10).pow(U256::from(18)));
    unsigned
}

fn carrying(nonce: u64, data: Vec<u8>, gas: u64) -> Unsigned {
    let mut unsigned = with_gas(nonce, gas);
    unsigned.payload.data = Bytes::from(data);
    unsigned
}

async fn started(extra_args: &[&str], keep_pool: bool) -> Geth {
    let extra_args = extra_args.iter().map(ToString::to_string).collect();
    let options = GethOptions { mining: Mining::WhenTold, keep_pool, extra_args, ..GethOptions::default() };
    Geth::start(options).await.unwrap()
}

async fn raw_answer(node: &Geth, unsigned: &Unsigned) -> Result<Value, String> {
    let attempt = attempt(unsigned).await;
    match node.rpc("eth_sendRawTransaction", json!([attempt.raw])).await {
        Ok(hash) => Ok(hash),
        Err(Error::Rpc { answer, .. }) => Err(answer["message"].as_str().unwrap().to_owned()),
        Err(error) => panic!("{error:?}"),
    }
}

/// It goes into the pool, and a second time finds itself there.
async fn taken(node: &Geth, unsigned: &Unsigned) {
    let (chain, attempt) = (chain_of(node.url()), attempt(unsigned).await);
    assert_eq!(chain.send(&[&attempt]).await, [SendOutcome::Accepted]);
    assert_eq!(raw_answer(node, unsigned).await, Err("already known".to_owned()));
    assert_eq!(chain.send(&[&attempt]).await, [SendOutcome::AlreadyKnown]);
}

/// Each is refused in words that begin like this, and is of this class.
async fn refused(node: &Geth, rows: Vec<(Unsigned, &str, &str)>) {
    let chain = chain_of(node.url());
    for (unsigned, words, class) in rows {
        let said = raw_answer(node, &unsigned).await.unwrap_err();
        assert!(said.starts_with(words), "{said}, not {words}");
        let outcome = chain.send(&[&attempt(&unsigned).await]).await.remove(0);
        assert_eq!(outcome.code(), class, "{said}");
    }
    assert_eq!(chain.unknown_texts().total(), 0);
}

#[tokio::test]
async fn a_replacement_must_be_a_tenth_dearer_in_both_fees() {
    const WORDS: (&str, &str) = ("replacement transaction underpriced", "replacement-underpriced");
    let node = patient().await;
    taken(&node, &priced(0, 20 * GWEI, GWEI)).await;
    let too_cheap = [
        (20 * GWEI + 1, GWEI + 1),
        (22 * GWEI, GWEI),
        (20 * GWEI, GWEI * 11 / 10),
        (22 * GWEI, GWEI * 11 / 10 - 1),
        (22 * GWEI - 1, GWEI * 11 / 10),
    ];
    let rows = too_cheap.map(|(max_fee, tip)| (priced(0, max_fee, tip), WORDS.0, WORDS.1));
    refused(&node, rows.into()).await;
    let replacement = priced(0, 22 * GWEI, GWEI * 11 / 10);
    taken(&node, &replacement).await;
    node.mine(1).await.unwrap();
    assert!(receipt_of(&chain_of(node.url()), attempt(&replacement).await.hash).await.succeeded);
}

#[tokio::test]
async fn geths_own_words_are_classified() {
    let node = patient().await;
    taken(&node, &transfer(0)).await;
    node.mine(1).await.unwrap();
    let mut stray = transfer(1);
    stray.submitter = SubmitterId::evm(5, ACCOUNT);
    let mut creation = carrying(1, vec![0; 50_000], 2_000_000);
    creation.payload.to = None;
    let free = Unsigned { fees: Fees::Legacy { gas_price: GasPrice(0) }, ..transfer(1) };
    refused(
        &node,
        vec![
            (transfer(0), "nonce too low: next nonce 1, tx nonce 0", "nonce-too-low"),
            (moving(1, 10_001), "insufficient funds for gas * price + value: balance ", "insufficient-funds"),
            (with_gas(1, 20_000), "intrinsic gas too low: gas 20000, minimum needed 21000", "invalid"),
            (
                carrying(1, vec![1; 1000], 37_000),
                "insufficient gas for floor data gas cost: gas 37000, minimum needed 61000",
                "invalid",
            ),
            (with_gas(1, 12_000_000), "exceeds block gas limit", "unavailable"),
            (with_gas(1, 20_000_000), "transaction gas limit too high (cap: 16777216, ", "invalid"),
            (with_gas(1, 100_000_000), "tx fee (2.00 ether) exceeds the configured cap ", "node-fee-cap"),
            (priced(1, 1, 2), "max priority fee per gas higher than max fee per gas", "invalid-fees"),
            (free, "transaction gas price below minimum: gas tip cap 0, minimum needed 1", "underpriced"),
            (creation, "max initcode size exceeded: code size 50000 limit 49152", "invalid"),
            (carrying(1, vec![0; 132_000], 2_000_000), "oversized data: transaction size ", "invalid"),
            (stray, "invalid sender: invalid chain id for signer: have 5 want 31337", "invalid"),
            (Unsigned { nonce: Nonce(u64::MAX), ..transfer(1) }, "nonce has max value", "invalid"),
        ],
    )
    .await;
}

#[tokio::test]
async fn what_waits_in_the_pool_counts_against_the_balance() {
    let node = patient().await;
    taken(&node, &moving(0, 9_000)).await;
    let settled = || async {
        let count = chain_of(node.url()).counts(&account()).await.unwrap().pending;
        (count == Nonce(1)).then_some(())
    };
    eventually(SOON, "the pool's count", settled).await.unwrap();
    let said = raw_answer(&node, &moving(1, 2_000)).await.unwrap_err();
    assert!(said.contains("queued cost"), "{said}");
    let words = "insufficient funds for gas * price + value: balance ";
    refused(&node, vec![(moving(1, 2_000), words, "insufficient-funds")]).await;
}

#[tokio::test]
async fn below_the_base_fee_and_above_a_gap_are_accepted_and_wait() {
    let node = patient().await;
    let cheap = Unsigned { fees: Fees::Legacy { gas_price: GasPrice(1) }, ..transfer(0) };
    taken(&node, &cheap).await;
    taken(&node, &transfer(5)).await;
    node.mine(3).await.unwrap();
    let chain = chain_of(node.url());
    let hashes = [attempt(&cheap).await.hash, attempt(&transfer(5)).await.hash];
    assert_eq!(chain.receipts(&hashes).await, Ok(vec![None, None]));
    let pool = node.rpc("txpool_status", json!([])).await.unwrap();
    assert_eq!(pool, json!({"pending": "0x1", "queued": "0x1"}));
}

#[tokio::test]
async fn a_delegated_account_has_one_in_flight() {
    let delegated = Bytes::from([&[0xef, 1, 0][..], Address::repeat_byte(0x55).as_slice()].concat());
    let options =
        GethOptions { mining: Mining::WhenTold, code: vec![(ACCOUNT, delegated)], ..GethOptions::default() };
    let node = Geth::start(options).await.unwrap();
    let gapped = "gapped-nonce tx from delegated accounts";
    refused(&node, vec![(transfer(2), gapped, "delegation-limit")]).await;
    taken(&node, &transfer(0)).await;
    let second = "in-flight transaction limit reached for delegated accounts";
    refused(&node, vec![(transfer(1), second, "delegation-limit")]).await;
}

const NARROW: [&str; 8] = [
    "--txpool.globalslots",
    "1",
    "--txpool.globalqueue",
    "1",
    "--txpool.accountslots",
    "1",
    "--txpool.accountqueue",
    "1",
];

/// A pool with room for one that could be mined and one above a gap, and both of them in it.
async fn full(keep_pool: bool) -> Geth {
    let node = started(&NARROW, keep_pool).await;
    for nonce in [0, 5] {
        assert!(raw_answer(&node, &priced(nonce, 20 * GWEI, 2 * GWEI)).await.is_ok());
    }
    node
}

#[tokio::test]
async fn a_full_pool_and_a_dear_one_say_underpriced() {
    let node = full(false).await;
    refused(&node, vec![(priced(7, 2 * GWEI, 1), "transaction underpriced", "underpriced")]).await;

    let node = started(&["--txpool.pricelimit", "1000000", "--miner.gasprice", "1000000"], false).await;
    let words = "transaction gas price below minimum: gas tip cap 999999, minimum needed 1000000";
    refused(&node, vec![(priced(0, 2 * GWEI, 999_999), words, "underpriced")]).await;
}

#[tokio::test]
async fn with_its_journal_geth_says_yes_to_what_its_pool_turned_away() {
    let node = full(true).await;
    let turned_away = priced(7, 2 * GWEI, 1);
    let attempt = attempt(&turned_away).await;
    let chain = chain_of(node.url());
    for _ in 0..2 {
        assert_eq!(chain.send(&[&attempt]).await, [SendOutcome::Accepted]);
        let found = node.rpc("eth_getTransactionByHash", json!([attempt.hash])).await.unwrap();
        assert!(found.is_null(), "accepted, and in no pool: {found}");
    }
}
