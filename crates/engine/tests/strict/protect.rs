//! Foreign use of the key: PROTECT needs an exhibit, skips nothing, and ends only by a human who names the nonce.

use std::time::Duration;

use alloy_eips::eip7702::Authorization;
use alloy_primitives::{Address, U256, hex};
use gapless_core::command::Verb;
use gapless_core::condition::Condition;
use gapless_core::event::EventKind;
use gapless_core::ids::{Nonce, TxId};
use gapless_core::state::{SubState, TxState};
use gapless_core::wait::WaitReason;
use gapless_engine::LaneSettings;
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use secp256k1::{Message, Secp256k1, SecretKey};
use serde_json::{Value, json};

use crate::support::{
    KEY, Node, address, chain, count, effects, entry, instant, mine, nonce_of, number, quick, submitter,
    unmined,
};

/// The same key in another wallet, past us.
pub(crate) async fn foreign(anvil: &Anvil) -> Value {
    let sent = json!([{"from": address(), "to": Address::repeat_byte(0xaa), "value": "0x1"}]);
    anvil.rpc("eth_sendTransaction", sent).await.unwrap()
}

async fn is_protected(node: &Node) -> Value {
    let view = node.until_submitter("PROTECT", |view| view.condition == Condition::Protect).await;
    serde_json::to_value(&view.protect).unwrap()
}

async fn unprotect(node: &Node, nonce: u64) {
    let args = json!({"acknowledgedNonce": nonce});
    node.handle.command(&submitter(), None, Verb::Unprotect, args, "operator").await.unwrap();
}

async fn goes_on(node: &Node) {
    node.until_submitter("the lane to go on", |view| view.condition == Condition::Ok).await;
}

/// Nonces of these transactions on chain, once all are CONFIRMED.
async fn nonces(node: &Node, anvil: &Anvil, ids: &[TxId]) -> Vec<u64> {
    let mut nonces = Vec::new();
    for id in ids {
        nonces.push(nonce_of(anvil, node.confirmed(*id).await.tx_hash.unwrap()).await);
    }
    nonces
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_transaction_protects_within_two_reconcile_intervals_and_unprotect_goes_on_without_loss() {
    let anvil = instant().await;
    let reconcile = Duration::from_secs(2);
    let node = Node::start(&anvil.url(), LaneSettings { reconcile, ..quick(0) }).await;
    let first = node.submit(entry(0)).await;
    node.confirmed(first).await;

    let hash = foreign(&anvil).await;
    // Two intervals, and a second for a busy machine.
    let within = reconcile * 2 + Duration::from_secs(1);
    let protected = tokio::time::timeout(within, is_protected(&node)).await;
    let exhibit = protected.expect("two reconcile intervals are over");
    let mined = anvil.rpc("eth_getTransactionByHash", json!([hash])).await.unwrap();
    assert_eq!(
        exhibit,
        json!({"nonce": 1, "hash": hash, "blockNumber": mined["blockNumber"], "blockHash": mined["blockHash"]})
    );
    assert_eq!(node.handle.submit(entry(1)).await.unwrap_err().code(), "submitter-protected");
    assert!(!node.handle.submit(entry(0)).await.unwrap().new, "a repeat is answered all the same");
    assert_eq!(node.submitter().await.next_nonce, Some(Nonce(1)), "nothing is skipped");

    unprotect(&node, 1).await;
    goes_on(&node).await;
    let next = node.submit(entry(1)).await;
    assert_eq!(nonces(&node, &anvil, &[next]).await, [2]);
    assert_eq!((effects(&anvil, 0).await, effects(&anvil, 1).await), (1, 1));
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_exact_foreign_nonce_ends_protect() {
    let anvil = instant().await;
    let node = Node::start(&anvil.url(), quick(0)).await;
    let first = node.submit(entry(0)).await;
    node.confirmed(first).await;
    for _ in 0..3 {
        foreign(&anvil).await;
    }
    // The highest foreign nonce, even if a lower one was seen first.
    node.until_submitter("PROTECT", |view| serde_json::to_value(&view.protect).unwrap()["nonce"] == json!(3))
        .await;
    for wrong in [0, 1, 2, 4] {
        unprotect(&node, wrong).await;
    }
    gapless_testkit::wait::eventually(Duration::from_secs(30), "four refusals", || async {
        let left = node.handle.store().take_commands(&submitter(), 10).await.unwrap();
        left.is_empty().then_some(())
    })
    .await
    .unwrap();
    assert_eq!(node.submitter().await.condition, Condition::Protect);
    unprotect(&node, 3).await;
    goes_on(&node).await;
    let next = node.submit(entry(1)).await;
    assert_eq!(nonces(&node, &anvil, &[next]).await, [4]);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_in_the_queue_and_what_lost_its_nonce_take_effect_once_after_unprotect() {
    let anvil = unmined().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let node = Node::start(&proxy.url(), quick(1)).await;
    // Nothing of ours reaches the pool, so the foreign transaction takes the very nonce we have bound.
    let fault = Fault::ErrorWithoutForward { code: -32000, message: "txpool is full".into() };
    let rule = proxy.rule("eth_sendRawTransaction", fault);
    let ids = node.submit_all(0, 3).await;
    node.until(ids[0], "the first to be bound", |view| view.state == TxState::Tracking).await;
    let hash = foreign(&anvil).await;
    mine(&anvil, 1).await;
    proxy.remove(rule);
    let exhibit = is_protected(&node).await;
    assert_eq!((&exhibit["nonce"], &exhibit["hash"]), (&json!(0), &hash));
    let waits = node.until(ids[1], "the reason", |view| view.sub_state.is_some()).await;
    assert_eq!((waits.state, waits.sub_state), (TxState::Queued, Some(SubState::Protected)));
    assert!(matches!(waits.wait_reason, Some(WaitReason::Protected { nonce: Nonce(0), .. })));

    unprotect(&node, 0).await;
    goes_on(&node).await;
    // The one that lost its nonce may move to another only when the foreign use lies deep.
    assert_eq!(node.handle.tx(ids[0]).await.unwrap().state, TxState::Tracking);
    for _ in 0..20 {
        mine(&anvil, 1).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    gapless_testkit::wait::eventually(Duration::from_secs(60), "all in the chain", || async {
        mine(&anvil, 1).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        (count(&anvil).await == 4).then_some(())
    })
    .await
    .unwrap();
    mine(&anvil, 2).await;
    let mut found = nonces(&node, &anvil, &ids).await;
    found.sort_unstable();
    assert_eq!(found, [1, 2, 3]);
    for n in 0..3 {
        assert_eq!(effects(&anvil, n).await, 1, "effects of request {n}");
    }
    assert!(node.told(ids[0]).await.contains(&EventKind::TxRequeued));
    node.stopped().await;
}

/// Delegates the account to nobody: that consumes a nonce of it without a transaction of it.
pub(crate) fn authorization(nonce: u64) -> Value {
    let authorization = Authorization { chain_id: U256::from(31337), address: Address::ZERO, nonce };
    let mut key = [0; 32];
    hex::decode_to_slice(KEY, &mut key).unwrap();
    let key = SecretKey::from_byte_array(key).unwrap();
    let digest = Message::from_digest(authorization.signature_hash().0);
    let (parity, compact) = Secp256k1::new().sign_ecdsa_recoverable(digest, &key).serialize_compact();
    let (r, s) = compact.split_at(32);
    json!({
        "chainId": "0x7a69", "address": Address::ZERO, "nonce": format!("{nonce:#x}"),
        "yParity": format!("{:#x}", i32::from(parity)),
        "r": format!("{:#x}", U256::from_be_slice(r)), "s": format!("{:#x}", U256::from_be_slice(s)),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authorization_that_consumes_the_nonce_without_a_transaction_is_foreign_use() {
    let extra_args = vec!["--hardfork".into(), "prague".into()];
    let anvil = chain(AnvilOptions { extra_args, ..AnvilOptions::default() }).await;
    let node = Node::start(&anvil.url(), quick(0)).await;
    let first = node.submit(entry(0)).await;
    node.confirmed(first).await;

    let other: Address = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8".parse().unwrap();
    let sent = json!([{
        "type": "0x4", "from": other, "to": other, "value": "0x0", "gas": "0x30d40",
        "authorizationList": [authorization(1)],
    }]);
    let hash = anvil.rpc("eth_sendTransaction", sent).await.unwrap();
    let receipt = anvil.rpc("eth_getTransactionReceipt", json!([hash])).await.unwrap();
    assert_eq!(count(&anvil).await, 2, "the nonce was consumed: {receipt}");

    let exhibit = is_protected(&node).await;
    assert_eq!(
        exhibit,
        json!({"nonce": 1, "hash": null, "blockNumber": receipt["blockNumber"], "blockHash": receipt["blockHash"]})
    );
    unprotect(&node, 1).await;
    goes_on(&node).await;
    let next = node.submit(entry(1)).await;
    assert_eq!(nonces(&node, &anvil, &[next]).await, [2]);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_use_while_nobody_ran_the_lane_is_found_before_it_binds() {
    let anvil = instant().await;
    let store = crate::support::memory();
    let node = Node::on(store.clone(), &[anvil.url()], quick(0)).await;
    let first = node.submit(entry(0)).await;
    node.confirmed(first).await;
    node.stopped().await;
    foreign(&anvil).await;
    let node = Node::on(store, &[anvil.url()], quick(0)).await;
    let waits = node.submit(entry(1)).await;
    assert_eq!(is_protected(&node).await["nonce"], json!(1));
    assert_eq!(node.handle.tx(waits).await.unwrap().state, TxState::Queued, "no nonce was taken for it");
    unprotect(&node, 1).await;
    assert_eq!(nonces(&node, &anvil, &[waits]).await, [2]);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_keeps_little_history_still_proves_recent_foreign_use() {
    let anvil = instant().await;
    mine(&anvil, 200).await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let recent = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(u64::MAX));
    let hashes: std::collections::HashMap<String, u64> = {
        let mut found = std::collections::HashMap::new();
        for at in 0..=200_u64 {
            let block = anvil.rpc("eth_getBlockByNumber", json!([format!("{at:#x}"), false])).await.unwrap();
            found.insert(block["hash"].as_str().unwrap().to_owned(), number(&block["number"]));
        }
        found
    };
    let kept = recent.clone();
    let fault = Fault::result(move |request, mut answer| {
        let hash = request["params"][1]["blockHash"].as_str();
        // States before block 190 are gone.
        let old = hash.and_then(|hash| hashes.get(hash)).is_some_and(|number| *number < 190);
        if old {
            kept.fetch_min(0, std::sync::atomic::Ordering::Relaxed);
            answer = json!({"jsonrpc": "2.0", "id": request["id"],
                "error": {"code": -32000, "message": "missing trie node"}});
        }
        answer
    });
    proxy.rule("eth_getTransactionCount", fault);
    let node = Node::start(&proxy.url(), quick(0)).await;
    let first = node.submit(entry(0)).await;
    node.confirmed(first).await;
    let hash = foreign(&anvil).await;
    assert_eq!(is_protected(&node).await["hash"], hash);
    assert_eq!(recent.load(std::sync::atomic::Ordering::Relaxed), u64::MAX, "old states were not needed");
    unprotect(&node, 1).await;
    goes_on(&node).await;
    node.stopped().await;
}

/// Takes the last block away, with everything in it.
async fn reorg(anvil: &Anvil) {
    anvil.rpc("anvil_reorg", json!([1, []])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn protect_ends_with_an_exhibit_that_vanished() {
    let anvil = unmined().await;
    let node = Node::start(&anvil.url(), quick(0)).await;
    let first = node.submit(entry(0)).await;
    node.until(first, "the pool", |view| view.state == TxState::Tracking).await;
    until_pooled(&anvil).await;
    mine(&anvil, 1).await;
    node.confirmed(first).await;
    foreign(&anvil).await;
    mine(&anvil, 1).await;
    is_protected(&node).await;
    reorg(&anvil).await;
    goes_on(&node).await;
    let next = node.submit(entry(1)).await;
    until_pooled(&anvil).await;
    mine(&anvil, 1).await;
    assert_eq!(nonces(&node, &anvil, &[next]).await, [1]);
    node.stopped().await;
}

async fn until_pooled(anvil: &Anvil) {
    gapless_testkit::wait::eventually(Duration::from_secs(60), "the pool", || async {
        let pool = anvil.rpc("txpool_status", json!([])).await.unwrap();
        (pool["pending"] != "0x0").then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nonce_whose_recorded_foreign_use_vanishes_goes_to_whoever_comes_next() {
    let anvil = unmined().await;
    let node = Node::start(&anvil.url(), quick(3)).await;
    let first = node.submit(entry(0)).await;
    until_pooled(&anvil).await;
    mine(&anvil, 4).await;
    node.confirmed(first).await;
    foreign(&anvil).await;
    mine(&anvil, 1).await;
    is_protected(&node).await;
    unprotect(&node, 1).await;
    goes_on(&node).await;
    assert_eq!(node.submitter().await.next_nonce, Some(Nonce(2)));
    reorg(&anvil).await;
    node.until_submitter("the nonce to be free again", |view| view.consumed == Some(Nonce(1))).await;
    let mut ids = vec![first];
    for n in 1..3 {
        ids.push(node.submit(entry(n)).await);
        until_pooled(&anvil).await;
        mine(&anvil, 1).await;
        node.until(ids[ids.len() - 1], "the block", |view| view.sub_state == Some(SubState::Mined)).await;
    }
    mine(&anvil, 4).await;
    node.each_took_effect_once(&anvil, &ids).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_displaced_transaction_gets_its_nonce_back_when_the_foreign_use_vanishes() {
    let anvil = unmined().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let node = Node::start(&proxy.url(), quick(0)).await;
    let fault = Fault::ErrorWithoutForward { code: -32000, message: "txpool is full".into() };
    let rule = proxy.rule("eth_sendRawTransaction", fault);
    let first = node.submit(entry(0)).await;
    node.until(first, "the first to be bound", |view| view.state == TxState::Tracking).await;
    foreign(&anvil).await;
    mine(&anvil, 1).await;
    is_protected(&node).await;
    unprotect(&node, 0).await;
    goes_on(&node).await;
    proxy.remove(rule);
    reorg(&anvil).await;
    until_pooled(&anvil).await;
    mine(&anvil, 1).await;
    // Deep enough for a requeue, had it been one.
    mine(&anvil, 20).await;
    let second = node.submit(entry(1)).await;
    until_pooled(&anvil).await;
    mine(&anvil, 1).await;
    node.each_took_effect_once(&anvil, &[first, second]).await;
    assert!(!node.told(first).await.contains(&EventKind::TxRequeued));
    node.stopped().await;
}
