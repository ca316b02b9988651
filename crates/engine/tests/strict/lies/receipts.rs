//! Receipts that are not given, or that come from a dead fork. A slot is consumed by a receipt in a canonical block and by
//! nothing else; until there is one, nothing new is sent and nobody is accused.

use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::event::EventKind;
use gapless_core::ids::Nonce;
use gapless_core::state::{SubState, TxState};
use gapless_core::wait::WaitReason;
use gapless_engine::LaneSettings;
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use serde_json::{Value, json};

use super::{BLOCKS, SEND, struck, waits};
use crate::support::{Node, attempts, effects, quick, ticking};

const RECEIPT: &str = "eth_getTransactionReceipt";

async fn waits_for_the_receipt(lie: impl Fn(Value) -> Value + Send + Sync + 'static, words: &str) {
    let anvil = ticking(BLOCKS).await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let rule = proxy.rule(
        RECEIPT,
        Fault::result(move |_, mut answer| {
            answer["result"] = lie(answer["result"].take());
            answer
        }),
    );
    // Sent again all the while, and refused, for its nonce is used.
    let settings = LaneSettings { resubmit: Some(Duration::from_millis(300)), ..quick(1) };
    let node = Node::start(&proxy.url(), settings).await;
    let ids = node.submit_all(0, 3).await;
    let WaitReason::Held { reason } = waits(&node, ids[0], "Held").await else { unreachable!() };
    assert!(reason.to_string().contains(words), "{reason}");
    assert_eq!(effects(&anvil, 0).await, 1, "it is mined, whatever they say");
    let (asked, sent) = (proxy.fired(rule), proxy.calls(SEND));
    struck(&proxy, rule, asked + 10).await;
    gapless_testkit::wait::eventually(Duration::from_secs(30), "more sends", || async {
        (proxy.calls(SEND) >= sent + 2).then_some(())
    })
    .await
    .unwrap();
    let view = node.handle.tx(ids[0]).await.unwrap();
    assert_eq!((view.state, view.mined_as), (TxState::Tracking, None), "{view:?}");
    assert_ne!(view.sub_state, Some(SubState::Mined));
    assert!(matches!(view.wait_reason, Some(WaitReason::Held { .. })), "{view:?}");
    let lane = node.submitter().await;
    assert_eq!((lane.consumed, lane.next_nonce), (Some(Nonce(0)), Some(Nonce(1))), "nothing new is bound");
    assert_eq!(attempts(&node, 0).await.len(), 1);
    proxy.remove(rule);
    node.each_took_effect_once(&anvil, &ids).await;
    for kind in [EventKind::SubmitterProtected, EventKind::SubmitterHold, EventKind::TxReorged] {
        assert!(!node.ever_told(kind).await, "{kind:?}");
    }
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_that_nobody_gives_is_waited_for() {
    waits_for_the_receipt(|_| Value::Null, "no endpoint has its receipt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_from_a_dead_fork_is_not_believed() {
    let dead = |mut receipt: Value| {
        if receipt.is_object() {
            receipt["blockHash"] = json!(B256::repeat_byte(0xdf));
        }
        receipt
    };
    waits_for_the_receipt(dead, "is not in the chain").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_from_a_block_that_nobody_has_seen_is_not_believed() {
    let ahead = |mut receipt: Value| {
        if receipt.is_object() {
            receipt["blockNumber"] = json!("0xffffff");
        }
        receipt
    };
    waits_for_the_receipt(ahead, "nobody has shown yet").await;
}
