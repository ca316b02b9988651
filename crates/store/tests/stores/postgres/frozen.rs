//! A process frozen between its fence and its COMMIT must not hold its lanes for longer than its lease.

use std::time::Duration;

use gapless_core::ports::store::{Acquired, Store};
use gapless_core::state::TxState;
use gapless_testkit::fixtures::owner;
use gapless_testkit::process::Signal;
use tokio::time::Instant;

use super::{open, stocked, terms};
use crate::actor::Actor;
use crate::world::database;

#[tokio::test]
async fn a_writer_frozen_between_fence_and_commit_is_taken_over_within_its_lease_and_two_seconds() {
    let lease = Duration::from_secs(3);
    let db = database().await;
    let store = open(&db.url, lease).await;
    let (submitter, queue) = stocked(&store, 1, 1).await;
    let mut frozen = Actor::start(&["freeze", &db.url, &lease.as_millis().to_string()]);
    assert!(frozen.line().unwrap().contains("Applied"));
    frozen.signal(Signal::SIGSTOP);
    let since = Instant::now();

    let node = owner("b", 2).unwrap();
    let grant = loop {
        let acquired =
            store.acquire(&node, std::slice::from_ref(&submitter), &terms(lease)).await.unwrap().remove(0);
        match acquired {
            Acquired::Held { grant, .. } => break grant,
            Acquired::NotOwner { .. } | Acquired::Busy => tokio::time::sleep(Duration::from_millis(20)).await,
            other => panic!("{other:?}"),
        }
        assert!(since.elapsed() < lease + Duration::from_secs(2), "the frozen writer still holds its lane");
    };
    assert!(since.elapsed() < lease + Duration::from_secs(2), "took {:?}", since.elapsed());
    assert_eq!(grant.token().0, 2);

    frozen.signal(Signal::SIGCONT);
    frozen.go();
    assert_eq!(frozen.line().as_deref(), Some("lost"), "its commit comes to nothing");
    let tx = store.tx(queue[0].tx_id()).await.unwrap().unwrap();
    assert_eq!(tx.facts.state, TxState::Queued, "and none of its write is visible");
}
