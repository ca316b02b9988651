//! A store and the time it lives in, for one test.

use std::sync::Arc;
use std::time::Duration;

use gapless_core::event::EventPage;
use gapless_core::lease::LeaseTerms;
use gapless_core::ports::store::Store;
use gapless_core::record::{Accepted, NewTx, TxRecord};
use gapless_core::submitter::SubmitterId;
use gapless_store::memory::MemoryStore;
use gapless_store::postgres::{PostgresOptions, PostgresStore};
use gapless_store::sqlite::SqliteStore;
use gapless_testkit::fixtures::{self, Lane, TestClock};
use gapless_testkit::postgres::{PgCluster, TestDb};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

/// How a world's time is moved.
pub enum Time {
    /// The clock the store was given.
    Local(TestClock),
    /// A row that the database's `gapless_now()` reads.
    Database(TestDb),
}

pub struct World {
    pub store: Arc<dyn Store>,
    pub time: Time,
    /// Kept as long as the world.
    pub _dir: Option<tempfile::TempDir>,
}

pub fn memory() -> World {
    let clock = TestClock::new();
    World { store: Arc::new(MemoryStore::new(Arc::new(clock.clone()))), time: Time::Local(clock), _dir: None }
}

pub async fn sqlite() -> World {
    let dir = tempfile::tempdir().unwrap();
    let clock = TestClock::new();
    let store = SqliteStore::open(&dir.path().join("gapless.db"), Arc::new(clock.clone())).await.unwrap();
    World { store: Arc::new(store), time: Time::Local(clock), _dir: Some(dir) }
}

/// A migrated database of its own, with real time.
pub async fn database() -> TestDb {
    let cluster = PgCluster::shared().await.unwrap();
    let migrate = |url: String| async move { PostgresStore::migrate(&PostgresOptions::new(&url)).await };
    cluster.template("migrated", migrate).await.unwrap();
    cluster.clone_template("migrated").await.unwrap()
}

/// A migrated database whose clock stands still until a test moves it.
async fn frozen_database() -> TestDb {
    let cluster = PgCluster::shared().await.unwrap();
    let prepare = |url: String| async move {
        PostgresStore::migrate(&PostgresOptions::new(&url)).await?;
        let mut db = PgConnection::connect(&url).await?;
        let start = TestClock::START;
        let freeze = format!(
            "CREATE TABLE test_clock (now timestamptz NOT NULL);
             INSERT INTO test_clock VALUES ('{start}');
             CREATE OR REPLACE FUNCTION gapless_now() RETURNS timestamptz LANGUAGE sql VOLATILE
               AS 'SELECT now FROM test_clock';"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(freeze)).execute(&mut db).await?;
        db.close().await?;
        Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    };
    cluster.template("frozen", prepare).await.unwrap();
    cluster.clone_template("frozen").await.unwrap()
}

pub async fn postgres() -> World {
    let db = frozen_database().await;
    let options = PostgresOptions { pool: 4, ..PostgresOptions::new(&db.url) };
    let store = PostgresStore::open(&options).await.unwrap();
    World { store: Arc::new(store), time: Time::Database(db), _dir: None }
}

/// Acceptance without ceremony.
pub async fn accept_one(store: &dyn Store, item: &NewTx) -> TxRecord {
    let outcome = store.accept(std::slice::from_ref(item)).await.unwrap().remove(0);
    assert!(matches!(outcome, Accepted::New { .. }), "{outcome:?}");
    store.tx(item.tx_id).await.unwrap().unwrap()
}

impl World {
    pub async fn advance(&self, by: Duration) {
        match &self.time {
            Time::Local(clock) => clock.advance(by),
            Time::Database(db) => {
                let mut connection = PgConnection::connect(&db.url).await.unwrap();
                sqlx::query("UPDATE test_clock SET now = now + $1 * interval '1 microsecond'")
                    .bind(i64::try_from(by.as_micros()).unwrap())
                    .execute(&mut connection)
                    .await
                    .unwrap();
                connection.close().await.unwrap();
            }
        }
    }

    /// All events so far. On PostgreSQL the stream follows behind the oldest transaction running anywhere
    /// in the cluster, and other tests run there too: wait until it has passed our last commit.
    pub async fn stream(&self) -> EventPage {
        if let Time::Database(db) = &self.time {
            let mut connection = PgConnection::connect(&db.url).await.unwrap();
            let passed =
                "SELECT coalesce(max(xid), '0') < pg_snapshot_xmin(pg_current_snapshot()) FROM outbox_event";
            while !sqlx::query_scalar::<_, bool>(passed).fetch_one(&mut connection).await.unwrap() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            connection.close().await.unwrap();
        }
        self.store.events_after(None, 1_000).await.unwrap()
    }

    pub fn terms(&self) -> LeaseTerms {
        fixtures::terms().unwrap()
    }

    /// The n-th submitter, registered.
    pub async fn submitter(&self, n: u64) -> SubmitterId {
        let submitter = fixtures::submitter(n);
        self.store.register(&[(submitter.clone(), "{}".to_owned())]).await.unwrap();
        submitter
    }

    /// `count` accepted transfers.
    pub async fn accepted(&self, submitter: &SubmitterId, count: u64) -> Vec<TxRecord> {
        let items: Vec<NewTx> = (0..count)
            .map(|n| {
                let tx_id = Uuid::from_u128(u128::from(fixture_id(submitter)) << 64 | u128::from(n + 1));
                fixtures::request(submitter, &format!("r{n}"), tx_id, n)
            })
            .collect();
        for outcome in self.store.accept(&items).await.unwrap() {
            assert!(matches!(outcome, Accepted::New { .. }), "{outcome:?}");
        }
        self.store.peek_queue(submitter, items.len()).await.unwrap()
    }

    /// The lane of a submitter, taken by this process.
    pub async fn lane(&self, node: &str, process: u128, submitter: &SubmitterId) -> Lane {
        let owner = fixtures::owner(node, process).unwrap();
        Lane::take(self.store.as_ref(), &owner, submitter, &self.terms()).await.unwrap().unwrap()
    }
}

fn fixture_id(submitter: &SubmitterId) -> u64 {
    let account = submitter.account();
    u64::from_str_radix(&account[account.len() - 8..], 16).unwrap()
}
