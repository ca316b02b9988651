//! Requests of several submitters. Each says in its call data which one it is, so that a second copy of one cannot make up
//! for a lost other; one of fifty carries a mark by which endpoints know what to refuse.

use std::collections::BTreeMap;
use std::ops::Range;

use alloy_primitives::{B256, hex};
use serde_json::{Value, json};

use crate::counter;
use crate::support::Setup;

/// Of each submitter.
pub(super) const EACH: u64 = 1_000;
/// One of so many is marked; the last of all is, and nobody is queued behind it.
const MARKED: u64 = 50;
const MARK: &[u8; 16] = b"no node takes it";
const PLAIN: &[u8; 16] = b"an order of ours";
/// Requests posted at once.
const BATCH: usize = 500;

/// One request: the how manieth of which submitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    pub(super) submitter: usize,
    pub(super) place: u64,
}

impl Order {
    pub(super) fn is_marked(self) -> bool {
        self.place % MARKED == MARKED - 1
    }

    /// What it records on the chain.
    pub(super) fn word(self) -> B256 {
        let mark = if self.is_marked() { MARK } else { PLAIN };
        let which = (self.submitter as u64).to_be_bytes();
        B256::from_slice(&[mark, &which[..], &self.place.to_be_bytes()].concat())
    }

    fn body(self, accounts: &[String]) -> Value {
        let data = counter::record(self.word());
        json!({
            "submitter": accounts[self.submitter],
            "requestId": format!("order-{}-{}", self.submitter, self.place),
            "payload": { "to": counter::PLACE, "data": data, "gasLimit": "100000" },
        })
    }
}

/// Whether bytes, in hex, carry the mark.
pub(super) fn are_marked(raw: &str) -> bool {
    raw.contains(&hex::encode(MARK))
}

/// All requests, by txId.
#[derive(Default)]
pub(super) struct Orders(pub(super) BTreeMap<String, Order>);

impl Orders {
    /// Posts those at these places to a node, the submitters in turn. All are new.
    pub(super) async fn post(&mut self, setup: &Setup, accounts: &[String], places: Range<u64>) {
        let turns = places.flat_map(|place| (0..accounts.len()).map(move |n| Order { submitter: n, place }));
        let turns: Vec<Order> = turns.collect();
        for some in turns.chunks(BATCH) {
            let items: Vec<Value> = some.iter().map(|order| order.body(accounts)).collect();
            let (status, answer) = setup.post("/api/v1/tx/batch", &json!({ "items": items })).await;
            assert_eq!(status, 200, "{answer}");
            for (order, made) in some.iter().zip(answer["items"].as_array().unwrap()) {
                assert_eq!(made["status"], 202, "{made}");
                let known = self.0.insert(made["txId"].as_str().unwrap().to_owned(), *order);
                assert_eq!(known, None, "each has an id of its own");
            }
        }
    }

    /// Those of one submitter that should take effect.
    pub(super) fn valid_of(&self, submitter: usize) -> impl Iterator<Item = Order> {
        self.0.values().copied().filter(move |order| order.submitter == submitter && !order.is_marked())
    }
}
