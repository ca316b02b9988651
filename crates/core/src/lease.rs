//! Who may act for a submitter, and the proof of it.
//!
//! A [`Grant`] is what the database said. It becomes a [`LiveLease`] only while the local clock still
//! allows it, and only a `LiveLease` can open a [`LaneChange`](crate::change::LaneChange): a node that
//! knows it may have lost its lane cannot even write the change down. The database checks again
//! (the fence), so a node that does *not* know it changes nothing either (invariant *fenced*).

use std::fmt;
use std::time::Duration;

use thiserror::Error;
use uuid::Uuid;

use crate::ids::{FencingToken, IdError};
use crate::limits::MAX_NODE_ID_BYTES;
use crate::submitter::SubmitterId;
use crate::time::{Tick, Timestamp};

/// One process: a configured node id and a UUID drawn at its start. Two containers that share a
/// configured id are still two owners.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    node: String,
    process: Uuid,
}

impl Owner {
    /// Names a process.
    pub fn new(node: &str, process: Uuid) -> Result<Self, IdError> {
        let what = "node.id";
        if node.is_empty() {
            return Err(IdError::Empty { what });
        }
        if node.len() > MAX_NODE_ID_BYTES {
            return Err(IdError::TooLong { what, bytes: node.len(), limit: MAX_NODE_ID_BYTES });
        }
        if node.contains('\0') {
            return Err(IdError::Nul { what });
        }
        Ok(Self { node: node.to_owned(), process })
    }

    /// The configured node id.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// What this process drew at its start.
    #[must_use]
    pub const fn process(&self) -> Uuid {
        self.process
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.process)
    }
}

/// The times a lease is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTerms {
    duration: Duration,
    allowance: Duration,
}

/// Terms that cannot protect anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TermsError {
    /// The allowance leaves nothing of the lease.
    #[error("lease.clock_skew_allowance ({allowance:?}) must be below half of lease.duration ({duration:?})")]
    AllowanceTooLong {
        /// As given.
        duration: Duration,
        /// As given.
        allowance: Duration,
    },
    /// Too short for any round trip.
    #[error("lease.duration ({duration:?}) must be at least 100ms")]
    TooShort {
        /// As given.
        duration: Duration,
    },
}

impl LeaseTerms {
    /// Checks the terms.
    pub fn new(duration: Duration, allowance: Duration) -> Result<Self, TermsError> {
        if duration < Duration::from_millis(100) {
            return Err(TermsError::TooShort { duration });
        }
        if allowance * 2 >= duration {
            return Err(TermsError::AllowanceTooLong { duration, allowance });
        }
        Ok(Self { duration, allowance })
    }

    /// How long a lease lasts from its last renewal, by the database's clock.
    #[must_use]
    pub const fn duration(&self) -> Duration {
        self.duration
    }

    /// How much clocks may disagree: others wait that much longer, we stop that much earlier.
    #[must_use]
    pub const fn allowance(&self) -> Duration {
        self.allowance
    }

    /// A lease that expires further ahead than this was written before the clock stepped back.
    #[must_use]
    pub fn absurdly_far(&self) -> Duration {
        self.duration * 10
    }
}

/// A lease row as a store holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRow {
    /// The holder.
    pub owner: Owner,
    /// Its token.
    pub token: FencingToken,
    /// Until when, by the database's clock.
    pub expires_at: Timestamp,
}

/// What acquiring comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AcquireKind {
    /// No lease existed.
    Insert,
    /// It was ours and alive: same token, later end.
    Renew,
    /// It had expired (ours or another's): token + 1.
    Takeover,
}

/// Decides an acquisition from the row found, by the database's clock. `None`: somebody else holds it.
/// PostgreSQL says the same in SQL; the conformance suite holds them together.
#[must_use]
pub fn decide(
    found: Option<&LeaseRow>,
    owner: &Owner,
    now: Timestamp,
    terms: &LeaseTerms,
) -> Option<AcquireKind> {
    let Some(row) = found else { return Some(AcquireKind::Insert) };
    let live = row.expires_at > now.minus(terms.allowance);
    let absurd = row.expires_at > now.plus(terms.absurdly_far());
    match (live && !absurd, row.owner == *owner) {
        (true, true) => Some(AcquireKind::Renew),
        (true, false) => None,
        (false, _) => Some(AcquireKind::Takeover),
    }
}

/// What the database granted: this owner, this token, until then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    submitter: SubmitterId,
    owner: Owner,
    token: FencingToken,
    expires_at: Timestamp,
}

impl Grant {
    /// For store adapters only: a lease row that now names this owner.
    #[must_use]
    pub const fn issued_by_store(
        submitter: SubmitterId,
        owner: Owner,
        token: FencingToken,
        expires_at: Timestamp,
    ) -> Self {
        Self { submitter, owner, token, expires_at }
    }

    /// Whose lane.
    #[must_use]
    pub const fn submitter(&self) -> &SubmitterId {
        &self.submitter
    }

    /// Who holds it.
    #[must_use]
    pub const fn owner(&self) -> &Owner {
        &self.owner
    }

    /// With which token.
    #[must_use]
    pub const fn token(&self) -> FencingToken {
        self.token
    }

    /// Until when, by the database's clock.
    #[must_use]
    pub const fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// The lease as the local clock sees it: alive until the request was *sent* plus the duration,
    /// minus the allowance. Counted from sending, since the answer may have travelled long.
    #[must_use]
    pub fn live(&self, sent_at: Tick, terms: &LeaseTerms, now: Tick) -> Option<LiveLease<'_>> {
        let deadline = sent_at.plus(terms.duration - terms.allowance);
        (now < deadline).then_some(LiveLease { grant: self })
    }
}

/// A grant the local clock still allows. Needed to build any fenced change. Short-lived by design:
/// it borrows the grant, so it cannot be kept beyond it.
#[derive(Debug)]
pub struct LiveLease<'a> {
    grant: &'a Grant,
}

impl<'a> LiveLease<'a> {
    /// The grant behind it.
    #[must_use]
    pub const fn grant(&self) -> &'a Grant {
        self.grant
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(n: u128) -> Owner {
        Owner::new("node-a", Uuid::from_u128(n)).unwrap()
    }

    fn terms() -> LeaseTerms {
        LeaseTerms::new(Duration::from_secs(10), Duration::from_secs(1)).unwrap()
    }

    #[test]
    fn the_decision_table_of_acquiring() {
        let now = Timestamp::from_micros(1_000_000_000);
        let row = |owner, offset_ms: i64| LeaseRow {
            owner,
            token: FencingToken(3),
            expires_at: Timestamp::from_micros(now.as_micros() + offset_ms * 1_000),
        };
        let me = owner(1);
        let table = [
            (None, Some(AcquireKind::Insert)),
            (Some(row(owner(1), 5_000)), Some(AcquireKind::Renew)),
            (Some(row(owner(1), -500)), Some(AcquireKind::Renew)),
            (Some(row(owner(1), -1_000)), Some(AcquireKind::Takeover)),
            (Some(row(owner(2), 5_000)), None),
            (Some(row(owner(2), -999)), None),
            (Some(row(owner(2), -1_000)), Some(AcquireKind::Takeover)),
            (Some(row(owner(2), 100_001)), Some(AcquireKind::Takeover)),
            (Some(row(owner(2), 100_000)), None),
        ];
        for (found, expected) in table {
            assert_eq!(decide(found.as_ref(), &me, now, &terms()), expected, "{found:?}");
        }
    }

    #[test]
    fn a_lease_ends_locally_before_it_ends_in_the_database() {
        let submitter: SubmitterId = "eip155:1:0x0000000000000000000000000000000000000001".parse().unwrap();
        let grant = Grant::issued_by_store(submitter, owner(1), FencingToken(1), Timestamp::default());
        let sent = Tick(Duration::from_secs(100));
        assert!(grant.live(sent, &terms(), sent.plus(Duration::from_millis(8_999))).is_some());
        assert!(grant.live(sent, &terms(), sent.plus(Duration::from_secs(9))).is_none());
    }

    #[test]
    fn terms_that_protect_nothing_are_refused() {
        let s = Duration::from_secs;
        assert!(LeaseTerms::new(s(10), s(5)).is_err());
        assert!(LeaseTerms::new(Duration::from_millis(50), Duration::ZERO).is_err());
    }
}
