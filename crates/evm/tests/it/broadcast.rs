//! Who gets the bytes, and whose word counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alloy_primitives::{B256, hex};
use gapless_core::attempt::Route;
use gapless_core::outcome::SendOutcome;
use gapless_core::ports::chain::Chain;
use gapless_core::submitter::SubmitterId;
use gapless_evm::{EvmChain, EvmOptions};
use gapless_testkit::anvil::Anvil;
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use gapless_testkit::wait::eventually;
use serde_json::json;

use crate::common::*;

const SEND: &str = "eth_sendRawTransaction";

fn says(message: &str) -> Fault {
    Fault::ErrorWithoutForward { code: -32000, message: message.into() }
}

/// Two doors to one node, both verified.
async fn two_doors(node: &Anvil, broadcast_to_all: bool) -> (RpcProxy, RpcProxy, EvmChain) {
    let (first, second) = (RpcProxy::start(node.url()).unwrap(), RpcProxy::start(node.url()).unwrap());
    let options = EvmOptions {
        broadcast_to_all,
        recheck: Duration::from_secs(60),
        timeout: Duration::from_secs(2),
        ..options([first.url(), second.url()])
    };
    let chain = EvmChain::new(&options).unwrap();
    chain.head().await.unwrap();
    let ready = || async { chain.endpoints().iter().all(|status| status.healthy).then_some(()) };
    eventually(SOON, "both endpoints", ready).await.unwrap();
    (first, second, chain)
}

#[tokio::test]
async fn bytes_go_to_the_first_only_or_to_all_as_configured() {
    for to_all in [false, true] {
        let node = patient_node().await;
        let (first, second, chain) = two_doors(&node, to_all).await;
        let attempts = transfers(0..3, Route::Public).await;
        let outcomes = chain.send(&all(&attempts)).await;
        assert!(outcomes.iter().all(SendOutcome::is_in_pool), "{outcomes:?}");
        assert_eq!(first.calls(SEND), 3);
        let second_got = || async { (second.calls(SEND) == if to_all { 3 } else { 0 }).then_some(()) };
        eventually(SOON, "the second endpoint's share", second_got).await.unwrap();
    }
}

#[tokio::test]
async fn one_accepting_wins_over_one_refusing() {
    for to_all in [false, true] {
        for refusal in ["intrinsic gas too low", "txpool is full", "the moon is in the wrong phase"] {
            let node = patient_node().await;
            let (first, _second, chain) = two_doors(&node, to_all).await;
            first.rule(SEND, says(refusal));
            let attempts = transfers(0..1, Route::Public).await;
            assert_eq!(chain.send(&all(&attempts)).await, [SendOutcome::Accepted], "{refusal}");
        }
    }
}

#[tokio::test]
async fn invalid_needs_every_endpoints_word() {
    for to_all in [false, true] {
        let node = patient_node().await;
        let (first, second, chain) = two_doors(&node, to_all).await;
        let attempts = transfers(0..1, Route::Public).await;
        first.rule(SEND, says("intrinsic gas too low"));
        let rule = second.rule(SEND, says("intrinsic gas too low"));
        let outcome = chain.send(&all(&attempts)).await.remove(0);
        assert!(matches!(outcome, SendOutcome::Invalid(_)), "{outcome:?}");
        second.remove(rule);
        second.rule(SEND, Fault::HttpStatus(500));
        let outcome = chain.send(&all(&attempts)).await.remove(0);
        assert!(outcome.is_possibly_sent(), "{outcome:?}");
        // Now it cools down and cannot be asked at all, which is not its consent.
        let outcome = chain.send(&all(&attempts)).await.remove(0);
        assert!(outcome.is_possibly_sent(), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_silent_endpoint_does_not_hold_up_a_broadcast_that_succeeded() {
    let node = patient_node().await;
    let (first, _second, chain) = two_doors(&node, true).await;
    first.rule(SEND, Fault::Hang);
    let started = tokio::time::Instant::now();
    let attempts = transfers(0..3, Route::Public).await;
    assert_eq!(chain.send(&all(&attempts)).await, vec![SendOutcome::Accepted; 3]);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

#[tokio::test]
async fn words_of_another_chain_quarantine_their_endpoint() {
    let node = patient_node().await;
    let (first, second, chain) = two_doors(&node, false).await;
    first.rule(SEND, says("invalid chain id for signer: have 1 want 5"));
    let attempts = transfers(0..2, Route::Public).await;
    assert_eq!(chain.send(&all(&attempts)).await, vec![SendOutcome::Accepted; 2]);
    let status = chain.endpoints().remove(0);
    assert!(!status.healthy && status.detail.contains("cannot be what it claims"), "{status:?}");
    let before = first.requests();
    chain.balance(&account()).await.unwrap();
    assert_eq!(first.requests(), before);
    // If everybody says so, nobody is left out for it: reads go on.
    second.rule(SEND, says("transaction type not supported"));
    let attempts = transfers(2..3, Route::Public).await;
    let outcome = chain.send(&all(&attempts)).await.remove(0);
    assert!(matches!(outcome, SendOutcome::WrongEndpoint(_)), "{outcome:?}");
    chain.balance(&account()).await.unwrap();
}

#[tokio::test]
async fn bytes_for_another_chain_quarantine_nobody() {
    let node = patient_node().await;
    let chain = chain_of(node.url());
    let mut stray = transfer(0);
    stray.submitter = SubmitterId::evm(5, ACCOUNT);
    let outcome = chain.send(&[&attempt(&stray).await]).await.remove(0);
    assert!(matches!(outcome, SendOutcome::Invalid(_)), "{outcome:?}");
    assert!(chain.endpoints()[0].healthy);
}

#[tokio::test]
async fn private_bytes_never_see_a_public_endpoint() {
    let node = patient_node().await;
    let (public, private) = (RpcProxy::start(node.url()).unwrap(), RpcProxy::start(node.url()).unwrap());
    let options = EvmOptions {
        private_endpoints: vec![private.url()],
        timeout: Duration::from_millis(400),
        broadcast_to_all: true,
        ..options([public.url()])
    };
    let chain = EvmChain::new(&options).unwrap();
    let mut mixed = transfers(0..1, Route::Public).await;
    mixed.extend(transfers(1..2, Route::Private).await);
    mixed.extend(transfers(2..3, Route::Public).await);
    assert_eq!(chain.send(&all(&mixed)).await, vec![SendOutcome::Accepted; 3]);
    assert_eq!((public.calls(SEND), private.calls(SEND)), (2, 1));

    for fault in [Fault::HttpStatus(503), Fault::Hang, says("txpool is full"), says("intrinsic gas too low")]
    {
        let rule = private.rule("*", fault);
        let outcomes = chain.send(&[&mixed[1]]).await;
        assert!(!outcomes[0].is_in_pool());
        private.remove(rule);
    }
    drop(private);
    assert!(chain.send(&[&mixed[1]]).await[0].is_possibly_sent());
    assert_eq!(public.calls(SEND), 2);
    let status = chain.endpoints();
    assert!(status[1].detail.starts_with("private; "), "{status:?}");

    let without = chain_of(public.url());
    assert!(matches!(without.send(&[&mixed[1]]).await[0], SendOutcome::Unavailable(_)));
    assert_eq!(public.calls(SEND), 2);
}

#[tokio::test]
async fn a_private_relay_that_only_takes_transactions_is_used() {
    let node = patient_node().await;
    let relay = RpcProxy::start(node.url()).unwrap();
    for method in ["eth_chainId", "eth_getBlockByNumber"] {
        relay.rule(method, Fault::ErrorWithoutForward { code: -32601, message: "method not found".into() });
    }
    let options = EvmOptions { private_endpoints: vec![relay.url()], ..options([node.url()]) };
    let chain = EvmChain::new(&options).unwrap();
    let attempts = transfers(0..1, Route::Private).await;
    assert_eq!(chain.send(&all(&attempts)).await, [SendOutcome::Accepted]);
    // One that tells, and tells another chain, is not.
    relay.clear();
    relay.rule("eth_chainId", Fault::FixedResult(json!("0x1")));
    let options = EvmOptions { timeout: Duration::from_millis(300), ..options };
    let chain = EvmChain::new(&options).unwrap();
    assert!(matches!(chain.send(&all(&attempts)).await[0], SendOutcome::Unavailable(_)));
    assert_eq!(relay.calls(SEND), 1);
}

#[tokio::test]
async fn a_long_run_waits_once_for_an_endpoint_that_does_not_answer() {
    let node = patient_node().await;
    let proxy = RpcProxy::start(node.url()).unwrap();
    let timeout = Duration::from_millis(400);
    let chain = EvmChain::new(&EvmOptions { timeout, max_batch: 2, ..options([proxy.url()]) }).unwrap();
    chain.head().await.unwrap();
    proxy.rule(SEND, Fault::Hang);
    let attempts = transfers(0..20, Route::Public).await;
    let started = tokio::time::Instant::now();
    let outcomes = chain.send(&all(&attempts)).await;
    assert!(started.elapsed() < timeout * 3, "{:?}", started.elapsed());
    assert_eq!(outcomes[..2], [SendOutcome::TimedOut, SendOutcome::TimedOut]);
    assert_eq!(outcomes.len(), 20);
    assert!(outcomes.iter().all(SendOutcome::is_possibly_sent));
}

#[tokio::test]
async fn a_node_that_keeps_nothing_before_its_turn_gets_everything_in_its_turn() {
    let node = patient_node().await;
    let proxy = RpcProxy::start(node.url()).unwrap();
    let chain = chain_of(proxy.url());
    chain.head().await.unwrap();
    let attempts = transfers(0..120, Route::Public).await;
    // The second part arrives while the first is still being looked at.
    let early = hex::encode_prefixed(&attempts[50].raw);
    let seen = AtomicU64::new(0);
    proxy.rule(
        SEND,
        Fault::refuse(move |request| {
            let is_early = request["params"][0] == json!(early) && seen.fetch_add(1, Ordering::Relaxed) == 0;
            is_early.then(|| (-32000, "nonce too high".to_owned()))
        }),
    );
    assert_eq!(chain.send(&all(&attempts[..100])).await.len(), 100);
    let pooled = || async {
        let hashes: Vec<B256> = attempts[..100].iter().map(|attempt| attempt.hash).collect();
        chain.pooled(&hashes).await.unwrap().into_iter().all(|pooled| pooled).then_some(())
    };
    eventually(SOON, "all of them in the pool", pooled).await.unwrap();
    // From now on parts go one after another, and are longer.
    let before = proxy.requests();
    assert_eq!(chain.send(&all(&attempts[100..])).await, vec![SendOutcome::Accepted; 20]);
    let more = transfers(120..220, Route::Public).await;
    assert_eq!(chain.send(&all(&more)).await, vec![SendOutcome::Accepted; 100]);
    assert_eq!(proxy.requests() - before, 2);
}
