//! The store: the authority over everything that must survive.
//!
//! Contract for every implementation (held by one conformance suite):
//! - An answer `Ok` means committed and durable. [`StoreError::OutcomeUnknown`] means *perhaps*; any
//!   other error means nothing was written.
//! - Time is the store's own. Nobody passes "now" in.
//! - `commit` applies each lane's change as a whole or not at all, and never because of, or at the
//!   expense of, another lane in the batch.
//! - A change whose lease, token or version is no longer current writes nothing, even if it was
//!   checked before a takeover and committed after it.

use std::collections::BTreeSet;

use alloy_primitives::B256;
use async_trait::async_trait;
use thiserror::Error;

use crate::allocation::{Allocation, Mark, MarkOutcome};
use crate::attempt::StoredAttempt;
use crate::change::{LaneChange, Verdict};
use crate::command::{Command, CommandEnd, CommandReceipt, NewCommand};
use crate::cursor::VersionedCursor;
use crate::event::{Event, EventCursor, EventPage};
use crate::ids::{CommandId, Epoch, FencingToken, LockOwner, Nonce, Order, RequestId, Scope, TxId};
use crate::lease::{AcquireKind, Grant, LeaseTerms, Owner};
use crate::record::{Accepted, NewTx, TxRecord};
use crate::state::TxState;
use crate::submitter::SubmitterId;
use crate::time::Timestamp;

/// Why a store could not answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// Nothing was written; trying again may help.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    /// The answer to a write was lost; it may or may not have been applied.
    #[error("the store's answer was lost, the outcome is unknown: {0}")]
    OutcomeUnknown(String),
    /// A stored row cannot be read back.
    #[error("the store holds something this binary cannot read: {0}")]
    Corrupt(String),
    /// More items than a call may carry.
    #[error("{what}: {given} items given, at most {limit} are allowed")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        given: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// An event cursor of another epoch, or pruned.
    #[error("the event cursor is outdated; start again from the beginning")]
    CursorExpired,
}

impl StoreError {
    /// Stable code for API answers.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unavailable(_) | Self::OutcomeUnknown(_) => "store-unavailable",
            Self::Corrupt(_) => "store-corrupt",
            Self::TooMany { .. } => "invalid-request",
            Self::CursorExpired => "cursor-expired",
        }
    }
}

/// Short for results of this port.
pub type StoreResult<T> = Result<T, StoreError>;

/// What became of an attempt to hold a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquired {
    /// Held now.
    Held {
        /// How.
        kind: AcquireKind,
        /// The proof.
        grant: Grant,
    },
    /// Somebody else holds it.
    NotOwner {
        /// Who.
        owner: Owner,
        /// Until when.
        expires_at: Timestamp,
    },
    /// Its row is being written by somebody this very moment.
    Busy,
    /// No such submitter is registered.
    UnknownSubmitter,
}

/// What became of a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewal {
    /// The same token, until later.
    Renewed(Grant),
    /// Expired or taken: stop.
    Lost,
}

/// How a node leaves a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Parting {
    /// Nothing is left to do; nobody needs to take it up.
    Idle,
    /// Work is left; somebody should take it up at once.
    Unfinished,
}

/// Everything a node needs to take up a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneSnapshot {
    /// Cursor and version.
    pub cursor: VersionedCursor,
    /// Attempts of every slot still watched, by (nonce, n).
    pub attempts: Vec<StoredAttempt>,
    /// Transactions of those slots, and allocated ones, by order.
    pub txs: Vec<TxRecord>,
    /// Exceptional slots, by nonce.
    pub allocations: Vec<Allocation>,
    /// Commands that wait, oldest first.
    pub commands: Vec<Command>,
}

/// A lease as shown to operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseInfo {
    /// Holder.
    pub owner: Owner,
    /// Token.
    pub token: FencingToken,
    /// End.
    pub expires_at: Timestamp,
}

/// A submitter as shown to operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmitterInfo {
    /// Which.
    pub submitter: SubmitterId,
    /// Its settings, as registered (a JSON document the engine understands).
    pub settings: String,
    /// Cursor and version.
    pub cursor: VersionedCursor,
    /// Who holds it, if anybody ever did.
    pub lease: Option<LeaseInfo>,
    /// When it was registered.
    pub created_at: Timestamp,
}

/// What became of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Registered {
    /// It is new.
    New,
    /// It was there; its settings were left as they were.
    Known,
}

/// Which transactions to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TxFilter {
    /// Of one submitter.
    pub submitter: Option<SubmitterId>,
    /// In these states; all if empty.
    pub states: BTreeSet<TxState>,
    /// Accepted after this one.
    pub after: Option<Order>,
    /// At most so many.
    pub limit: usize,
}

/// The store.
#[async_trait]
pub trait Store: Send + Sync {
    /// The store's clock.
    async fn now(&self) -> StoreResult<Timestamp>;

    /// Changes when acknowledged commits may have been lost.
    async fn epoch(&self) -> StoreResult<Epoch>;

    /// Registers submitters with their settings. Known ones are left as they are.
    async fn register(&self, submitters: &[(SubmitterId, String)]) -> StoreResult<Vec<Registered>>;

    /// One submitter.
    async fn submitter(&self, submitter: &SubmitterId) -> StoreResult<Option<SubmitterInfo>>;

    /// Submitters, one answer each, in order; `None` of one that is not registered.
    async fn named_submitters(&self, names: &[SubmitterId]) -> StoreResult<Vec<Option<SubmitterInfo>>>;

    /// Submitters by name, after one, at most `limit`.
    async fn submitters(&self, after: Option<&SubmitterId>, limit: usize) -> StoreResult<Vec<SubmitterInfo>>;

    /// Accepts requests: idempotent, without any lease, each item by itself.
    async fn accept(&self, items: &[NewTx]) -> StoreResult<Vec<Accepted>>;

    /// Acquires, renews or takes over lanes, each by itself.
    async fn acquire(
        &self,
        owner: &Owner,
        submitters: &[SubmitterId],
        terms: &LeaseTerms,
    ) -> StoreResult<Vec<Acquired>>;

    /// Renews all leases of a node in one statement.
    async fn renew(&self, grants: &[Grant], terms: &LeaseTerms) -> StoreResult<Vec<Renewal>>;

    /// Gives lanes back. `false`: it was not ours any more.
    async fn release(&self, grants: &[(Grant, Parting)]) -> StoreResult<Vec<bool>>;

    /// After an unknown outcome: raises our own token, so that a ghost of ours is fenced for good.
    /// Waits for a write of ours that is still under way.
    async fn raise_token(&self, grant: &Grant, terms: &LeaseTerms) -> StoreResult<Acquired>;

    /// Submitters with work and no live lease, by name, beginning after one.
    async fn claimable(
        &self,
        terms: &LeaseTerms,
        after: Option<&SubmitterId>,
        limit: usize,
    ) -> StoreResult<Vec<SubmitterId>>;

    /// Tells whoever listens that these submitters have new work. After the commit, best effort: a word that
    /// is lost is made good by the sweep over [`Self::claimable`] and by each lane's own tick.
    async fn notify(&self, submitters: &[SubmitterId]) -> StoreResult<()>;

    /// Waits for such words, from this node or another.
    async fn notified(&self) -> StoreResult<Vec<SubmitterId>>;

    /// Loads a lane.
    async fn load_lane(&self, submitter: &SubmitterId) -> StoreResult<Option<LaneSnapshot>>;

    /// The first unbound transactions of a lane, in order.
    async fn peek_queue(&self, submitter: &SubmitterId, limit: usize) -> StoreResult<Vec<TxRecord>>;

    /// How many unbound transactions each of these submitters has, in order; a stranger has none.
    async fn queue_depths(&self, submitters: &[SubmitterId]) -> StoreResult<Vec<u64>>;

    /// Applies changes of many lanes; one verdict each, in order.
    async fn commit(&self, changes: &[LaneChange]) -> StoreResult<Vec<Verdict>>;

    /// Inserts commands for lanes. Needs no lease.
    async fn insert_commands(&self, commands: &[NewCommand]) -> StoreResult<Vec<CommandReceipt>>;

    /// Commands of a lane that wait, oldest first.
    async fn take_commands(&self, submitter: &SubmitterId, limit: usize) -> StoreResult<Vec<Command>>;

    /// How a command ended; none while it waits, or if nobody knows it.
    async fn command_end(&self, id: CommandId) -> StoreResult<Option<CommandEnd>>;

    /// A holder's word on its reserved slot.
    async fn mark(
        &self,
        submitter: &SubmitterId,
        nonce: Nonce,
        owner: LockOwner,
        mark: Mark,
    ) -> StoreResult<MarkOutcome>;

    /// One transaction.
    async fn tx(&self, tx_id: TxId) -> StoreResult<Option<TxRecord>>;

    /// The transaction of a request.
    async fn tx_by_request(&self, scope: &Scope, request_id: &RequestId) -> StoreResult<Option<TxRecord>>;

    /// The transaction one of whose attempts has this hash.
    async fn tx_by_hash(&self, hash: B256) -> StoreResult<Option<TxRecord>>;

    /// Transactions in the order they were accepted.
    async fn list(&self, filter: &TxFilter) -> StoreResult<Vec<TxRecord>>;

    /// Attempts of slots `from..to` of a submitter, by (nonce, n).
    async fn attempts(
        &self,
        submitter: &SubmitterId,
        from: Nonce,
        to: Nonce,
    ) -> StoreResult<Vec<StoredAttempt>>;

    /// Attempts and foreign use have the same key space: exceptional slots `from..to`.
    async fn allocations(
        &self,
        submitter: &SubmitterId,
        from: Nonce,
        to: Nonce,
    ) -> StoreResult<Vec<Allocation>>;

    /// A transaction's history, from its first event on.
    async fn tx_events(&self, tx_id: TxId) -> StoreResult<Vec<Event>>;

    /// The stream of events after a cursor; `None` starts at the beginning. Skips nothing, ever.
    async fn events_after(&self, cursor: Option<EventCursor>, limit: usize) -> StoreResult<EventPage>;
}
