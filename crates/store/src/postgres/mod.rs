//! The store on PostgreSQL: the authority of a cluster.
//!
//! Each fenced write is one statement, sent and committed in one round trip: nothing of ours can wait
//! between the fence and its commit. Sessions are set up in [`connect`] so that neither a frozen client
//! nor an unlucky plan can hold a lane.

mod accept;
mod commit;
mod connect;
mod error;
#[cfg(feature = "test-hooks")]
pub mod hooks;
mod identity;
mod lane;
mod lease;
mod outbox;
mod read;
mod rows;
mod statement;

use alloy_primitives::B256;
use async_trait::async_trait;
use gapless_core::allocation::{Allocation, Mark, MarkOutcome};
use gapless_core::attempt::StoredAttempt;
use gapless_core::change::{LaneChange, Verdict};
use gapless_core::command::{Command, CommandReceipt, NewCommand};
use gapless_core::event::{Event, EventCursor, EventPage};
use gapless_core::ids::{Epoch, LockOwner, Nonce, RequestId, Scope, TxId};
use gapless_core::lease::{Grant, LeaseTerms, Owner};
use gapless_core::ports::store::{
    Acquired, LaneSnapshot, Parting, Registered, Renewal, Store, StoreResult, SubmitterInfo, TxFilter,
};
use gapless_core::record::{Accepted, NewTx, TxRecord};
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use sqlx::PgPool;
use sqlx::pool::PoolConnection;
use sqlx::postgres::Postgres;

pub use connect::PostgresOptions;

use crate::open::OpenError;

/// The store on PostgreSQL.
#[derive(Debug, Clone)]
pub struct PostgresStore {
    /// Ordinary work.
    pool: PgPool,
    /// Leases have connections of their own: renewing must not queue behind work.
    leases: PgPool,
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
        self.leases.close().await;
    }

    async fn connection(&self) -> StoreResult<PoolConnection<Postgres>> {
        self.pool.acquire().await.map_err(error::unavailable)
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn now(&self) -> StoreResult<Timestamp> {
        read::now(&mut *self.connection().await?).await
    }

    async fn epoch(&self) -> StoreResult<Epoch> {
        outbox::epoch(&mut *self.connection().await?).await
    }

    async fn register(&self, submitters: &[(SubmitterId, String)]) -> StoreResult<Vec<Registered>> {
        lane::register(&mut *self.connection().await?, submitters).await
    }

    async fn submitter(&self, submitter: &SubmitterId) -> StoreResult<Option<SubmitterInfo>> {
        read::submitter(&mut *self.connection().await?, submitter).await
    }

    async fn submitters(&self, after: Option<&SubmitterId>, limit: usize) -> StoreResult<Vec<SubmitterInfo>> {
        read::submitters(&mut *self.connection().await?, after, limit).await
    }

    async fn accept(&self, items: &[NewTx]) -> StoreResult<Vec<Accepted>> {
        accept::accept(&mut *self.connection().await?, items).await
    }

    async fn acquire(
        &self,
        owner: &Owner,
        submitters: &[SubmitterId],
        terms: &LeaseTerms,
    ) -> StoreResult<Vec<Acquired>> {
        let mut connection = self.leases.acquire().await.map_err(error::unavailable)?;
        let mut acquired = Vec::with_capacity(submitters.len());
        // One statement, and so one transaction, per lane: a takeover that waits for a frozen writer
        // must not hold other lanes meanwhile.
        for submitter in submitters {
            acquired.push(lease::acquire(&mut connection, owner, submitter, terms, false).await?);
        }
        Ok(acquired)
    }

    async fn renew(&self, grants: &[Grant], terms: &LeaseTerms) -> StoreResult<Vec<Renewal>> {
        let mut connection = self.leases.acquire().await.map_err(error::unavailable)?;
        lease::renew(&mut connection, grants, terms).await
    }

    async fn release(&self, grants: &[(Grant, Parting)]) -> StoreResult<Vec<bool>> {
        let mut connection = self.leases.acquire().await.map_err(error::unavailable)?;
        lease::release(&mut connection, grants).await
    }

    async fn raise_token(&self, grant: &Grant, terms: &LeaseTerms) -> StoreResult<Acquired> {
        let mut connection = self.leases.acquire().await.map_err(error::unavailable)?;
        lease::acquire(&mut connection, grant.owner(), grant.submitter(), terms, true).await
    }

    async fn claimable(&self, terms: &LeaseTerms, limit: usize) -> StoreResult<Vec<SubmitterId>> {
        lease::claimable(&mut *self.connection().await?, terms, limit).await
    }

    async fn load_lane(&self, submitter: &SubmitterId) -> StoreResult<Option<LaneSnapshot>> {
        lane::load(&mut *self.connection().await?, submitter).await
    }

    async fn peek_queue(&self, submitter: &SubmitterId, limit: usize) -> StoreResult<Vec<TxRecord>> {
        lane::peek_queue(&mut *self.connection().await?, submitter, limit).await
    }

    async fn commit(&self, changes: &[LaneChange]) -> StoreResult<Vec<Verdict>> {
        commit::commit(&mut *self.connection().await?, changes).await
    }

    async fn insert_commands(&self, commands: &[NewCommand]) -> StoreResult<Vec<CommandReceipt>> {
        lane::insert_commands(&mut *self.connection().await?, commands).await
    }

    async fn take_commands(&self, submitter: &SubmitterId, limit: usize) -> StoreResult<Vec<Command>> {
        lane::take_commands(&mut *self.connection().await?, submitter, limit).await
    }

    async fn mark(
        &self,
        submitter: &SubmitterId,
        nonce: Nonce,
        owner: LockOwner,
        mark: Mark,
    ) -> StoreResult<MarkOutcome> {
        lane::mark(&mut *self.connection().await?, submitter, nonce, owner, mark).await
    }

    async fn tx(&self, tx_id: TxId) -> StoreResult<Option<TxRecord>> {
        read::tx(&mut *self.connection().await?, tx_id).await
    }

    async fn tx_by_request(&self, scope: &Scope, request_id: &RequestId) -> StoreResult<Option<TxRecord>> {
        read::tx_by_request(&mut *self.connection().await?, scope, request_id).await
    }

    async fn tx_by_hash(&self, hash: B256) -> StoreResult<Option<TxRecord>> {
        read::tx_by_hash(&mut *self.connection().await?, hash).await
    }

    async fn list(&self, filter: &TxFilter) -> StoreResult<Vec<TxRecord>> {
        read::list(&mut *self.connection().await?, filter).await
    }

    async fn attempts(
        &self,
        submitter: &SubmitterId,
        from: Nonce,
        to: Nonce,
    ) -> StoreResult<Vec<StoredAttempt>> {
        read::attempts(&mut *self.connection().await?, submitter, from, to).await
    }

    async fn allocations(
        &self,
        submitter: &SubmitterId,
        from: Nonce,
        to: Nonce,
    ) -> StoreResult<Vec<Allocation>> {
        read::allocations(&mut *self.connection().await?, submitter, from, to).await
    }

    async fn tx_events(&self, tx_id: TxId) -> StoreResult<Vec<Event>> {
        outbox::of_tx(&mut *self.connection().await?, tx_id).await
    }

    async fn events_after(&self, cursor: Option<EventCursor>, limit: usize) -> StoreResult<EventPage> {
        outbox::after(&mut *self.connection().await?, cursor, limit).await
    }
}
