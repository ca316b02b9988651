//! A fenced change of one lane, drafted in memory and sealed only if it is sound.
//!
//! Opening a draft takes a [`LiveLease`]; sealing it checks what must hold whatever the caller did
//! (invariant *gapless*: every nonce the cursor passes has bytes or a reservation in the same
//! write; *legal*: states move along the table; *told*: event numbers have no hole). The store then
//! checks the fence and the version, and applies all of it or nothing.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::allocation::AllocationWrite;
use crate::attempt::{NewAttempt, Refusal, StoredAttempt};
use crate::command::CommandEnd;
use crate::cursor::{Cursor, VersionedCursor};
use crate::event::{StoredEvent, Told};
use crate::ids::{FencingToken, Nonce, Order, Seq, TxId, Version};
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
    before: TxFacts,
    facts: TxFacts,
    told: Vec<Told>,
    place: Option<Order>,
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
        Ok(Self { tx_id, before: before.clone(), facts, told, place: None })
    }

    /// Says at which place of the queue it stands, so that a store need not look for it.
    #[must_use]
    pub const fn at_place(mut self, order: Order) -> Self {
        self.place = Some(order);
        self
    }

    /// Its place in the queue, if it was said.
    #[must_use]
    pub const fn place(&self) -> Option<Order> {
        self.place
    }

    /// Which transaction.
    #[must_use]
    pub const fn tx_id(&self) -> TxId {
        self.tx_id
    }

    /// The state the row must be in.
    #[must_use]
    pub const fn from(&self) -> TxState {
        self.before.state
    }

    /// The number of the last event the row must have told.
    #[must_use]
    pub const fn from_seq(&self) -> Seq {
        self.before.seq
    }

    /// The facts it was drafted on.
    #[must_use]
    pub const fn before(&self) -> &TxFacts {
        &self.before
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
    /// Whether the bytes go out for it. What only says when they are due is not counted as sending.
    pub sends: bool,
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
    /// An allocation for a nonce outside the run.
    #[error("the allocation of nonce {0} lies outside the run")]
    AllocationOutsideRun(Nonce),
    /// A transaction is bound without bytes of its own under that nonce and hash in the same change.
    #[error("transaction {0} is bound without its bytes")]
    BoundWithoutBytes(TxId),
    /// A transaction leaves its nonce although its bytes may still be mined.
    #[error("transaction {0} leaves its slot before that is unbound or resolved")]
    LeavesSlot(TxId),
    /// A state changed and nobody is told.
    #[error("transaction {0} changes its state without telling")]
    Untold(TxId),
    /// A final transaction cannot change.
    #[error("transaction {0} is final")]
    Final(TxId),
    /// New nonces while the lane's conditions forbid them.
    #[error("a new nonce while the lane's conditions forbid it")]
    Forbidden,
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
            let attempt = self.writes.attempts.first().map(|a| UnsoundChange::OutsideRun(a.nonce));
            let allocation = self.writes.allocations.first();
            let allocation = allocation.map(|a| UnsoundChange::AllocationOutsideRun(a.nonce()));
            let moved = self.before.cursor.run.map(|_| UnsoundChange::StartMoved);
            return moved.or(attempt).or(allocation).map_or(Ok(()), Err);
        };
        if !run.is_sound() {
            return Err(UnsoundChange::Run);
        }
        let before_next = match &self.before.cursor.run {
            Some(before) if before.start != run.start => return Err(UnsoundChange::StartMoved),
            Some(before) if run.resolved < before.resolved || run.settled < before.settled => {
                return Err(UnsoundChange::ResolvedFell { from: before.resolved, to: run.resolved });
            }
            Some(before) if run.resolved > run.consumed && run.resolved != before.resolved => {
                return Err(UnsoundChange::Run);
            }
            Some(before) => before.next,
            None => run.start,
        };
        let own = self.writes.attempts.iter().any(|attempt| attempt.nonce >= before_next);
        let promised =
            self.writes.allocations.iter().any(|write| {
                matches!(write, AllocationWrite::Reserve { .. }) && write.nonce() >= before_next
            });
        if (own || promised) && self.cursor.conditions.forbids_binding().is_some() {
            return Err(UnsoundChange::Forbidden);
        }
        let mut allocated = BTreeSet::new();
        if let Some(twice) =
            self.writes.allocations.iter().map(AllocationWrite::nonce).find(|nonce| !allocated.insert(*nonce))
        {
            return Err(UnsoundChange::SlotTwice(twice));
        }
        let reserved = self.writes.allocations.iter().filter(|write| {
            matches!(write, AllocationWrite::Reserve { .. } | AllocationWrite::Foreign { .. })
        });
        let held: BTreeSet<Nonce> = (self.writes.attempts.iter().map(|a| a.nonce))
            .chain(reserved.map(AllocationWrite::nonce))
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
        let inside = run.start..run.next;
        let outside = |write: &&AllocationWrite| {
            !matches!(write, AllocationWrite::Settle { .. }) && !inside.contains(&write.nonce())
        };
        if let Some(write) = self.writes.allocations.iter().find(outside) {
            return Err(UnsoundChange::AllocationOutsideRun(write.nonce()));
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
            self.check_move(write)?;
        }
        Ok(())
    }

    /// What a transaction's move demands of the rest of the change.
    fn check_move(&self, write: &TxWrite) -> Result<(), UnsoundChange> {
        let (tx_id, before, after) = (write.tx_id, &write.before, &write.facts);
        if before.state.is_terminal() && *after != (TxFacts { seq: after.seq, ..before.clone() }) {
            return Err(UnsoundChange::Final(tx_id));
        }
        let ends = after.state.is_terminal() && !before.state.is_terminal();
        let moved = after.state != before.state;
        let tells_end = write.told.iter().any(|told| told.kind.is_terminal());
        if (moved && write.told.is_empty()) || ends != tells_end {
            return Err(UnsoundChange::Untold(tx_id));
        }
        if after.state.is_bound() && !before.state.is_bound() {
            let own = self.writes.attempts.iter().any(|attempt| {
                let theirs = (attempt.tx_id, Some(attempt.nonce), Some(attempt.hash));
                theirs == (Some(tx_id), after.nonce, after.tx_hash)
            });
            return if own { Ok(()) } else { Err(UnsoundChange::BoundWithoutBytes(tx_id)) };
        }
        if before.state.is_bound() && !after.state.is_bound() {
            let resolved = self.cursor.run.map_or(Nonce(0), |run| run.resolved);
            let free = |nonce: &Nonce| *nonce < resolved || (!ends && self.writes.unbound.contains(nonce));
            return if before.nonce.iter().all(free) {
                Ok(())
            } else {
                Err(UnsoundChange::LeavesSlot(tx_id))
            };
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

    /// The bytes this change stored, once the store has said so. The only way from new to stored bytes besides
    /// reading them back.
    #[must_use]
    pub fn stored(&self, verdict: &Verdict, at: Timestamp) -> Vec<StoredAttempt> {
        let Verdict::Applied { .. } = verdict else { return Vec::new() };
        let stored = |attempt: &NewAttempt| StoredAttempt::read_from_store(attempt.clone(), at, 0, None);
        self.writes.attempts.iter().map(stored).collect()
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
                seq: Seq(write.before.seq.0 + 1 + i as u64),
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
