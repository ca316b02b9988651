//! An account that cannot pay for what is bound already: it says so with figures, makes no bids, and goes on by itself when
//! somebody pays in.

use std::time::Duration;

use alloy_primitives::U256;
use gapless_core::bump::BumpRules;
use gapless_core::condition::Condition;
use gapless_core::fees::Wei;
use gapless_core::wait::WaitReason;
use gapless_engine::LaneSettings;
use gapless_testkit::rpc_proxy::RpcProxy;
use gapless_testkit::wait::eventually;
use serde_json::json;

use super::{BLOCKS, SEND, blocks_until, refuses, struck, waits};
use crate::support::{Node, address, attempts, entry, instant, mine, pooled, quick, unmined};

#[tokio::test(flavor = "multi_thread")]
async fn funds_that_vanish_after_binding_are_waited_for_without_a_bid() {
    vanish_and_come_back(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn funds_that_come_back_send_what_waits_at_once() {
    vanish_and_come_back(false).await;
}

async fn vanish_and_come_back(bumps: bool) {
    let anvil = unmined().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let bump = BumpRules { enabled: bumps, min_interval: Duration::from_millis(100), ..BumpRules::default() };
    // So that after two refusals the timer alone would take longer than this test waits.
    let retry = Duration::from_millis(500);
    let settings = LaneSettings { bump, retry, resubmit: Some(Duration::from_millis(300)), ..quick(1) };
    let node = Node::start(&proxy.url(), settings).await;
    let first = node.submit(entry(0)).await;
    let second = node.submit(entry(1)).await;
    pooled(&anvil, 1).await;
    let stored = attempts(&node, 0).await;
    anvil.rpc("anvil_setBalance", json!([address(), U256::from(7)])).await.unwrap();
    anvil.rpc("anvil_dropTransaction", json!([stored[0].hash])).await.unwrap();
    let WaitReason::OutOfFunds { balance, needed } = waits(&node, first, "OutOfFunds").await else {
        unreachable!()
    };
    assert!(balance == Wei(U256::from(7)) && needed > balance, "{balance:?} {needed:?}");
    let view = node.until_submitter("the condition", |view| view.condition != Condition::Ok).await;
    assert_eq!(view.condition, Condition::OutOfFunds);
    let sends = proxy.calls(SEND) + 1;
    eventually(Duration::from_secs(60), "it to be sent on a timer", || async {
        mine(&anvil, 1).await;
        tokio::time::sleep(BLOCKS).await;
        (proxy.calls(SEND) >= sends).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(attempts(&node, 0).await.len(), stored.len(), "no bid was made");
    assert_eq!(node.submitter().await.condition, Condition::OutOfFunds);
    let paid = U256::from(10_u64).pow(U256::from(20));
    anvil.rpc("anvil_setBalance", json!([address(), paid])).await.unwrap();
    // Paying in is enough: nothing waits for the timer, which has backed off by now.
    let goes_on = tokio::time::timeout(Duration::from_secs(3), pooled(&anvil, 1)).await;
    assert!(goes_on.is_ok(), "it goes on by itself");
    blocks_until(&anvil, &node, second, "the end", |view| view.state.is_terminal()).await;
    node.each_took_effect_once(&anvil, &[first, second]).await;
    assert_eq!(node.submitter().await.condition, Condition::Ok);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_denies_funds_that_are_there_is_heard_and_survived() {
    let anvil = instant().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let rule = refuses(&proxy, "insufficient funds for gas * price + value");
    let node = Node::start(&proxy.url(), quick(0)).await;
    let ids = node.submit_all(0, 3).await;
    waits(&node, ids[0], "OutOfFunds").await;
    struck(&proxy, rule, 4).await;
    // The chain shows a balance that suffices; the nodes may count what it does not show. So it stands until one takes it.
    for _ in 0..30 {
        assert_eq!(node.submitter().await.condition, Condition::OutOfFunds);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(attempts(&node, 0).await.len(), 1);
    proxy.remove(rule);
    node.each_took_effect_once(&anvil, &ids).await;
    assert_eq!(node.submitter().await.condition, Condition::Ok);
    node.stopped().await;
}
