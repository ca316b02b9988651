//! Pouring a history into a database behind the store's back. Half belongs to the measured lanes, half to a thousand
//! others.

use anyhow::Result;
use gapless_testkit::fixtures;
use sqlx::{AssertSqlSafe, Connection};

use crate::server::Server;
use crate::workload::LANES;

/// Submitters that own the other half of the history.
pub(super) const OTHERS: std::ops::Range<u64> = 1_000..2_000;

const TABLES: [&str; 4] = ["tx_request", "tx_facts", "tx_attempt", "outbox_event"];

/// Keeps autovacuum away: whatever table it comes to, the plans that read it are made anew, at a moment of
/// autovacuum's choosing.
pub(super) async fn still(server: &Server, database: &str) -> Result<()> {
    let mut connection = server.connect(database).await?;
    let tables: Vec<String> = sqlx::query_scalar("SELECT relname::text FROM pg_stat_user_tables")
        .fetch_all(&mut connection)
        .await?;
    for table in tables {
        let sql = format!("ALTER TABLE {table} SET (autovacuum_enabled = off)");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await?;
    }
    connection.close().await?;
    Ok(())
}

/// Tidies up as autovacuum would have by and by.
pub(super) async fn vacuum(server: &Server, database: &str) -> Result<()> {
    let mut connection = server.connect(database).await?;
    for table in TABLES {
        let sql = format!("VACUUM (ANALYZE) {table}");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await?;
    }
    connection.close().await?;
    Ok(())
}

/// Adds finished transactions number `from..to`, with an attempt and a row of events each.
pub(super) async fn pour(server: &Server, database: &str, from: usize, to: usize) -> Result<()> {
    let lanes = (0..LANES as u64).cycle();
    let owners: Vec<String> = lanes
        .zip(OTHERS)
        .flat_map(|(lane, other)| [lane, other])
        .map(|number| fixtures::submitter(number).as_str().to_owned())
        .collect();
    server.cluster().pour_history(database, &owners, from as u64..to as u64).await?;
    Ok(())
}
