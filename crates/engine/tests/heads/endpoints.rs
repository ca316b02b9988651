//! Several endpoints, some of which stand still, jump back, or follow another fork.

use std::sync::Mutex;
use std::time::Duration;

use gapless_core::ports::chain::Chain;
use gapless_testkit::anvil::Anvil;
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::support::*;

/// From now on this endpoint repeats the block that is the head now.
async fn stop_moving(proxy: &RpcProxy, node: &Anvil) {
    let head = latest(node).await;
    let number = head["number"].clone();
    proxy.rule("eth_blockNumber", Fault::FixedResult(number));
    proxy.rule("eth_getBlockByNumber", says_latest(move || Some(head.clone())));
}

/// Answers a question for the head with this block, if any, and everything else truly.
fn says_latest(block: impl Fn() -> Option<Value> + Send + Sync + 'static) -> Fault {
    Fault::result(move |request, mut answer| {
        if request["params"][0] == "latest"
            && let Some(block) = block()
        {
            answer["result"] = block;
        }
        answer
    })
}

async fn pair(node: &Anvil) -> (RpcProxy, RpcProxy, Following) {
    let (first, second) = (RpcProxy::start(node.url()).unwrap(), RpcProxy::start(node.url()).unwrap());
    let following = Following::start(&[first.url(), second.url()], POLL);
    following.at(head(node).await).await;
    (first, second, following)
}

#[tokio::test]
async fn an_endpoint_that_repeats_one_block_is_left_for_one_that_moves() {
    let node = node().await;
    mine(&node, 3).await;
    let (first, _second, following) = pair(&node).await;
    stop_moving(&first, &node).await;
    // One block is enough: on a slow chain a few would be minutes.
    following.at(mine(&node, 1).await).await;
    for _ in 0..5 {
        following.at(mine(&node, 1).await).await;
    }
    assert!(following.chain.endpoints().iter().all(|endpoint| endpoint.healthy));

    first.clear();
    let back = || async {
        let before = first.calls("eth_getBlockByNumber");
        tokio::time::sleep(POLL * 4).await;
        (first.calls("eth_getBlockByNumber") > before).then_some(())
    };
    eventually(LONG, "the first endpoint to be preferred again", back).await.unwrap();
    following.at(mine(&node, 2).await).await;
}

#[tokio::test]
async fn when_every_endpoint_stands_still_nothing_breaks_and_each_says_since_when() {
    let node = node().await;
    mine(&node, 3).await;
    let (first, second, following) = pair(&node).await;
    let old = head(&node).await;
    stop_moving(&first, &node).await;
    stop_moving(&second, &node).await;
    let new = mine(&node, 10).await;
    let told = || async {
        let all = following.chain.endpoints();
        all.iter()
            .all(|endpoint| endpoint.healthy && endpoint.detail.starts_with("head 3, unchanged for "))
            .then_some(())
    };
    eventually(LONG, "the age of the heads", told)
        .await
        .unwrap_or_else(|error| panic!("{error}: {:?}", following.chain.endpoints()));
    assert_eq!(following.head(), old);
    second.clear();
    following.at(new).await;
    assert_eq!(following.heads.last_change().unwrap().depth(), Some(0));
}

#[tokio::test]
async fn a_head_that_jumps_back_is_ignored() {
    let node = node().await;
    mine(&node, 10).await;
    let proxy = RpcProxy::start(node.url()).unwrap();
    let mut following = Following::start(&[proxy.url()], POLL);
    following.at(head(&node).await).await;
    let old = node.rpc("eth_getBlockByNumber", json!(["0x4", false])).await.unwrap();
    let turn = Mutex::new(0u32);
    proxy.rule(
        "eth_getBlockByNumber",
        says_latest(move || {
            let mut turn = turn.lock().unwrap();
            *turn += 1;
            (!turn.is_multiple_of(3)).then(|| old.clone())
        }),
    );
    following.heads.changed().await;
    for _ in 0..10 {
        let mined = mine(&node, 1).await;
        following.heads.changed().await;
        assert_eq!(following.head(), mined);
        assert_eq!(following.heads.last_change().unwrap().depth(), Some(0));
    }
}

#[tokio::test]
async fn of_two_endpoints_that_disagree_the_higher_one_is_followed_and_the_ring_is_never_a_mixture() {
    // The same block 0, and nothing else in common.
    let (left, right) =
        (node_with(&["--timestamp", "1700000000"]).await, node_with(&["--timestamp", "1700000000"]).await);
    let genesis = at(&left, 0).await;
    assert_eq!(genesis, at(&right, 0).await);
    fork(&left, 1).await;
    fork(&right, 2).await;
    let (on_left, on_right) = (mine(&left, 5).await, mine(&right, 5).await);
    assert_ne!(on_left, on_right);
    let (first, second) = (RpcProxy::start(left.url()).unwrap(), RpcProxy::start(right.url()).unwrap());
    let following = Following::start(&[first.url(), second.url()], POLL);
    following.at(on_left).await;
    following.at(mine(&left, 1).await).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(following.head().number, 6, "a lower fork changes nothing");

    let higher = mine(&right, 4).await;
    let held = following.at(higher).await;
    for block in held.blocks_after(0) {
        assert_eq!(block, at(&right, block.number).await);
    }
    let higher = mine(&left, 10).await;
    let ring = following.at(higher).await;
    for block in ring.blocks_after(0) {
        assert_eq!(block, at(&left, block.number).await);
    }
    let change = ring.since(&held).unwrap();
    assert_eq!((change.depth(), change.ancestor), (Some(9), Some(genesis)));
}
