//! Pouring a history into a database behind the store's back: copies of one transaction that really went
//! through it, under other keys. Half belong to the measured lanes, half to a thousand others.

use anyhow::{Context, Result};
use sqlx::{AssertSqlSafe, Connection};

use crate::server::Server;
use crate::workload::LANES;

/// Submitters that own the other half of the history.
pub(super) const OTHERS: std::ops::Range<u64> = 1_000..2_000;

const TABLES: [&str; 4] = ["tx_request", "tx_facts", "tx_attempt", "outbox_event"];

/// Rows per transaction of the filling.
const CHUNK: usize = 50_000;

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
    let mut connection = server.connect(database).await?;
    // Nobody is told that these rows are durable; the checkpoint that follows makes them so.
    sqlx::raw_sql("SET synchronous_commit = off").execute(&mut connection).await?;
    let mut start = from;
    while start < to {
        let end = (start + CHUNK).min(to);
        for sql in [outbox(start, end), requests(start, end), facts(start, end), attempts(start, end)] {
            let poured = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut connection).await;
            let poured = poured.with_context(|| format!("running {sql}"))?;
            anyhow::ensure!(poured.rows_affected() == (end - start) as u64, "nothing to copy for: {sql}");
        }
        start = end;
    }
    connection.close().await?;
    Ok(())
}

/// One row per number in `from..to` with the keys it stands under. UUIDs are those of a year long past.
fn keys(from: usize, to: usize) -> String {
    let others = OTHERS.end - OTHERS.start;
    format!(
        "(SELECT i, i AS nonce, sha256(i::text::bytea) AS hash, 900000000000 + i AS event_id,
            ('01800000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid AS tx_id,
            'eip155:31337:0x' || lpad(to_hex(CASE WHEN i % 2 = 0 THEN (i / 2) % {LANES}
              ELSE {start} + (i / 2) % {others} END), 40, '0') AS submitter
          FROM generate_series({from}::bigint, {last}) AS i) k",
        start = OTHERS.start,
        last = to - 1,
    )
}

fn requests(from: usize, to: usize) -> String {
    format!(
        "INSERT INTO tx_request (tx_id, ord, submitter_number, scope, request_id, digest, payload, options, metadata,
           created_at)
         SELECT k.tx_id, nextval('managed_tx_order'), s.number, k.submitter, encode(k.hash, 'hex'), m.digest,
           m.payload, m.options, m.metadata, m.created_at
         FROM {} JOIN submitter s ON s.submitter = k.submitter,
           (SELECT * FROM managed_tx WHERE state = 'CONFIRMED' ORDER BY ord LIMIT 1) m",
        keys(from, to)
    )
}

fn facts(from: usize, to: usize) -> String {
    format!(
        "INSERT INTO tx_facts (tx_id, ord, submitter_number, state, sub_state, seq, nonce, tx_hash, mined_hash, mined_as,
           block_number, block_hash, status, gas_used, effective_gas_price, mined_at, bound_at, ended_at, updated_at,
           fencing_token, event_rows)
         SELECT k.tx_id, r.ord, r.submitter_number, m.state, m.sub_state, m.seq, k.nonce, k.hash, k.hash, m.mined_as,
           m.block_number, m.block_hash, m.status, m.gas_used, m.effective_gas_price, m.mined_at, m.bound_at,
           m.ended_at, m.updated_at, m.fencing_token, int8send(k.event_id)
         FROM {} JOIN tx_request r ON r.tx_id = k.tx_id,
           (SELECT * FROM managed_tx WHERE state = 'CONFIRMED' ORDER BY ord LIMIT 1) m",
        keys(from, to)
    )
}

fn attempts(from: usize, to: usize) -> String {
    format!(
        "INSERT INTO tx_attempt (submitter_number, nonce, n, tx_id, kind, route, hash, raw, fees, stored_at,
           next_send_at)
         SELECT s.number, k.nonce, 0, k.tx_id, a.kind, a.route, k.hash, a.raw, a.fees, a.stored_at, a.next_send_at
         FROM {} JOIN submitter s ON s.submitter = k.submitter,
           (SELECT * FROM tx_attempt WHERE n = 0 ORDER BY submitter_number, nonce LIMIT 1) a",
        keys(from, to)
    )
}

fn outbox(from: usize, to: usize) -> String {
    format!(
        r#"INSERT INTO outbox_event (id, submitter, events)
         SELECT k.event_id, k.submitter, ('[' || (SELECT string_agg('{{"e":"' || e || '","x":"' || k.tx_id || '","s":' || s
           || '}}', ',') FROM (VALUES (1, 'tx.accepted'), (2, 'tx.submitted'), (3, 'tx.receipt_updated'),
           (4, 'tx.confirmed')) v(s, e)) || ']')
         FROM {}"#,
        keys(from, to)
    )
}
