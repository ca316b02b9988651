//! The strict lane on geth, whose pool forgets and whose rules are those of most of the world's nodes.

mod contested;

use std::time::Duration;

use gapless_core::ids::{Nonce, TxId};
use gapless_core::state::{SubState, TxState};
use gapless_core::submitter::SubmitterId;
use gapless_engine::LaneSettings;
use gapless_engine::handle::Request;
use gapless_testkit::geth::{Geth, GethOptions, Mining};
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use gapless_testkit::wait::eventually;
use serde_json::json;

use crate::contracts;
use crate::support::{KEY, LEDGER, Node, effects, entry, memory, quick, submitter};

/// The second of the well-known development accounts.
const SECOND: &str = "eip155:31337:0x70997970c51812dc3a010c7d01b50e0d17dc79c8";
const SECOND_KEY: &str = "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d";
const SOON: Duration = Duration::from_secs(60);
const BLOCKS: Mining = Mining::Every(Duration::from_secs(1));

/// A node with the ledger on its chain.
async fn geth(mining: Mining) -> Geth {
    let code = vec![(LEDGER, contracts::LEDGER.into())];
    Geth::start(GethOptions { mining, code, ..GethOptions::default() }).await.unwrap()
}

/// Submits the requests number `from` to `to` (not included) of an account.
async fn submit_all(node: &Node, who: &SubmitterId, from: u64, to: u64) -> Vec<TxId> {
    let mut ids = Vec::new();
    for n in from..to {
        ids.push(node.submit(Request { submitter: who.clone(), ..entry(n) }).await);
    }
    ids
}

/// How many transactions of the pool could be mined.
async fn pooled(geth: &Geth) -> u64 {
    crate::support::number(&geth.rpc("txpool_status", json!([])).await.unwrap()["pending"])
}

async fn until_pooled(geth: &Geth) {
    let held = || async { (pooled(geth).await > 0).then_some(()) };
    eventually(SOON, "the pool", held).await.unwrap();
}

/// Waits until it is in the pool, and mines it.
async fn mined(node: &Node, geth: &Geth, id: TxId) {
    until_pooled(geth).await;
    geth.mine(1).await.unwrap();
    node.until(id, "the block", |view| view.sub_state == Some(SubState::Mined)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_two_submitters_reach_confirmed_in_order() {
    let geth = geth(BLOCKS).await;
    let node = Node::of(memory(), &[geth.url()], quick(2), &[KEY, SECOND_KEY]).await;
    let second = SECOND.parse().unwrap();
    let ours = submit_all(&node, &submitter(), 0, 5).await;
    let theirs = submit_all(&node, &second, 100, 105).await;
    node.each_took_effect_once_of(&geth, &submitter(), 0, &ours).await;
    node.each_took_effect_once_of(&geth, &second, 100, &theirs).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_in_the_middle_loses_and_doubles_nothing() {
    let geth = geth(BLOCKS).await;
    let (store, second) = (memory(), SECOND.parse().unwrap());
    let node = Node::of(store.clone(), &[geth.url()], quick(2), &[KEY, SECOND_KEY]).await;
    let ours = submit_all(&node, &submitter(), 0, 5).await;
    let theirs = submit_all(&node, &second, 100, 105).await;
    node.until(ours[1], "the pool", |view| view.state == TxState::Tracking).await;
    node.stopped().await;

    let node = Node::of(store, &[geth.url()], quick(2), &[KEY, SECOND_KEY]).await;
    assert!(!node.handle.tx(ours[4]).await.unwrap().state.is_terminal(), "it was in the middle");
    node.each_took_effect_once_of(&geth, &submitter(), 0, &ours).await;
    node.each_took_effect_once_of(&geth, &second, 100, &theirs).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_comes_back_with_an_empty_pool_gets_the_same_bytes_again() {
    let geth = geth(Mining::WhenTold).await;
    let proxy = RpcProxy::start(geth.url()).unwrap();
    let resubmit = Some(Duration::from_millis(500));
    let node = Node::start(&proxy.url(), LaneSettings { resubmit, ..quick(1) }).await;
    let first = node.submit(entry(0)).await;
    mined(&node, &geth, first).await;
    let second = node.submit(entry(1)).await;
    let before = node.until(second, "the pool", |view| view.state == TxState::Tracking).await;
    until_pooled(&geth).await;

    let closed = proxy.rule("eth_sendRawTransaction", Fault::HttpStatus(503));
    geth.restart().await.unwrap();
    assert_eq!(pooled(&geth).await, 0);
    geth.mine(1).await.unwrap();
    assert_eq!(effects(&geth, 1).await, 0, "the chain stands, the pool is empty");
    proxy.remove(closed);

    mined(&node, &geth, second).await;
    geth.mine(1).await.unwrap();
    node.each_took_effect_once(&geth, &[first, second]).await;
    assert_eq!(node.confirmed(second).await.tx_hash, before.tx_hash);
    let attempts = node.handle.store().attempts(&submitter(), Nonce(1), Nonce(2)).await.unwrap();
    assert_eq!(attempts.len(), 1, "the same bytes, not new ones");
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mined_transaction_that_vanishes_is_sent_again_and_confirmed_once() {
    let geth = geth(Mining::WhenTold).await;
    let node = Node::start(&geth.url(), quick(3)).await;
    let id = node.submit(entry(0)).await;
    mined(&node, &geth, id).await;
    geth.reorg(1).await.unwrap();
    assert_eq!(effects(&geth, 0).await, 0);
    mined(&node, &geth, id).await;
    geth.mine(3).await.unwrap();
    node.each_took_effect_once(&geth, &[id]).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_surge_of_the_base_fee_left_behind_is_mined_when_the_market_falls() {
    let geth = geth(Mining::WhenTold).await;
    let resubmit = Some(Duration::from_millis(500));
    let node = Node::start(&geth.url(), LaneSettings { resubmit, ..quick(1) }).await;
    let before = geth.base_fee().await.unwrap();
    let first = node.submit(entry(0)).await;
    until_pooled(&geth).await;
    geth.raise_base_fee(before * 10).await.unwrap();
    geth.mine(2).await.unwrap();
    assert_eq!(effects(&geth, 0).await, 0, "it is too cheap for these blocks");
    assert_eq!(pooled(&geth).await, 1, "and waits for others");
    geth.lower_base_fee(before).await.unwrap();
    mined(&node, &geth, first).await;
    geth.mine(1).await.unwrap();
    node.each_took_effect_once(&geth, &[first]).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_that_lost_its_latest_blocks_is_given_what_was_in_them() {
    let geth = geth(Mining::WhenTold).await;
    let resubmit = Some(Duration::from_millis(500));
    let node = Node::start(&geth.url(), LaneSettings { resubmit, ..quick(6) }).await;
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(node.submit(entry(n)).await);
        mined(&node, &geth, ids[ids.len() - 1]).await;
    }
    geth.kill9().await.unwrap();
    geth.restart().await.unwrap();
    assert_eq!(effects(&geth, 0).await, 0, "it is back at the beginning");
    // A shorter chain may be one that lags: only one as high as the lost one says that blocks are gone.
    for _ in 0..5 {
        geth.mine_these(&[]).await.unwrap();
    }
    let all = || async { (pooled(&geth).await == 3).then_some(()) };
    eventually(SOON, "all three in the pool", all).await.unwrap();
    geth.mine(7).await.unwrap();
    node.each_took_effect_once(&geth, &ids).await;
    node.stopped().await;
}
