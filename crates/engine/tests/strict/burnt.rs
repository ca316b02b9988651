//! A window and endpoints that call bytes invalid: all of them, and it is the endpoints that are doubted; a few, and their
//! nonces go to whoever comes next.

use std::time::Duration;

use alloy_primitives::{Bytes, U256};
use gapless_core::attempt::AttemptKind;
use gapless_core::command::Verb;
use gapless_core::condition::Condition;
use gapless_core::ids::TxId;
use gapless_core::record::MinedAs;
use gapless_core::state::{SubState, TxState};
use gapless_engine::{HealthRules, LaneSettings};
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use gapless_testkit::wait::eventually;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::json;

use crate::contest::ask;
use crate::lies::{BLOCKS, SEND, blocks_until, refuses};
use crate::support::{Node, attempts, count, effects, entry, mine, nonce_of, quick, ticking, unmined};
use crate::window::pipelined;

const WORDS: &str = "intrinsic gas too low";
const WINDOW: u64 = 50;

fn settings(retry: Duration) -> LaneSettings {
    let health = HealthRules { retry, ..LaneSettings::default().health };
    LaneSettings {
        finality_depth: Some(3),
        recycle_hold: Duration::from_secs(12),
        health,
        rules: pipelined(WINDOW, 1).rules,
        ..quick(1)
    }
}

/// How many of these are in this state.
async fn many(node: &Node, ids: &[TxId], wanted: impl Fn(&gapless_engine::view::TxView) -> bool) -> usize {
    let mut found = 0;
    for id in ids {
        found += usize::from(wanted(&node.handle.tx(*id).await.unwrap()));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_endpoint_does_not_burn_a_window_nor_the_queue() {
    let anvil = ticking(BLOCKS).await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let rule = refuses(&proxy, WORDS);
    let node = Node::start(&proxy.url(), settings(Duration::from_secs(3))).await;
    let ids = node.submit_all(0, 60).await;
    let view = node.until_submitter("the hold", |view| view.condition == Condition::Hold).await;
    assert!(
        view.reason.is_some_and(|words| words.contains("6 transactions in a row") && words.contains(WORDS))
    );
    // Many heads at which every slot of the window is called invalid again.
    let head = node.submitter().await.next_nonce;
    tokio::time::sleep(BLOCKS * 12).await;
    let given_up = |view: &gapless_engine::view::TxView| view.sub_state == Some(SubState::Abandoned);
    let lost = many(&node, &ids, given_up).await;
    assert!((6..=8).contains(&lost), "a tenth of the window, and not the rest: {lost}");
    assert_eq!(node.submitter().await.next_nonce, head, "nothing was bound on");
    // Up to the hold, the nonces that came free were taken by the next.
    assert!(many(&node, &ids, |view| view.state == TxState::Queued).await >= 60 - WINDOW as usize - 6);
    proxy.remove(rule);

    let (mut confirmed, mut failed) = (0, 0);
    for (n, id) in ids.iter().enumerate() {
        let view = node.until(*id, "the end", |view| view.state.is_terminal()).await;
        let happened = effects(&anvil, n as u64).await;
        match view.state {
            TxState::Confirmed => {
                assert_eq!(happened, 1, "request {n}");
                confirmed += 1;
            }
            TxState::FailedFinal => {
                assert_eq!((happened, view.mined_as), (0, Some(MinedAs::Other)), "request {n}: {view:?}");
                failed += 1;
            }
            other => panic!("request {n} ended as {other:?}"),
        }
    }
    assert_eq!((confirmed + failed, failed <= 8), (60, true), "{failed} failed");
    let used = count(&anvil).await;
    let run = node.submitter().await;
    assert_eq!((run.next_nonce.unwrap().0, run.consumed.unwrap().0), (used, used), "no hole");
    node.stopped().await;
}

// On one thread, so that nothing but this node counts here.
#[tokio::test]
async fn the_nonces_of_a_few_invalid_payloads_go_to_the_next_in_the_queue_lowest_first() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let anvil = unmined().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    // Three of the window, and the last of all, behind which nothing is queued.
    let marked = [4_u64, 9, 30, 59];
    let bad = marked.map(|n| U256::from(n).to_be_bytes::<32>());
    proxy.rule(
        SEND,
        Fault::refuse(move |request| {
            let raw: Bytes = request["params"][0].as_str().unwrap().parse().unwrap();
            let is_bad = bad.iter().any(|data| raw.windows(32).any(|part| part == data));
            is_bad.then(|| (-32000, WORDS.to_owned()))
        }),
    );
    let node = Node::start(&proxy.url(), settings(Duration::from_secs(3))).await;
    let ids = node.submit_all(0, 59).await;
    node.until_submitter("the whole window", |view| view.open == WINDOW).await;
    // Nobody takes them until all three have come free, each at its own time.
    ask(&node, None, Verb::Pause, json!({})).await;
    eventually(Duration::from_secs(60), "three free nonces", || async {
        mine(&anvil, 1).await;
        tokio::time::sleep(BLOCKS).await;
        (node.submitter().await.recyclable == 3).then_some(())
    })
    .await
    .unwrap();
    ask(&node, None, Verb::Resume, json!({})).await;
    for (n, id) in ids.iter().enumerate() {
        blocks_until(&anvil, &node, *id, "the end", |view| view.state.is_terminal()).await;
        let view = node.handle.tx(*id).await.unwrap();
        let invalid = marked.contains(&(n as u64));
        let end = if invalid { TxState::FailedFinal } else { TxState::Confirmed };
        assert_eq!((view.state, effects(&anvil, n as u64).await), (end, u64::from(!invalid)), "request {n}");
        if invalid {
            assert!(view.failure.is_some_and(|failure| failure.reason.to_string().contains(WORDS)));
        }
    }
    // Whoever was first in the queue took the lowest nonce that came free.
    let mut takers = Vec::new();
    for nonce in [4, 9, 30] {
        let stored = attempts(&node, nonce).await;
        assert_eq!(stored.len(), 2, "{stored:?}");
        assert_eq!(stored[0].tx_id, Some(ids[nonce as usize]));
        assert!(stored[1].fees.ceiling() > stored[0].fees.ceiling(), "it outbids what may be in a pool");
        takers.push(ids.iter().position(|id| Some(*id) == stored[1].tx_id).unwrap());
    }
    assert_eq!(takers, [50, 51, 52]);
    let placeholders = || {
        let counted = recorder.handle().render();
        let line =
            counted.lines().find(|line| line.starts_with(r#"gapless_placeholder_total{reason="recycled"}"#));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
    };
    assert_eq!((placeholders(), count(&anvil).await), (0, 56), "each nonce carried a payload");

    let last = node.submit(entry(59)).await;
    blocks_until(&anvil, &node, last, "the end", |view| view.state.is_terminal()).await;
    let view = node.handle.tx(last).await.unwrap();
    assert_eq!((view.state, view.mined_as), (TxState::FailedFinal, Some(MinedAs::Other)), "{view:?}");
    assert_eq!(attempts(&node, 56).await.last().unwrap().kind, AttemptKind::Placeholder);
    assert_eq!((placeholders(), count(&anvil).await), (1, 57));
    let next = node.submit(entry(60)).await;
    blocks_until(&anvil, &node, next, "the end", |view| view.state.is_terminal()).await;
    assert_eq!(nonce_of(&anvil, node.confirmed(next).await.tx_hash.unwrap()).await, 57);
    node.stopped().await;
}
