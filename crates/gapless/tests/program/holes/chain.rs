//! What the chain itself shows, read without any of our own parts.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{B256, U256};
use gapless_testkit::anvil::Anvil;
use serde_json::json;

use super::orders::{Order, Orders};
use crate::counter::{self, number};

/// A transaction in a block.
struct Mined {
    block: u64,
    hash: String,
    to: String,
    input: String,
}

/// Everything in blocks, by sender and nonce.
pub(super) struct Shown {
    mined: BTreeMap<String, BTreeMap<u64, Mined>>,
    /// Of each block, in seconds.
    times: Vec<u64>,
}

impl Shown {
    pub(super) async fn of(anvil: &Anvil) -> Self {
        let mut shown = Self { mined: BTreeMap::new(), times: Vec::new() };
        let head = number(&anvil.rpc("eth_blockNumber", json!([])).await.unwrap());
        for height in 0..=head {
            let asked = json!([format!("{height:#x}"), true]);
            let block = anvil.rpc("eth_getBlockByNumber", asked).await.unwrap();
            shown.times.push(number(&block["timestamp"]));
            for tx in block["transactions"].as_array().unwrap() {
                let text = |key: &str| tx[key].as_str().unwrap().to_owned();
                let mined = Mined { block: height, hash: text("hash"), to: text("to"), input: text("input") };
                let of_sender = shown.mined.entry(text("from")).or_default();
                assert!(of_sender.insert(number(&tx["nonce"]), mined).is_none(), "a nonce is used once");
            }
        }
        shown
    }

    /// Each account's nonces are one run from zero; in it each of its valid requests stands once, and else nothing but what
    /// moves nothing. What the contract itself counted says the same.
    pub(super) async fn assert_each_once(&self, anvil: &Anvil, accounts: &[String], orders: &Orders) {
        assert_eq!(self.mined.keys().collect::<BTreeSet<_>>(), accounts.iter().collect(), "nobody else sent");
        let mut expected: BTreeMap<B256, U256> = BTreeMap::new();
        for (submitter, account) in accounts.iter().enumerate() {
            let run = self.mined[account].keys().copied();
            let many = self.mined[account].len() as u64;
            assert!(run.eq(0..many), "the nonces of {account} have a hole");
            for tag in ["latest", "pending"] {
                let count = anvil.rpc("eth_getTransactionCount", json!([account, tag])).await.unwrap();
                assert_eq!(number(&count), many, "{tag} of {account}");
            }
            let valid: Vec<Order> = orders.valid_of(submitter).collect();
            let placeholders = self.placeholders_of(account).len();
            assert_eq!(
                valid.len() + placeholders,
                self.mined[account].len(),
                "nothing else was sent by {account}"
            );
            expected.extend(valid.into_iter().map(|order| (order.word(), U256::from(1))));
        }
        let recorded = counter::recorded(anvil).await;
        assert_eq!(recorded.len(), expected.len(), "effects");
        assert_eq!(recorded.into_iter().collect::<BTreeMap<_, _>>(), expected);
    }

    /// Nonces of an account that were used by what moves nothing.
    pub(super) fn placeholders_of(&self, account: &str) -> BTreeSet<u64> {
        let nothing = |(_, mined): &(&u64, &Mined)| mined.to == account && mined.input == "0x";
        self.mined[account].iter().filter(nothing).map(|(nonce, _)| *nonce).collect()
    }

    /// What used a nonce.
    pub(super) fn hash_at(&self, account: &str, nonce: u64) -> &str {
        &self.mined[account][&nonce].hash
    }

    /// The hashes of all that carried something, by what it was.
    pub(super) fn carriers(&self, account: &str) -> BTreeMap<&str, &str> {
        self.mined[account].values().map(|mined| (mined.input.as_str(), mined.hash.as_str())).collect()
    }

    /// When, by the chain's clock, the use of a nonce had so many blocks on top; in seconds.
    pub(super) fn deep_at(&self, account: &str, nonce: u64, depth: u64) -> u64 {
        let height = self.mined[account][&nonce].block + depth;
        *self.times.get(height as usize).unwrap_or_else(|| panic!("block {height} is not there yet"))
    }
}
