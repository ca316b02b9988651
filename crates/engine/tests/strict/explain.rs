//! Situations staged on a real chain, each explained: the reason, a figure that shows it, and what comes next.

use std::time::Duration;

use alloy_primitives::{Address, U256};
use gapless_core::command::Verb;
use gapless_core::condition::Condition;
use gapless_core::fees::{GasPrice, Wei};
use gapless_core::ids::{Nonce, TxId};
use gapless_core::intent::Payload;
use gapless_core::plan::{Mode, NonceRules};
use gapless_core::state::{SubState, TxState};
use gapless_core::wait::WaitReason;
use gapless_engine::explain::Explanation;
use gapless_engine::{FeeCaps, LaneSettings};
use gapless_testkit::anvil::Anvil;
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use gapless_testkit::wait::eventually;
use serde_json::json;

use crate::support::{Node, address, entry, instant, mine, number, quick, request, submitter, unmined};

/// Waits for a reason and gives the explanation that has it.
async fn told(node: &Node, id: TxId, reason: &str) -> Explanation {
    let told = eventually(Duration::from_secs(60), reason, || async {
        let told = node.handle.explain(&node.handle.record(id).await.unwrap()).await.unwrap();
        (told.reason == reason).then_some(told)
    })
    .await;
    match told {
        Ok(told) => told,
        Err(error) => {
            let tx = node.handle.record(id).await.unwrap();
            panic!("{error}: {:#?}\n{tx:#?}", node.handle.explain(&tx).await)
        }
    }
}

async fn in_pool(node: &Node, anvil: &Anvil, id: TxId) {
    node.until(id, "the bytes", |view| view.state == TxState::Tracking).await;
    eventually(Duration::from_secs(60), "the pool", || async {
        let pool = anvil.rpc("txpool_status", json!([])).await.unwrap();
        (pool["pending"] != "0x0").then_some(())
    })
    .await
    .unwrap();
}

/// Mines block after block until a transaction is CONFIRMED.
async fn confirmed(node: &Node, anvil: &Anvil, id: TxId) {
    eventually(Duration::from_secs(90), "the end", || async {
        mine(anvil, 1).await;
        (node.handle.tx(id).await.unwrap().state == TxState::Confirmed).then_some(())
    })
    .await
    .unwrap();
}

/// Two requests: the first is in the pool, the second stands behind it.
async fn one_behind_another(anvil: &Anvil) -> (Node, Vec<TxId>) {
    let node = Node::start(&anvil.url(), quick(3)).await;
    let ids = node.submit_all(0, 2).await;
    in_pool(&node, anvil, ids[0]).await;
    (node, ids)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_slot_is_told_with_its_nonce() {
    let anvil = unmined().await;
    let (node, ids) = one_behind_another(&anvil).await;
    assert!(
        told(&node, ids[0], "InPool").await.next.at.is_some(),
        "it is sent again at a time that is known"
    );
    assert!(told(&node, ids[1], "SlotBusy").await.summary.contains("nonce 0"));
    let view = node.handle.tx(ids[1]).await.unwrap();
    assert_eq!(view.wait_reason, Some(WaitReason::SlotBusy { nonce: Nonce(0) }));
    confirmed(&node, &anvil, ids[1]).await;
    node.each_took_effect_once(&anvil, &ids).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_is_told_with_what_ends_it() {
    let anvil = unmined().await;
    let (node, ids) = one_behind_another(&anvil).await;
    node.handle.command(&submitter(), None, Verb::Pause, json!({}), "operator").await.unwrap();
    assert!(told(&node, ids[1], "Paused").await.next.action.contains("resume"));
    node.handle.command(&submitter(), None, Verb::Resume, json!({}), "operator").await.unwrap();
    told(&node, ids[1], "SlotBusy").await;
    confirmed(&node, &anvil, ids[1]).await;
    node.each_took_effect_once(&anvil, &ids).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn confirmations_are_told_with_how_many_are_missing() {
    let anvil = unmined().await;
    let (node, ids) = one_behind_another(&anvil).await;
    mine(&anvil, 2).await;
    node.until(ids[0], "one confirmation", |view| {
        view.wait_reason == Some(WaitReason::Confirming { count: 1, required: 3 })
    })
    .await;
    let confirming = told(&node, ids[0], "Confirming").await;
    assert!(confirming.next.action.contains("CONFIRMED after 2 more blocks"), "{confirming:#?}");
    confirmed(&node, &anvil, ids[1]).await;
    node.each_took_effect_once(&anvil, &ids).await;
    assert!(told(&node, ids[0], "Confirmed").await.next.action.contains("ended"));
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_fee_above_the_offer_is_told_with_both_figures() {
    let anvil = unmined().await;
    // The node forgets what it cannot mine, so only sending it again brings it back.
    let resubmit = Some(Duration::from_secs(1));
    let node = Node::start(&anvil.url(), LaneSettings { resubmit, ..quick(0) }).await;
    let ids = [node.submit(entry(0)).await];
    in_pool(&node, &anvil, ids[0]).await;
    let surge = 1_000_000_000_000_u64;
    anvil.rpc("anvil_setNextBlockBaseFeePerGas", json!([format!("{surge:#x}")])).await.unwrap();
    mine(&anvil, 1).await;
    let below = told(&node, ids[0], "BelowBaseFee").await;
    assert!(below.summary.contains("base fee was 1000 gwei"), "{below:#?}");
    assert!(below.next.action.contains("Waits for the base fee to fall"), "{below:#?}");
    let view = node.handle.tx(ids[0]).await.unwrap();
    let Some(WaitReason::BelowBaseFee { offered, base_fee }) = view.wait_reason else { panic!("{view:#?}") };
    assert!(offered < base_fee && base_fee.0 == u128::from(surge), "{view:#?}");
    anvil.rpc("anvil_setNextBlockBaseFeePerGas", json!(["0x1"])).await.unwrap();
    confirmed(&node, &anvil, ids[0]).await;
    node.each_took_effect_once(&anvil, &ids).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_told_in_the_nodes_words() {
    let anvil = instant().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let node = Node::start(&proxy.url(), quick(0)).await;
    let full = Fault::ErrorWithoutForward { code: -32000, message: "txpool is full".into() };
    let rule = proxy.rule("eth_sendRawTransaction", full);
    let ids = [node.submit(entry(0)).await];
    let refused = told(&node, ids[0], "NotInPool").await;
    assert!(refused.summary.contains("pool"), "{refused:#?}");
    assert!(refused.next.at.is_some() && refused.next.action.contains("Sends"), "{refused:#?}");
    proxy.remove(rule);
    node.each_took_effect_once(&anvil, &ids).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_account_is_told_with_what_is_missing() {
    let anvil = instant().await;
    let node = Node::start(&anvil.url(), quick(0)).await;
    let first = node.submit(entry(0)).await;
    node.confirmed(first).await;
    anvil.rpc("anvil_setBalance", json!([address(), "0x1"])).await.unwrap();
    let value = Wei(U256::from(10_000));
    let payload = Payload { to: Some(Address::repeat_byte(0xee)), value, ..Default::default() };
    let poor = node.submit(request("poor", payload)).await;
    let empty = told(&node, poor, "OutOfFunds").await;
    assert!(empty.summary.contains("holds 1 wei"), "{empty:#?}");
    anvil.rpc("anvil_setBalance", json!([address(), "0x3635c9adc5dea00000"])).await.unwrap();
    node.confirmed(poor).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vanished_block_is_told() {
    let anvil = unmined().await;
    let node = Node::start(&anvil.url(), quick(3)).await;
    let ids = [node.submit(entry(0)).await];
    in_pool(&node, &anvil, ids[0]).await;
    mine(&anvil, 1).await;
    node.until(ids[0], "the block", |view| view.sub_state == Some(SubState::Mined)).await;
    anvil.rpc("anvil_reorg", json!([1, []])).await.unwrap();
    let vanished = told(&node, ids[0], "Reorged").await;
    assert!(vanished.evidence.iter().any(|fact| fact.what == "vanished block"), "{vanished:#?}");
    confirmed(&node, &anvil, ids[0]).await;
    node.each_took_effect_once(&anvil, &ids).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_use_is_told_with_the_nonce_to_acknowledge() {
    let anvil = unmined().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let node = Node::start(&proxy.url(), quick(1)).await;
    // Nothing of ours reaches the pool, so the foreign transaction takes the very nonce we have bound.
    let full = Fault::ErrorWithoutForward { code: -32000, message: "txpool is full".into() };
    proxy.rule("eth_sendRawTransaction", full);
    let ids = node.submit_all(0, 2).await;
    node.until(ids[0], "the bytes", |view| view.state == TxState::Tracking).await;
    let foreign = json!([{"from": address(), "to": Address::repeat_byte(0xaa), "value": "0x1"}]);
    anvil.rpc("eth_sendTransaction", foreign).await.unwrap();
    mine(&anvil, 1).await;
    for id in ids {
        let protected = told(&node, id, "Protected").await;
        assert!(protected.next.action.contains("acknowledgedNonce 0"), "{protected:#?}");
    }
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_chain_is_told_with_its_endpoints() {
    let anvil = unmined().await;
    let node = Node::start(&anvil.url(), quick(0)).await;
    let id = node.submit(entry(0)).await;
    in_pool(&node, &anvil, id).await;
    anvil.kill9().await.unwrap();
    let silent = told(&node, id, "NodeDown").await;
    assert!(silent.evidence.iter().any(|fact| fact.what == "endpoint"), "{silent:#?}");
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_lower_nonce_is_told() {
    let anvil = unmined().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let rules = NonceRules { mode: Mode::Pipelined, max_in_flight: 2, ..quick(0).rules };
    let node = Node::start(&proxy.url(), LaneSettings { rules, ..quick(0) }).await;
    let first = node.submit(entry(0)).await;
    in_pool(&node, &anvil, first).await;
    let gap = Fault::ErrorWithoutForward { code: -32000, message: "nonce too high".into() };
    let rule = proxy.rule("eth_sendRawTransaction", gap);
    let second = node.submit(entry(1)).await;
    let missing = told(&node, second, "GapBelow").await;
    assert!(missing.summary.contains("Nonce 0"), "{missing:#?}");
    proxy.remove(rule);
    confirmed(&node, &anvil, first).await;
    confirmed(&node, &anvil, second).await;
    node.each_took_effect_once(&anvil, &[first, second]).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cap_below_the_market_is_told_with_both_figures() {
    let anvil = unmined().await;
    let cap = GasPrice(1_000_000_000);
    let caps = FeeCaps { max_fee_per_gas: Some(cap), ..FeeCaps::default() };
    anvil.rpc("anvil_setNextBlockBaseFeePerGas", json!(["0x2540be400"])).await.unwrap();
    mine(&anvil, 1).await;
    let node = Node::start(&anvil.url(), LaneSettings { caps, ..quick(0) }).await;
    let id = node.submit(entry(0)).await;
    let capped = told(&node, id, "FeeCap").await;
    assert!(capped.summary.contains("1 gwei"), "{capped:#?}");
    assert!(capped.evidence.iter().any(|fact| fact.what == "market"), "{capped:#?}");
    anvil.rpc("anvil_setNextBlockBaseFeePerGas", json!(["0x1"])).await.unwrap();
    confirmed(&node, &anvil, id).await;
    node.each_took_effect_once(&anvil, &[id]).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_told_with_its_cause() {
    let anvil = instant().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let node = Node::start(&proxy.url(), quick(0)).await;
    let first = node.submit(entry(0)).await;
    node.confirmed(first).await;
    // Somebody seems to have used this account: the counts run ahead of what we have bound.
    let ahead = Fault::result(|_, mut answer| {
        answer["result"] = json!(format!("{:#x}", number(&answer["result"]) + 3));
        answer
    });
    let rule = proxy.rule("eth_getTransactionCount", ahead);
    node.until_submitter("the hold", |view| view.condition == Condition::Hold).await;
    let second = node.submit(entry(1)).await;
    let held = told(&node, second, "Held").await;
    assert!(held.evidence.iter().any(|fact| fact.what == "hold"), "{held:#?}");
    assert!(held.summary.contains("we have bound 1"), "{held:#?}");
    proxy.remove(rule);
    node.each_took_effect_once(&anvil, &[first, second]).await;
    node.stopped().await;
}
