//! Doors for tests: the very statements of production, stopped where production cannot be.

use gapless_core::change::{LaneChange, Verdict};
use gapless_core::ports::store::StoreResult;
use gapless_core::record::{Accepted, NewTx};
use sqlx::{Connection, PgConnection};

use super::{PostgresOptions, commit};

/// A connection with exactly the session settings of the store.
pub async fn session(options: &PostgresOptions) -> Result<PgConnection, sqlx::Error> {
    let connect = options.connect_options().map_err(|error| sqlx::Error::Protocol(error.to_string()))?;
    PgConnection::connect_with(&connect).await
}

/// Runs the fenced statement inside whatever transaction the connection has open, without committing it.
pub async fn execute_fenced(
    connection: &mut PgConnection,
    changes: &[&LaneChange],
) -> Result<Vec<Verdict>, sqlx::Error> {
    commit::execute(connection, changes).await
}

/// Runs the accepting statements inside whatever transaction the connection has open.
pub async fn accept(connection: &mut PgConnection, items: &[NewTx]) -> StoreResult<Vec<Accepted>> {
    super::accept::accept(connection, items).await
}
