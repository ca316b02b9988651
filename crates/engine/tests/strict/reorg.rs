//! A block that held our transaction vanishes, after MINED and before CONFIRMED: that is told, and the transaction ends
//! CONFIRMED all the same, once.

use std::time::Duration;

use gapless_core::event::EventKind;
use gapless_core::ids::{Nonce, TxId};
use gapless_core::state::{SubState, TxState};
use gapless_engine::LaneSettings;
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use serde_json::{Value, json};

use crate::support::{Node, chain, effects, entry, memory, mine, quick, unmined};

/// Replaces the last `depth` blocks; `again` are raw transactions and the number of the new block to hold them.
async fn reorg(anvil: &Anvil, depth: u64, again: Value) {
    anvil.rpc("anvil_reorg", json!([depth, again])).await.unwrap();
}

async fn mined(node: &Node, anvil: &Anvil, id: TxId) {
    node.until(id, "the pool", |view| view.state == TxState::Tracking).await;
    gapless_testkit::wait::eventually(Duration::from_secs(30), "the pool", || async {
        let pool = anvil.rpc("txpool_status", json!([])).await.unwrap();
        (pool["pending"] != "0x0").then_some(())
    })
    .await
    .unwrap();
    mine(anvil, 1).await;
    node.until(id, "the block", |view| view.sub_state == Some(SubState::Mined)).await;
}

/// Waits for the retraction, and how often each event was told at the end.
async fn retracted(node: &Node, id: TxId) {
    gapless_testkit::wait::eventually(Duration::from_secs(30), "the retraction", || async {
        node.told(id).await.contains(&EventKind::TxReorged).then_some(())
    })
    .await
    .unwrap();
}

async fn times_told(node: &Node, id: TxId, kind: EventKind) -> usize {
    node.told(id).await.into_iter().filter(|told| *told == kind).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mined_transaction_that_vanishes_is_told_rebroadcast_and_confirmed_once() {
    let anvil = unmined().await;
    // So rare that only the retraction itself can have sent it again.
    let resubmit = Some(Duration::from_secs(3_600));
    let node = Node::start(&anvil.url(), LaneSettings { resubmit, ..quick(3) }).await;
    let first = node.submit(entry(0)).await;
    mined(&node, &anvil, first).await;
    assert_eq!(effects(&anvil, 0).await, 1);
    reorg(&anvil, 1, json!([])).await;
    assert_eq!(effects(&anvil, 0).await, 0, "the chain took it back, and its pool is empty");
    retracted(&node, first).await;
    node.until_submitter("the slot to be open again", |view| view.consumed == Some(Nonce(0))).await;

    mined(&node, &anvil, first).await;
    let second = node.submit(entry(1)).await;
    mined(&node, &anvil, second).await;
    mine(&anvil, 3).await;
    node.each_took_effect_once(&anvil, &[first, second]).await;
    for (kind, times) in [
        (EventKind::TxReorged, 1),
        (EventKind::TxReceiptUpdated, 2),
        (EventKind::TxConfirmed, 1),
        (EventKind::TxSubmitted, 1),
    ] {
        assert_eq!(times_told(&node, first, kind).await, times, "{kind:?}");
    }
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mined_transaction_that_comes_back_by_itself_in_another_block_is_confirmed_once() {
    let anvil = unmined().await;
    let node = Node::start(&anvil.url(), quick(3)).await;
    let id = node.submit(entry(0)).await;
    mined(&node, &anvil, id).await;
    let before = serde_json::to_value(node.handle.tx(id).await.unwrap()).unwrap()["receipt"].clone();
    let raw = node.handle.store().attempts(&crate::support::submitter(), Nonce(0), Nonce(1)).await.unwrap()
        [0]
    .raw
    .clone();
    reorg(&anvil, 1, json!([[raw, 0]])).await;
    retracted(&node, id).await;
    node.until(id, "the other block", |view| view.sub_state == Some(SubState::Mined)).await;
    mine(&anvil, 3).await;
    node.each_took_effect_once(&anvil, &[id]).await;
    let after = serde_json::to_value(node.handle.tx(id).await.unwrap()).unwrap()["receipt"].clone();
    assert_eq!(before["transactionHash"], after["transactionHash"]);
    assert_ne!(before["blockHash"], after["blockHash"]);
    assert_eq!(times_told(&node, id, EventKind::TxReorged).await, 1);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reorg_of_several_blocks_reopens_several_slots_and_each_takes_effect_once() {
    let anvil = unmined().await;
    let node = Node::start(&anvil.url(), quick(5)).await;
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(node.submit(entry(n)).await);
        mined(&node, &anvil, ids[ids.len() - 1]).await;
    }
    reorg(&anvil, 2, json!([])).await;
    for id in &ids[1..] {
        retracted(&node, *id).await;
    }
    assert_eq!(times_told(&node, ids[0], EventKind::TxReorged).await, 0, "its block stands");
    // While slots are open, strict binds nothing new.
    ids.push(node.submit(entry(3)).await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(node.handle.tx(ids[3]).await.unwrap().state, TxState::Queued);
    mine(&anvil, 1).await;
    mined(&node, &anvil, ids[3]).await;
    mine(&anvil, 5).await;
    node.each_took_effect_once(&anvil, &ids).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_forgets_what_it_accepted_is_told_again() {
    let options =
        AnvilOptions { keep_state: true, extra_args: vec!["--no-mining".into()], ..AnvilOptions::default() };
    let anvil = chain(options).await;
    let settings = LaneSettings { resubmit: Some(Duration::from_millis(500)), ..quick(1) };
    let node = Node::start(&anvil.url(), settings).await;
    let first = node.submit(entry(0)).await;
    mined(&node, &anvil, first).await;
    let second = node.submit(entry(1)).await;
    let view = node.until(second, "the pool", |view| view.state == TxState::Tracking).await;
    anvil.rpc("anvil_dropTransaction", json!([view.tx_hash.unwrap()])).await.unwrap();
    mined(&node, &anvil, second).await;
    let third = node.submit(entry(2)).await;
    node.until(third, "the pool", |view| view.state == TxState::Tracking).await;
    // A restart keeps the chain and empties the pool.
    anvil.restart().await.unwrap();
    mined(&node, &anvil, third).await;
    mine(&anvil, 2).await;
    node.each_took_effect_once(&anvil, &[first, second, third]).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_vanished_while_nobody_ran_counts_for_nothing_though_an_endpoint_still_shows_it() {
    let anvil = unmined().await;
    let (store, settings) = (memory(), quick(3));
    let node = Node::on(store.clone(), &[anvil.url()], settings.clone()).await;
    let id = node.submit(entry(0)).await;
    mined(&node, &anvil, id).await;
    node.stopped().await;
    let height = anvil.rpc("eth_blockNumber", json!([])).await.unwrap();
    let dead = anvil.rpc("eth_getBlockByNumber", json!([height, false])).await.unwrap();
    reorg(&anvil, 1, json!([])).await;
    mine(&anvil, 6).await;

    let proxy = RpcProxy::start(anvil.url()).unwrap();
    proxy.rule(
        "eth_getBlockByNumber",
        Fault::result(move |request, mut answer| {
            if request["params"][0] == height {
                answer["result"] = dead.clone();
            }
            answer
        }),
    );
    let node = Node::on(store, &[proxy.url()], settings).await;
    retracted(&node, id).await;
    mined(&node, &anvil, id).await;
    mine(&anvil, 3).await;
    node.each_took_effect_once(&anvil, &[id]).await;
    node.stopped().await;
}
