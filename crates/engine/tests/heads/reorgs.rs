//! Blocks that vanish: how many is told, and a chain that got shorter counts once it is as high as the one it replaces.

use gapless_testkit::rpc_proxy::RpcProxy;
use gapless_testkit::wait::eventually;
use serde_json::json;

use crate::support::*;

/// Waits until the tracker has looked a few times more.
async fn looks(proxy: &RpcProxy) {
    let before = proxy.calls("eth_getBlockByNumber");
    let looked = || async { (proxy.calls("eth_getBlockByNumber") >= before + 4).then_some(()) };
    eventually(LONG, "looks at the head", looked).await.unwrap();
}

#[tokio::test]
async fn a_reorg_is_told_with_its_depth_and_the_block_below_it() {
    let node = node().await;
    let start = mine(&node, 40).await;
    let following = Following::start(&[node.url()], POLL);
    following.at(start).await;
    let mut held = following.at(mine(&node, 20).await).await;
    for depth in [1, 5, 12] {
        let was = head(&node).await;
        fork(&node, u8::try_from(depth).unwrap()).await;
        node.rpc("anvil_reorg", json!([depth, []])).await.unwrap();
        let now = head(&node).await;
        let ring = following.at(now).await;
        let change = following.heads.last_change().unwrap();
        let ancestor = at(&node, was.number - depth).await;
        assert_eq!((change.was, change.now, change.ancestor), (Some(was), now, Some(ancestor)));
        assert_eq!(change.depth(), Some(depth));
        assert_eq!(ring.blocks_after(ancestor.number).len() as u64, depth);
        for block in ring.blocks_after(was.number - 20) {
            assert_eq!(block, at(&node, block.number).await);
        }
        held = ring;
    }
    // Two changes later, the ring somebody held still tells what became of it.
    for depth in [9, 2] {
        node.rpc("anvil_reorg", json!([depth, []])).await.unwrap();
        fork(&node, 0x40 + u8::try_from(depth).unwrap()).await;
        following.at(head(&node).await).await;
    }
    let change = following.heads.ring().since(&held).unwrap();
    assert_eq!(change.depth(), Some(9));
    let grown = following.at(mine(&node, 3).await).await;
    assert_eq!(following.heads.last_change().unwrap().depth(), Some(0));
    let fee = u128::from_str_radix(
        latest(&node).await["baseFeePerGas"].as_str().unwrap().trim_start_matches("0x"),
        16,
    );
    assert_eq!(grown.head().unwrap().base_fee.unwrap().0, fee.unwrap());
}

#[tokio::test]
async fn a_chain_that_got_shorter_is_followed_as_soon_as_it_is_as_high_again() {
    let node = node().await;
    mine(&node, 20).await;
    let proxy = RpcProxy::start(node.url()).unwrap();
    let following = Following::start(&[proxy.url()], POLL);
    following.at(head(&node).await).await;
    let old = mine(&node, 10).await;
    following.at(old).await;

    node.rpc("anvil_rollback", json!([6])).await.unwrap();
    let ancestor = head(&node).await;
    assert_eq!(ancestor.number, old.number - 6);
    fork(&node, 1).await;
    looks(&proxy).await;
    mine(&node, 5).await;
    looks(&proxy).await;
    assert_eq!(following.head(), old, "a chain that is not as high takes nothing back");

    let new = mine(&node, 1).await;
    assert!(new.number == old.number && new.hash != old.hash);
    following.at(new).await;
    let change = following.heads.last_change().unwrap();
    assert_eq!((change.was, change.ancestor, change.depth()), (Some(old), Some(ancestor), Some(6)));
    following.at(mine(&node, 1).await).await;
}

#[tokio::test]
async fn a_chain_set_back_to_a_snapshot_is_followed_once_it_has_grown_past() {
    let node = node().await;
    mine(&node, 5).await;
    let snapshot = node.rpc("evm_snapshot", json!([])).await.unwrap();
    let proxy = RpcProxy::start(node.url()).unwrap();
    let following = Following::start(&[proxy.url()], POLL);
    following.at(head(&node).await).await;
    let old = mine(&node, 12).await;
    let held = following.at(old).await;

    node.rpc("evm_revert", json!([snapshot])).await.unwrap();
    fork(&node, 1).await;
    looks(&proxy).await;
    assert_eq!(following.head(), old);
    let ring = following.at(mine(&node, 20).await).await;
    let change = ring.since(&held).unwrap();
    assert_eq!((change.was, change.depth()), (Some(old), Some(12)));
}

#[tokio::test]
async fn a_reorg_deeper_than_what_is_kept_is_told_as_unknown_and_leaves_nothing_of_the_old_chain() {
    let node = node().await;
    mine(&node, 10).await;
    let following = Following::start(&[node.url()], POLL);
    following.at(head(&node).await).await;
    let old = following.at(mine(&node, 300).await).await;
    node.rpc("anvil_rollback", json!([295])).await.unwrap();
    fork(&node, 1).await;
    let new = following.at(mine(&node, 320).await).await;
    // Blocks are mined one by one, and looks fall in between: compared is with what was held.
    assert_eq!(new.since(&old).unwrap().depth(), None);
    assert_eq!(following.heads.genesis_changed(), None);
    let lowest = new.lowest().unwrap().this;
    assert_eq!(lowest, at(&node, lowest.number).await);
    assert_ne!(old.hash_at(lowest.number), Some(lowest.hash));
}
