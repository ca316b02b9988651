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

const RUN: Run =
    Run { start: Nonce(0), next: Nonce(5), consumed: Nonce(4), resolved: Nonce(2), settled: Nonce(2) };

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
        with(Some(Run { resolved: Nonce(1), settled: Nonce(1), ..RUN })),
        Err(UnsoundChange::ResolvedFell { from: Nonce(2), to: Nonce(1) })
    );
    assert_eq!(
        with(Some(Run { resolved: Nonce(5), ..RUN })),
        Err(UnsoundChange::Run),
        "resolved before consumed"
    );
    assert_eq!(with(Some(Run { start: Nonce(1), ..RUN })), Err(UnsoundChange::StartMoved));
    assert_eq!(with(None), Err(UnsoundChange::StartMoved));
}

fn tx(n: u128) -> TxId {
    TxId(Uuid::from_u128(n))
}

/// A transaction bound at nonce 4 of [`RUN`], with its bytes.
fn bound() -> (TxWrite, NewAttempt) {
    let bytes = NewAttempt { tx_id: Some(tx(9)), kind: AttemptKind::Payload, n: 1, ..attempt(4) };
    let told = vec![Told::plain(EventKind::TxSubmitted), Told::plain(EventKind::TxAttemptRefused)];
    let write = TxWrite::new(tx(9), &TxFacts::accepted(), &[TxEvent::Bind], told, |facts| {
        facts.nonce = Some(bytes.nonce);
        facts.tx_hash = Some(bytes.hash);
    });
    (write.unwrap(), bytes)
}

#[test]
fn events_are_numbered_without_a_hole() {
    let (write, bytes) = bound();
    assert_eq!((write.facts().state, write.facts().seq), (TxState::Tracking, Seq(3)));
    let mut change = draft(Some(RUN));
    change.writes.attempts = vec![bytes];
    change.writes.txs = vec![write.clone()];
    change.writes.told = vec![Told::plain(EventKind::SubmitterHold)];
    let numbers: Vec<_> =
        change.clone().seal().unwrap().events().iter().map(|e| (e.tx_id, e.seq.0)).collect();
    assert_eq!(numbers, [(None, 4), (Some(tx(9)), 2), (Some(tx(9)), 3)]);
    change.writes.txs.push(write);
    assert_eq!(change.seal(), Err(UnsoundChange::Twice(tx(9))));
}

#[test]
fn a_transaction_is_bound_only_with_its_own_bytes() {
    let (write, bytes) = bound();
    let mut change = draft(Some(RUN));
    change.writes.txs = vec![write];
    assert_eq!(change.clone().seal(), Err(UnsoundChange::BoundWithoutBytes(tx(9))));
    change.writes.attempts = vec![NewAttempt { hash: B256::repeat_byte(0xbb), ..bytes }];
    assert_eq!(change.seal(), Err(UnsoundChange::BoundWithoutBytes(tx(9))), "other bytes");
}

#[test]
fn bytes_that_may_still_be_mined_keep_their_transaction() {
    let facts = bound().0.facts().clone();
    let told = || vec![Told::plain(EventKind::TxRequeued)];
    let requeue = |event| {
        TxWrite::new(tx(9), &facts, &[event], told(), |facts| (facts.nonce, facts.tx_hash) = (None, None))
            .unwrap()
    };
    let mut change = draft(Some(RUN));
    change.writes.txs = vec![requeue(TxEvent::Unbind)];
    assert_eq!(change.clone().seal(), Err(UnsoundChange::LeavesSlot(tx(9))));
    change.cursor.run = Some(Run { next: Nonce(4), ..RUN });
    change.writes.unbound = vec![Nonce(4)];
    assert!(change.seal().is_ok());

    let mut lost = draft(Some(RUN));
    lost.writes.txs = vec![requeue(TxEvent::SlotLostDeep)];
    assert_eq!(lost.clone().seal(), Err(UnsoundChange::LeavesSlot(tx(9))), "not resolved yet");
    lost.cursor.run = Some(Run { consumed: Nonce(5), resolved: Nonce(5), ..RUN });
    assert!(lost.seal().is_ok());
}

#[test]
fn a_move_is_told_and_an_end_is_told_as_an_end() {
    let withdraw = |told| {
        let write = TxWrite::new(tx(9), &TxFacts::accepted(), &[TxEvent::Withdraw], told, |facts| {
            facts.ended_at = Some(Timestamp::default());
        });
        let mut change = draft(Some(RUN));
        change.writes.txs = vec![write.unwrap()];
        change.seal().map(|_| ())
    };
    assert_eq!(withdraw(vec![]), Err(UnsoundChange::Untold(tx(9))));
    assert_eq!(withdraw(vec![Told::plain(EventKind::TxStuck)]), Err(UnsoundChange::Untold(tx(9))));
    assert_eq!(withdraw(vec![Told::plain(EventKind::TxCancelled)]), Ok(()));
}

#[test]
fn what_is_final_stays_as_it_is() {
    let ended =
        TxFacts { state: TxState::Cancelled, ended_at: Some(Timestamp::default()), ..TxFacts::accepted() };
    let touch = |edit: fn(&mut TxFacts)| {
        let told = vec![Told::plain(EventKind::TxFinalityBroken)];
        let mut change = draft(Some(RUN));
        change.writes.txs =
            vec![TxWrite::new(tx(9), &ended, &[TxEvent::FinalityBroken], told, edit).unwrap()];
        change.seal().map(|_| ())
    };
    assert_eq!(touch(|_| {}), Ok(()), "telling is not changing");
    assert_eq!(touch(|facts| facts.nonce = Some(Nonce(1))), Err(UnsoundChange::Final(tx(9))));
}

#[test]
fn only_bytes_reservations_and_foreign_use_fill_a_nonce() {
    use crate::allocation::{AllocationWrite, Exhibit};
    let with = |write| {
        let mut change = draft(Some(RUN));
        change.cursor.run = Some(Run { next: Nonce(6), ..RUN });
        change.writes.allocations = vec![write];
        change.seal().map(|_| ())
    };
    let exhibit = Exhibit { hash: None, block_number: 1, block_hash: B256::ZERO };
    assert_eq!(with(AllocationWrite::Foreign { nonce: Nonce(5), exhibit }), Ok(()));
    assert_eq!(with(AllocationWrite::Recycle { nonce: Nonce(5) }), Err(UnsoundChange::Hole(Nonce(5))));
    let mut far = draft(Some(RUN));
    far.writes.allocations = vec![AllocationWrite::Recycle { nonce: Nonce(100) }];
    assert_eq!(far.seal(), Err(UnsoundChange::AllocationOutsideRun(Nonce(100))));
}

#[test]
fn conditions_forbid_new_nonces_and_not_new_bytes_for_old_ones() {
    let mut change = draft(Some(RUN));
    change.cursor.conditions.paused = true;
    change.writes.attempts = vec![NewAttempt { n: 1, ..attempt(4) }];
    assert!(change.clone().seal().is_ok());
    change.cursor.run = Some(Run { next: Nonce(6), ..RUN });
    change.writes.attempts = vec![attempt(5)];
    assert_eq!(change.seal(), Err(UnsoundChange::Forbidden));
}

#[test]
fn contradictory_facts_are_refused() {
    let mut change = draft(Some(RUN));
    let told = vec![Told::plain(EventKind::TxSubmitted)];
    let write = TxWrite::new(tx(9), &TxFacts::accepted(), &[TxEvent::Bind], told, |_| {}).unwrap();
    change.writes.txs = vec![write];
    assert_eq!(change.seal(), Err(UnsoundChange::Facts(tx(9))), "bound without nonce and hash");
    assert!(TxWrite::new(tx(9), &TxFacts::accepted(), &[TxEvent::Mined], vec![], |_| {}).is_err());
}
