//! The throw-away PostgreSQL server of a run, and what can be read off it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use gapless_store::postgres::{PostgresOptions, PostgresStore};
use gapless_testkit::cpu::{CpuSample, CpuUsed};
use gapless_testkit::postgres::{PgCluster, PgOptions};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

/// The same for the store and for pgbench. The room for WAL keeps checkpoints, which would hit whoever happens
/// to be measured, out of the phases.
const SETTINGS: [(&str, &str); 2] = [("shared_buffers", "256MB"), ("max_wal_size", "4GB")];

/// The name the store's sessions give themselves.
const STORE_SESSIONS: &str = "gapless";

/// A server with a connection to watch it by.
#[derive(Debug)]
pub struct Server {
    cluster: PgCluster,
    watcher: PgPool,
    databases: AtomicU32,
}

/// A migrated database of its own with a store on it.
#[derive(Debug)]
pub struct Database {
    /// The database's name.
    pub name: String,
    /// The store.
    pub store: PostgresStore,
}

/// Processor time and WAL at a moment.
#[derive(Debug, Clone)]
pub struct Sample {
    cpu: CpuSample,
    wal: i64,
}

/// Processor time and WAL between two moments.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    /// Processor time.
    pub cpu: CpuUsed,
    /// WAL written.
    pub wal_bytes: u64,
}

/// How often an update of `tx_facts` stayed on its page and out of the indexes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct HotUpdates {
    /// Rows updated.
    pub updated: i64,
    /// Of these, by a heap-only tuple.
    pub hot: i64,
}

impl Server {
    /// Starts a new cluster with fsync on.
    pub async fn start() -> Result<Self> {
        let options = PgOptions { fsync: true, ..PgOptions::default() };
        let options = SETTINGS.iter().fold(options, |options, (name, value)| options.set(*name, *value));
        let cluster = PgCluster::start(options).await.context("starting PostgreSQL")?;
        let watcher = PgPoolOptions::new()
            .max_connections(1)
            .connect_with(cluster.connect_options("postgres").application_name("bench-store"))
            .await
            .context("connecting to the server")?;
        Ok(Self { cluster, watcher, databases: AtomicU32::new(0) })
    }

    /// What was set apart from `fsync = on`, for the record.
    #[must_use]
    pub fn settings() -> Vec<(String, String)> {
        let fixed =
            [("fsync", "on"), ("synchronous_commit", "on"), ("jit", "off"), ("max_connections", "200")];
        fixed.iter().chain(&SETTINGS).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// The server's version.
    pub async fn version(&self) -> Result<String> {
        Ok(sqlx::query_scalar("SELECT current_setting('server_version')").fetch_one(&self.watcher).await?)
    }

    /// The folder its data is in.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.cluster.dir().to_owned()
    }

    /// The server itself.
    #[must_use]
    pub const fn cluster(&self) -> &PgCluster {
        &self.cluster
    }

    /// Makes an empty database.
    pub async fn create(&self, prefix: &str) -> Result<String> {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("{prefix}_{number}");
        self.run(&format!("CREATE DATABASE {name}")).await?;
        Ok(name)
    }

    /// Makes a migrated database and opens a store on it, with `pool` connections or as many as is usual.
    pub async fn store(&self, prefix: &str, pool: Option<u32>) -> Result<Database> {
        let name = self.create(prefix).await?;
        let options = PostgresOptions::new(&self.cluster.url(&name));
        PostgresStore::migrate(&options).await.context("migrating")?;
        let store = self.open(&name, pool).await?;
        Ok(Database { name, store })
    }

    /// Opens one more store on a migrated database: sessions of its own, with plans of their own.
    pub async fn open(&self, database: &str, pool: Option<u32>) -> Result<PostgresStore> {
        let mut options = PostgresOptions::new(&self.cluster.url(database));
        options.pool = pool.unwrap_or(options.pool);
        PostgresStore::open(&options).await.context("opening the store")
    }

    /// Runs a statement in no particular database.
    pub async fn run(&self, statement: &str) -> Result<()> {
        let sql = AssertSqlSafe(statement.to_owned());
        sqlx::raw_sql(sql).execute(&self.watcher).await.with_context(|| statement.to_owned())?;
        Ok(())
    }

    /// A plain connection to a database, without the store's session settings.
    pub async fn connect(&self, database: &str) -> Result<PgConnection> {
        use sqlx::ConnectOptions;
        let options: PgConnectOptions =
            self.cluster.connect_options(database).application_name("bench-store");
        options.connect().await.with_context(|| format!("connecting to {database}"))
    }

    /// A plain connection whose processor time is counted as the store's is.
    pub async fn connect_as_store(&self, database: &str) -> Result<PgConnection> {
        use sqlx::ConnectOptions;
        let options = self.cluster.connect_options(database).application_name(STORE_SESSIONS);
        options.connect().await.with_context(|| format!("connecting to {database}"))
    }

    /// Reads the meters.
    pub async fn sample(&self) -> Result<Sample> {
        let wal = sqlx::query_scalar("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
            .fetch_one(&self.watcher)
            .await?;
        let backends: Vec<i32> =
            sqlx::query_scalar("SELECT pid FROM pg_stat_activity WHERE application_name = $1")
                .bind(STORE_SESSIONS)
                .fetch_all(&self.watcher)
                .await?;
        Ok(Sample { cpu: CpuSample::take(self.cluster.pid()?, &backends)?, wal })
    }

    /// What was used since a sample.
    pub async fn used_since(&self, before: &Sample) -> Result<Used> {
        let now = self.sample().await?;
        let wal_bytes = u64::try_from(now.wal - before.wal).unwrap_or_default();
        Ok(Used { cpu: now.cpu.since(&before.cpu), wal_bytes })
    }

    /// Closes a store and reads what its sessions did; they report only when they end.
    pub async fn close(&self, database: Database) -> Result<HotUpdates> {
        use sqlx::Connection;
        database.store.close().await;
        let mut connection = self.connect(&database.name).await?;
        let mut hot = HotUpdates { updated: 0, hot: 0 };
        // A closed session may still be on its way out.
        for _ in 0..50 {
            let sessions: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND datname = $2",
            )
            .bind(STORE_SESSIONS)
            .bind(&database.name)
            .fetch_one(&mut connection)
            .await?;
            let sql = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'tx_facts'";
            let (updated, of_these) = sqlx::query_as(sql).fetch_one(&mut connection).await?;
            hot = HotUpdates { updated, hot: of_these };
            if sessions == 0 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        connection.close().await?;
        Ok(hot)
    }
}
