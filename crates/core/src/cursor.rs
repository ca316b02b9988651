//! The cursor of a lane: prefixes of one contiguous run of nonces.
//!
//! Nonces are consumed in order, so "bound", "consumed" and "resolved" are one number each instead
//! of one row per slot (invariant *gapless*): `start ≤ consumed ≤ next`, `start ≤ settled ≤ resolved ≤ next`.
//! `consumed` may fall in a reorg; `resolved` and `settled` never do. `settled` lags behind `resolved` only while the end
//! of a transaction that lost its slot waits for *patient*.

use serde::{Deserialize, Serialize};

use crate::condition::Conditions;
use crate::ids::{Nonce, TxId, Version};
use crate::limits::MAX_NONCE;

/// The run of nonces of a submitter that has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Run {
    /// The first nonce we may bind.
    pub start: Nonce,
    /// The next nonce to bind.
    pub next: Nonce,
    /// All below are used in a canonical block.
    pub consumed: Nonce,
    /// All below are used in a block that is deep enough.
    pub resolved: Nonce,
    /// All below have their transaction's end written. A lane watches everything above.
    pub settled: Nonce,
}

impl Run {
    /// A run that begins at the account's present count.
    #[must_use]
    pub const fn starting_at(start: Nonce) -> Self {
        Self { start, next: start, consumed: start, resolved: start, settled: start }
    }

    /// Whether the numbers can be true together.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.start.0 <= self.consumed.0
            && self.consumed.0 <= self.next.0
            && self.start.0 <= self.settled.0
            && self.settled.0 <= self.resolved.0
            && self.resolved.0 <= self.next.0
            && self.next.0 <= MAX_NONCE
    }

    /// Bound and not consumed.
    #[must_use]
    pub const fn open(&self) -> u64 {
        self.next.0.saturating_sub(self.consumed.0)
    }

    /// Bound and not resolved.
    #[must_use]
    pub const fn unresolved(&self) -> u64 {
        self.next.0.saturating_sub(self.resolved.0)
    }

    /// The lowest slot a lane must still watch.
    #[must_use]
    pub fn watched_from(&self) -> Nonce {
        self.consumed.min(self.settled)
    }
}

/// The one transaction a strict lane has in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InFlight {
    /// Its nonce.
    pub nonce: Nonce,
    /// The transaction; none for a placeholder.
    pub tx_id: Option<TxId>,
}

/// What the database holds of a lane besides its slots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor {
    /// None until the start nonce was agreed with the chain.
    pub run: Option<Run>,
    /// The lowest open slot, for readers of the table.
    pub in_flight: Option<InFlight>,
    /// Flags.
    pub conditions: Conditions,
}

/// A cursor as it was read, with the version a change must name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VersionedCursor {
    /// The contents.
    pub cursor: Cursor,
    /// Rises with every write.
    pub version: Version,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_sound_only_in_order() {
        let run = Run {
            start: Nonce(2),
            next: Nonce(9),
            consumed: Nonce(7),
            resolved: Nonce(5),
            settled: Nonce(3),
        };
        assert!(run.is_sound());
        assert_eq!((run.open(), run.unresolved(), run.watched_from()), (2, 4, Nonce(3)));
        let after_deep_reorg = Run { consumed: Nonce(4), ..run };
        assert!(after_deep_reorg.is_sound(), "consumed may fall below resolved");
        assert_eq!(Run { consumed: Nonce(2), ..run }.watched_from(), Nonce(2));
        assert!(!Run { settled: Nonce(6), ..run }.is_sound());
        assert!(!Run { consumed: Nonce(10), ..run }.is_sound());
        assert!(!Run { resolved: Nonce(1), ..run }.is_sound());
    }
}
