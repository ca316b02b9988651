//! Nonces in the hands of who sends by himself.

use std::time::Duration;

use gapless_core::ids::Nonce;
use gapless_engine::low_level::{LowLevelError, allocate, mark_recyclable, mark_used};
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use serde_json::json;

use crate::support::{
    KEY, LONG, Node, chain, count, database, effect, effects, instant, nonce_of, pipelined, postgres, quick,
    signed, sqlite, submitter, within,
};

async fn send(anvil: &Anvil, raw: &alloy_primitives::Bytes) {
    anvil.rpc("eth_sendRawTransaction", json!([raw])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_its_holder_sends_is_ours_and_the_run_goes_on() {
    let (folder, anvil) = (tempfile::tempdir().unwrap(), instant().await);
    let node = Node::start(sqlite(folder.path()).await, &anvil, quick()).await;
    let held = allocate(&node.handle, &submitter(), LONG).await.unwrap();
    assert_eq!(held.nonce, Nonce(0));
    assert_eq!(node.slot(0).await.unwrap().note, Some("reserved"));
    let bytes = signed(KEY, 31_337, held.nonce, effect(1)).await;
    // Mined before anybody has said so: that is no reason to suspect anybody.
    send(&anvil, &bytes.raw).await;
    assert_eq!(count(&anvil).await, 1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    mark_used(&node.handle, &held, bytes.hash).await.unwrap();
    mark_used(&node.handle, &held, bytes.hash).await.unwrap();
    let changed = mark_recyclable(&node.handle, &held).await.unwrap_err();
    assert!(matches!(changed, LowLevelError::NotReserved(_) | LowLevelError::NotOwner(_)), "{changed}");
    let next = node.submit(2).await;
    let view = node.confirmed(next).await;
    assert_eq!(nonce_of(&anvil, view.tx_hash.unwrap()).await, 1);
    node.run_has_no_hole(&anvil, 2).await;
    assert_eq!((effects(&anvil, 1).await, effects(&anvil, 2).await), (1, 1));
    assert_eq!(node.handle.store().allocations(&submitter(), Nonce(0), Nonce(9)).await.unwrap(), []);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_to_be_used_stays_open_until_it_is_mined_whoever_restarts() {
    let database = database().await;
    let ticking = AnvilOptions { block_time: Some(Duration::from_secs(1)), ..AnvilOptions::default() };
    let anvil = chain(ticking).await;
    // Ends only some blocks after it was mined: a node must find it again in between.
    let mut settings = within(pipelined(), Duration::from_secs(1));
    settings.confirmations = 4;
    let node = Node::start(postgres(&database).await, &anvil, settings.clone()).await;
    let held = allocate(&node.handle, &submitter(), LONG).await.unwrap();
    let bytes = signed(KEY, 31_337, held.nonce, effect(1)).await;
    mark_used(&node.handle, &held, bytes.hash).await.unwrap();
    let above = node.submit(2).await;
    node.until(above, "bytes above it", |view| view.tx_hash.is_some()).await;
    // Long after the reservation's time nobody has taken its place.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let slot = node.slot(0).await.unwrap();
    assert_eq!((slot.note, slot.attempts.len()), (Some("used"), 0), "{slot:#?}");
    assert_eq!(count(&anvil).await, 0);
    node.stopped().await;

    let node = Node::start(postgres(&database).await, &anvil, settings.clone()).await;
    send(&anvil, &bytes.raw).await;
    let mined = |slot: &gapless_engine::nonces::NonceView| slot.mined_hash == Some(bytes.hash);
    node.until_slot(0, "its receipt", mined).await;
    node.stopped().await;
    let node = Node::start(postgres(&database).await, &anvil, settings).await;
    node.confirmed(above).await;
    node.run_has_no_hole(&anvil, 2).await;
    assert_eq!((effects(&anvil, 1).await, effects(&anvil, 2).await), (1, 1));
    assert_eq!(node.handle.store().allocations(&submitter(), Nonce(0), Nonce(9)).await.unwrap(), []);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_back_goes_to_the_next_request() {
    let (folder, anvil) = (tempfile::tempdir().unwrap(), instant().await);
    let mut settings = quick();
    settings.recycle_hold = Duration::from_secs(600);
    let node = Node::start(sqlite(folder.path()).await, &anvil, settings).await;
    let held = allocate(&node.handle, &submitter(), LONG).await.unwrap();
    let waits = node.submit(1).await;
    // Strict: one at a time.
    let none = allocate(&node.handle, &submitter(), Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(none.code(), "nonce-unavailable");
    assert_eq!(node.handle.tx(waits).await.unwrap().tx_hash, None);
    mark_recyclable(&node.handle, &held).await.unwrap();
    let view = node.confirmed(waits).await;
    assert_eq!(nonce_of(&anvil, view.tx_hash.unwrap()).await, 0);
    let late = mark_used(&node.handle, &held, view.tx_hash.unwrap()).await.unwrap_err();
    assert_eq!(late, LowLevelError::NotReserved(Nonce(0)));
    node.run_has_no_hole(&anvil, 1).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unmarked_in_time_it_goes_to_a_placeholder_and_its_holder_is_too_late() {
    let (database, anvil) = (database().await, instant().await);
    let settings = within(quick(), Duration::from_secs(1));
    let node = Node::start(postgres(&database).await, &anvil, settings).await;
    let held = allocate(&node.handle, &submitter(), LONG).await.unwrap();
    node.run_has_no_hole(&anvil, 1).await;
    let slot = node.slot(0).await.unwrap();
    assert_eq!(slot.attempts.iter().map(|attempt| attempt.kind.name()).collect::<Vec<_>>(), ["placeholder"]);
    let bytes = signed(KEY, 31_337, held.nonce, effect(1)).await;
    let used = mark_used(&node.handle, &held, bytes.hash).await.unwrap_err();
    assert_eq!(used, LowLevelError::NotReserved(Nonce(0)));
    assert!(mark_recyclable(&node.handle, &held).await.is_err());

    // Given to somebody else, it is not the first one's either.
    let held = allocate(&node.handle, &submitter(), LONG).await.unwrap();
    mark_recyclable(&node.handle, &held).await.unwrap();
    let now = allocate(&node.handle, &submitter(), LONG).await.unwrap();
    assert_eq!((held.nonce, now.nonce), (Nonce(1), Nonce(1)));
    let late = mark_used(&node.handle, &held, bytes.hash).await.unwrap_err();
    assert_eq!((late.code(), &late), ("not-owner", &LowLevelError::NotOwner(Nonce(1))));
    node.run_has_no_hole(&anvil, 2).await;
    assert_eq!(effects(&anvil, 1).await, 0);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_have_a_nonce_is_told_why() {
    let (database, anvil) = (database().await, instant().await);
    let a = Node::named("a", postgres(&database).await, &anvil, quick()).await;
    let held = allocate(&a.handle, &submitter(), LONG).await.unwrap();
    let b = Node::named("b", postgres(&database).await, &anvil, quick()).await;
    let error = allocate(&b.handle, &submitter(), LONG).await.unwrap_err();
    assert_eq!(error.code(), "not-leader");
    let stranger = "eip155:31337:0x0000000000000000000000000000000000000009".parse().unwrap();
    assert_eq!(allocate(&a.handle, &stranger, LONG).await.unwrap_err().code(), "unknown-submitter");
    // A word is taken anywhere.
    mark_recyclable(&b.handle, &held).await.unwrap();
    a.run_has_no_hole(&anvil, 1).await;
    a.stopped().await;
    b.stopped().await;
}
