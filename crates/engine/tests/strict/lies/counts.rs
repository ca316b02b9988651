//! Counts that run ahead of the chain. They are a reason to look and, where our slots do not explain them, to bind nothing
//! new; never a proof of anything.

use gapless_core::condition::Condition;
use gapless_core::event::EventKind;
use gapless_core::state::TxState;
use gapless_core::wait::WaitReason;
use gapless_testkit::rpc_proxy::{Fault, RpcProxy, RuleId};
use serde_json::json;

use super::BLOCKS;
use crate::support::{Node, entry, instant, mine, number, quick, ticking, unmined};

/// Counts more than there is, where the question names its block in this way: by tag, or by hash too.
fn counts_ahead(proxy: &RpcProxy, by: u64, wanted: fn(&serde_json::Value) -> bool) -> RuleId {
    let fault = Fault::result(move |request, mut answer| {
        if wanted(&request["params"][1]) {
            answer["result"] = json!(format!("{:#x}", number(&answer["result"]) + by));
        }
        answer
    });
    proxy.rule("eth_getTransactionCount", fault)
}

async fn holds_and_heals(by: u64, wanted: fn(&serde_json::Value) -> bool) {
    let anvil = ticking(BLOCKS).await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let node = Node::start(&proxy.url(), quick(1)).await;
    let mut ids = node.submit_all(0, 2).await;
    node.confirmed(ids[1]).await;
    let rule = counts_ahead(&proxy, by, wanted);
    let view = node.until_submitter("the hold", |view| view.condition != Condition::Ok).await;
    assert_eq!(view.condition, Condition::Hold, "{view:?}");
    ids.extend(node.submit_all(2, 5).await);
    let waits = node.until(ids[2], "the reason", |view| view.wait_reason.is_some()).await;
    assert!(matches!(waits.wait_reason, Some(WaitReason::Held { .. })), "{waits:?}");
    super::struck(&proxy, rule, proxy.fired(rule) + 12).await;
    assert_eq!(node.submitter().await.condition, Condition::Hold, "and it stays so");
    proxy.remove(rule);
    node.each_took_effect_once(&anvil, &ids).await;
    assert_eq!(node.submitter().await.condition, Condition::Ok);
    assert!(!node.ever_told(EventKind::SubmitterProtected).await);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_ahead_at_the_head_hold_and_heal() {
    holds_and_heals(5, |at| at.is_string()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_ahead_at_every_block_are_no_exhibit() {
    holds_and_heals(5, |_| true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_that_are_ahead_by_what_is_on_its_way_accuse_nobody() {
    let anvil = unmined().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let node = Node::start(&proxy.url(), quick(1)).await;
    let first = node.submit(entry(0)).await;
    crate::support::pooled(&anvil, 1).await;
    mine(&anvil, 2).await;
    node.confirmed(first).await;
    let second = node.submit(entry(1)).await;
    crate::support::pooled(&anvil, 1).await;
    let rule = counts_ahead(&proxy, 1, |_| true);
    super::struck(&proxy, rule, 12).await;
    let view = node.handle.tx(second).await.unwrap();
    assert_eq!(
        (view.state, node.submitter().await.condition),
        (TxState::Tracking, Condition::Ok),
        "{view:?}"
    );
    proxy.remove(rule);
    mine(&anvil, 2).await;
    node.each_took_effect_once(&anvil, &[first, second]).await;
    assert!(!node.ever_told(EventKind::SubmitterProtected).await);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspicion_from_pools_alone_lapses_after_three_heads() {
    let anvil = instant().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let node = Node::start(&proxy.url(), quick(0)).await;
    let first = node.submit(entry(0)).await;
    node.confirmed(first).await;
    let rule = proxy.rule(
        "eth_getTransactionCount",
        Fault::result(|request, mut answer| {
            if request["params"][1] == "pending" {
                answer["result"] = json!("0x9");
            }
            answer
        }),
    );
    let view = node.until_submitter("the hold", |view| view.condition != Condition::Ok).await;
    assert_eq!(view.condition, Condition::Hold, "{view:?}");
    let second = node.submit(entry(1)).await;
    let waits = node.until(second, "the reason", |view| view.wait_reason.is_some()).await;
    assert!(matches!(waits.wait_reason, Some(WaitReason::Held { .. })), "{waits:?}");
    for head in 0..3 {
        assert_eq!(node.submitter().await.condition, Condition::Hold, "after {head} heads");
        mine(&anvil, 1).await;
        super::struck(&proxy, rule, proxy.fired(rule) + 6).await;
    }
    // The lie goes on, and nobody listens any more.
    node.each_took_effect_once(&anvil, &[first, second]).await;
    assert!(!node.ever_told(EventKind::SubmitterProtected).await);
    node.stopped().await;
}
