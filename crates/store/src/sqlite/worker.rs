//! One thread per connection. A whole transaction runs as one closure on it, so no await, and no
//! cancelled future, can ever stand between BEGIN and COMMIT.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use gapless_core::ports::store::{StoreError, StoreResult};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// A connection on its own thread.
#[derive(Clone)]
pub(super) struct Worker(Arc<Thread>);

struct Thread {
    jobs: Option<mpsc::SyncSender<Job>>,
    handle: Option<JoinHandle<()>>,
}

/// The last one waits until the file is closed and unlocked: whoever opens it next must not find it taken.
impl Drop for Thread {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(handle) = self.handle.take() {
            // Jobs catch their panics; there is nothing else to hear.
            let _ = handle.join();
        }
    }
}

/// Jobs that may wait for one connection; beyond that the callers' threads do.
const BACKLOG: usize = 1_024;

impl Worker {
    /// `lock` is held until the last job is done.
    pub(super) fn start(name: &str, connection: Connection, lock: Option<File>) -> StoreResult<Self> {
        let (jobs, inbox) = mpsc::sync_channel::<Job>(BACKLOG);
        let run = move || {
            // In this order: the connection is closed before the lock is let go.
            let _held_until_closed = lock;
            let mut connection = connection;
            for job in inbox {
                // A job that panics rolls back its transaction and costs only itself.
                if catch_unwind(AssertUnwindSafe(|| job(&mut connection))).is_err() {
                    tracing::error!("a database job panicked");
                }
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let handle = thread.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Self(Arc::new(Thread { jobs: Some(jobs), handle: Some(handle) })))
    }

    /// Runs a job on the connection.
    pub(super) async fn run<T, F>(&self, job: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> StoreResult<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            // A caller that went away does not want the answer any more.
            let _ = reply.send(job(connection));
        });
        match self.0.jobs.as_ref().map(|jobs| jobs.try_send(job)) {
            Some(Ok(())) => {}
            Some(Err(mpsc::TrySendError::Full(_))) => {
                return Err(StoreError::Unavailable("too many operations wait for the database".into()));
            }
            Some(Err(mpsc::TrySendError::Disconnected(_))) | None => return Err(gone()),
        }
        answer.await.map_err(|_| StoreError::OutcomeUnknown("the database thread ended".into()))?
    }

    /// Runs a job in one immediate transaction, committed if it succeeds.
    pub(super) async fn transact<T, F>(&self, job: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> StoreResult<T> + Send + 'static,
    {
        self.run(move |connection| {
            let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
            let mut transaction = begun.map_err(unavailable)?;
            let answer = job(&mut transaction)?;
            transaction.commit().map_err(|error| StoreError::OutcomeUnknown(error.to_string()))?;
            Ok(answer)
        })
        .await
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable("the database thread ended".into())
}

/// An error of a statement: nothing was committed.
pub(super) fn unavailable(error: rusqlite::Error) -> StoreError {
    match error {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..) => StoreError::Corrupt(error.to_string()),
        other => StoreError::Unavailable(other.to_string()),
    }
}
