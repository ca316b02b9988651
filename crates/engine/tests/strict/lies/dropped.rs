//! Pools that forget. What was bound stays bound: the same bytes go out again under the same nonce.

use std::time::Duration;

use gapless_core::event::EventKind;
use gapless_engine::LaneSettings;
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use serde_json::json;

use super::blocks_until;
use crate::support::{Node, attempts, chain, mine, number, pooled, quick, unmined};

fn settings() -> LaneSettings {
    LaneSettings { resubmit: Some(Duration::from_millis(300)), ..quick(1) }
}

async fn pool_is_empty(anvil: &Anvil) -> bool {
    let pool = anvil.rpc("txpool_status", json!([])).await.unwrap();
    number(&pool["pending"]) + number(&pool["queued"]) == 0
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pool_dropped_is_sent_again() {
    let anvil = unmined().await;
    let node = Node::start(&anvil.url(), settings()).await;
    let ids = node.submit_all(0, 2).await;
    for nonce in 0..2 {
        pooled(&anvil, 1).await;
        let stored = attempts(&node, nonce).await;
        let dropped = anvil.rpc("anvil_dropTransaction", json!([stored[0].hash])).await.unwrap();
        assert_eq!(dropped, json!(stored[0].hash), "it was in the pool");
        pooled(&anvil, 1).await;
        assert_eq!(attempts(&node, nonce).await.len(), 1, "the same bytes");
        mine(&anvil, 1).await;
    }
    blocks_until(&anvil, &node, ids[1], "the end", |view| view.state.is_terminal()).await;
    node.each_took_effect_once(&anvil, &ids).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_restarted_node_forgot_is_sent_again() {
    let extra_args = vec!["--no-mining".into()];
    let anvil = chain(AnvilOptions { keep_state: true, extra_args, ..AnvilOptions::default() }).await;
    let node = Node::start(&anvil.url(), settings()).await;
    let ids = node.submit_all(0, 3).await;
    blocks_until(&anvil, &node, ids[0], "the first", |view| view.state.is_terminal()).await;
    pooled(&anvil, 1).await;
    anvil.stop().await.unwrap();
    let stored = attempts(&node, 1).await;
    anvil.restart().await.unwrap();
    pooled(&anvil, 1).await;
    assert_eq!(attempts(&node, 1).await.len(), stored.len(), "the same bytes");
    blocks_until(&anvil, &node, ids[2], "the end", |view| view.state.is_terminal()).await;
    node.each_took_effect_once(&anvil, &ids).await;
    assert!(pool_is_empty(&anvil).await);
    for kind in [EventKind::SubmitterProtected, EventKind::TxReplaced] {
        assert!(!node.ever_told(kind).await, "{kind:?}");
    }
    node.stopped().await;
}
