//! A chain that restarted under its id: noticed by its block 0, told to everybody, and not followed.

use std::time::Duration;

use alloy_primitives::B256;
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::rpc_proxy::RpcProxy;
use gapless_testkit::wait::eventually;

use crate::support::*;

/// A chain of its own: block 0 holds the time.
async fn chain(number: u32) -> Anvil {
    node_with(&["--timestamp", &format!("17{number:08}")]).await
}

async fn told(following: &mut Following, was: &Anvil, now: &Anvil) {
    let expected = Some((at(was, 0).await.hash, at(now, 0).await.hash));
    tokio::time::timeout(LONG, async {
        while following.heads.genesis_changed() != expected {
            following.heads.changed().await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("block 0 never changed: {:?}", following.heads.genesis_changed()));
}

async fn taken_back(following: &Following) {
    let same = || async { following.heads.genesis_changed().is_none().then_some(()) };
    eventually(LONG, "the first block 0 again", same).await.unwrap();
}

#[tokio::test]
async fn a_younger_chain_under_the_same_address_is_noticed_and_not_followed() {
    let (old, new) = (chain(1).await, chain(2).await);
    mine(&old, 20).await;
    mine(&new, 3).await;
    let proxy = RpcProxy::start(old.url()).unwrap();
    let mut following = Following::start(&[proxy.url()], POLL);
    let before = head(&old).await;
    following.at(before).await;
    assert_eq!(following.heads.genesis_changed(), None);

    proxy.point_at(new.url());
    told(&mut following, &old, &new).await;
    assert_eq!(following.head(), before);
    mine(&new, 30).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(following.head(), before, "another chain took blocks back");

    let after = mine(&old, 1).await;
    proxy.point_at(old.url());
    taken_back(&following).await;
    following.at(after).await;
    assert_eq!(following.heads.last_change().unwrap().depth(), Some(0));
}

#[tokio::test]
async fn a_chain_that_is_higher_already_is_noticed_before_it_takes_anything_back() {
    for height in [8, 400] {
        let (old, new) = (chain(1).await, chain(2).await);
        mine(&new, height).await;
        let proxy = RpcProxy::start(old.url()).unwrap();
        let mut following = Following::start(&[proxy.url()], POLL);
        following.at(head(&old).await).await;
        let before = mine(&old, 6).await;
        following.at(before).await;
        proxy.point_at(new.url());
        told(&mut following, &old, &new).await;
        assert_eq!(following.head(), before);
    }
}

#[tokio::test]
async fn a_node_that_restarts_without_its_chain_is_noticed() {
    let node = Anvil::start(AnvilOptions::default()).await.unwrap();
    let genesis: B256 = at(&node, 0).await.hash;
    let following = Following::start(&[node.url()], POLL);
    let before = mine(&node, 5).await;
    following.at(before).await;
    // Block 0 holds the second of the start.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    node.restart().await.unwrap();
    let now = at(&node, 0).await.hash;
    assert_ne!(genesis, now);
    let told = || async { (following.heads.genesis_changed() == Some((genesis, now))).then_some(()) };
    eventually(LONG, "the change of block 0", told).await.unwrap();
    assert_eq!(following.head(), before);
}
