//! The gray zone of sending: was it sent or not? From the commit on, bytes are assumed sent, so the answer to that
//! question never matters: the same bytes go out again until a receipt says what became of the nonce.

use std::time::Duration;

use gapless_engine::LaneSettings;
use gapless_testkit::rpc_proxy::{Fault, RpcProxy, Rule};
use serde_json::json;

use crate::support::{Node, instant, quick};

const SEND: &str = "eth_sendRawTransaction";

/// Six requests through a proxy that does this to sends. Nothing of ours is restarted.
async fn survives(rule: Rule, settings: LaneSettings) {
    let anvil = instant().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let rule = proxy.add(rule);
    let node = Node::start(&proxy.url(), settings).await;
    let ids = node.submit_all(0, 6).await;
    node.each_took_effect_once(&anvil, &ids).await;
    assert!(proxy.fired(rule) >= 4, "the fault struck");
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_not_read_as_not_sent() {
    // Every send is forwarded and its answer dropped, until all have arrived.
    survives(Rule::new(SEND, Fault::DropAnswer).times(12), quick(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_odd_error_for_what_was_not_forwarded_loses_nothing() {
    let fault = Fault::ErrorWithoutForward { code: -32000, message: "something odd happened".into() };
    survives(Rule::new(SEND, fault).times(4), quick(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_odd_error_for_what_was_forwarded_doubles_nothing() {
    let fault = Fault::ErrorAfterForward { code: -32000, message: "something odd happened".into() };
    survives(Rule::new(SEND, fault), quick(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_right_hash_for_what_was_not_forwarded_heals_by_the_resubmit_interval() {
    let anvil = instant().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let fault = Fault::answer(|request| {
        let raw: alloy_primitives::Bytes = request["params"][0].as_str().unwrap().parse().unwrap();
        json!(alloy_primitives::keccak256(&raw))
    });
    // Of each pair of sends the second gets through.
    let rule = proxy.add(Rule::new(SEND, fault).every(2));
    let resubmit = Some(Duration::from_millis(300));
    let node = Node::start(&proxy.url(), LaneSettings { resubmit, ..quick(0) }).await;
    let ids = node.submit_all(0, 6).await;
    node.each_took_effect_once(&anvil, &ids).await;
    assert!(proxy.fired(rule) >= 3, "the fault struck");
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_hash_for_what_was_not_forwarded_is_no_acceptance() {
    let fault = Fault::FixedResult(json!(format!("0x{}", "ab".repeat(32))));
    survives(Rule::new(SEND, fault).times(4), quick(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_turned_away_goes_out_again_even_with_resubmission_switched_off() {
    let fault = Fault::ErrorWithoutForward { code: -32000, message: "txpool is full".into() };
    survives(Rule::new(SEND, fault).times(4), LaneSettings { resubmit: None, ..quick(0) }).await;
}
