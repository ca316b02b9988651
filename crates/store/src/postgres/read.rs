//! Reads for the API. None of them locks anything.

use std::collections::HashMap;

use alloy_primitives::B256;
use gapless_core::allocation::Allocation;
use gapless_core::attempt::StoredAttempt;
use gapless_core::ids::{Nonce, RequestId, Scope, TxId};
use gapless_core::limits::MAX_PAGE;
use gapless_core::ports::store::{StoreResult, SubmitterInfo, TxFilter};
use gapless_core::record::TxRecord;
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};
use time::OffsetDateTime;

use super::{error, rows};
use crate::flat::{self, signed};
use crate::memory::bounded;

pub(super) async fn now(connection: &mut PgConnection) -> StoreResult<Timestamp> {
    let now: OffsetDateTime =
        sqlx::query_scalar("SELECT gapless_now()").fetch_one(connection).await.map_err(error::reading)?;
    Ok(Timestamp::from_micros(rows::micros(now)))
}

fn submitter_sql(filter: &str) -> String {
    format!(
        "SELECT s.submitter, s.settings::text, s.created_at, {}, l.owner_node, l.owner_process, l.fencing_token, l.expires_at
         FROM submitter s JOIN submitter_nonce_cursor c ON c.submitter = s.submitter
         LEFT JOIN submitter_lease l ON l.submitter = s.submitter WHERE {filter}",
        rows::CURSOR
    )
}

fn info(row: &PgRow) -> StoreResult<SubmitterInfo> {
    let name: String = row.try_get("submitter").map_err(error::reading)?;
    let settings = row.try_get("settings").map_err(error::reading)?;
    let created_at = rows::micros(row.try_get("created_at").map_err(error::reading)?);
    let cursor = rows::cursor(row).map_err(error::reading)?;
    flat::submitter_info(&name, settings, created_at, cursor, rows::lease(row)?)
}

pub(super) async fn submitter(
    connection: &mut PgConnection,
    submitter: &SubmitterId,
) -> StoreResult<Option<SubmitterInfo>> {
    let query = sqlx::query(AssertSqlSafe(submitter_sql("s.submitter = $1"))).bind(submitter.as_str());
    query.fetch_optional(connection).await.map_err(error::reading)?.as_ref().map(info).transpose()
}

pub(super) async fn named_submitters(
    connection: &mut PgConnection,
    names: &[SubmitterId],
) -> StoreResult<Vec<Option<SubmitterInfo>>> {
    bounded("submitters", names.len(), MAX_PAGE)?;
    let wanted: Vec<&str> = names.iter().map(SubmitterId::as_str).collect();
    let found = sqlx::query(AssertSqlSafe(submitter_sql("s.submitter = ANY($1)")))
        .bind(wanted)
        .fetch_all(connection)
        .await
        .map_err(error::reading)?;
    let known = |row| info(row).map(|info| (info.submitter.clone(), info));
    let known: HashMap<SubmitterId, SubmitterInfo> = found.iter().map(known).collect::<StoreResult<_>>()?;
    Ok(names.iter().map(|name| known.get(name).cloned()).collect())
}

pub(super) async fn submitters(
    connection: &mut PgConnection,
    after: Option<&SubmitterId>,
    limit: usize,
) -> StoreResult<Vec<SubmitterInfo>> {
    bounded("submitters", limit, MAX_PAGE)?;
    let found = sqlx::query(AssertSqlSafe(submitter_sql("s.submitter > $1 ORDER BY s.submitter LIMIT $2")))
        .bind(after.map_or("", SubmitterId::as_str))
        .bind(limit as i64)
        .fetch_all(connection)
        .await
        .map_err(error::reading)?;
    found.iter().map(info).collect()
}

fn tx_sql(rest: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!("SELECT {} FROM managed_tx m {rest}", rows::TX))
}

pub(super) async fn tx(connection: &mut PgConnection, tx_id: TxId) -> StoreResult<Option<TxRecord>> {
    let query = sqlx::query(tx_sql("WHERE m.tx_id = $1")).bind(tx_id.0);
    query.fetch_optional(connection).await.map_err(error::reading)?.as_ref().map(rows::tx).transpose()
}

pub(super) async fn tx_by_request(
    connection: &mut PgConnection,
    scope: &Scope,
    request_id: &RequestId,
) -> StoreResult<Option<TxRecord>> {
    let query = sqlx::query(tx_sql("WHERE m.scope = $1 AND m.request_id = $2"))
        .bind(scope.as_str())
        .bind(request_id.as_str());
    query.fetch_optional(connection).await.map_err(error::reading)?.as_ref().map(rows::tx).transpose()
}

pub(super) async fn tx_by_hash(connection: &mut PgConnection, hash: B256) -> StoreResult<Option<TxRecord>> {
    let query =
        sqlx::query(tx_sql("JOIN tx_attempt a ON a.tx_id = m.tx_id WHERE a.hash = $1")).bind(hash.to_vec());
    query.fetch_optional(connection).await.map_err(error::reading)?.as_ref().map(rows::tx).transpose()
}

pub(super) async fn list(connection: &mut PgConnection, filter: &TxFilter) -> StoreResult<Vec<TxRecord>> {
    bounded("list", filter.limit, MAX_PAGE)?;
    let states: Vec<&str> = filter.states.iter().map(|state| state.name()).collect();
    let after = filter.after.map_or(0, |order| signed(order.0));
    let rest = "WHERE m.ord > $1 AND (cardinality($2::text[]) = 0 OR m.state = ANY($2))";
    let found = match &filter.submitter {
        Some(submitter) => {
            let rest = format!(
                "{rest} AND m.submitter_number = (SELECT number FROM submitter WHERE submitter = $4)
                 ORDER BY m.submitter_number, m.ord LIMIT $3"
            );
            let query = sqlx::query(tx_sql(&rest)).bind(after).bind(states).bind(filter.limit as i64);
            query.bind(submitter.as_str()).fetch_all(connection).await
        }
        None => {
            let rest = format!("{rest} ORDER BY m.ord LIMIT $3");
            sqlx::query(tx_sql(&rest))
                .bind(after)
                .bind(states)
                .bind(filter.limit as i64)
                .fetch_all(connection)
                .await
        }
    };
    found.map_err(error::reading)?.iter().map(rows::tx).collect()
}

async fn slots(
    connection: &mut PgConnection,
    sql: String,
    submitter: &SubmitterId,
    from: Nonce,
    to: Nonce,
) -> StoreResult<Vec<PgRow>> {
    sqlx::query(AssertSqlSafe(sql))
        .bind(submitter.as_str())
        .bind(signed(from.0))
        .bind(signed(to.0))
        .fetch_all(connection)
        .await
        .map_err(error::reading)
}

pub(super) async fn attempts(
    connection: &mut PgConnection,
    submitter: &SubmitterId,
    from: Nonce,
    to: Nonce,
) -> StoreResult<Vec<StoredAttempt>> {
    let sql = format!(
        "SELECT {} FROM tx_attempt a WHERE a.submitter_number = (SELECT number FROM submitter WHERE submitter = $1)
           AND a.nonce >= $2 AND a.nonce < $3 ORDER BY a.nonce, a.n",
        rows::ATTEMPT
    );
    slots(connection, sql, submitter, from, to).await?.iter().map(rows::attempt).collect()
}

pub(super) async fn allocations(
    connection: &mut PgConnection,
    submitter: &SubmitterId,
    from: Nonce,
    to: Nonce,
) -> StoreResult<Vec<Allocation>> {
    let sql = format!(
        "SELECT {} FROM submitter_nonce_allocation x WHERE x.submitter = $1 AND x.nonce >= $2 AND x.nonce < $3
         ORDER BY x.nonce",
        rows::ALLOCATION
    );
    let found = slots(connection, sql, submitter, from, to).await?;
    found.iter().map(|row| rows::allocation(row).map_err(error::reading)?.allocation()).collect()
}
