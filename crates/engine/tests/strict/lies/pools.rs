//! Nodes that take everything and keep nothing, or that turn everything away with words that have nothing to do with it.

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::{Bytes, keccak256};
use gapless_core::condition::Condition;
use gapless_core::govern::StuckRules;
use gapless_core::ports::policy::Diagnosis;
use gapless_core::wait::WaitReason;
use gapless_engine::LaneSettings;
use gapless_evm::EvmOptions;
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use serde_json::json;

use super::{BLOCKS, SEND, refuses, struck, waits};
use crate::support::{Node, instant, quick, ticking};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_taken_and_never_pooled_is_found_to_be_lost_and_sent_until_it_is_pooled() {
    let anvil = ticking(BLOCKS).await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let rule = proxy.rule(
        SEND,
        Fault::answer(|request| {
            let raw: Bytes = request["params"][0].as_str().unwrap().parse().unwrap();
            json!(keccak256(&raw))
        }),
    );
    let stuck = StuckRules { stall_after: Duration::from_millis(300), ..StuckRules::default() };
    let settings = LaneSettings { diagnose: true, stuck: Arc::new(stuck), ..quick(1) };
    let node = Node::start(&proxy.url(), settings).await;
    let ids = node.submit_all(0, 3).await;
    assert_eq!(waits(&node, ids[0], "NotInPool").await, WaitReason::NotInPool { last_error: None });
    struck(&proxy, rule, 5).await;
    let facts = node.handle.store().tx(ids[0]).await.unwrap().unwrap().facts;
    assert_eq!(facts.amended.and_then(|amended| amended.diagnosis), Some(Diagnosis::Lost));
    assert_eq!(facts.wait, Some(WaitReason::NotInPool { last_error: None }), "taken again, and lost again");
    proxy.remove(rule);
    node.each_took_effect_once(&anvil, &ids).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn execution_reverted_in_answer_to_a_send_is_no_verdict() {
    let anvil = instant().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let rule = refuses(&proxy, "execution reverted: intrinsic gas too low");
    let node = Node::start(&proxy.url(), quick(0)).await;
    let ids = node.submit_all(0, 4).await;
    let WaitReason::NotInPool { last_error } = waits(&node, ids[0], "NotInPool").await else {
        unreachable!()
    };
    assert!(last_error.is_some_and(|words| words.to_string().contains("execution reverted")));
    struck(&proxy, rule, 4).await;
    proxy.remove(rule);
    node.each_took_effect_once(&anvil, &ids).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_endpoint_that_speaks_of_another_chain_is_put_aside_and_taken_again() {
    let anvil = instant().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let rule = refuses(&proxy, "invalid chain id for signer: have 31337 want 1");
    let node = Node::start(&proxy.url(), quick(0)).await;
    let ids = node.submit_all(0, 4).await;
    let WaitReason::NotInPool { last_error } = waits(&node, ids[0], "NotInPool").await else {
        unreachable!()
    };
    assert!(last_error.is_some_and(|words| words.to_string().contains("invalid chain id")));
    let verified = proxy.calls("eth_chainId");
    struck(&proxy, rule, 4).await;
    assert!(proxy.calls("eth_chainId") > verified, "who it is is asked again");
    proxy.remove(rule);
    node.each_took_effect_once(&anvil, &ids).await;
    assert_eq!(node.submitter().await.condition, Condition::Ok);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_endpoint_of_two_that_speaks_of_another_chain_is_put_aside_and_the_other_serves() {
    let anvil = instant().await;
    let (bad, good) = (RpcProxy::start(anvil.url()).unwrap(), RpcProxy::start(anvil.url()).unwrap());
    let rule = refuses(&bad, "invalid chain id for signer: have 31337 want 1");
    let recheck = Duration::from_secs(1);
    let options = EvmOptions { recheck, ..EvmOptions::new(31337, [bad.url(), good.url()]) };
    let node = Node::through(&options, quick(0)).await;
    let mut ids = node.submit_all(0, 4).await;
    node.each_took_effect_once(&anvil, &ids).await;
    let status = |node: &Node| node.handle.chains()[0].2[0].detail.clone();
    assert!(bad.fired(rule) >= 1);
    assert!(status(&node).contains("quarantined"), "{}", status(&node));
    bad.remove(rule);
    gapless_testkit::wait::eventually(Duration::from_secs(30), "the endpoint to be taken again", || async {
        (!status(&node).contains("quarantined")).then_some(())
    })
    .await
    .unwrap();
    let before = bad.calls(SEND);
    ids.extend(node.submit_all(4, 6).await);
    node.each_took_effect_once(&anvil, &ids).await;
    assert!(bad.calls(SEND) > before, "it is used again");
    node.stopped().await;
}
