//! What a node tells of a submitter: the timeline of its nonces and the events in their order.

use std::collections::{BTreeMap, BTreeSet};

use gapless_core::time::Timestamp;
use serde_json::Value;

use super::chain::Shown;
use super::flaky::{PATIENCE_BLOCKS, WORDS};
use super::orders::Orders;
use super::taking::Taking;
use crate::counter;
use crate::support::Setup;

/// The most slots that are shown at once.
const SLOTS: u64 = 200;

pub(super) struct Timeline {
    account: String,
    slots: Vec<Value>,
    events: Vec<Value>,
}

impl Timeline {
    /// Of this account, whose events are among these.
    pub(super) async fn of(setup: &Setup, account: &str, events: &[Value]) -> Self {
        let mut slots: Vec<Value> = Vec::new();
        loop {
            let from = slots.len() as u64;
            let path = format!("/api/v1/submitters/{account}/nonces?from={from}&to={}", from + SLOTS);
            let (status, page) = setup.get(&path).await.unwrap();
            assert_eq!(status, 200, "{page}");
            let found = page["items"].as_array().unwrap();
            if found.is_empty() {
                break;
            }
            slots.extend(found.iter().cloned());
        }
        let ours = |event: &&Value| event["submitter"].as_str().unwrap().to_lowercase().ends_with(account);
        Self { account: account.to_owned(), slots, events: events.iter().filter(ours).cloned().collect() }
    }

    /// Whose bytes came free is told, and whose bytes were bound: nobody got a new nonce while another was free, the lowest
    /// went first, and placeholders took those for which nobody was queued. Their nonces.
    pub(super) fn assert_free_nonces_went_to_the_next(&self, place: usize, orders: &Orders) -> BTreeSet<u64> {
        let (mut nonce_of, mut fillers) = (BTreeMap::new(), Vec::new());
        for (nonce, slot) in (0..).zip(&self.slots) {
            assert_eq!((&slot["nonce"], &slot["status"]), (&nonce.into(), &"resolved".into()), "{slot}");
            for attempt in slot["attempts"].as_array().unwrap() {
                nonce_of.insert(attempt["hash"].as_str().unwrap(), nonce);
                if attempt["kind"] == "placeholder" {
                    fillers.push((time(&attempt["at"]), nonce));
                }
            }
        }
        fillers.sort_unstable();
        let mut taking = Taking::default();
        let mut filled = fillers.iter().peekable();
        for event in &self.events {
            while let Some((at, nonce)) = filled.next_if(|(at, _)| *at < time(&event["at"])) {
                taking.fill(*nonce, *at);
            }
            let tx_id = event["txId"].as_str().unwrap_or_default();
            match event["type"].as_str().unwrap() {
                "tx.accepted" => taking.accept(time(&event["at"])),
                "tx.submitted" => taking.bind(tx_id, nonce_of[event["data"]["txHash"].as_str().unwrap()]),
                "tx.attempt_refused" if event["data"]["abandoned"] == true => {
                    assert!(orders.0[tx_id].is_marked(), "{event}");
                    taking.set_free(tx_id);
                }
                _ => {}
            }
        }
        filled.for_each(|(at, nonce)| taking.fill(*nonce, *at));
        let all = orders.0.values().filter(|order| order.submitter == place).count();
        taking.assert_complete(all, self.slots.len() as u64);
        let (taken, many) = (taking.taken, fillers.len());
        println!("{}: {taken} free nonces went to the next, {many} to placeholders", self.account);
        assert!(taken > 0 && many > 0, "both ways were taken");
        fillers.into_iter().map(|(_, nonce)| nonce).collect()
    }

    /// Valid requests are CONFIRMED by what is on the chain; marked ones failed with their reason, not before the use of
    /// their nonce was deep enough; each ended once, and told all of it.
    pub(super) async fn assert_ends(&self, setup: &Setup, shown: &Shown, orders: &Orders, place: usize) {
        let mut told: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for event in self.events.iter().filter(|event| !event["txId"].is_null()) {
            told.entry(event["txId"].as_str().unwrap()).or_default().push(event);
        }
        let carriers = shown.carriers(&self.account);
        let views = views(setup, &self.account).await;
        for (tx_id, order) in orders.0.iter().filter(|(_, order)| order.submitter == place) {
            let (view, told) = (&views[tx_id], &told[tx_id.as_str()]);
            assert!((1..).zip(told).all(|(seq, event)| event["seq"] == seq), "{told:#?}");
            let ends: Vec<&Value> = told.iter().copied().filter(|event| is_end(event)).collect();
            assert_eq!(ends.len(), 1, "{ends:#?}");
            if !order.is_marked() {
                assert_eq!((&view["state"], &ends[0]["type"]), (&"CONFIRMED".into(), &"tx.confirmed".into()));
                let carrier = carriers[counter::record(order.word()).as_str()];
                assert_eq!(view["txHash"], carrier, "{order:?}: {view}");
                continue;
            }
            assert_eq!(
                (&view["state"], &view["minedAs"]),
                (&"FAILED_FINAL".into(), &"other".into()),
                "{view}"
            );
            assert!(view["failure"]["reason"].as_str().unwrap().contains(WORDS), "{view}");
            let had = |slot: &&Value| {
                slot["attempts"].as_array().unwrap().iter().any(|attempt| attempt["txId"] == tx_id.as_str())
            };
            let slots: Vec<&Value> = self.slots.iter().filter(had).collect();
            assert_eq!(slots.len(), 1, "it had one nonce: {slots:#?}");
            let nonce = slots[0]["nonce"].as_u64().unwrap();
            assert_eq!(slots[0]["minedHash"], shown.hash_at(&self.account, nonce), "{}", slots[0]);
            // The chain's clock counts whole seconds, and is up to one of them ahead of ours.
            let ended = u64::try_from(time(&ends[0]["at"]).as_micros()).unwrap() / 1_000_000;
            let deep = shown.deep_at(&self.account, nonce, PATIENCE_BLOCKS);
            assert!(ended + 1 >= deep, "{order:?} ended at {ended}, its nonce was deep enough at {deep}");
        }
    }
}

fn is_end(event: &Value) -> bool {
    let kind = event["type"].as_str().unwrap();
    ["tx.confirmed", "tx.failed", "tx.cancelled", "tx.expired", "tx.rejected"].contains(&kind)
}

fn time(at: &Value) -> Timestamp {
    Timestamp::parse(at.as_str().unwrap()).unwrap()
}

/// Every event, in order.
pub(super) async fn events(setup: &Setup) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let (status, page) = setup.get(&format!("/api/v1/events?limit=1000{after}")).await.unwrap();
        assert_eq!(status, 200, "{page}");
        let found = page["items"].as_array().unwrap();
        if found.is_empty() {
            return all;
        }
        all.extend(found.iter().cloned());
        after = format!("&after={}", page["nextCursor"].as_str().unwrap());
    }
}

/// Every transaction of a submitter, by txId.
async fn views(setup: &Setup, account: &str) -> BTreeMap<String, Value> {
    let (mut all, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let path = format!("/api/v1/tx?submitter={account}&limit=500{cursor}");
        let (status, page) = setup.get(&path).await.unwrap();
        assert_eq!(status, 200, "{page}");
        for view in page["items"].as_array().unwrap() {
            all.insert(view["txId"].as_str().unwrap().to_owned(), view.clone());
        }
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}
