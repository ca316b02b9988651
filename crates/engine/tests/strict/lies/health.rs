//! Endpoints that do not answer. One of several is nobody's concern; all of them for longer than the reconcile interval
//! disable the submitter, which still takes requests and comes back by itself.

use std::time::Duration;

use alloy_primitives::U256;
use gapless_core::condition::Condition;
use gapless_core::event::EventKind;
use gapless_core::fees::Wei;
use gapless_core::wait::WaitReason;
use gapless_engine::{HealthRules, LaneSettings};
use gapless_evm::EvmOptions;
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use gapless_testkit::wait::eventually;
use serde_json::json;

use crate::support::{Node, address, entry, instant, quick};

fn options(urls: &[&RpcProxy]) -> EvmOptions {
    let urls = urls.iter().map(|proxy| proxy.url());
    EvmOptions { timeout: Duration::from_secs(1), ..EvmOptions::new(31337, urls) }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_endpoint_of_two_never_disables() {
    for fault in [Fault::HttpStatus(503), Fault::DropAnswer] {
        let anvil = instant().await;
        let (bad, good) = (RpcProxy::start(anvil.url()).unwrap(), RpcProxy::start(anvil.url()).unwrap());
        let node = Node::through(&options(&[&bad, &good]), quick(0)).await;
        let first = node.submit(entry(0)).await;
        node.confirmed(first).await;
        let rule = bad.rule("*", fault);
        // Several looks at the chain while nothing else happens, and then some work.
        let looks = good.calls("eth_getTransactionCount") + 12;
        eventually(Duration::from_secs(60), "the other one to be asked", || async {
            (good.calls("eth_getTransactionCount") >= looks).then_some(())
        })
        .await
        .unwrap();
        let mut ids = vec![first];
        ids.extend(node.submit_all(1, 5).await);
        node.each_took_effect_once(&anvil, &ids).await;
        assert!(bad.fired(rule) >= 1);
        assert!(!node.ever_told(EventKind::SubmitterDisabled).await);
        node.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_bad_disables_requests_still_queue_and_it_is_enabled_by_itself() {
    let anvil = instant().await;
    let (one, two) = (RpcProxy::start(anvil.url()).unwrap(), RpcProxy::start(anvil.url()).unwrap());
    let node = Node::through(&options(&[&one, &two]), quick(0)).await;
    let mut ids = vec![node.submit(entry(0)).await];
    node.confirmed(ids[0]).await;
    for proxy in [&one, &two] {
        proxy.rule("*", Fault::HttpStatus(503));
    }
    let view = node.until_submitter("the end of patience", |view| view.condition != Condition::Ok).await;
    assert_eq!(view.condition, Condition::Disabled, "{view:?}");
    assert!(view.reason.as_ref().is_some_and(|words| words.contains("503")), "{view:?}");
    assert_eq!(node.times_told(EventKind::SubmitterDisabled).await, 1);
    ids.extend(node.submit_all(1, 4).await);
    let waits = node.until(ids[1], "the reason", |view| view.wait_reason.is_some()).await;
    assert!(matches!(waits.wait_reason, Some(WaitReason::NodeDown { .. })), "{waits:?}");
    two.clear();
    node.each_took_effect_once(&anvil, &ids).await;
    assert_eq!(node.submitter().await.condition, Condition::Ok);
    assert_eq!(node.times_told(EventKind::SubmitterEnabled).await, 1);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submitter_whose_chain_never_answered_is_disabled_and_begins_when_it_does() {
    let anvil = instant().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    proxy.rule("*", Fault::HttpStatus(503));
    let node = Node::through(&options(&[&proxy]), quick(0)).await;
    let ids = node.submit_all(0, 3).await;
    node.until_submitter("the end of patience", |view| view.condition == Condition::Disabled).await;
    proxy.clear();
    node.each_took_effect_once(&anvil, &ids).await;
    assert_eq!(node.submitter().await.condition, Condition::Ok);
    assert_eq!(node.times_told(EventKind::SubmitterEnabled).await, 1);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_low_balance_is_told_once_per_crossing() {
    let anvil = instant().await;
    let ether = |n: u64| U256::from(n) * U256::from(1_000_000_000_000_000_000_u64);
    let health = HealthRules {
        min_balance: Some(Wei(ether(50))),
        balance_refresh: Duration::from_millis(100),
        ..LaneSettings::default().health
    };
    let settings = LaneSettings { health, reconcile: Duration::from_millis(100), ..quick(0) };
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let node = Node::start(&proxy.url(), settings).await;
    let first = node.submit(entry(0)).await;
    node.confirmed(first).await;
    let looked = || async {
        let looks = proxy.calls("eth_getBalance") + 6;
        let seen = || async { (proxy.calls("eth_getBalance") >= looks).then_some(()) };
        eventually(Duration::from_secs(60), "the balance to be looked at", seen).await.unwrap();
    };
    for crossings in 1..=2 {
        anvil.rpc("anvil_setBalance", json!([address(), ether(100)])).await.unwrap();
        looked().await;
        assert_eq!(node.times_told(EventKind::SubmitterLowBalance).await, crossings - 1);
        anvil.rpc("anvil_setBalance", json!([address(), ether(10)])).await.unwrap();
        looked().await;
        assert_eq!(node.times_told(EventKind::SubmitterLowBalance).await, crossings);
    }
    // Low is a word of warning, no more.
    let second = node.submit(entry(1)).await;
    node.each_took_effect_once(&anvil, &[first, second]).await;
    node.stopped().await;
}
