//! Nodes that call a price too low. As long as nobody can have taken the slot's bytes, another price is offered, within the caps;
//! once somebody may have, that takes a setting.

use std::time::Duration;

use gapless_core::event::EventKind;
use gapless_core::fees::GasPrice;
use gapless_core::wait::WaitReason;
use gapless_engine::{FeeCaps, LaneSettings};
use gapless_testkit::rpc_proxy::{Fault, RpcProxy, Rule};
use serde_json::json;

use super::{SEND, blocks_until, refuses, struck, waits};
use crate::support::{Node, attempts, entry, instant, mine, pooled, quick, set_base_fee, unmined};

const CAP: GasPrice = GasPrice(100_000_000_000);

async fn is_offered_more(words: &str) {
    let anvil = instant().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let fault = Fault::ErrorWithoutForward { code: -32000, message: words.into() };
    proxy.add(Rule::new(SEND, fault).times(2));
    let caps = FeeCaps { max_fee_per_gas: Some(CAP), ..FeeCaps::default() };
    let node = Node::start(&proxy.url(), LaneSettings { caps, ..quick(0) }).await;
    let ids = node.submit_all(0, 2).await;
    node.each_took_effect_once(&anvil, &ids).await;
    let stored = attempts(&node, 0).await;
    assert_eq!(stored.len(), 3, "one more for each refusal");
    for pair in stored.windows(2) {
        let (old, new) = (pair[0].fees, pair[1].fees);
        assert!(new.ceiling().0 * 10 >= old.ceiling().0 * 11 && new.tip().0 * 10 >= old.tip().0 * 11);
        assert!(new.ceiling() <= CAP);
    }
    let replaced = node.told(ids[0]).await.into_iter().filter(|kind| *kind == EventKind::TxReplaced).count();
    assert_eq!(replaced, 2);
    assert_eq!(attempts(&node, 1).await.len(), 1, "what is taken at once is offered once");
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_took_for_its_tip_is_offered_more() {
    is_offered_more("transaction underpriced: tip needed 1, tip permitted 0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_took_for_its_total_is_offered_more() {
    is_offered_more("max fee per gas less than block base fee: maxFeePerGas: 1, baseFee: 2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_took_once_waits_with_the_figures() {
    let anvil = unmined().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let settings = LaneSettings { resubmit: Some(Duration::from_millis(200)), ..quick(1) };
    let node = Node::start(&proxy.url(), settings).await;
    let id = node.submit(entry(0)).await;
    pooled(&anvil, 1).await;
    let stored = attempts(&node, 0).await;
    let rule = refuses(&proxy, "max fee per gas less than block base fee: maxFeePerGas: 1, baseFee: 2");
    anvil.rpc("anvil_dropTransaction", json!([stored[0].hash])).await.unwrap();
    let surge = GasPrice(stored[0].fees.ceiling().0 * 4);
    set_base_fee(&anvil, surge.0).await;
    mine(&anvil, 1).await;
    let wait = waits(&node, id, "BelowBaseFee").await;
    assert_eq!(wait, WaitReason::BelowBaseFee { offered: stored[0].fees.ceiling(), base_fee: surge });
    struck(&proxy, rule, proxy.fired(rule) + 2).await;
    assert_eq!(attempts(&node, 0).await.len(), 1, "somebody may still hold it");
    proxy.remove(rule);
    set_base_fee(&anvil, 1_000_000_000).await;
    blocks_until(&anvil, &node, id, "the end", |view| view.state.is_terminal()).await;
    node.each_took_effect_once(&anvil, &[id]).await;
    node.stopped().await;
}
