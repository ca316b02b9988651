//! Which block the chain calls safe or finalized, and chains that call none so.

use std::time::Duration;

use gapless_core::ports::chain::{Chain, ChainError, Tag};
use gapless_evm::{EvmChain, EvmOptions};
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use serde_json::{Value, json};

use crate::common::*;

#[tokio::test]
async fn tags_follow_the_head() {
    let extra_args = vec!["--slots-in-an-epoch".into(), "2".into()];
    let node = Anvil::start(AnvilOptions { extra_args, ..AnvilOptions::default() }).await.unwrap();
    let chain = chain_of(node.url());
    for blocks in [20, 3] {
        node.rpc("anvil_mine", json!([format!("{blocks:#x}")])).await.unwrap();
        let head = chain.head().await.unwrap().this;
        for (tag, depth) in [(Tag::Safe, 2), (Tag::Finalized, 4)] {
            let named = chain.tagged(tag).await.unwrap().unwrap();
            assert_eq!(named, chain.block_at(head.number - depth).await.unwrap().unwrap().this);
        }
    }
}

#[tokio::test]
async fn a_chain_without_tags_names_no_block_and_trouble_is_not_taken_for_that() {
    let node = patient_node().await;
    let proxy = RpcProxy::start(node.url()).unwrap();
    let options = EvmOptions { timeout: Duration::from_millis(400), ..options([proxy.url()]) };
    let chain = EvmChain::new(&options).unwrap();
    chain.head().await.unwrap();
    let refused = |code, message: &str| Fault::ErrorWithoutForward { code, message: message.into() };
    for fault in [
        Fault::FixedResult(Value::Null),
        refused(-32602, "invalid block number"),
        refused(-39001, "Unknown block"),
        refused(-32000, "finalized block not found"),
    ] {
        let rule = proxy.rule("eth_getBlockByNumber", fault.clone());
        assert_eq!(chain.tagged(Tag::Finalized).await, Ok(None), "{fault:?}");
        proxy.remove(rule);
    }
    for fault in [refused(-32603, "internal error"), Fault::HttpStatus(500), Fault::FixedResult(json!("0x1"))]
    {
        let rule = proxy.rule("eth_getBlockByNumber", fault.clone());
        let named = chain.tagged(Tag::Finalized).await;
        assert!(matches!(named, Err(ChainError::Unavailable(_))), "{fault:?}: {named:?}");
        proxy.remove(rule);
    }
}
