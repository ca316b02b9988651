//! Nodes that call good bytes invalid. Believed only over several heads, two in a row hold the lane, and what was given up
//! is over only when its nonce is used for good: by others, or by its own bytes after all.

use std::time::Duration;

use gapless_core::attempt::AttemptKind;
use gapless_core::condition::Condition;
use gapless_core::event::EventKind;
use gapless_core::record::MinedAs;
use gapless_core::state::{SubState, TxState};
use gapless_core::wait::WaitReason;
use gapless_engine::{HealthRules, LaneSettings};
use gapless_testkit::rpc_proxy::RpcProxy;
use gapless_testkit::wait::eventually;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::json;

use super::{BLOCKS, blocks_until, refuses, struck};
use crate::support::{
    Node, attempts, count, effects, entry, memory, mine, nonce_of, number, quick, ticking, unmined,
};

const WORDS: &str = "intrinsic gas too low";

fn patient(depth: u64) -> LaneSettings {
    let health = HealthRules { retry: Duration::from_millis(500), ..LaneSettings::default().health };
    LaneSettings { finality_depth: Some(depth), health, ..quick(1) }
}

fn abandoned(view: &gapless_engine::view::TxView) -> bool {
    view.sub_state == Some(SubState::Abandoned)
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_is_believed_only_over_three_heads() {
    let anvil = unmined().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let rule = refuses(&proxy, WORDS);
    let node = Node::start(&proxy.url(), quick(0)).await;
    let id = node.submit(entry(0)).await;
    struck(&proxy, rule, 3).await;
    let view = node.handle.tx(id).await.unwrap();
    assert_eq!(view.wait_reason, Some(WaitReason::NotInPool { last_error: Some(WORDS.to_owned().into()) }));
    for _ in 0..2 {
        assert!(!abandoned(&node.handle.tx(id).await.unwrap()), "one head, two heads are not enough");
        mine(&anvil, 1).await;
        struck(&proxy, rule, proxy.fired(rule) + 1).await;
    }
    // A node that looks now and then may have missed one of them.
    blocks_until(&anvil, &node, id, "the third head", abandoned).await;
    let view = node.handle.tx(id).await.unwrap();
    assert_eq!(view.state, TxState::Tracking);
    assert!(node.told(id).await.contains(&EventKind::TxAttemptRefused));
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tries_of_who_had_the_lane_before_do_not_delay_the_verdict() {
    let anvil = unmined().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    refuses(&proxy, WORDS);
    let store = memory();
    let before = Node::on(store.clone(), &[proxy.url()], quick(0)).await;
    let id = before.submit(entry(0)).await;
    let tried =
        || async { attempts(&before, 0).await.first().filter(|attempt| attempt.resends >= 7).map(drop) };
    eventually(Duration::from_secs(60), "many tries", tried).await.unwrap();
    before.stopped().await;

    let heir = Node::beside(store, &[proxy.url()], quick(0)).await;
    blocks_until(&anvil, &heir, id, "it to be given up", abandoned).await;
    let blocks = number(&anvil.rpc("eth_blockNumber", json!([])).await.unwrap());
    assert!(blocks <= 25, "three heads are enough, it took {blocks}");
    heir.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_in_a_row_hold_the_lane_and_only_what_was_given_up_fails() {
    let anvil = ticking(BLOCKS).await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let rule = refuses(&proxy, WORDS);
    let node = Node::start(&proxy.url(), patient(3)).await;
    let ids = node.submit_all(0, 5).await;
    let view = node.until_submitter("the hold", |view| view.condition == Condition::Hold).await;
    assert!(view.reason.as_ref().is_some_and(|words| words.contains(WORDS)), "{view:?}");
    let waits = node.until(ids[2], "the reason", |view| view.wait_reason.is_some()).await;
    assert!(matches!(waits.wait_reason, Some(WaitReason::Held { .. })), "{waits:?}");
    for id in &ids[..2] {
        let view = node.handle.tx(*id).await.unwrap();
        assert!(abandoned(&view) && view.state == TxState::Tracking, "{view:?}");
    }
    proxy.remove(rule);
    assert!(node.ever_told(EventKind::SubmitterHold).await);

    for (nonce, id) in ids[2..].iter().enumerate() {
        let view = node.confirmed(*id).await;
        assert_eq!(nonce_of(&anvil, view.tx_hash.unwrap()).await, nonce as u64, "no nonce was lost");
    }
    let first = node.handle.tx(ids[2]).await.unwrap();
    for id in &ids[..2] {
        let view = node.until(*id, "the end", |view| view.state.is_terminal()).await;
        assert_eq!((view.state, view.mined_as), (TxState::FailedFinal, Some(MinedAs::Other)), "{view:?}");
        assert!(view.failure.is_some_and(|failure| failure.reason.to_string().contains(WORDS)));
        assert_eq!(view.tx_hash, first.tx_hash, "by whom its nonce was used");
        let confirmations = serde_json::to_value(&view.confirmations).unwrap();
        assert!(confirmations["count"].as_u64().unwrap() >= 3, "not before that is deep: {confirmations}");
        assert_eq!(node.told(*id).await.last(), Some(&EventKind::TxFailed));
    }
    for n in 0..5 {
        assert_eq!(effects(&anvil, n).await, u64::from(n >= 2), "effects of request {n}");
    }
    assert_eq!(count(&anvil).await, 3);
    assert!(node.ever_told(EventKind::SubmitterResumed).await);
    node.until_submitter("no hold", |view| view.condition == Condition::Ok).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_were_given_up_and_mined_after_all_count_and_who_took_the_slot_moves_on() {
    let anvil = unmined().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let rule = refuses(&proxy, WORDS);
    let node = Node::start(&proxy.url(), patient(2)).await;
    let first = node.submit(entry(0)).await;
    let second = node.submit(entry(1)).await;
    blocks_until(&anvil, &node, first, "it to be given up", abandoned).await;
    node.until(second, "it to take the slot", |view| view.state == TxState::Tracking).await;
    let stored = attempts(&node, 0).await;
    assert_eq!(stored.iter().map(|attempt| attempt.tx_id).collect::<Vec<_>>(), [Some(first), Some(second)]);
    assert!(stored[1].fees.ceiling() > stored[0].fees.ceiling(), "it outbids what may still be in a pool");

    anvil.rpc("eth_sendRawTransaction", json!([stored[0].raw])).await.unwrap();
    // Before the lie ends: the dearer bytes of the second would take their place in the pool.
    mine(&anvil, 1).await;
    assert_eq!(count(&anvil).await, 1);
    proxy.remove(rule);
    mine(&anvil, 4).await;
    node.confirmed(first).await;
    node.until(second, "another nonce", |view| view.state == TxState::Tracking && view.mined_as.is_none())
        .await;
    crate::support::pooled(&anvil, 1).await;
    mine(&anvil, 4).await;
    node.each_took_effect_once(&anvil, &[first, second]).await;
    assert!(node.told(second).await.contains(&EventKind::TxRequeued));
    node.stopped().await;
}

// On one thread, so that nothing but this node counts here.
#[tokio::test]
async fn a_slot_that_nobody_takes_gets_a_placeholder_after_a_while() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let anvil = ticking(BLOCKS).await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let rule = refuses(&proxy, WORDS);
    let settings = LaneSettings { recycle_hold: Duration::from_millis(300), ..patient(2) };
    let node = Node::start(&proxy.url(), settings).await;
    let id = node.submit(entry(0)).await;
    node.until(id, "it to be given up", abandoned).await;
    proxy.remove(rule);
    let view = node.until(id, "the end", |view| view.state.is_terminal()).await;
    assert_eq!((view.state, view.mined_as), (TxState::FailedFinal, Some(MinedAs::Other)), "{view:?}");
    let stored = attempts(&node, 0).await;
    assert_eq!(stored.last().unwrap().kind, AttemptKind::Placeholder);
    let counted = recorder.handle().render();
    assert!(counted.contains(r#"gapless_placeholder_total{reason="recycled"} 1"#), "{counted}");
    assert_eq!((effects(&anvil, 0).await, count(&anvil).await), (0, 1));
    let next = node.submit(entry(1)).await;
    assert_eq!(nonce_of(&anvil, node.confirmed(next).await.tx_hash.unwrap()).await, 1);
    node.stopped().await;
}
