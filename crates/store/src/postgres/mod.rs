//! The store on PostgreSQL: the authority of a cluster.
//!
//! Each fenced write is one statement, sent and committed in one round trip: nothing of ours can wait
//! between the fence and its commit. Sessions are set up in [`connect`] so that neither a frozen client
//! nor an unlucky plan can hold a lane.

mod accept;
mod commit;
mod connect;
mod depth;
mod error;
mod facts;
#[cfg(feature = "test-hooks")]
pub mod hooks;
mod identity;
mod input;
mod lane;
mod lease;
mod outbox;
mod read;
mod rows;
mod statement;
mod wake;

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::B256;
use async_trait::async_trait;
use gapless_core::allocation::{Allocation, Mark, MarkOutcome};
use gapless_core::attempt::StoredAttempt;
use gapless_core::change::{LaneChange, Verdict};
use gapless_core::command::{Command, CommandEnd, CommandReceipt, NewCommand};
use gapless_core::event::{Event, EventCursor, EventPage};
use gapless_core::ids::{CommandId, Epoch, LockOwner, Nonce, RequestId, Scope, TxId};
use gapless_core::lease::{Grant, LeaseTerms, Owner};
use gapless_core::ports::store::{
    Acquired, LaneSnapshot, Parting, Registered, Renewal, Store, StoreError, StoreResult, SubmitterInfo,
    TxFilter,
};
use gapless_core::record::{Accepted, NewTx, TxRecord};
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use sqlx::PgPool;

pub use connect::PostgresOptions;

use crate::open::OpenError;

/// The store on PostgreSQL.
#[derive(Debug, Clone)]
pub struct PostgresStore {
    /// Ordinary work.
    pool: PgPool,
    /// Acquiring and releasing may wait for a frozen writer; nothing else shall wait behind it.
    leases: PgPool,
    /// Renewing has a connection of its own: it must never queue.
    renewals: PgPool,
    /// Listening keeps its connection for good.
    listening: PgPool,
    /// Hears the other nodes.
    listener: Arc<wake::Listener>,
    /// How long an answer may take. The server's own time-outs are shorter; this one is for a server, or a network,
    /// that is simply gone.
    patience: Duration,
}

impl PostgresStore {
    /// Opens a migrated database.
    pub async fn open(options: &PostgresOptions) -> Result<Self, OpenError> {
        connect::open(options).await
    }

    /// Brings a database's schema up to this binary's.
    pub async fn migrate(options: &PostgresOptions) -> Result<(), OpenError> {
        connect::migrate(options).await
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.pool.close().await;
        for pool in [&self.leases, &self.renewals, &self.listening] {
            pool.close().await;
        }
    }
}

/// Runs a call on a connection, for no longer than patience allows. A connection that did not answer in time is not
/// used again: a late answer must not meet the next question.
macro_rules! on {
    ($pool:expr, $store:ident, $late:path, $connection:ident => $call:expr) => {{
        let mut held = $pool.acquire().await.map_err(error::unavailable)?;
        let answer = {
            let $connection = &mut *held;
            tokio::time::timeout($store.patience, $call).await
        };
        answer.unwrap_or_else(|_| {
            held.close_on_drop();
            Err($late(format!("no answer within {:?}", $store.patience)))
        })
    }};
}

macro_rules! read {
    ($store:ident, $connection:ident => $call:expr) => {
        on!($store.pool, $store, StoreError::Unavailable, $connection => $call)
    };
}

macro_rules! write {
    ($store:ident, $connection:ident => $call:expr) => {
        on!($store.pool, $store, StoreError::OutcomeUnknown, $connection => $call)
    };
}

impl PostgresStore {
    async fn acquire_one(
        &self,
        owner: &Owner,
        submitter: &SubmitterId,
        terms: &LeaseTerms,
        raise: bool,
    ) -> StoreResult<Acquired> {
        on!(self.leases, self, StoreError::OutcomeUnknown, c => lease::acquire(c, owner, submitter, terms, raise))
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn now(&self) -> StoreResult<Timestamp> {
        read!(self, c => read::now(c))
    }

    async fn epoch(&self) -> StoreResult<Epoch> {
        read!(self, c => outbox::epoch(c))
    }

    async fn register(&self, submitters: &[(SubmitterId, String)]) -> StoreResult<Vec<Registered>> {
        write!(self, c => lane::register(c, submitters))
    }

    async fn submitter(&self, submitter: &SubmitterId) -> StoreResult<Option<SubmitterInfo>> {
        read!(self, c => read::submitter(c, submitter))
    }

    async fn named_submitters(&self, names: &[SubmitterId]) -> StoreResult<Vec<Option<SubmitterInfo>>> {
        read!(self, c => read::named_submitters(c, names))
    }

    async fn submitters(&self, after: Option<&SubmitterId>, limit: usize) -> StoreResult<Vec<SubmitterInfo>> {
        read!(self, c => read::submitters(c, after, limit))
    }

    async fn accept(&self, items: &[NewTx]) -> StoreResult<Vec<Accepted>> {
        write!(self, c => accept::accept(c, items))
    }

    async fn acquire(
        &self,
        owner: &Owner,
        submitters: &[SubmitterId],
        terms: &LeaseTerms,
    ) -> StoreResult<Vec<Acquired>> {
        let mut acquired = Vec::with_capacity(submitters.len());
        // One statement, and so one transaction, per lane: a takeover that waits for a frozen writer
        // must not hold other lanes meanwhile.
        for submitter in submitters {
            match self.acquire_one(owner, submitter, terms, false).await {
                Ok(one) => acquired.push(one),
                Err(error) if acquired.is_empty() => return Err(error),
                // Grants in hand must not be lost to a later failure.
                Err(_) => acquired.push(Acquired::Busy),
            }
        }
        Ok(acquired)
    }

    async fn renew(&self, grants: &[Grant], terms: &LeaseTerms) -> StoreResult<Vec<Renewal>> {
        on!(self.renewals, self, StoreError::OutcomeUnknown, c => lease::renew(c, grants, terms))
    }

    async fn release(&self, grants: &[(Grant, Parting)]) -> StoreResult<Vec<bool>> {
        on!(self.leases, self, StoreError::OutcomeUnknown, c => lease::release(c, grants))
    }

    async fn raise_token(&self, grant: &Grant, terms: &LeaseTerms) -> StoreResult<Acquired> {
        self.acquire_one(grant.owner(), grant.submitter(), terms, true).await
    }

    async fn claimable(
        &self,
        terms: &LeaseTerms,
        after: Option<&SubmitterId>,
        limit: usize,
    ) -> StoreResult<Vec<SubmitterId>> {
        read!(self, c => lease::claimable(c, terms, after, limit))
    }

    async fn notify(&self, submitters: &[SubmitterId]) -> StoreResult<()> {
        write!(self, c => wake::notify(c, submitters))
    }

    async fn notified(&self) -> StoreResult<Vec<SubmitterId>> {
        self.listener.hear(&self.listening).await
    }

    async fn load_lane(&self, submitter: &SubmitterId) -> StoreResult<Option<LaneSnapshot>> {
        read!(self, c => lane::load(c, submitter))
    }

    async fn peek_queue(&self, submitter: &SubmitterId, limit: usize) -> StoreResult<Vec<TxRecord>> {
        read!(self, c => lane::peek_queue(c, submitter, limit))
    }

    async fn queue_depths(&self, submitters: &[SubmitterId]) -> StoreResult<Vec<u64>> {
        read!(self, c => depth::queue_depths(c, submitters))
    }

    async fn commit(&self, changes: &[LaneChange]) -> StoreResult<Vec<Verdict>> {
        write!(self, c => commit::commit(c, changes))
    }

    async fn insert_commands(&self, commands: &[NewCommand]) -> StoreResult<Vec<CommandReceipt>> {
        write!(self, c => lane::insert_commands(c, commands))
    }

    async fn take_commands(&self, submitter: &SubmitterId, limit: usize) -> StoreResult<Vec<Command>> {
        read!(self, c => lane::take_commands(c, submitter, limit))
    }

    async fn command_end(&self, id: CommandId) -> StoreResult<Option<CommandEnd>> {
        read!(self, c => lane::command_end(c, id))
    }

    async fn mark(
        &self,
        submitter: &SubmitterId,
        nonce: Nonce,
        owner: LockOwner,
        mark: Mark,
    ) -> StoreResult<MarkOutcome> {
        write!(self, c => lane::mark(c, submitter, nonce, owner, mark))
    }

    async fn tx(&self, tx_id: TxId) -> StoreResult<Option<TxRecord>> {
        read!(self, c => read::tx(c, tx_id))
    }

    async fn tx_by_request(&self, scope: &Scope, request_id: &RequestId) -> StoreResult<Option<TxRecord>> {
        read!(self, c => read::tx_by_request(c, scope, request_id))
    }

    async fn tx_by_hash(&self, hash: B256) -> StoreResult<Option<TxRecord>> {
        read!(self, c => read::tx_by_hash(c, hash))
    }

    async fn list(&self, filter: &TxFilter) -> StoreResult<Vec<TxRecord>> {
        read!(self, c => read::list(c, filter))
    }

    async fn attempts(
        &self,
        submitter: &SubmitterId,
        from: Nonce,
        to: Nonce,
    ) -> StoreResult<Vec<StoredAttempt>> {
        read!(self, c => read::attempts(c, submitter, from, to))
    }

    async fn allocations(
        &self,
        submitter: &SubmitterId,
        from: Nonce,
        to: Nonce,
    ) -> StoreResult<Vec<Allocation>> {
        read!(self, c => read::allocations(c, submitter, from, to))
    }

    async fn tx_events(&self, tx_id: TxId) -> StoreResult<Vec<Event>> {
        read!(self, c => outbox::of_tx(c, tx_id))
    }

    async fn events_after(&self, cursor: Option<EventCursor>, limit: usize) -> StoreResult<EventPage> {
        read!(self, c => outbox::after(c, cursor, limit))
    }
}
