//! Accepting: idempotent, in one statement, without a lease.
//!
//! Two races live here. Two nodes insert the same request at once: the unique index lets one win, and
//! the loser reads the winner in a *second* statement, since the first one's snapshot is older than the
//! winner's commit. Two batches share several requests: rows are inserted in key order, so neither waits
//! for the other in a circle.

use std::collections::{BTreeSet, HashMap};

use gapless_core::ids::Order;
use gapless_core::limits::MAX_ACCEPT_BATCH;
use gapless_core::ports::store::{StoreError, StoreResult};
use gapless_core::record::{Accepted, NewTx, TxRecord};
use gapless_core::text::NodeText;
use gapless_core::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};
use uuid::Uuid;

use super::error::{self, Class};
use super::input::InRequest;
use super::rows;
use crate::memory::bounded;

/// Numbers are drawn in the order given, rows are inserted in the order of their keys: the caller sorts them and
/// says at which place each came. One look per distinct submitter tells which are known.
const INSERT: &str = r#"
WITH orders AS MATERIALIZED (
  SELECT array_agg(nextval('managed_tx_order')) AS drawn FROM generate_series(1, $2)
), known AS MATERIALIZED (
  SELECT array_agg((SELECT s.number FROM submitter s WHERE s.submitter = u.name) ORDER BY u.account) AS numbers
  FROM unnest($3::text[]) WITH ORDINALITY AS u(name, account)
), ins AS (
  INSERT INTO tx_request (tx_id, ord, submitter_number, scope, request_id, digest, payload, options, metadata)
  SELECT i.tx_id, (SELECT drawn FROM orders)[i.place], (SELECT numbers FROM known)[i.account], i.scope, i.request_id,
    i.digest, i.payload, i.options, i.metadata
  FROM unnest($1::tx_intake[]) i WHERE (SELECT numbers FROM known)[i.account] IS NOT NULL
  ON CONFLICT (request_id, scope) DO NOTHING
  RETURNING tx_id, ord, submitter_number, created_at
), queued AS (
  INSERT INTO tx_queue (submitter_number, ord, tx_id) SELECT submitter_number, ord, tx_id FROM ins
), told AS (
  INSERT INTO outbox_event (submitter, events)
  SELECT (SELECT s.submitter FROM submitter s WHERE s.number = ins.submitter_number),
    '[' || string_agg('{"e":"tx.accepted","x":"' || tx_id || '","s":1}', ',' ORDER BY ord) || ']'
  FROM ins GROUP BY ins.submitter_number
)
SELECT tx_id, ord, created_at FROM ins"#;

pub(super) async fn accept(connection: &mut PgConnection, items: &[NewTx]) -> StoreResult<Vec<Accepted>> {
    bounded("accept", items.len(), MAX_ACCEPT_BATCH)?;
    let all: Vec<&NewTx> = items.iter().collect();
    let inserted = match insert(connection, &all).await {
        Ok(inserted) => inserted,
        Err(error) if error::class(&error) == Class::Unknown => return Err(error::writing(error)),
        Err(error) if items.len() == 1 => return one_failed(error).map(|outcome| vec![outcome]),
        // One bad item must not cost the others: item by item.
        Err(_) => return one_by_one(connection, items).await,
    };
    let losers: Vec<&NewTx> = items.iter().filter(|item| !inserted.contains_key(&item.tx_id.0)).collect();
    let winners = match losers.is_empty() {
        true => HashMap::new(),
        false => read_winners(connection, &losers).await.map_err(|error| after_success(&inserted, error))?,
    };
    Ok(items.iter().map(|item| outcome(item, &inserted, &winners)).collect())
}

async fn one_by_one(connection: &mut PgConnection, items: &[NewTx]) -> StoreResult<Vec<Accepted>> {
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        let one = Box::pin(accept(connection, std::slice::from_ref(item))).await;
        outcomes.extend(one.map_err(|error| after_success(&outcomes, error))?);
    }
    Ok(outcomes)
}

/// Once something was written, no error may say that nothing was.
fn after_success(done: impl IntoIterator, error: StoreError) -> StoreError {
    match done.into_iter().next() {
        Some(_) => StoreError::OutcomeUnknown(error.to_string()),
        None => error,
    }
}

fn one_failed(error: sqlx::Error) -> StoreResult<Accepted> {
    match error::class(&error) {
        Class::Poison => Ok(Accepted::Poison { reason: NodeText::new(&error.to_string()) }),
        _ => Err(error::writing(error)),
    }
}

async fn insert(
    connection: &mut PgConnection,
    items: &[&NewTx],
) -> Result<HashMap<Uuid, (Order, Timestamp)>, sqlx::Error> {
    let accounts: BTreeSet<&str> = items.iter().map(|item| item.submitter.as_str()).collect();
    let accounts: Vec<&str> = accounts.into_iter().collect();
    let account = |item: &NewTx| accounts.partition_point(|name| *name <= item.submitter.as_str());
    let mut sorted: Vec<(usize, &NewTx)> = items.iter().copied().enumerate().collect();
    sorted.sort_by_key(|(place, item)| (item.scope.as_str(), item.request_id.as_str(), *place));
    let row = |(place, item): &(usize, &NewTx)| InRequest::of(place + 1, account(item), item);
    let rows = sqlx::query(INSERT)
        .bind(sorted.iter().map(row).collect::<Vec<_>>())
        .bind(i32::try_from(items.len()).unwrap_or(i32::MAX))
        .bind(&accounts)
        .fetch_all(connection)
        .await?;
    let inserted = |row: &PgRow| {
        let order = Order(row.try_get::<i64, _>("ord")?.unsigned_abs());
        Ok((row.try_get("tx_id")?, (order, Timestamp::from_micros(rows::time(row, "created_at")?))))
    };
    rows.iter().map(inserted).collect()
}

type Winners = HashMap<(String, String), TxRecord>;

async fn read_winners(connection: &mut PgConnection, losers: &[&NewTx]) -> StoreResult<Winners> {
    let sql = format!(
        "SELECT {} FROM unnest($1::text[], $2::text[]) AS u(scope, request_id)
         JOIN managed_tx m ON m.scope = u.scope AND m.request_id = u.request_id",
        rows::TX
    );
    let found = sqlx::query(AssertSqlSafe(sql))
        .bind(losers.iter().map(|i| i.scope.as_str()).collect::<Vec<_>>())
        .bind(losers.iter().map(|i| i.request_id.as_str()).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(error::reading)?;
    let keyed = |row| {
        let record = rows::tx(row)?;
        let key = (record.request.scope.as_str().to_owned(), record.request.request_id.as_str().to_owned());
        Ok((key, record))
    };
    found.iter().map(keyed).collect()
}

fn outcome(item: &NewTx, inserted: &HashMap<Uuid, (Order, Timestamp)>, winners: &Winners) -> Accepted {
    if let Some((order, at)) = inserted.get(&item.tx_id.0) {
        return Accepted::New { order: *order, at: *at };
    }
    let key = (item.scope.as_str().to_owned(), item.request_id.as_str().to_owned());
    match winners.get(&key) {
        Some(known) if known.request.digest == item.digest => Accepted::Known(Box::new(known.clone())),
        Some(known) => Accepted::Mismatch { tx_id: known.tx_id() },
        None => Accepted::UnknownSubmitter,
    }
}
