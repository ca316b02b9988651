//! Nodes that take fewer of one account than the window allows: it narrows, says so, and nothing is lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use alloy_primitives::{B256, Bytes, keccak256};
use gapless_core::ids::{Nonce, TxId};
use gapless_core::plan::{Mode, NonceRules};
use gapless_core::state::TxState;
use gapless_core::wait::WaitReason;
use gapless_engine::LaneSettings;
use gapless_testkit::anvil::Anvil;
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use gapless_testkit::wait::eventually;
use serde_json::json;

use crate::lies::SEND;
use crate::support::{Node, attempts, count, mine, quick, unmined};

pub(crate) fn pipelined(max_in_flight: u64, confirmations: u64) -> LaneSettings {
    let rules = NonceRules { mode: Mode::Pipelined, max_in_flight, ..LaneSettings::default().rules };
    LaneSettings { rules, ..quick(confirmations) }
}

/// A node that holds so many transactions of one account and turns away what goes beyond, with these words; the next one to
/// be mined it always takes. Blocks are made only through [`Limited::block`], which makes room again.
struct Limited {
    anvil: Anvil,
    proxy: RpcProxy,
    held: Arc<Mutex<Vec<B256>>>,
    mined: Arc<AtomicU64>,
}

impl Limited {
    async fn to(limit: usize, words: &'static str) -> Self {
        let anvil = unmined().await;
        let proxy = RpcProxy::start(anvil.url()).unwrap();
        let held: Arc<Mutex<Vec<B256>>> = Arc::default();
        let mined: Arc<AtomicU64> = Arc::default();
        let (pool, next) = (held.clone(), mined.clone());
        proxy.rule(
            SEND,
            Fault::refuse(move |request| {
                let raw: Bytes = request["params"][0].as_str().unwrap().parse().unwrap();
                let (hash, mut held) = (keccak256(&raw), pool.lock().unwrap());
                if held.contains(&hash) {
                    return None;
                }
                if held.len() >= limit && nonce_in(&raw) != next.load(Ordering::SeqCst) {
                    return Some((-32000, words.to_owned()));
                }
                held.push(hash);
                None
            }),
        );
        Self { anvil, proxy, held, mined }
    }

    fn many(&self) -> usize {
        self.held.lock().unwrap().len()
    }

    /// A block with all that is held, whose places are free again.
    async fn block(&self) {
        mine(&self.anvil, 1).await;
        self.mined.store(count(&self.anvil).await, Ordering::SeqCst);
        let held = self.held.lock().unwrap().clone();
        for hash in held {
            let receipt = self.anvil.rpc("eth_getTransactionReceipt", json!([hash])).await.unwrap();
            if !receipt.is_null() {
                self.held.lock().unwrap().retain(|other| *other != hash);
            }
        }
    }

    async fn blocks_until_all_ended(&self, node: &Node, ids: &[TxId]) {
        let ended = eventually(Duration::from_secs(60), "all ends", || async {
            self.block().await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            for id in ids {
                if !node.handle.tx(*id).await.unwrap().state.is_terminal() {
                    return None;
                }
            }
            Some(())
        });
        if let Err(error) = ended.await {
            let left = ids.iter().map(|id| node.handle.tx(*id));
            let left = futures::future::join_all(left).await.into_iter().map(Result::unwrap);
            let left: Vec<_> = left.filter(|view| !view.state.is_terminal()).take(3).collect();
            panic!("{error}: {:#?}\n{left:#?}\n{:?}", node.submitter().await, self.held.lock().unwrap());
        }
    }
}

/// The nonce in the bytes of a dynamic-fee transaction on this chain.
fn nonce_in(raw: &[u8]) -> u64 {
    let header = 2 + usize::from(raw[1].saturating_sub(0xf7));
    match raw[header + 3..] {
        [0x80, ..] => 0,
        [0x81, nonce, ..] | [nonce, ..] => nonce.into(),
        [] => unreachable!(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_limit_narrows_the_window_to_what_the_pool_holds_and_says_so() {
    let chain = Limited::to(4, "account limit exceeded: pooled 4 txs").await;
    // So long that only progress can have sent anything again.
    let reconcile = Duration::from_secs(600);
    let node = Node::start(&chain.proxy.url(), LaneSettings { reconcile, ..pipelined(20, 1) }).await;
    let ids = node.submit_all(0, 40).await;
    let view = node
        .until_submitter("the narrow window", |view| view.window.as_ref().is_some_and(|w| w.effective == 4))
        .await;
    let window = view.window.unwrap();
    assert_eq!(window.size, 20);
    assert!(window.reason.as_ref().is_some_and(|words| words.contains("no more than 4")), "{window:?}");
    assert!(view.reason.is_some_and(|words| words.contains("no more than 4")));
    assert_eq!(chain.many(), 4);

    // What was turned away is bound, waits with its figures, and is not given up.
    let refused = node.until(ids[4], "the reason", |view| view.wait_reason.is_some()).await;
    assert_eq!(refused.state, TxState::Tracking);
    let Some(WaitReason::NotInPool { last_error: Some(words) }) = refused.wait_reason else {
        panic!("{refused:?}")
    };
    assert!(words.to_string().contains("nonce 0 must be mined first, 4 lie below"), "{words}");
    assert_eq!(node.handle.tx(ids[39]).await.unwrap().state, TxState::Queued);

    // A whole window may have been bound before the first was turned away. After that nothing is, although lower ones are
    // used, as long as some wait to be let in.
    let bound = node.submitter().await.next_nonce;
    chain.block().await;
    let view = node.until_submitter("the first four", |view| view.consumed >= Some(Nonce(4))).await;
    assert_eq!(view.next_nonce, bound, "it stopped binding");

    chain.blocks_until_all_ended(&node, &ids).await;
    node.each_took_effect_once(&chain.anvil, &ids).await;
    for nonce in 0..40 {
        assert_eq!(attempts(&node, nonce).await.len(), 1, "the same bytes, not new ones: nonce {nonce}");
    }
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_window_opens_again_when_the_limit_is_lifted() {
    let chain = Limited::to(2, "account limit exceeded").await;
    let node = Node::start(&chain.proxy.url(), pipelined(8, 1)).await;
    let ids = node.submit_all(0, 40).await;
    let narrow = |n| {
        move |view: &gapless_engine::view::SubmitterView| {
            view.window.as_ref().is_some_and(|window| window.effective == n)
        }
    };
    node.until_submitter("the narrow window", narrow(2)).await;
    chain.proxy.clear();
    eventually(Duration::from_secs(90), "the whole window", || async {
        mine(&chain.anvil, 1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        narrow(8)(&node.submitter().await).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(node.submitter().await.reason, None);
    chain.blocks_until_all_ended(&node, &ids).await;
    node.each_took_effect_once(&chain.anvil, &ids).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delegated_account_has_one_in_flight_and_everything_is_mined() {
    let chain = Limited::to(1, "in-flight transaction limit reached for delegated accounts").await;
    let node = Node::start(&chain.proxy.url(), pipelined(10, 1)).await;
    let ids = node.submit_all(0, 12).await;
    let view = node
        .until_submitter("the narrow window", |view| view.window.as_ref().is_some_and(|w| w.effective == 1))
        .await;
    assert!(view.reason.is_some_and(|words| words.contains("delegated")));
    chain.blocks_until_all_ended(&node, &ids).await;
    node.each_took_effect_once(&chain.anvil, &ids).await;
    assert_eq!(node.submitter().await.window.unwrap().effective, 1, "for a while");
    node.stopped().await;
}
