//! A node that lies, stalls and hangs up: what may and may not be concluded.

use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::attempt::Route;
use gapless_core::intent::Options;
use gapless_core::outcome::SendOutcome;
use gapless_core::ports::chain::{Chain, ChainError};
use gapless_evm::{EvmChain, EvmOptions};
use gapless_testkit::anvil::Anvil;
use gapless_testkit::rpc_proxy::{Fault, RpcProxy, Rule};
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::common::*;

fn proxied(node: &Anvil) -> (RpcProxy, EvmChain) {
    let proxy = RpcProxy::start(node.url()).unwrap();
    let chain = chain_of(proxy.url());
    (proxy, chain)
}

fn impatient(url: String) -> EvmChain {
    let options = EvmOptions { timeout: Duration::from_millis(400), ..options([url]) };
    EvmChain::new(&options).unwrap()
}

/// Waits until whatever pause an endpoint earned itself is over.
async fn recovered(chain: &EvmChain) {
    eventually(SOON, "the endpoint's return", || async { chain.head().await.ok() }).await.unwrap();
}

#[tokio::test]
async fn a_send_without_an_answer_is_possibly_sent() {
    let node = eager_node().await;
    let proxy = RpcProxy::start(node.url()).unwrap();
    let chain = impatient(proxy.url());
    chain.head().await.unwrap();
    let attempts = transfers(0..2, Route::Public).await;

    let rule = proxy.rule("eth_sendRawTransaction", Fault::Hang);
    assert_eq!(chain.send(&[&attempts[0]]).await, [SendOutcome::TimedOut]);
    proxy.remove(rule);
    let rule = proxy.rule("eth_sendRawTransaction", Fault::DropAnswer);
    let outcome = chain.send(&[&attempts[0]]).await.remove(0);
    assert!(outcome.is_possibly_sent(), "{outcome:?}");
    proxy.remove(rule);
    // It was.
    assert!(receipt_of(&chain, attempts[0].hash).await.succeeded);
    assert_eq!(chain.send(&[&attempts[0]]).await, [SendOutcome::NonceTooLow]);
    let error = Fault::ErrorAfterForward { code: -32000, message: "the moon is in the wrong phase".into() };
    proxy.rule("eth_sendRawTransaction", error);
    let outcome = chain.send(&[&attempts[1]]).await.remove(0);
    assert!(matches!(outcome, SendOutcome::Unknown(_)) && outcome.is_possibly_sent());
    assert_eq!(chain.unknown_texts().list(), vec![("the moon is in the wrong phase".to_owned(), 1)]);
}

#[tokio::test]
async fn a_storm_of_429_is_waited_out_by_every_method() {
    let node = patient_node().await;
    let (proxy, chain) = proxied(&node);
    let head = chain.head().await.unwrap().this;
    let (account, hash) = (account(), head.hash);
    let attempts = transfers(0..1, Route::Public).await;
    let storm = || proxy.add(Rule::new("*", Fault::HttpStatus(429)).times(3));
    macro_rules! survives {
        ($($call:expr),+ $(,)?) => {
            $(
                let rule = storm();
                let result = $call.await;
                assert!(result.is_ok(), "{}: {:?}", stringify!($call), result);
                assert_eq!(proxy.fired(rule), 3, "{}", stringify!($call));
                proxy.clear();
            )+
        };
    }
    survives!(
        chain.head(),
        chain.block_at(0),
        chain.block_by_hash(hash),
        chain.counts(&account),
        chain.count_at(&account, hash),
        chain.sighting(&account, gapless_core::ids::Nonce(0), hash),
        chain.balance(&account),
        chain.estimate(&account, &transfer(0).payload),
        chain.quote(&Options::default()),
        chain.genesis(),
        chain.receipts(&[B256::ZERO]),
    );
    storm();
    assert_eq!(chain.send(&[&attempts[0]]).await, [SendOutcome::Accepted]);
}

#[tokio::test]
async fn throttling_in_words_is_waited_out_and_rejects_nothing() {
    let node = patient_node().await;
    let (proxy, chain) = proxied(&node);
    chain.head().await.unwrap();
    let wait = || Fault::ErrorWithoutForward { code: -32005, message: "rate limit exceeded".into() };
    proxy.add(Rule::new("eth_estimateGas", wait()).times(2));
    chain.estimate(&account(), &transfer(0).payload).await.unwrap();
    proxy.add(Rule::new("eth_sendRawTransaction", wait()).times(2));
    let attempts = transfers(0..3, Route::Public).await;
    let outcomes = chain.send(&all(&attempts)).await;
    assert!(outcomes.iter().all(SendOutcome::is_in_pool), "{outcomes:?}");
}

#[tokio::test]
async fn trouble_with_a_node_is_never_a_revert() {
    let node = patient_node().await;
    let proxy = RpcProxy::start(node.url()).unwrap();
    let chain = impatient(proxy.url());
    chain.head().await.unwrap();
    for fault in [
        Fault::HttpStatus(500),
        Fault::HttpStatus(429),
        Fault::Hang,
        Fault::DropAnswer,
        Fault::FixedResult(Value::Null),
        Fault::FixedResult(json!("a lot")),
        Fault::ErrorWithoutForward { code: -32603, message: "internal error".into() },
    ] {
        let rule = proxy.rule("eth_estimateGas", fault.clone());
        let result = chain.estimate(&account(), &transfer(0).payload).await;
        assert!(matches!(result, Err(ChainError::Unavailable(_))), "{fault:?}: {result:?}");
        proxy.remove(rule);
        recovered(&chain).await;
    }
}

#[tokio::test]
async fn an_error_on_a_receipt_is_not_a_missing_receipt() {
    let node = patient_node().await;
    let proxy = RpcProxy::start(node.url()).unwrap();
    let chain = impatient(proxy.url());
    let wrong = json!({"transactionHash": B256::repeat_byte(9), "blockNumber": "0x1", "blockHash": B256::ZERO,
        "status": "0x1", "gasUsed": "0x1"});
    for fault in [
        Fault::ErrorWithoutForward { code: -32000, message: "internal error".into() },
        Fault::FixedResult(json!({"status": "0x1"})),
        Fault::FixedResult(wrong),
        Fault::HttpStatus(502),
    ] {
        let rule = proxy.rule("eth_getTransactionReceipt", fault.clone());
        let result = chain.receipts(&[B256::ZERO]).await;
        assert!(matches!(result, Err(ChainError::Unavailable(_))), "{fault:?}: {result:?}");
        proxy.remove(rule);
        recovered(&chain).await;
    }
    assert_eq!(chain.receipts(&[B256::ZERO]).await, Ok(vec![None]));
}

#[tokio::test]
async fn pruned_history_is_said_so_and_another_endpoint_may_have_it() {
    let node = patient_node().await;
    let pruned = RpcProxy::start(node.url()).unwrap();
    let head = chain_of(node.url()).head().await.unwrap().this.hash;
    for message in ["missing trie node 1f2e (path )", "header not found", "required state is not available"] {
        let fault = Fault::ErrorWithoutForward { code: -32000, message: message.into() };
        let rule = pruned.rule("eth_getTransactionCount", fault);
        let alone = chain_of(pruned.url());
        assert!(matches!(alone.count_at(&account(), head).await, Err(ChainError::Pruned(_))), "{message}");
        let both = EvmChain::new(&options([pruned.url(), node.url()])).unwrap();
        both.head().await.unwrap();
        let other_is_ready = || async { both.endpoints()[1].healthy.then_some(()) };
        eventually(SOON, "the second endpoint", other_is_ready).await.unwrap();
        assert_eq!(both.count_at(&account(), head).await, Ok(gapless_core::ids::Nonce(0)), "{message}");
        pruned.remove(rule);
    }
}

#[tokio::test]
async fn reads_go_on_when_the_first_endpoint_dies() {
    let node = patient_node().await;
    let (first, second) = (RpcProxy::start(node.url()).unwrap(), RpcProxy::start(node.url()).unwrap());
    let chain = EvmChain::new(&options([first.url(), second.url()])).unwrap();
    chain.head().await.unwrap();
    // Its genesis is verified in the background, at any time; the head was asked of the first alone.
    assert!(second.calls("eth_getBlockByNumber") <= 1);
    drop(first);
    for _ in 0..20 {
        chain.counts(&account()).await.unwrap();
    }
    let attempts = transfers(0..1, Route::Public).await;
    assert_eq!(chain.send(&all(&attempts)).await, [SendOutcome::Accepted]);
    let status = chain.endpoints();
    assert!(!status[0].healthy && status[1].healthy, "{status:?}");
}

#[tokio::test]
async fn a_hanging_endpoint_costs_one_time_out_and_is_then_avoided() {
    let node = patient_node().await;
    let (first, second) = (RpcProxy::start(node.url()).unwrap(), RpcProxy::start(node.url()).unwrap());
    let timeout = Duration::from_millis(400);
    let chain = EvmChain::new(&EvmOptions { timeout, ..options([first.url(), second.url()]) }).unwrap();
    chain.head().await.unwrap();
    first.rule("*", Fault::Hang);
    let started = Instant::now();
    for _ in 0..5 {
        chain.balance(&account()).await.unwrap();
    }
    assert!(started.elapsed() < timeout * 4, "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_node_that_is_down_at_the_start_is_used_once_it_is_up() {
    let node = eager_node().await;
    let options = EvmOptions { timeout: Duration::from_millis(500), ..options([node.url()]) };
    node.stop().await.unwrap();
    let chain = EvmChain::new(&options).unwrap();
    assert_eq!(chain.endpoints()[0].detail, "not asked yet");
    assert!(matches!(chain.head().await, Err(ChainError::Unavailable(_))));
    let status = chain.endpoints().remove(0);
    assert!(!status.healthy && status.detail.contains("onnect"), "{status:?}");
    node.restart().await.unwrap();
    let up = || async { chain.head().await.ok() };
    eventually(SOON, "the node", up).await.unwrap();
    assert!(chain.endpoints()[0].healthy);
}

#[tokio::test]
async fn requests_in_flight_are_limited() {
    let node = patient_node().await;
    let proxy = RpcProxy::start(node.url()).unwrap();
    let options = EvmOptions { max_in_flight: 2, ..options([proxy.url()]) };
    let chain = EvmChain::new(&options).unwrap();
    chain.head().await.unwrap();
    proxy.rule("eth_getBalance", Fault::Delay(Duration::from_millis(150)));
    let started = Instant::now();
    let account = account();
    let reads = (0..6).map(|_| chain.balance(&account));
    futures::future::try_join_all(reads).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(450), "{:?}", started.elapsed());
}
