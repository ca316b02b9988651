//! Who is at the other end: endpoints of other chains are found out, named and left alone.

use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::ports::chain::{Chain, ChainError};
use gapless_evm::{EvmChain, EvmOptions};
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use gapless_testkit::wait::eventually;
use serde_json::json;

use crate::common::*;

async fn detail(chain: &EvmChain, place: usize, words: &str) {
    let says = || async { chain.endpoints()[place].detail.contains(words).then_some(()) };
    eventually(SOON, words, says).await.unwrap_or_else(|error| panic!("{error}: {:?}", chain.endpoints()));
}

#[tokio::test]
async fn an_endpoint_of_another_chain_is_quarantined_and_named() {
    let node = patient_node().await;
    let other = Anvil::start(AnvilOptions { chain_id: 4242, ..AnvilOptions::default() }).await.unwrap();
    let other = RpcProxy::start(other.url()).map(|proxy| (proxy, other)).unwrap();
    let chain = EvmChain::new(&options([other.0.url(), node.url()])).unwrap();
    for _ in 0..5 {
        chain.balance(&account()).await.unwrap();
    }
    let status = chain.endpoints();
    assert_eq!(status[0].name, other.0.url());
    assert_eq!(status[0].detail, "quarantined: it serves chain 4242, not 31337");
    assert!(!status[0].healthy && status[1].healthy);
    assert_eq!(other.0.calls("eth_getBalance"), 0);
}

#[tokio::test]
async fn a_quarantined_endpoint_is_asked_again_and_comes_back() {
    let node = patient_node().await;
    let proxy = RpcProxy::start(node.url()).unwrap();
    let rule = proxy.rule("eth_chainId", Fault::FixedResult(json!("0x1")));
    let options = EvmOptions { timeout: Duration::from_millis(300), ..options([proxy.url()]) };
    let chain = EvmChain::new(&options).unwrap();
    let Err(ChainError::Unavailable(text)) = chain.head().await else { panic!("chain 1 was used") };
    assert!(text.as_str().contains("serves chain 1, not 31337"), "{text}");
    assert_eq!(proxy.calls("eth_getBlockByNumber"), proxy.calls("eth_chainId"));
    proxy.remove(rule);
    eventually(SOON, "its return", || async { chain.head().await.ok() }).await.unwrap();
    assert!(chain.endpoints()[0].healthy);
}

#[tokio::test]
async fn a_chain_of_the_same_id_with_another_genesis_is_quarantined() {
    let node = patient_node().await;
    let extra_args = vec!["--timestamp".into(), "1600000000".into()];
    let other = Anvil::start(AnvilOptions { extra_args, ..AnvilOptions::default() }).await.unwrap();
    let chain = EvmChain::new(&options([node.url(), other.url()])).unwrap();
    let genesis = chain.genesis().await.unwrap();
    detail(&chain, 1, "quarantined: its block 0 is").await;
    assert_eq!(chain.genesis().await, Ok(genesis));

    let expected_genesis = Some(B256::repeat_byte(3));
    let chain = EvmChain::new(&EvmOptions { expected_genesis, ..options([node.url()]) }).unwrap();
    assert!(matches!(chain.head().await, Err(ChainError::Unavailable(_))));
    // Nothing else is left, so what there is is said: a caller that keeps the old one sees the change.
    assert_eq!(chain.genesis().await, Ok(genesis));
}

#[tokio::test]
async fn a_chain_that_restarted_under_its_id_is_noticed() {
    let extra_args = vec!["--timestamp".into(), "1600000000".into()];
    let old = Anvil::start(AnvilOptions { extra_args, ..AnvilOptions::default() }).await.unwrap();
    let new = patient_node().await;
    let proxy = RpcProxy::start(old.url()).unwrap();
    let chain = chain_of(proxy.url());
    let genesis = chain.genesis().await.unwrap();
    let fresh = new.rpc("eth_getBlockByNumber", json!(["0x0", false])).await.unwrap();
    let hash: B256 = fresh["hash"].as_str().unwrap().parse().unwrap();
    proxy.rule("eth_getBlockByNumber", Fault::FixedResult(fresh));
    assert_eq!(chain.genesis().await, Ok(hash));
    assert_ne!(hash, genesis);
}

#[tokio::test]
async fn an_endpoint_that_lies_about_a_block_is_not_believed() {
    let node = patient_node().await;
    let proxy = RpcProxy::start(node.url()).unwrap();
    let options = EvmOptions { timeout: Duration::from_millis(300), ..options([proxy.url()]) };
    let chain = EvmChain::new(&options).unwrap();
    let head = chain.head().await.unwrap();
    proxy.rule(
        "eth_getBlockByHash",
        Fault::result(|_, mut answer| {
            answer["result"]["hash"] = json!(B256::repeat_byte(1));
            answer
        }),
    );
    assert!(matches!(chain.block_by_hash(head.this.hash).await, Err(ChainError::Unavailable(_))));
}
