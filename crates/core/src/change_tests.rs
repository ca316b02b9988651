//! What a draft refuses before any database sees it.

use std::time::Duration;

use alloy_primitives::B256;
use uuid::Uuid;

use super::*;
use crate::attempt::{AttemptKind, Route};
use crate::cursor::Run;
use crate::event::EventKind;
use crate::fees::{Fees, GasPrice};
use crate::lease::{Grant, LeaseTerms};
use crate::time::Tick;

fn draft(run: Option<Run>) -> Draft {
    let submitter: SubmitterId = "eip155:1:0x0000000000000000000000000000000000000001".parse().unwrap();
    let owner = Owner::new("a", Uuid::nil()).unwrap();
    let grant = Grant::issued_by_store(submitter, owner, FencingToken(1), Timestamp::default());
    let terms = LeaseTerms::new(Duration::from_secs(10), Duration::from_secs(1)).unwrap();
    let before = VersionedCursor { cursor: Cursor { run, ..Default::default() }, version: Version(3) };
    Draft::open(&grant.live(Tick::default(), &terms, Tick::default()).unwrap(), &before)
}

fn attempt(nonce: u64) -> NewAttempt {
    NewAttempt {
        nonce: Nonce(nonce),
        n: 0,
        tx_id: None,
        kind: AttemptKind::Placeholder,
        route: Route::Public,
        hash: B256::repeat_byte(nonce as u8),
        raw: vec![1].into(),
        fees: Fees::Legacy { gas_price: GasPrice(1) },
        next_send_at: Timestamp::default(),
    }
}

const RUN: Run = Run { start: Nonce(0), next: Nonce(5), consumed: Nonce(4), resolved: Nonce(2) };

#[test]
fn the_cursor_cannot_pass_a_nonce_without_bytes() {
    let mut change = draft(Some(RUN));
    change.cursor.run = Some(Run { next: Nonce(7), ..RUN });
    change.writes.attempts = vec![attempt(6)];
    assert_eq!(change.clone().seal(), Err(UnsoundChange::Hole(Nonce(5))));
    change.writes.attempts.push(attempt(5));
    assert!(change.seal().is_ok());
}

#[test]
fn the_cursor_falls_only_past_unbound_slots() {
    let mut change = draft(Some(RUN));
    change.cursor.run = Some(Run { next: Nonce(4), ..RUN });
    assert_eq!(change.clone().seal(), Err(UnsoundChange::StillBound(Nonce(4))));
    change.writes.unbound = vec![Nonce(4)];
    assert!(change.clone().seal().is_ok());
    change.writes.unbound.push(Nonce(2));
    assert_eq!(change.seal(), Err(UnsoundChange::UnboundInside(Nonce(2))));
}

#[test]
fn bytes_stand_inside_the_run() {
    let mut change = draft(Some(RUN));
    change.writes.attempts = vec![attempt(5)];
    assert_eq!(change.seal(), Err(UnsoundChange::OutsideRun(Nonce(5))));
    let mut early = draft(None);
    early.writes.attempts = vec![attempt(0)];
    assert_eq!(early.seal(), Err(UnsoundChange::OutsideRun(Nonce(0))));
}

#[test]
fn prefixes_keep_their_order_and_resolved_never_falls() {
    let with = |run| {
        let mut change = draft(Some(RUN));
        change.cursor.run = run;
        change.seal().map(|_| ())
    };
    assert_eq!(with(Some(Run { consumed: Nonce(6), ..RUN })), Err(UnsoundChange::Run));
    assert_eq!(with(Some(Run { consumed: Nonce(1), ..RUN })), Ok(()), "a deep reorg");
    assert_eq!(
        with(Some(Run { resolved: Nonce(1), ..RUN })),
        Err(UnsoundChange::ResolvedFell { from: Nonce(2), to: Nonce(1) })
    );
    assert_eq!(with(Some(Run { start: Nonce(1), ..RUN })), Err(UnsoundChange::StartMoved));
    assert_eq!(with(None), Err(UnsoundChange::StartMoved));
}

#[test]
fn events_are_numbered_without_a_hole() {
    let tx_id = TxId(Uuid::from_u128(9));
    let told = vec![Told::plain(EventKind::TxSubmitted), Told::plain(EventKind::TxAttemptRefused)];
    let write = TxWrite::new(tx_id, &TxFacts::accepted(), &[TxEvent::Bind], told, |facts| {
        facts.nonce = Some(Nonce(4));
        facts.tx_hash = Some(B256::ZERO);
    })
    .unwrap();
    assert_eq!((write.facts().state, write.facts().seq), (TxState::Tracking, Seq(3)));
    let mut change = draft(Some(RUN));
    change.writes.txs = vec![write.clone()];
    change.writes.told = vec![Told::plain(EventKind::SubmitterHold)];
    let numbers: Vec<_> =
        change.clone().seal().unwrap().events().iter().map(|e| (e.tx_id, e.seq.0)).collect();
    assert_eq!(numbers, [(None, 4), (Some(tx_id), 2), (Some(tx_id), 3)]);
    change.writes.txs.push(write);
    assert_eq!(change.seal(), Err(UnsoundChange::Twice(tx_id)));
}

#[test]
fn contradictory_facts_are_refused() {
    let tx_id = TxId(Uuid::from_u128(9));
    let mut change = draft(Some(RUN));
    let write = TxWrite::new(tx_id, &TxFacts::accepted(), &[TxEvent::Bind], vec![], |_| {}).unwrap();
    change.writes.txs = vec![write];
    assert_eq!(change.seal(), Err(UnsoundChange::Facts(tx_id)), "bound without nonce and hash");
    assert!(TxWrite::new(tx_id, &TxFacts::accepted(), &[TxEvent::Mined], vec![], |_| {}).is_err());
}
