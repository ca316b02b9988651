//! What must never be true of a lane's slots, looked for in what is stored: the invariants *gapless* and *once*, as a report.
//!
//! Between nonces: a hole in the bound run, a receipt above a nonce that is not consumed. Of one nonce: two of its attempts
//! with receipts, consumed without an attempt of ours and without recorded foreign use, consumed and nobody can tell by what.
//! A pure function of the slots, so that the lane that lets them go and the operator who asks apply one rule.

use std::collections::BTreeSet;
use std::time::Duration;

use alloy_primitives::B256;
use serde::Serialize;

use crate::allocation::AllocationStatus;
use crate::cursor::Run;
use crate::ids::Nonce;
use crate::named::named_enum;

named_enum! {
    /// The kinds of violations.
    pub enum ViolationKind {
        /// A bound nonce without bytes, reservation or foreign record.
        Hole = "hole",
        /// A receipt above a nonce that is not consumed.
        OutOfOrder = "out_of_order",
        /// Two attempts of one nonce, both with receipts.
        TwoReceipts = "two_receipts",
        /// Consumed without an attempt of ours and without recorded foreign use.
        Unexplained = "unexplained",
        /// Consumed by one of ours, and for too long nobody has its receipt.
        NoReceipt = "no_receipt",
    }
}

impl ViolationKind {
    /// Whether it is about several nonces.
    #[must_use]
    pub const fn is_cross_nonce(self) -> bool {
        matches!(self, Self::Hole | Self::OutOfOrder)
    }
}

/// A violation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Violation {
    /// Which.
    pub kind: ViolationKind,
    /// The nonce it is about.
    pub nonce: Nonce,
    /// The hashes that show it.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub hashes: BTreeSet<B256>,
}

/// What is known of one nonce.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlotFacts {
    /// How many attempts are stored.
    pub attempts: usize,
    /// Its exceptional state.
    pub allocation: Option<AllocationStatus>,
    /// The attempts that stand in a block, as last read.
    pub receipts: BTreeSet<B256>,
    /// For how long a receipt has been missing, if one is; none also where nobody keeps them any more.
    pub unread_for: Option<Duration>,
}

impl SlotFacts {
    fn is_foreign(&self) -> bool {
        self.allocation == Some(AllocationStatus::Foreign)
    }

    /// Whether it is recorded who used it, with bytes that are not stored here.
    fn is_somebodys(&self) -> bool {
        self.is_foreign() || self.allocation == Some(AllocationStatus::Used)
    }
}

/// Looks at slots of a run, lowest first. `patience` is how long a receipt may be missing.
pub fn audit(
    run: &Run,
    slots: impl IntoIterator<Item = (Nonce, SlotFacts)>,
    patience: Duration,
) -> Vec<Violation> {
    slots.into_iter().flat_map(|(nonce, facts)| of_slot(run, nonce, facts, patience)).collect()
}

fn of_slot(run: &Run, nonce: Nonce, facts: SlotFacts, patience: Duration) -> Vec<Violation> {
    if nonce < run.start || nonce >= run.next {
        return Vec::new();
    }
    let consumed = nonce < run.consumed;
    // Reserved and used ones are somebody's; a recycled one has bytes, or had its foreign use struck out.
    let held = facts.attempts > 0 || facts.allocation.is_some();
    let unread = facts.unread_for.is_some_and(|unread| unread > patience);
    let found = [
        (ViolationKind::Hole, !consumed && !held),
        (ViolationKind::OutOfOrder, !consumed && !facts.receipts.is_empty()),
        (ViolationKind::TwoReceipts, facts.receipts.len() > 1),
        (ViolationKind::Unexplained, consumed && facts.attempts == 0 && !facts.is_somebodys()),
        (
            ViolationKind::NoReceipt,
            facts.attempts > 0 && facts.receipts.is_empty() && !facts.is_foreign() && unread,
        ),
    ];
    let found = found.into_iter().filter(|(_, is_so)| *is_so).map(|(kind, _)| kind);
    found.map(|kind| Violation { kind, nonce, hashes: facts.receipts.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);
    const RUN: Run =
        Run { start: Nonce(2), next: Nonce(9), consumed: Nonce(6), resolved: Nonce(4), settled: Nonce(4) };

    fn hashes(bytes: &[u8]) -> BTreeSet<B256> {
        bytes.iter().map(|byte| B256::repeat_byte(*byte)).collect()
    }

    fn kinds(nonce: u64, facts: SlotFacts) -> Vec<ViolationKind> {
        let found = audit(&RUN, [(Nonce(nonce), facts)], PATIENCE);
        assert!(found.iter().all(|violation| violation.nonce == Nonce(nonce)));
        found.into_iter().map(|violation| violation.kind).collect()
    }

    fn ours(receipts: &[u8]) -> SlotFacts {
        SlotFacts { attempts: 2, receipts: hashes(receipts), ..SlotFacts::default() }
    }

    fn special(status: AllocationStatus) -> SlotFacts {
        SlotFacts { allocation: Some(status), ..SlotFacts::default() }
    }

    #[test]
    fn what_is_as_it_should_be_is_no_violation() {
        let (foreign, reserved) = (AllocationStatus::Foreign, AllocationStatus::Reserved);
        let slots = [
            (2, ours(&[1])),
            (3, special(foreign)),
            (4, SlotFacts { allocation: Some(foreign), ..ours(&[]) }),
            (5, SlotFacts { unread_for: Some(PATIENCE), ..ours(&[]) }),
            (6, ours(&[])),
            (7, special(reserved)),
            (8, special(AllocationStatus::Recyclable)),
            // Outside the run nothing is promised.
            (1, SlotFacts::default()),
            (9, SlotFacts::default()),
        ];
        let slots = slots.map(|(nonce, facts)| (Nonce(nonce), facts));
        assert_eq!(audit(&RUN, slots, PATIENCE), []);
    }

    #[test]
    fn a_bound_nonce_with_nothing_in_it_is_a_hole() {
        assert_eq!(kinds(7, SlotFacts::default()), [ViolationKind::Hole]);
    }

    #[test]
    fn a_receipt_above_what_is_not_consumed_is_out_of_order() {
        assert_eq!(kinds(6, ours(&[1])), [ViolationKind::OutOfOrder]);
    }

    #[test]
    fn two_receipts_for_one_nonce_are_told_with_both_hashes() {
        let found = audit(&RUN, [(Nonce(5), ours(&[1, 2]))], PATIENCE);
        let kind = ViolationKind::TwoReceipts;
        assert_eq!(found, [Violation { kind, nonce: Nonce(5), hashes: hashes(&[1, 2]) }]);
    }

    #[test]
    fn consumed_by_nobody_we_know_is_unexplained() {
        assert_eq!(kinds(5, SlotFacts::default()), [ViolationKind::Unexplained]);
        assert_eq!(kinds(5, special(AllocationStatus::Reserved)), [ViolationKind::Unexplained]);
    }

    #[test]
    fn a_receipt_that_nobody_has_for_too_long_is_missed() {
        let unread_for = Some(PATIENCE + Duration::from_millis(1));
        assert_eq!(kinds(5, SlotFacts { unread_for, ..ours(&[]) }), [ViolationKind::NoReceipt]);
        assert_eq!(kinds(6, SlotFacts { unread_for, ..ours(&[]) }), [ViolationKind::NoReceipt]);
        assert_eq!(kinds(5, SlotFacts { unread_for, ..ours(&[1]) }), []);
    }

    #[test]
    fn kinds_are_of_one_nonce_or_of_several() {
        let cross: Vec<_> = ViolationKind::ALL.iter().filter(|kind| kind.is_cross_nonce()).collect();
        assert_eq!(cross, [&ViolationKind::Hole, &ViolationKind::OutOfOrder]);
    }
}
