//! A fenced change of one lane, drafted in memory and sealed only if it is sound.
//!
//! Opening a draft takes a [`LiveLease`]; sealing it checks what must hold whatever the caller did
//! (invariant *gapless*: every nonce the cursor passes has bytes or a reservation in the same
//! write; *legal*: states move along the table; *told*: event numbers have no hole). The store then
//! checks the fence and the version, and applies all of it or nothing.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::allocation::AllocationWrite;
use crate::attempt::{NewAttempt, Refusal};
use crate::command::CommandEnd;
use crate::cursor::{Cursor, VersionedCursor};
use crate::event::{StoredEvent, Told};
use crate::ids::{FencingToken, Nonce, Seq, TxId, Version};
use crate::lease::{LiveLease, Owner};
use crate::limits::MAX_RAW_BYTES;
use crate::record::TxFacts;
use crate::state::{IllegalTransition, TxEvent, TxState};
use crate::submitter::SubmitterId;
use crate::text::NodeText;
use crate::time::Timestamp;

/// New facts of one transaction, with the events that tell them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxWrite {
    tx_id: TxId,
    from: TxState,
    first_seq: Seq,
    facts: TxFacts,
    told: Vec<Told>,
}

impl TxWrite {
    /// Moves a transaction along the table: the events decide its state, `edit` sets the other facts,
    /// and its event number rises by what is told.
    pub fn new(
        tx_id: TxId,
        before: &TxFacts,
        events: &[TxEvent],
        told: Vec<Told>,
        edit: impl FnOnce(&mut TxFacts),
    ) -> Result<Self, IllegalTransition> {
        let mut facts = before.clone();
        edit(&mut facts);
        facts.state = events.iter().try_fold(before.state, |state, event| state.next(*event))?;
        facts.seq = Seq(before.seq.0 + told.len() as u64);
        Ok(Self { tx_id, from: before.state, first_seq: before.seq.next(), facts, told })
    }

    /// Which transaction.
    #[must_use]
    pub const fn tx_id(&self) -> TxId {
        self.tx_id
    }

    /// The state the row must be in.
    #[must_use]
    pub const fn from(&self) -> TxState {
        self.from
    }

    /// The facts after this write.
    #[must_use]
    pub const fn facts(&self) -> &TxFacts {
        &self.facts
    }

    /// Whether this write adds to the transaction's history.
    #[must_use]
    pub const fn tells(&self) -> bool {
        !self.told.is_empty()
    }
}

/// A claim to send a slot's current attempt again: written first, sent after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResendClaim {
    /// The slot.
    pub nonce: Nonce,
    /// The attempt.
    pub n: u32,
    /// When the next one is due, by the database's clock.
    pub next_send_at: Timestamp,
}

/// What a node said about an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalNote {
    /// The slot.
    pub nonce: Nonce,
    /// The attempt.
    pub n: u32,
    /// The answer.
    pub refusal: Refusal,
}

/// What stands in a draft and later in a sealed change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writes {
    /// Facts of transactions.
    pub txs: Vec<TxWrite>,
    /// New signed bytes.
    pub attempts: Vec<NewAttempt>,
    /// Slots taken back: their bytes went to nobody, so their attempts are deleted.
    pub unbound: Vec<Nonce>,
    /// Claims to send again.
    pub resends: Vec<ResendClaim>,
    /// Answers worth keeping.
    pub refusals: Vec<RefusalNote>,
    /// Exceptional slots.
    pub allocations: Vec<AllocationWrite>,
    /// Commands executed.
    pub commands: Vec<CommandEnd>,
    /// Events of the submitter itself.
    pub told: Vec<Told>,
}

/// A change being written.
#[derive(Debug, Clone)]
pub struct Draft {
    submitter: SubmitterId,
    owner: Owner,
    token: FencingToken,
    before: VersionedCursor,
    /// The cursor after the change; begins as it was.
    pub cursor: Cursor,
    /// Everything else.
    pub writes: Writes,
}

/// Why a draft cannot be sealed: a defect of the caller, caught before it reaches a database.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnsoundChange {
    /// The cursor's numbers contradict each other.
    #[error("the cursor's prefixes are out of order")]
    Run,
    /// A run cannot vanish or begin elsewhere.
    #[error("a run that has started keeps its start")]
    StartMoved,
    /// `resolved` never falls.
    #[error("the resolved prefix fell from {from} to {to}")]
    ResolvedFell {
        /// Before.
        from: Nonce,
        /// After.
        to: Nonce,
    },
    /// The cursor passed a nonce without bytes or reservation: that would be a hole.
    #[error("nonce {0} would become a hole: neither bytes nor a reservation stand under it")]
    Hole(Nonce),
    /// The cursor fell below a slot that is not unbound in the same change.
    #[error("the cursor fell below nonce {0}, which is not unbound here")]
    StillBound(Nonce),
    /// A slot inside the run cannot be unbound: that would be a hole.
    #[error("nonce {0} is unbound but the cursor stays above it")]
    UnboundInside(Nonce),
    /// Bytes for a nonce that the cursor has not reached.
    #[error("bytes for nonce {0} lie outside the run")]
    OutsideRun(Nonce),
    /// Two writes of one transaction.
    #[error("transaction {0} is written twice")]
    Twice(TxId),
    /// Two writes about one exceptional slot.
    #[error("slot {0} is allocated twice")]
    SlotTwice(Nonce),
    /// Facts that cannot be true together.
    #[error("the facts of transaction {0} contradict each other")]
    Facts(TxId),
    /// Bytes above the limit.
    #[error("the signed bytes for nonce {nonce} have {bytes} bytes")]
    RawTooLong {
        /// The slot.
        nonce: Nonce,
        /// Their length.
        bytes: usize,
    },
}

impl Draft {
    /// Opens a change on what was read. Needs a lease that is alive.
    #[must_use]
    pub fn open(lease: &LiveLease<'_>, before: &VersionedCursor) -> Self {
        let grant = lease.grant();
        Self {
            submitter: grant.submitter().clone(),
            owner: grant.owner().clone(),
            token: grant.token(),
            before: before.clone(),
            cursor: before.cursor.clone(),
            writes: Writes::default(),
        }
    }

    /// Checks the change and closes it.
    pub fn seal(self) -> Result<LaneChange, UnsoundChange> {
        self.check_run()?;
        self.check_transactions()?;
        Ok(LaneChange {
            submitter: self.submitter,
            owner: self.owner,
            token: self.token,
            expected: self.before.version,
            cursor: self.cursor,
            writes: self.writes,
        })
    }

    fn check_run(&self) -> Result<(), UnsoundChange> {
        let Some(run) = &self.cursor.run else {
            return match (&self.before.cursor.run, self.writes.attempts.first()) {
                (Some(_), _) => Err(UnsoundChange::StartMoved),
                (None, Some(attempt)) => Err(UnsoundChange::OutsideRun(attempt.nonce)),
                (None, None) => Ok(()),
            };
        };
        if !run.is_sound() {
            return Err(UnsoundChange::Run);
        }
        let before_next = match &self.before.cursor.run {
            Some(before) if before.start != run.start => return Err(UnsoundChange::StartMoved),
            Some(before) if run.resolved < before.resolved => {
                return Err(UnsoundChange::ResolvedFell { from: before.resolved, to: run.resolved });
            }
            Some(before) => before.next,
            None => run.start,
        };
        let mut allocated = BTreeSet::new();
        if let Some(twice) =
            self.writes.allocations.iter().map(AllocationWrite::nonce).find(|nonce| !allocated.insert(*nonce))
        {
            return Err(UnsoundChange::SlotTwice(twice));
        }
        let held: BTreeSet<Nonce> = (self.writes.attempts.iter().map(|a| a.nonce))
            .chain(self.writes.allocations.iter().map(AllocationWrite::nonce))
            .collect();
        if let Some(hole) = (before_next.0..run.next.0).map(Nonce).find(|nonce| !held.contains(nonce)) {
            return Err(UnsoundChange::Hole(hole));
        }
        let unbound: BTreeSet<Nonce> = self.writes.unbound.iter().copied().collect();
        if let Some(left) = (run.next.0..before_next.0).map(Nonce).find(|nonce| !unbound.contains(nonce)) {
            return Err(UnsoundChange::StillBound(left));
        }
        if let Some(inside) = unbound.iter().find(|nonce| **nonce < run.next) {
            return Err(UnsoundChange::UnboundInside(*inside));
        }
        for attempt in &self.writes.attempts {
            if attempt.nonce < run.start || attempt.nonce >= run.next {
                return Err(UnsoundChange::OutsideRun(attempt.nonce));
            }
            if attempt.raw.len() > MAX_RAW_BYTES {
                return Err(UnsoundChange::RawTooLong { nonce: attempt.nonce, bytes: attempt.raw.len() });
            }
        }
        Ok(())
    }

    fn check_transactions(&self) -> Result<(), UnsoundChange> {
        let mut seen = BTreeSet::new();
        for write in &self.writes.txs {
            if !seen.insert(write.tx_id) {
                return Err(UnsoundChange::Twice(write.tx_id));
            }
            if !write.facts.is_sound() {
                return Err(UnsoundChange::Facts(write.tx_id));
            }
        }
        Ok(())
    }
}

/// A sealed change: everything a store needs to apply it, or to refuse it as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneChange {
    submitter: SubmitterId,
    owner: Owner,
    token: FencingToken,
    expected: Version,
    cursor: Cursor,
    writes: Writes,
}

impl LaneChange {
    /// Whose lane.
    #[must_use]
    pub const fn submitter(&self) -> &SubmitterId {
        &self.submitter
    }

    /// Who writes.
    #[must_use]
    pub const fn owner(&self) -> &Owner {
        &self.owner
    }

    /// With which token.
    #[must_use]
    pub const fn token(&self) -> FencingToken {
        self.token
    }

    /// The version it was planned on.
    #[must_use]
    pub const fn expected(&self) -> Version {
        self.expected
    }

    /// The cursor after it.
    #[must_use]
    pub const fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Everything else.
    #[must_use]
    pub const fn writes(&self) -> &Writes {
        &self.writes
    }

    /// All events of this change, numbered, in the order they are told.
    #[must_use]
    pub fn events(&self) -> Vec<StoredEvent> {
        let own = self.writes.told.iter().map(|told| StoredEvent {
            kind: told.kind,
            tx_id: None,
            seq: Seq(self.expected.next().0),
            data: told.data.clone(),
        });
        let of_txs = self.writes.txs.iter().flat_map(|write| {
            write.told.iter().enumerate().map(|(i, told)| StoredEvent {
                kind: told.kind,
                tx_id: Some(write.tx_id),
                seq: Seq(write.first_seq.0 + i as u64),
                data: told.data.clone(),
            })
        });
        own.chain(of_txs).collect()
    }
}

/// What a store says to one lane's change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All of it is committed; the lane is at this version now.
    Applied {
        /// The new version.
        version: Version,
    },
    /// The lease, the token or the version is not this lane's any more. Drop the lane's memory.
    Fenced,
    /// The lane's rows were busy. Nothing was written; try the same change again.
    Retry,
    /// This change alone cannot be written; nothing of it was. The lane must reload.
    Refused {
        /// What the store said.
        reason: NodeText,
    },
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
