//! What only a real PostgreSQL, real connections and real processes can show.

mod batches;
mod concurrency;
mod crash;
mod fence;
mod frozen;
mod identity;
mod in_doubt;
mod outbox;
mod plans;
pub mod provoke;
mod schema;

use std::time::Duration;

use gapless_core::lease::LeaseTerms;
use gapless_core::ports::store::Store;
use gapless_core::record::{Accepted, NewTx, TxRecord};
use gapless_core::submitter::SubmitterId;
use gapless_store::postgres::{PostgresOptions, PostgresStore};
use gapless_testkit::fixtures::{self, Lane, owner, request};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

/// A store on a URL, with real time.
async fn open(url: &str, lease: Duration) -> PostgresStore {
    PostgresStore::open(&PostgresOptions { lease, pool: 8, ..PostgresOptions::new(url) }).await.unwrap()
}

fn terms(lease: Duration) -> LeaseTerms {
    LeaseTerms::new(lease, lease / 10).unwrap()
}

/// The n-th submitter, registered, with `count` accepted transfers.
async fn stocked(store: &dyn Store, n: u64, count: u64) -> (SubmitterId, Vec<TxRecord>) {
    let submitter = fixtures::submitter(n);
    store.register(&[(submitter.clone(), "{}".to_owned())]).await.unwrap();
    let items: Vec<NewTx> =
        (0..count).map(|i| request(&submitter, &format!("r{i}"), Uuid::now_v7(), i)).collect();
    for outcome in store.accept(&items).await.unwrap() {
        assert!(matches!(outcome, Accepted::New { .. }));
    }
    let queue = store.peek_queue(&submitter, items.len()).await.unwrap();
    (submitter, queue)
}

/// A lane taken by a process.
async fn take(
    store: &dyn Store,
    node: &str,
    process: u128,
    submitter: &SubmitterId,
    terms: &LeaseTerms,
) -> Lane {
    Lane::take(store, &owner(node, process).unwrap(), submitter, terms).await.unwrap().unwrap()
}

/// A connection of the test's own.
async fn raw(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

async fn backend_pid(connection: &mut PgConnection) -> i32 {
    sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(connection).await.unwrap()
}

/// Returns when the backend waits for a lock: the signal that an interleaving has been forced.
async fn waits_for_a_lock(observer: &mut PgConnection, pid: i32) {
    let waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted)";
    for _ in 0..2_000 {
        if sqlx::query_scalar::<_, bool>(waiting).bind(pid).fetch_one(&mut *observer).await.unwrap() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("backend {pid} never waited for a lock");
}
