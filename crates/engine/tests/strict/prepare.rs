//! Preparing refuses without taking a nonce, waits for what may come, and never refuses what an earlier transaction may
//! still make possible.

use alloy_primitives::{Address, U256};
use async_trait::async_trait;
use gapless_core::fees::{Gas, Wei};
use gapless_core::ids::{Nonce, TxId};
use gapless_core::intent::Payload;
use gapless_core::ports::chain::{Signed, Unsigned};
use gapless_core::ports::signer::{SignError, Signer};
use gapless_core::ports::store::Registered;
use gapless_core::state::{SubState, TxState};
use gapless_core::wait::WaitReason;
use gapless_engine::handle::Request;
use gapless_evm::LocalSigner;
use gapless_testkit::rpc_proxy::{Fault, RpcProxy, Rule};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::contracts;
use crate::support::{
    KEY, Node, address, call, count, entry, instant, memory, mine, place, quick, request, slot, submitter,
    unmined,
};

const CONTRACT: Address = Address::repeat_byte(0xc0);

/// Waits for a refusal; the code and words of it.
async fn refused(node: &Node, id: TxId) -> (String, String) {
    let view = node.until(id, "the refusal", |view| view.state.is_terminal()).await;
    assert_eq!(view.state, TxState::Rejected);
    let failure = view.failure.unwrap();
    (failure.code.as_str().to_owned(), failure.reason.as_str().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_run_is_refused_with_its_reason_and_takes_no_nonce() {
    let anvil = instant().await;
    let node = Node::start(&anvil.url(), quick(0)).await;
    let init = contracts::deploying(&contracts::reverting("no such order"));
    let deployed = node.submit(request("deploy", Payload { data: init.into(), ..Default::default() })).await;
    let deployed = serde_json::to_value(node.confirmed(deployed).await).unwrap();
    let contract: Address = deployed["receipt"]["contractAddress"].as_str().unwrap().parse().unwrap();

    let reverts = node.submit(request("reverts", call(contract, vec![]))).await;
    let (code, words) = refused(&node, reverts).await;
    assert_eq!(code, "execution-reverted");
    assert!(words.contains("no such order"), "{words}");

    let huge = Payload { gas_limit: Some(Gas(u64::MAX / 2)), ..call(contract, vec![]) };
    let huge = node.submit(request("huge", huge)).await;
    assert_eq!(refused(&node, huge).await.0, "gas-above-block-limit");

    let thin = Payload { gas_limit: Some(Gas(20_999)), ..call(contract, vec![]) };
    let thin = node.submit(request("thin", thin)).await;
    assert_eq!(refused(&node, thin).await.0, "intrinsic-gas-too-low");

    assert_eq!(node.submitter().await.next_nonce, Some(Nonce(1)), "only the deployment took a nonce");
    // A refused one lets the next pass.
    let next = node.submit(entry(0)).await;
    node.confirmed(next).await;
    assert_eq!(count(&anvil).await, 2);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submitter_without_a_signer_is_refused_and_takes_no_nonce() {
    let anvil = instant().await;
    let node = Node::start(&anvil.url(), quick(0)).await;
    // Registered while running, on a node that has no key of it.
    let stranger = "eip155:31337:0x70997970c51812dc3a010c7d01b50e0d17dc79c8".parse().unwrap();
    assert_eq!(node.handle.register(&stranger).await.unwrap(), Registered::New);
    let id = node.submit(Request { submitter: stranger.clone(), ..entry(0) }).await;
    assert_eq!(refused(&node, id).await.0, "no-signer");
    let view = node.handle.submitter(&stranger).await.unwrap();
    assert_eq!(view.next_nonce.unwrap_or_default(), Nonce(0), "no nonce was taken");
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_funds_it_waits_with_figures_and_goes_on_by_itself_when_funded() {
    let anvil = instant().await;
    let node = Node::start(&anvil.url(), quick(0)).await;
    let first = node.submit(entry(0)).await;
    node.confirmed(first).await;
    // Too poor for the value (the estimate says so), then rich enough for the value but not for the gas.
    for (id, balance) in [("no-value", "0x1"), ("no-gas", "0x2710")] {
        anvil.rpc("anvil_setBalance", json!([address(), balance])).await.unwrap();
        let value = Wei(U256::from(10_000));
        let payload = Payload { to: Some(Address::repeat_byte(0xee)), value, ..Default::default() };
        let poor = node.submit(request(id, payload)).await;
        let waits = node.until(poor, "waiting for funds", |view| view.wait_reason.is_some()).await;
        assert_eq!((waits.state, waits.sub_state), (TxState::Queued, Some(SubState::WaitingFunds)));
        let Some(WaitReason::OutOfFunds { balance: has, needed }) = waits.wait_reason else {
            panic!("{waits:?}");
        };
        assert!(has < needed, "{has:?} {needed:?}");
        anvil.rpc("anvil_setBalance", json!([address(), "0x3635c9adc5dea00000"])).await.unwrap();
        node.confirmed(poor).await;
    }
    assert_eq!(count(&anvil).await, 3);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_depends_on_a_transaction_in_flight_waits_for_it() {
    let anvil = unmined().await;
    place(&anvil, CONTRACT, &contracts::FLAG).await;
    let node = Node::start(&anvil.url(), quick(1)).await;
    let approve = node.submit(request("approve", call(CONTRACT, vec![]))).await;
    let transfer = node.submit(request("transfer", call(CONTRACT, vec![1]))).await;
    node.until(approve, "the first in the pool", |view| view.state == TxState::Tracking).await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(node.handle.tx(transfer).await.unwrap().state, TxState::Queued);
    mine(&anvil, 1).await;
    node.until(transfer, "the second in the pool", |view| view.state == TxState::Tracking).await;
    mine(&anvil, 2).await;
    node.confirmed(approve).await;
    node.confirmed(transfer).await;
    assert_eq!(slot(&anvil, CONTRACT, U256::from(1)).await, 1);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revert_told_by_an_endpoint_that_has_not_reached_the_last_mined_block_is_not_final() {
    let anvil = instant().await;
    place(&anvil, CONTRACT, &contracts::FLAG).await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let node = Node::start(&proxy.url(), quick(0)).await;
    let before = anvil.rpc("eth_getBlockByNumber", json!(["latest", false])).await.unwrap();
    let approve = node.submit(request("approve", call(CONTRACT, vec![]))).await;
    node.confirmed(approve).await;
    // From here on estimates come from a backend that has not seen the approval, and that says so.
    let behind = Fault::ErrorWithoutForward { code: 3, message: "execution reverted".into() };
    let estimates = proxy.rule("eth_estimateGas", behind);
    let heads = proxy.rule("eth_getBlockByNumber", Fault::FixedResult(before));
    let transfer = node.submit(request("transfer", call(CONTRACT, vec![1]))).await;
    gapless_testkit::wait::eventually(std::time::Duration::from_secs(30), "some estimates", || async {
        (proxy.fired(estimates) > 5).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(node.handle.tx(transfer).await.unwrap().state, TxState::Queued);
    proxy.remove(estimates);
    proxy.remove(heads);
    node.confirmed(transfer).await;
    assert_eq!(slot(&anvil, CONTRACT, U256::from(1)).await, 1);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_with_a_node_while_preparing_never_refuses() {
    let anvil = instant().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let fault = Fault::ErrorWithoutForward { code: -32000, message: "header not found".into() };
    let rule = proxy.add(Rule::new("eth_estimateGas", fault).times(10));
    let node = Node::start(&proxy.url(), quick(0)).await;
    let ids = [node.submit(entry(0)).await];
    let waits = node.until(ids[0], "the reason", |view| view.wait_reason.is_some()).await;
    assert!(matches!(waits.wait_reason, Some(WaitReason::NodeDown { .. })), "{waits:?}");
    node.each_took_effect_once(&anvil, &ids).await;
    assert_eq!(proxy.fired(rule), 10);
    node.stopped().await;
}

/// Fails this often before it signs.
struct Reluctant {
    left: AtomicU32,
    signer: LocalSigner,
}

#[async_trait]
impl Signer for Reluctant {
    async fn sign(&self, unsigned: &[Unsigned]) -> (Vec<Signed>, Option<SignError>) {
        let again = |left: u32| left.checked_sub(1);
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, again).is_ok() {
            return (Vec::new(), Some(SignError::Unavailable("the signer is asleep".to_owned().into())));
        }
        self.signer.sign(unsigned).await
    }

    fn can_fill_slots(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signer_that_fails_leaves_no_hole_and_its_words_are_told() {
    let anvil = instant().await;
    let signer = LocalSigner::from_hex(KEY, submitter().address()).unwrap();
    let signer = Reluctant { left: AtomicU32::new(20), signer };
    let node = Node::signing(memory(), &[anvil.url()], quick(0), Arc::new(signer)).await;
    let ids = node.submit_all(0, 3).await;
    let waits = node.until(ids[0], "the reason", |view| view.wait_reason.is_some()).await;
    assert!(format!("{:?}", waits.wait_reason).contains("the signer is asleep"), "{waits:?}");
    node.each_took_effect_once(&anvil, &ids).await;
    node.stopped().await;
}
