//! One nonce of one submitter. Its status is not stored: it follows from the cursor, the attempts
//! and, for the few exceptional ones, an [`Allocation`].

use serde::Serialize;

use crate::allocation::{Allocation, AllocationStatus};
use crate::attempt::StoredAttempt;
use crate::cursor::Run;
use crate::ids::Nonce;

/// Where a slot stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotStatus {
    /// Not bound yet.
    Free,
    /// Bound, not consumed.
    Open,
    /// Bound; waiting for somebody to take it.
    Recyclable,
    /// Used in a canonical block.
    Consumed,
    /// And deep enough.
    Resolved,
    /// Used by somebody else.
    Foreign,
}

/// Status of `nonce`.
#[must_use]
pub fn status(run: &Run, nonce: Nonce, allocation: Option<&Allocation>) -> SlotStatus {
    if allocation.is_some_and(|a| a.status == AllocationStatus::Foreign) {
        SlotStatus::Foreign
    } else if nonce >= run.next || nonce < run.start {
        SlotStatus::Free
    } else if nonce < run.resolved {
        SlotStatus::Resolved
    } else if nonce < run.consumed {
        SlotStatus::Consumed
    } else if allocation.is_some_and(|a| a.status == AllocationStatus::Recyclable) {
        SlotStatus::Recyclable
    } else {
        SlotStatus::Open
    }
}

/// The one attempt of a slot that goes out; the others are watched. None if nothing is to go out for now.
#[must_use]
pub fn current(attempts: &[StoredAttempt]) -> Option<&StoredAttempt> {
    attempts.iter().rev().find(|attempt| !attempt.is_superseded())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_follows_from_the_prefixes() {
        let (resolved, settled) = (Nonce(3), Nonce(3));
        let run = Run { start: Nonce(1), next: Nonce(8), consumed: Nonce(6), resolved, settled };
        let at = |n| status(&run, Nonce(n), None);
        assert_eq!(at(0), SlotStatus::Free);
        assert_eq!(at(2), SlotStatus::Resolved);
        assert_eq!(at(3), SlotStatus::Consumed);
        assert_eq!(at(7), SlotStatus::Open);
        assert_eq!(at(8), SlotStatus::Free);
        let recycled = Allocation {
            nonce: Nonce(7),
            status: AllocationStatus::Recyclable,
            lock_owner: None,
            locked_until: None,
            tx_id: None,
            used_hash: None,
            exhibit: None,
        };
        assert_eq!(status(&run, Nonce(7), Some(&recycled)), SlotStatus::Recyclable);
    }
}
