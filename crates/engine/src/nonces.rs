//! The nonce timeline of a submitter: what became of each of its slots. Nothing of it is stored as such; it follows from
//! the cursor, the attempts, the exceptional slots, and the transactions that own them.

use std::collections::BTreeMap;

use alloy_primitives::B256;
use gapless_core::allocation::{Allocation, AllocationStatus};
use gapless_core::attempt::StoredAttempt;
use gapless_core::cursor::Run;
use gapless_core::fees::Gas;
use gapless_core::ids::{Nonce, TxId};
use gapless_core::record::TxRecord;
use gapless_core::slot::{SlotStatus, status};
use gapless_core::submitter::SubmitterId;
use serde::Serialize;

use crate::handle::{Handle, Refusal};
use crate::heads::{Heads, Ring};
use crate::view::AttemptView;

/// Slots shown unless the caller says otherwise.
pub const NONCES_SHOWN: u64 = 50;
/// Most slots shown at once.
pub const MAX_NONCES: u64 = 200;

/// One slot as shown.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NonceView {
    /// Which.
    pub nonce: Nonce,
    /// `open`, `consumed`, `resolved` or `foreign`.
    pub status: SlotStatus,
    /// The transaction that has it.
    pub tx_id: Option<TxId>,
    /// Every attempt.
    pub attempts: Vec<AttemptView>,
    /// What was mined there.
    pub mined_hash: Option<B256>,
    /// In which block.
    pub block_number: Option<Gas>,
    /// What is special about an open one: `recyclable`, `reserved` (somebody makes bytes for it), or `used` (by what its
    /// holder sent, whose receipt is awaited).
    pub note: Option<&'static str>,
}

/// Which slots to show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NonceRange {
    /// The first; by default so many below the end.
    pub from: Option<Nonce>,
    /// The first that is not shown any more; by default the next to be bound.
    pub to: Option<Nonce>,
}

impl NonceRange {
    /// The bounds within a run; none if the range is upside down or too long.
    #[must_use]
    pub fn within(&self, run: &Run) -> Option<(Nonce, Nonce)> {
        let ahead = self.from.filter(|_| self.to.is_none()).map(|from| from.0.saturating_add(NONCES_SHOWN));
        let to = self.to.or(ahead.map(Nonce)).unwrap_or(run.next);
        let from = self.from.unwrap_or(Nonce(to.min(run.next).0.saturating_sub(NONCES_SHOWN)));
        let fits = from <= to && to.0 - from.0 <= MAX_NONCES;
        fits.then(|| (from.max(run.start), to.min(run.next).max(from.max(run.start))))
    }
}

impl Handle {
    /// A submitter's slots, lowest first; none of one that has not begun, `None` for a range that makes no sense.
    pub async fn nonces(
        &self,
        submitter: &SubmitterId,
        range: NonceRange,
    ) -> Result<Option<Vec<NonceView>>, Refusal> {
        let info = self.store.submitter(submitter).await?.ok_or(Refusal::UnknownSubmitter)?;
        let run = info.cursor.cursor.run.unwrap_or(Run::starting_at(Nonce(0)));
        let Some((from, to)) = range.within(&run) else { return Ok(None) };
        let mut attempts: BTreeMap<Nonce, Vec<StoredAttempt>> = BTreeMap::new();
        for attempt in self.store.attempts(submitter, from, to).await? {
            attempts.entry(attempt.nonce).or_default().push(attempt);
        }
        let allocations = self.store.allocations(submitter, from, to).await?;
        let allocations: BTreeMap<Nonce, Allocation> =
            allocations.into_iter().map(|row| (row.nonce, row)).collect();
        let ring = self.heads.get(&submitter.chain()).map(Heads::ring).unwrap_or_default();
        let mut views = Vec::new();
        for nonce in (from.0..to.0).map(Nonce) {
            let slot = Slot {
                nonce,
                run: &run,
                attempts: attempts.get(&nonce).map(Vec::as_slice).unwrap_or_default(),
                allocation: allocations.get(&nonce),
            };
            let tx = match slot.tx_id().filter(|_| nonce < run.consumed) {
                Some(tx_id) => self.store.tx(tx_id).await?,
                None => None,
            };
            views.push(slot.view(tx.as_ref(), &ring));
        }
        Ok(Some(views))
    }
}

struct Slot<'a> {
    nonce: Nonce,
    run: &'a Run,
    attempts: &'a [StoredAttempt],
    allocation: Option<&'a Allocation>,
}

impl Slot<'_> {
    fn tx_id(&self) -> Option<TxId> {
        let of_attempts = self.attempts.iter().rev().find_map(|attempt| attempt.tx_id);
        of_attempts.or_else(|| self.allocation.and_then(|row| row.tx_id))
    }

    /// What used the nonce, and in which block, as far as that is known.
    fn used(&self, tx: Option<&TxRecord>, ring: &Ring) -> (Option<B256>, Option<u64>) {
        if let Some(exhibit) = self.allocation.and_then(|row| row.exhibit) {
            return (exhibit.hash, Some(exhibit.block_number));
        }
        if self.nonce >= self.run.consumed {
            return (None, None);
        }
        // A transaction that lost this slot may have been mined in another.
        let mined = tx.filter(|tx| tx.facts.nonce == Some(self.nonce)).and_then(|tx| tx.facts.mined);
        if let Some(mined) = mined {
            return (Some(mined.hash), Some(mined.block_number));
        }
        if let Some(hash) = self.allocation.and_then(|row| row.used_hash) {
            return (Some(hash), ring.holds(hash, 0).map(|block| block.number));
        }
        let seen =
            self.attempts.iter().find_map(|a| ring.holds(a.hash, 0).map(|block| (a.hash, block.number)));
        match (seen, self.attempts) {
            (Some((hash, block)), _) => (Some(hash), Some(block)),
            // Consumed, and not by somebody else: the only one there is.
            (None, [only]) => (Some(only.hash), None),
            (None, _) => (None, None),
        }
    }

    fn view(&self, tx: Option<&TxRecord>, ring: &Ring) -> NonceView {
        let status = status(self.run, self.nonce, self.allocation);
        let (mined_hash, block_number) = self.used(tx, ring);
        let note = match self.allocation.map(|row| row.status) {
            Some(AllocationStatus::Recyclable) => Some("recyclable"),
            Some(AllocationStatus::Reserved) => Some("reserved"),
            Some(AllocationStatus::Used) => Some("used"),
            _ => None,
        };
        NonceView {
            nonce: self.nonce,
            status: if status == SlotStatus::Recyclable { SlotStatus::Open } else { status },
            tx_id: self.tx_id(),
            attempts: self.attempts.iter().map(|attempt| AttemptView::of(attempt, mined_hash)).collect(),
            mined_hash,
            block_number: block_number.map(Gas),
            note: note.filter(|_| self.nonce >= self.run.consumed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_clipped_to_the_run_and_bounded() {
        let run = Run { next: Nonce(300), ..Run::starting_at(Nonce(10)) };
        let within = |from: Option<u64>, to: Option<u64>| {
            NonceRange { from: from.map(Nonce), to: to.map(Nonce) }.within(&run).map(|(a, b)| (a.0, b.0))
        };
        assert_eq!(within(None, None), Some((250, 300)));
        assert_eq!(within(Some(20), None), Some((20, 70)));
        assert_eq!(within(Some(290), None), Some((290, 300)));
        assert_eq!(within(None, Some(30)), Some((10, 30)), "nothing lies below the start");
        assert_eq!(within(None, Some(900)), None, "too long: 250..900");
        assert_eq!(within(Some(20), Some(220)), Some((20, 220)));
        assert_eq!(within(Some(20), Some(221)), None);
        assert_eq!(within(Some(20), Some(19)), None);
        assert_eq!(within(Some(u64::MAX), None), Some((u64::MAX, u64::MAX)), "beyond the run is empty");
        assert_eq!(NonceRange::default().within(&Run::starting_at(Nonce(0))), Some((Nonce(0), Nonce(0))));
    }
}
