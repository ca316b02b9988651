//! A long past for a database, poured in behind the store's back: copies of one transaction that really went through it,
//! under other keys.

use std::ops::Range;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::{PgCluster, admin::run};
use crate::{Error, Result};

/// Rows per transaction of the filling.
const CHUNK: usize = 50_000;

impl PgCluster {
    /// Adds finished transactions with these numbers, with an attempt and a row of events each, dealt out to registered
    /// submitters in turn. One CONFIRMED transaction must be there to copy, and no submitter may have used the nonces.
    pub async fn pour_history(&self, database: &str, owners: &[String], numbers: Range<u64>) -> Result<()> {
        let connecting = PgConnection::connect(&self.url(database)).await;
        let mut connection = connecting.map_err(Error::sql("connecting to the database"))?;
        // Nobody is told that these rows are durable; the checkpoint that follows makes them so.
        run(&mut connection, "SET synchronous_commit = off").await?;
        for start in numbers.clone().step_by(CHUNK) {
            let range = start..(start + CHUNK as u64).min(numbers.end);
            for sql in [outbox(&range), requests(&range), facts(&range), attempts(&range)] {
                let poured =
                    sqlx::query(AssertSqlSafe(sql.clone())).bind(owners).execute(&mut connection).await;
                let rows = poured.map_err(Error::sql(format!("running {sql}")))?.rows_affected();
                if rows != range.end - range.start {
                    return Err(Error::Misuse(format!("nothing to copy for: {sql}")));
                }
            }
        }
        connection.close().await.map_err(Error::sql("closing the connection"))
    }
}

/// One row per number in `from..to` with the keys it stands under. UUIDs are those of a year long past.
fn keys(range: &Range<u64>) -> String {
    format!(
        "(SELECT i, i AS nonce, sha256(i::text::bytea) AS hash, 900000000000 + i AS event_id,
            ('01800000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid AS tx_id,
            $1[i % cardinality($1) + 1] AS submitter
          FROM generate_series({}::bigint, {}) AS i) k",
        range.start,
        range.end.saturating_sub(1),
    )
}

fn requests(range: &Range<u64>) -> String {
    format!(
        "INSERT INTO tx_request (tx_id, ord, submitter_number, scope, request_id, digest, payload, options, metadata,
           created_at)
         SELECT k.tx_id, nextval('managed_tx_order'), s.number, k.submitter, encode(k.hash, 'hex'), m.digest,
           m.payload, m.options, m.metadata, m.created_at
         FROM {} JOIN submitter s ON s.submitter = k.submitter,
           (SELECT * FROM managed_tx WHERE state = 'CONFIRMED' ORDER BY ord LIMIT 1) m",
        keys(range)
    )
}

fn facts(range: &Range<u64>) -> String {
    format!(
        "INSERT INTO tx_facts (tx_id, ord, submitter_number, state, sub_state, seq, nonce, tx_hash, mined_hash, mined_as,
           block_number, block_hash, status, gas_used, effective_gas_price, mined_at, bound_at, ended_at, updated_at,
           fencing_token, event_rows)
         SELECT k.tx_id, r.ord, r.submitter_number, m.state, m.sub_state, m.seq, k.nonce, k.hash, k.hash, m.mined_as,
           m.block_number, m.block_hash, m.status, m.gas_used, m.effective_gas_price, m.mined_at, m.bound_at,
           m.ended_at, m.updated_at, m.fencing_token, int8send(k.event_id)
         FROM {} JOIN tx_request r ON r.tx_id = k.tx_id,
           (SELECT * FROM managed_tx WHERE state = 'CONFIRMED' ORDER BY ord LIMIT 1) m",
        keys(range)
    )
}

fn attempts(range: &Range<u64>) -> String {
    format!(
        "INSERT INTO tx_attempt (submitter_number, nonce, n, tx_id, kind, route, hash, raw, fees, stored_at,
           next_send_at)
         SELECT s.number, k.nonce, 0, k.tx_id, a.kind, a.route, k.hash, a.raw, a.fees, a.stored_at, a.next_send_at
         FROM {} JOIN submitter s ON s.submitter = k.submitter,
           (SELECT * FROM tx_attempt WHERE n = 0 ORDER BY submitter_number, nonce LIMIT 1) a",
        keys(range)
    )
}

fn outbox(range: &Range<u64>) -> String {
    format!(
        r#"INSERT INTO outbox_event (id, submitter, events)
         SELECT k.event_id, k.submitter, ('[' || (SELECT string_agg('{{"e":"' || e || '","x":"' || k.tx_id || '","s":' || s
           || '}}', ',') FROM (VALUES (1, 'tx.accepted'), (2, 'tx.submitted'), (3, 'tx.receipt_updated'),
           (4, 'tx.confirmed')) v(s, e)) || ']')
         FROM {}"#,
        keys(range)
    )
}
