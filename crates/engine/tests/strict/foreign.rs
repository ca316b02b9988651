//! Foreign use of the key of a pipelined lane: recorded with its exhibit, what it displaced gets another nonce, and nobody
//! has to look before the rest goes on.

use alloy_primitives::Address;
use gapless_core::condition::Condition;
use gapless_core::event::EventKind;
use gapless_core::ids::{Nonce, TxId};
use gapless_core::slot::SlotStatus;
use gapless_core::state::TxState;
use gapless_engine::LaneSettings;
use gapless_engine::nonces::{NonceRange, NonceView};
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use serde_json::{Value, json};

use crate::lies::SEND;
use crate::protect::{authorization, foreign};
use crate::support::{
    Node, chain, count, effects, entry, instant, memory, mine, nonce_of, number, pooled, submitter, unmined,
};
use crate::window::pipelined;

/// Somebody else's account.
const OTHER: &str = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8";

fn patient() -> LaneSettings {
    LaneSettings { finality_depth: Some(3), ..pipelined(6, 1) }
}

async fn timeline(node: &Node) -> Vec<NonceView> {
    node.handle.nonces(&submitter(), NonceRange::default()).await.unwrap().unwrap()
}

fn full() -> Fault {
    Fault::ErrorWithoutForward { code: -32000, message: "txpool is full".into() }
}

/// What was told of the submitter with a foreign nonce in it.
async fn told_of(node: &Node, kind: EventKind) -> Vec<Value> {
    let events = node.handle.events(None, 500).await.unwrap().events;
    let told = events.into_iter().filter(|event| event.kind == kind).map(|event| event.data);
    told.filter(|data| !data["foreignNonce"].is_null()).collect()
}

/// Two in a block, four bound above them that no node has: the third nonce is free for the taking.
async fn in_the_middle(anvil: &Anvil, proxy: &RpcProxy, node: &Node) -> Vec<TxId> {
    let mut ids = node.submit_all(0, 2).await;
    pooled(anvil, 2).await;
    proxy.rule(SEND, full());
    mine(anvil, 1).await;
    ids.extend(node.submit_all(2, 6).await);
    for id in &ids[2..] {
        node.until(*id, "a nonce", |view| view.state == TxState::Tracking).await;
    }
    ids
}

/// The third nonce was somebody else's: the rest keeps its place, and what was displaced comes after it, once.
async fn goes_on_without_it(anvil: &Anvil, node: &Node, ids: &[TxId], exhibit: (Value, u64)) {
    pooled(anvil, 3).await;
    mine(anvil, 1).await;
    node.until_submitter("the rest to be mined", |view| view.consumed >= Some(Nonce(6))).await;
    let view = node.handle.tx(ids[2]).await.unwrap();
    assert_eq!(view.state, TxState::Tracking, "it is patient: {view:?}");
    let reason = view.wait_reason.map(|wait| serde_json::to_value(wait).unwrap()).unwrap();
    assert!(reason["reason"].as_str().unwrap().contains("somebody else used its nonce 2"), "{reason}");
    mine(anvil, 3).await;
    pooled(anvil, 1).await;
    mine(anvil, 2).await;
    let mut nonces = Vec::new();
    for id in ids {
        nonces.push(nonce_of(anvil, node.confirmed(*id).await.tx_hash.unwrap()).await);
    }
    assert_eq!(nonces, [0, 1, 6, 3, 4, 5]);
    for n in 0..6 {
        assert_eq!(effects(anvil, n).await, 1, "effects of request {n}");
    }
    assert_eq!(count(anvil).await, 7);
    let slots = timeline(node).await;
    assert_eq!(slots.len(), 7);
    assert_eq!(slots[2].status, SlotStatus::Foreign);
    let (hash, block) = exhibit;
    assert_eq!(json!(slots[2].mined_hash), hash);
    assert_eq!(slots[2].block_number.map(|block| block.0), Some(block));
    assert!(
        slots.iter().filter(|slot| slot.nonce != Nonce(2)).all(|slot| slot.status != SlotStatus::Foreign)
    );

    assert!(node.told(ids[2]).await.contains(&EventKind::TxRequeued));
    let held = told_of(node, EventKind::SubmitterHold).await;
    assert_eq!(held.len(), 1, "{held:?}");
    assert_eq!((&held[0]["foreignNonce"], &held[0]["hash"]), (&json!(2), &hash));
    assert_eq!(told_of(node, EventKind::SubmitterResumed).await.len(), 1);
    assert!(!node.ever_told(EventKind::SubmitterProtected).await, "nobody has to look");
    assert_eq!(node.submitter().await.condition, Condition::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_transaction_in_the_middle_of_a_window_is_recorded_and_the_rest_goes_on() {
    let anvil = unmined().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let node = Node::start(&proxy.url(), patient()).await;
    let ids = in_the_middle(&anvil, &proxy, &node).await;
    let hash = foreign(&anvil).await;
    mine(&anvil, 1).await;
    let mined = anvil.rpc("eth_getTransactionByHash", json!([hash])).await.unwrap();
    assert_eq!(number(&mined["nonce"]), 2);
    proxy.clear();
    goes_on_without_it(&anvil, &node, &ids, (hash, number(&mined["blockNumber"]))).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authorization_in_the_middle_of_a_window_is_recorded_without_a_hash() {
    let extra_args = vec!["--hardfork".into(), "prague".into(), "--no-mining".into()];
    let anvil = chain(AnvilOptions { extra_args, ..AnvilOptions::default() }).await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let node = Node::start(&proxy.url(), patient()).await;
    let ids = in_the_middle(&anvil, &proxy, &node).await;
    let other: Address = OTHER.parse().unwrap();
    let sent = json!([{
        "type": "0x4", "from": other, "to": other, "value": "0x0", "gas": "0x30d40",
        "authorizationList": [authorization(2)],
    }]);
    let hash = anvil.rpc("eth_sendTransaction", sent).await.unwrap();
    mine(&anvil, 1).await;
    let receipt = anvil.rpc("eth_getTransactionReceipt", json!([hash])).await.unwrap();
    assert_eq!(count(&anvil).await, 3, "the nonce was consumed: {receipt}");
    proxy.clear();
    goes_on_without_it(&anvil, &node, &ids, (Value::Null, number(&receipt["blockNumber"]))).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_finds_the_chain_ahead_records_each_skipped_nonce_and_goes_on_above() {
    let anvil = instant().await;
    let store = memory();
    let node = Node::on(store.clone(), &[anvil.url()], pipelined(4, 0)).await;
    let first = node.submit(entry(0)).await;
    node.confirmed(first).await;
    node.stopped().await;
    let mut hashes = Vec::new();
    for _ in 0..3 {
        hashes.push(foreign(&anvil).await);
    }
    let node = Node::on(store, &[anvil.url()], pipelined(4, 0)).await;
    let next = node.submit(entry(1)).await;
    assert_eq!(nonce_of(&anvil, node.confirmed(next).await.tx_hash.unwrap()).await, 4);
    let slots = timeline(&node).await;
    let foreign: Vec<(u64, Value)> = slots
        .iter()
        .filter(|slot| slot.status == SlotStatus::Foreign)
        .map(|slot| (slot.nonce.0, json!(slot.mined_hash)))
        .collect();
    assert_eq!(foreign, (1..4).zip(hashes).collect::<Vec<_>>());
    assert!(!node.ever_told(EventKind::SubmitterProtected).await);
    assert_eq!(node.submitter().await.condition, Condition::Ok);
    assert_eq!((effects(&anvil, 0).await, effects(&anvil, 1).await), (1, 1));
    node.stopped().await;
}
