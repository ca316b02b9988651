//! Heads that stand still, jump back, or belong to another fork. What a lane knows of the chain never becomes less by it, and
//! nothing is sent under a new nonce on the word of a fork.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gapless_core::event::EventKind;
use gapless_core::wait::WaitReason;
use gapless_engine::LaneSettings;
use gapless_evm::EvmOptions;
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::rpc_proxy::{Fault, RpcProxy, Rule};
use gapless_testkit::wait::eventually;
use serde_json::json;

use super::{BLOCKS, SEND, waits};
use crate::support::{Node, chain, effects, mine, quick, ticking, unmined};

/// From now on its head is the one it has now. Everything else is answered truly.
async fn stop_moving(proxy: &RpcProxy, anvil: &Anvil) {
    let head = anvil.rpc("eth_getBlockByNumber", json!(["latest", false])).await.unwrap();
    proxy.rule("eth_blockNumber", Fault::FixedResult(head["number"].clone()));
    proxy.rule(
        "eth_getBlockByNumber",
        Fault::result(move |request, mut answer| {
            if request["params"][0] == "latest" {
                answer["result"] = head.clone();
            }
            answer
        }),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_heads_that_stands_still_stops_nobody() {
    let anvil = ticking(BLOCKS).await;
    let (stuck, good) = (RpcProxy::start(anvil.url()).unwrap(), RpcProxy::start(anvil.url()).unwrap());
    let node = Node::through(&EvmOptions::new(31337, [stuck.url(), good.url()]), quick(1)).await;
    let mut ids = node.submit_all(0, 1).await;
    node.confirmed(ids[0]).await;
    stop_moving(&stuck, &anvil).await;
    ids.extend(node.submit_all(1, 5).await);
    node.each_took_effect_once(&anvil, &ids).await;
    assert!(!node.ever_told(EventKind::SubmitterHold).await);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_heads_that_stand_still_are_waited_for() {
    let anvil = ticking(BLOCKS).await;
    let (one, two) = (RpcProxy::start(anvil.url()).unwrap(), RpcProxy::start(anvil.url()).unwrap());
    let settings = LaneSettings { resubmit: Some(Duration::from_millis(300)), ..quick(1) };
    let node = Node::through(&EvmOptions::new(31337, [one.url(), two.url()]), settings).await;
    let mut ids = node.submit_all(0, 1).await;
    node.confirmed(ids[0]).await;
    stop_moving(&one, &anvil).await;
    stop_moving(&two, &anvil).await;
    ids.extend(node.submit_all(1, 4).await);
    let WaitReason::Held { reason } = waits(&node, ids[1], "Held").await else { unreachable!() };
    assert!(reason.to_string().contains("nobody has shown yet"), "{reason}");
    assert_eq!((effects(&anvil, 1).await, effects(&anvil, 2).await), (1, 0), "nothing new is sent");
    one.clear();
    two.clear();
    node.each_took_effect_once(&anvil, &ids).await;
    for kind in [EventKind::SubmitterProtected, EventKind::TxReorged] {
        assert!(!node.ever_told(kind).await, "{kind:?}");
    }
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_jumps_back_takes_nothing_back() {
    let anvil = unmined().await;
    let old = anvil.rpc("eth_getBlockByNumber", json!(["latest", false])).await.unwrap();
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let node = Node::start(&proxy.url(), quick(2)).await;
    mine(&anvil, 5).await;
    let turn = AtomicU64::new(0);
    proxy.rule(
        "eth_getBlockByNumber",
        Fault::result(move |request, mut answer| {
            if request["params"][0] == "latest" && !turn.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
                answer["result"] = old.clone();
            }
            answer
        }),
    );
    let ids = node.submit_all(0, 4).await;
    super::blocks_until(&anvil, &node, ids[3], "the end", |view| view.state.is_terminal()).await;
    node.each_took_effect_once(&anvil, &ids).await;
    for kind in [EventKind::SubmitterProtected, EventKind::SubmitterHold, EventKind::TxReorged] {
        assert!(!node.ever_told(kind).await, "{kind:?}");
    }
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_endpoints_on_different_forks_double_nothing_and_accuse_nobody() {
    // The same block 0; from there on each mines by itself, and the second never sees what is sent to the first.
    let alike = |block_time| {
        let extra_args = vec!["--timestamp".into(), "1700000000".into()];
        chain(AnvilOptions { block_time: Some(block_time), extra_args, ..AnvilOptions::default() })
    };
    let (right, wrong) = (alike(BLOCKS).await, alike(BLOCKS * 2).await);
    let (first, second) = (RpcProxy::start(right.url()).unwrap(), RpcProxy::start(wrong.url()).unwrap());
    second.rule(SEND, Fault::ErrorWithoutForward { code: -32000, message: "txpool is full".into() });
    let options =
        EvmOptions { timeout: Duration::from_secs(1), ..EvmOptions::new(31337, [first.url(), second.url()]) };
    // Back-offs grow from this.
    let settings = LaneSettings { retry: Duration::from_millis(10), ..quick(2) };
    let node = Node::through(&options, settings).await;
    // Every now and then the first does not answer, and the other one is asked, which is not as high.
    first.add(Rule::new("*", Fault::HttpStatus(503)).by_luck(25, 7));
    let mut ids = node.submit_all(0, 2).await;
    node.each_took_effect_once(&right, &ids).await;
    assert!(second.calls("eth_getBlockByNumber") > 0);
    // And then it is the wrong one that is higher.
    wrong.rpc("anvil_mine", json!(["0x64"])).await.unwrap();
    ids.extend(node.submit_all(2, 6).await);
    let asked = second.calls("eth_getTransactionCount") + 12;
    eventually(Duration::from_secs(60), "the wrong one to be asked", || async {
        (second.calls("eth_getTransactionCount") >= asked).then_some(())
    })
    .await
    .unwrap();
    assert!(!node.ever_told(EventKind::SubmitterProtected).await);
    drop(second);
    wrong.stop().await.unwrap();
    first.clear();
    right.rpc("anvil_mine", json!(["0x80"])).await.unwrap();
    node.each_took_effect_once(&right, &ids).await;
    assert!(!node.ever_told(EventKind::SubmitterProtected).await);
    node.stopped().await;
}
