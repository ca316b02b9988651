//! Opening, migrating and setting up sessions.
//!
//! What a session must never do without: `synchronous_commit = on` (an acknowledged commit is durable),
//! time-outs below a third of the lease (a writer frozen mid-transaction loses its locks before its lanes
//! are overdue), and plans by index only (a generic plan made on a small table must not scan a large one).

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use gapless_core::ports::store::StoreError;
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgConnection};

use super::wake::Listener;
use super::{PostgresStore, error, identity};
use crate::open::OpenError;
use crate::schema::{BINARY, MIGRATION};

/// How long making the first connection may take.
const CONNECT: Duration = Duration::from_secs(10);

static MIGRATIONS: Migrator = sqlx::migrate!("migrations/postgres");

/// Where and how to connect.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// `postgres://user@host/db`.
    pub url: String,
    /// Schema our tables live in.
    pub schema: String,
    /// Connections for ordinary work.
    pub pool: u32,
    /// The lease's duration; session time-outs follow from it.
    pub lease: Duration,
}

impl PostgresOptions {
    /// The defaults for a URL.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), schema: "public".to_owned(), pool: 16, lease: Duration::from_secs(10) }
    }

    pub(super) fn connect_options(&self) -> Result<PgConnectOptions, OpenError> {
        let third = (self.lease / 3).as_millis().max(1).to_string();
        let options = PgConnectOptions::from_str(&self.url).map_err(error::connecting)?;
        Ok(options
            .application_name("gapless")
            .options([
                ("search_path", self.schema.as_str()),
                ("synchronous_commit", "on"),
                ("default_transaction_isolation", "read committed"),
                ("statement_timeout", &third),
                ("idle_in_transaction_session_timeout", &third),
                ("tcp_user_timeout", &third),
                ("enable_seqscan", "off"),
                ("enable_hashjoin", "off"),
                ("enable_mergejoin", "off"),
                ("enable_incremental_sort", "off"),
                ("plan_cache_mode", "force_generic_plan"),
                ("jit", "off"),
            ])
            .disable_statement_logging())
    }
}

pub(super) async fn migrate(options: &PostgresOptions) -> Result<(), OpenError> {
    let connect = options.connect_options()?.options([("statement_timeout", "0")]);
    let mut connection = connect_once(&connect).await?;
    if let Some(min_binary) = min_binary(&mut connection).await? {
        refuse_if_too_new(min_binary)?;
    }
    // A newer schema that still serves this binary has migrations we do not know.
    let mut migrations = Migrator { migrations: MIGRATIONS.migrations.clone(), ..Migrator::DEFAULT };
    migrations.set_ignore_missing(true);
    let ran = migrations.run_direct(None, &mut connection, false).await;
    ran.map_err(|error| error::unavailable(error.into()))?;
    connection.close().await.map_err(error::unavailable)?;
    Ok(())
}

pub(super) async fn open(options: &PostgresOptions) -> Result<PostgresStore, OpenError> {
    let connect = options.connect_options()?;
    let mut connection = connect_once(&connect).await?;
    check_schema(&mut connection).await?;
    connection.close().await.map_err(error::unavailable)?;
    let pool = |size| {
        PgPoolOptions::new()
            .max_connections(size)
            .acquire_timeout(options.lease / 2)
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    // A ping for connections that slept; busy ones prove themselves by working.
                    Ok(meta.idle_for < Duration::from_secs(2) || connection.ping().await.is_ok())
                })
            })
            .after_connect(|connection, _| Box::pin(identity::check(connection)))
            .connect_lazy_with(connect.clone())
    };
    let listener = Arc::new(Listener::default());
    Ok(PostgresStore {
        pool: pool(options.pool.max(1)),
        leases: pool(2),
        renewals: pool(1),
        listening: pool(1),
        listener,
        patience: options.lease / 3 + Duration::from_secs(1),
    })
}

/// One connection, or a word why not, before the operating system's own patience ends.
async fn connect_once(options: &PgConnectOptions) -> Result<PgConnection, OpenError> {
    match tokio::time::timeout(CONNECT, PgConnection::connect_with(options)).await {
        Ok(connected) => connected.map_err(error::connecting),
        Err(_) => Err(StoreError::Unavailable(format!("no answer within {CONNECT:?}")).into()),
    }
}

async fn min_binary(connection: &mut PgConnection) -> Result<Option<u32>, OpenError> {
    let exists: bool = sqlx::query_scalar("SELECT to_regclass('gapless_meta') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await
        .map_err(error::reading)?;
    if !exists {
        return Ok(None);
    }
    let min: Option<i32> = sqlx::query_scalar("SELECT min_binary FROM gapless_meta")
        .fetch_optional(connection)
        .await
        .map_err(error::reading)?;
    Ok(min.and_then(|min| u32::try_from(min).ok()))
}

fn refuse_if_too_new(min_binary: u32) -> Result<(), OpenError> {
    if min_binary > BINARY { Err(OpenError::SchemaTooNew { min_binary, binary: BINARY }) } else { Ok(()) }
}

async fn check_schema(connection: &mut PgConnection) -> Result<(), OpenError> {
    let Some(min_binary) = min_binary(connection).await? else {
        return Err(OpenError::SchemaTooOld { found: 0, needed: MIGRATION });
    };
    refuse_if_too_new(min_binary)?;
    let found: Option<i64> = sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations WHERE success")
        .fetch_one(connection)
        .await
        .map_err(error::reading)?;
    let found = found.unwrap_or_default();
    if found < MIGRATION { Err(OpenError::SchemaTooOld { found, needed: MIGRATION }) } else { Ok(()) }
}
