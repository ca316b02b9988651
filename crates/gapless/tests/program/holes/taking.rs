//! The order in which one submitter's nonces were taken: free ones before new ones, the lowest first, and by placeholders
//! only when nobody was queued.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gapless_core::time::Timestamp;

/// Who comes while a placeholder is being made comes too late for its nonce.
const LATE: Duration = Duration::from_secs(1);

/// What was told so far.
#[derive(Default)]
pub(super) struct Taking {
    accepted: Vec<Timestamp>,
    bound: BTreeMap<String, u64>,
    free: BTreeSet<u64>,
    next: u64,
    /// How many free nonces went to somebody.
    pub(super) taken: u64,
}

impl Taking {
    /// One more is queued.
    pub(super) fn accept(&mut self, at: Timestamp) {
        self.accepted.push(at);
    }

    /// The next in the queue has a nonce.
    pub(super) fn bind(&mut self, tx_id: &str, nonce: u64) {
        match self.free.pop_first() {
            Some(lowest) => {
                self.taken += 1;
                assert_eq!(nonce, lowest, "the lowest free nonce goes first, {:?} are left", self.free);
            }
            None => {
                assert_eq!(nonce, self.next, "the next new nonce");
                self.next += 1;
            }
        }
        self.bound.insert(tx_id.to_owned(), nonce);
    }

    /// Nobody takes its bytes: its nonce is free.
    pub(super) fn set_free(&mut self, tx_id: &str) {
        assert!(self.free.insert(self.bound[tx_id]), "{tx_id} was given up twice");
    }

    /// A placeholder has a nonce.
    pub(super) fn fill(&mut self, nonce: u64, at: Timestamp) {
        assert!(self.free.remove(&nonce), "a placeholder took {nonce}, which was not free");
        let queued = self.accepted.iter().filter(|accepted| **accepted < at.minus(LATE)).count();
        let queued = queued.saturating_sub(self.bound.len());
        assert_eq!(queued, 0, "so many were queued when a placeholder took {nonce}");
    }

    /// Everybody had a nonce, and none is left.
    pub(super) fn assert_complete(&self, everybody: usize, nonces: u64) {
        assert_eq!((self.accepted.len(), self.bound.len()), (everybody, everybody), "accepted and bound");
        assert_eq!((self.next, self.free.len()), (nonces, 0), "{:?} are free", self.free);
    }
}
