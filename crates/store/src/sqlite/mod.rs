//! The store on SQLite: one process, no server, the same guarantees.
//!
//! WAL with `synchronous = FULL`, every write in a `BEGIN IMMEDIATE` of one writer thread, and an OS lock
//! beside the file, so that a second process cannot even open it. The clock is this process's own.

mod accept;
mod commit;
mod depth;
mod lane;
mod lease;
mod read;
mod rows;
mod worker;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alloy_primitives::B256;
use async_trait::async_trait;
use gapless_core::allocation::{Allocation, Mark, MarkOutcome};
use gapless_core::attempt::StoredAttempt;
use gapless_core::change::{LaneChange, Verdict};
use gapless_core::command::{Command, CommandEnd, CommandReceipt, NewCommand};
use gapless_core::event::{Event, EventCursor, EventPage};
use gapless_core::ids::{CommandId, Epoch, LockOwner, Nonce, RequestId, Scope, TxId};
use gapless_core::lease::{Grant, LeaseTerms, Owner};
use gapless_core::limits::{MAX_ACCEPT_BATCH, MAX_COMMIT_LANES, MAX_PAGE};
use gapless_core::ports::clock::Clock;
use gapless_core::ports::store::{
    Acquired, LaneSnapshot, Parting, Registered, Renewal, Store, StoreError, StoreResult, SubmitterInfo,
    TxFilter,
};
use gapless_core::record::{Accepted, NewTx, TxRecord};
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use rusqlite::Connection;

use crate::memory::bounded;
use crate::notices::Notices;
use crate::open::OpenError;
use crate::schema::BINARY;
use worker::{Worker, unavailable};

/// Every migration, in order; `user_version` counts how many were applied.
const MIGRATIONS: &[&str] = &[include_str!("../../migrations/sqlite/0001_foundations.sql")];

const _: () = assert!(MIGRATIONS.len() as i64 == crate::schema::MIGRATION);

/// The store on SQLite.
pub struct SqliteStore {
    clock: Arc<dyn Clock>,
    writer: Worker,
    reader: Worker,
    epoch: Epoch,
    notices: Notices,
}

impl SqliteStore {
    /// Opens a file, creating and migrating it as needed. Only one process can.
    pub async fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let lock = lock(path)?;
        let writer = connect(path)?;
        migrate(&writer, clock.as_ref())?;
        // The lock proves that nobody else lives: whoever held a lease is gone. Tokens still rise.
        writer.execute("UPDATE submitter_lease SET expires_at = 0", []).map_err(unavailable)?;
        let epoch = rows::epoch(&writer)?;
        let reader = connect(path)?;
        reader.pragma_update(None, "query_only", true).map_err(unavailable)?;
        Ok(Self {
            clock,
            writer: Worker::start("gapless-sqlite-writer", writer, Some(lock))?,
            reader: Worker::start("gapless-sqlite-reader", reader, None)?,
            epoch,
            notices: Notices::default(),
        })
    }

    /// What `doctor` shows: journal mode and the `synchronous` level of the writing connection.
    pub async fn durability(&self) -> StoreResult<(String, i64)> {
        self.writer
            .run(|db| {
                let mode =
                    db.pragma_query_value(None, "journal_mode", |row| row.get(0)).map_err(unavailable)?;
                let level =
                    db.pragma_query_value(None, "synchronous", |row| row.get(0)).map_err(unavailable)?;
                Ok((mode, level))
            })
            .await
    }

    /// A read that must not see less than this store has already answered: WAL shows every commit.
    async fn read<T, F>(&self, job: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> StoreResult<T> + Send + 'static,
    {
        self.reader.run(move |connection| job(connection)).await
    }
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let lock_path = PathBuf::from(name);
    let broken = |error: std::io::Error| {
        OpenError::Store(StoreError::Unavailable(format!("{}: {error}", lock_path.display())))
    };
    let file = File::options().create(true).truncate(false).write(true).open(&lock_path).map_err(broken)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(OpenError::Locked(path.to_owned())),
        Err(std::fs::TryLockError::Error(error)) => Err(broken(error)),
    }
}

fn connect(path: &Path) -> StoreResult<Connection> {
    let connection = Connection::open(path).map_err(unavailable)?;
    let pragma = |name, value: &str| connection.pragma_update(None, name, value).map_err(unavailable);
    pragma("journal_mode", "wal")?;
    pragma("synchronous", "full")?;
    pragma("busy_timeout", "5000")?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn migrate(connection: &Connection, clock: &dyn Clock) -> Result<(), OpenError> {
    let applied: i64 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(unavailable)?;
    if applied > 0 {
        let min: u32 = connection
            .query_row("SELECT min_binary FROM gapless_meta", [], |row| row.get(0))
            .map_err(unavailable)?;
        if min > BINARY {
            return Err(OpenError::SchemaTooNew { min_binary: min, binary: BINARY });
        }
    }
    let known = usize::try_from(applied).unwrap_or(usize::MAX);
    for (i, migration) in MIGRATIONS.iter().enumerate().skip(known) {
        let epoch = clock.draw();
        let seed = if i == 0 {
            format!("INSERT INTO gapless_meta VALUES (1, 1, x'{}');", epoch.simple())
        } else {
            String::new()
        };
        let sql = format!("BEGIN IMMEDIATE; {migration} {seed} PRAGMA user_version = {}; COMMIT;", i + 1);
        connection.execute_batch(&sql).map_err(unavailable)?;
    }
    Ok(())
}

#[async_trait]
impl Store for SqliteStore {
    async fn now(&self) -> StoreResult<Timestamp> {
        Ok(self.clock.now())
    }

    async fn epoch(&self) -> StoreResult<Epoch> {
        Ok(self.epoch)
    }

    async fn register(&self, submitters: &[(SubmitterId, String)]) -> StoreResult<Vec<Registered>> {
        let (submitters, clock) = (submitters.to_vec(), self.clock.clone());
        self.writer.transact(move |tx| lane::register(tx, &submitters, clock.now())).await
    }

    async fn submitter(&self, submitter: &SubmitterId) -> StoreResult<Option<SubmitterInfo>> {
        let submitter = submitter.clone();
        self.read(move |db| read::submitter(db, &submitter)).await
    }

    async fn named_submitters(&self, names: &[SubmitterId]) -> StoreResult<Vec<Option<SubmitterInfo>>> {
        bounded("submitters", names.len(), MAX_PAGE)?;
        let names = names.to_vec();
        self.read(move |db| names.iter().map(|name| read::submitter(db, name)).collect()).await
    }

    async fn submitters(&self, after: Option<&SubmitterId>, limit: usize) -> StoreResult<Vec<SubmitterInfo>> {
        bounded("submitters", limit, MAX_PAGE)?;
        let after = after.map_or_else(String::new, |after| after.as_str().to_owned());
        self.read(move |db| read::submitters(db, &after, limit)).await
    }

    async fn accept(&self, items: &[NewTx]) -> StoreResult<Vec<Accepted>> {
        bounded("accept", items.len(), MAX_ACCEPT_BATCH)?;
        let (items, clock) = (items.to_vec(), self.clock.clone());
        self.writer.transact(move |tx| accept::accept(tx, &items, clock.now())).await
    }

    async fn acquire(
        &self,
        owner: &Owner,
        submitters: &[SubmitterId],
        terms: &LeaseTerms,
    ) -> StoreResult<Vec<Acquired>> {
        let (owner, submitters, terms, clock) =
            (owner.clone(), submitters.to_vec(), *terms, self.clock.clone());
        self.writer
            .transact(move |tx| {
                let acquire = |submitter| lease::acquire(tx, &owner, submitter, clock.now(), &terms, false);
                submitters.iter().map(acquire).collect()
            })
            .await
    }

    async fn renew(&self, grants: &[Grant], terms: &LeaseTerms) -> StoreResult<Vec<Renewal>> {
        let (grants, terms, clock) = (grants.to_vec(), *terms, self.clock.clone());
        let renew = move |tx: &mut rusqlite::Transaction<'_>| {
            grants.iter().map(|grant| lease::renew(tx, grant, clock.now(), &terms)).collect()
        };
        self.writer.transact(renew).await
    }

    async fn release(&self, grants: &[(Grant, Parting)]) -> StoreResult<Vec<bool>> {
        let grants = grants.to_vec();
        self.writer.transact(move |tx| grants.iter().map(|(g, p)| lease::release(tx, g, *p)).collect()).await
    }

    async fn raise_token(&self, grant: &Grant, terms: &LeaseTerms) -> StoreResult<Acquired> {
        let (grant, terms, clock) = (grant.clone(), *terms, self.clock.clone());
        self.writer
            .transact(move |tx| {
                lease::acquire(tx, grant.owner(), grant.submitter(), clock.now(), &terms, true)
            })
            .await
    }

    async fn claimable(
        &self,
        terms: &LeaseTerms,
        after: Option<&SubmitterId>,
        limit: usize,
    ) -> StoreResult<Vec<SubmitterId>> {
        let (terms, clock, after) = (*terms, self.clock.clone(), after.cloned());
        self.read(move |db| lease::claimable(db, clock.now(), &terms, after.as_ref(), limit)).await
    }

    async fn notify(&self, submitters: &[SubmitterId]) -> StoreResult<()> {
        self.notices.speak(submitters);
        Ok(())
    }

    async fn notified(&self) -> StoreResult<Vec<SubmitterId>> {
        Ok(self.notices.hear().await)
    }

    async fn load_lane(&self, submitter: &SubmitterId) -> StoreResult<Option<LaneSnapshot>> {
        let submitter = submitter.clone();
        self.reader
            .run(move |connection| {
                let snapshot = connection.transaction().map_err(unavailable)?;
                lane::load(&snapshot, &submitter)
            })
            .await
    }

    async fn peek_queue(&self, submitter: &SubmitterId, limit: usize) -> StoreResult<Vec<TxRecord>> {
        bounded("peek_queue", limit, MAX_PAGE)?;
        let submitter = submitter.clone();
        self.read(move |db| lane::peek_queue(db, &submitter, limit)).await
    }

    async fn queue_depths(&self, submitters: &[SubmitterId]) -> StoreResult<Vec<u64>> {
        bounded("queue_depths", submitters.len(), MAX_PAGE)?;
        let submitters = submitters.to_vec();
        self.read(move |db| depth::queue_depths(db, &submitters)).await
    }

    async fn commit(&self, changes: &[LaneChange]) -> StoreResult<Vec<Verdict>> {
        bounded("commit", changes.len(), MAX_COMMIT_LANES)?;
        let (changes, clock) = (changes.to_vec(), self.clock.clone());
        self.writer.transact(move |tx| commit::commit(tx, &changes, clock.now())).await
    }

    async fn insert_commands(&self, commands: &[NewCommand]) -> StoreResult<Vec<CommandReceipt>> {
        let (commands, clock) = (commands.to_vec(), self.clock.clone());
        self.writer
            .transact(move |tx| commands.iter().map(|c| lane::insert_command(tx, c, clock.now())).collect())
            .await
    }

    async fn take_commands(&self, submitter: &SubmitterId, limit: usize) -> StoreResult<Vec<Command>> {
        bounded("take_commands", limit, MAX_PAGE)?;
        let submitter = submitter.clone();
        self.read(move |db| lane::take_commands(db, &submitter, limit)).await
    }

    async fn command_end(&self, id: CommandId) -> StoreResult<Option<CommandEnd>> {
        self.read(move |db| lane::command_end(db, id)).await
    }

    async fn mark(
        &self,
        submitter: &SubmitterId,
        nonce: Nonce,
        owner: LockOwner,
        mark: Mark,
    ) -> StoreResult<MarkOutcome> {
        let (submitter, clock) = (submitter.clone(), self.clock.clone());
        self.writer.transact(move |tx| lane::mark(tx, &submitter, nonce, owner, mark, clock.now())).await
    }

    async fn tx(&self, tx_id: TxId) -> StoreResult<Option<TxRecord>> {
        self.read(move |db| read::tx(db, tx_id)).await
    }

    async fn tx_by_request(&self, scope: &Scope, request_id: &RequestId) -> StoreResult<Option<TxRecord>> {
        let (scope, request_id) = (scope.clone(), request_id.clone());
        self.read(move |db| read::tx_by_request(db, scope.as_str(), request_id.as_str())).await
    }

    async fn tx_by_hash(&self, hash: B256) -> StoreResult<Option<TxRecord>> {
        self.read(move |db| read::tx_by_hash(db, hash)).await
    }

    async fn list(&self, filter: &TxFilter) -> StoreResult<Vec<TxRecord>> {
        bounded("list", filter.limit, MAX_PAGE)?;
        let filter = filter.clone();
        self.read(move |db| read::list(db, &filter)).await
    }

    async fn attempts(
        &self,
        submitter: &SubmitterId,
        from: Nonce,
        to: Nonce,
    ) -> StoreResult<Vec<StoredAttempt>> {
        let submitter = submitter.clone();
        self.read(move |db| read::attempts(db, &submitter, from, to)).await
    }

    async fn allocations(
        &self,
        submitter: &SubmitterId,
        from: Nonce,
        to: Nonce,
    ) -> StoreResult<Vec<Allocation>> {
        let submitter = submitter.clone();
        self.read(move |db| read::allocations(db, &submitter, from, to)).await
    }

    async fn tx_events(&self, tx_id: TxId) -> StoreResult<Vec<Event>> {
        self.read(move |db| read::tx_events(db, tx_id)).await
    }

    async fn events_after(&self, cursor: Option<EventCursor>, limit: usize) -> StoreResult<EventPage> {
        bounded("events", limit, MAX_PAGE)?;
        let cursor = cursor.unwrap_or(EventCursor::start(self.epoch));
        if cursor.epoch != self.epoch {
            return Err(StoreError::CursorExpired);
        }
        self.read(move |db| read::events_after(db, cursor, limit)).await
    }
}
