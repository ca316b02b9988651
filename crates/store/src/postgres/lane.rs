//! Loading lanes, their queues, commands and reservations.

use gapless_core::allocation::{Mark, MarkOutcome};
use gapless_core::attempt::StoredAttempt;
use gapless_core::command::{Command, CommandEnd, CommandReceipt, NewCommand};
use gapless_core::ids::{CommandId, LockOwner, Nonce};
use gapless_core::limits::MAX_PAGE;
use gapless_core::ports::store::{LaneSnapshot, Registered, StoreResult};
use gapless_core::record::TxRecord;
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{error, rows};
use crate::flat::{self, FlatAllocation, signed};
use crate::memory::bounded;

const REGISTER: &str = "
WITH input AS (SELECT * FROM unnest($1::text[], $2::text[]) AS u(submitter, settings)),
ins AS (
  INSERT INTO submitter (submitter, settings) SELECT submitter, settings::json FROM input ORDER BY submitter
  ON CONFLICT DO NOTHING RETURNING submitter
), cur AS (
  INSERT INTO submitter_nonce_cursor (submitter) SELECT submitter FROM ins
)
SELECT submitter FROM ins";

pub(super) async fn register(
    connection: &mut PgConnection,
    submitters: &[(SubmitterId, String)],
) -> StoreResult<Vec<Registered>> {
    let mut new: Vec<String> = sqlx::query_scalar(REGISTER)
        .bind(submitters.iter().map(|(s, _)| s.as_str()).collect::<Vec<_>>())
        .bind(submitters.iter().map(|(_, settings)| settings.as_str()).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(error::writing)?;
    let outcome =
        |(submitter, _): &(SubmitterId, String)| match new.iter().position(|s| s == submitter.as_str()) {
            Some(at) => {
                new.swap_remove(at);
                Registered::New
            }
            None => Registered::Known,
        };
    Ok(submitters.iter().map(outcome).collect())
}

/// One snapshot for all parts of a lane, so that they fit together.
pub(super) async fn load(
    connection: &mut PgConnection,
    submitter: &SubmitterId,
) -> StoreResult<Option<LaneSnapshot>> {
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    let mut tx = connection.begin_with(begin).await.map_err(error::unavailable)?;
    let sql = format!("SELECT {} FROM submitter_nonce_cursor c WHERE c.submitter = $1", rows::CURSOR);
    let row = fetch_optional(&mut tx, sql, submitter).await?;
    let Some(row) = row else { return Ok(None) };
    let cursor = rows::cursor(&row).map_err(error::reading)?.cursor()?;
    let mut snapshot = LaneSnapshot {
        cursor,
        attempts: Vec::new(),
        txs: Vec::new(),
        allocations: Vec::new(),
        commands: Vec::new(),
    };

    if let Some(run) = snapshot.cursor.cursor.run {
        let sql = format!(
            "SELECT {} FROM tx_attempt a WHERE a.submitter_number = (SELECT number FROM submitter WHERE submitter = $1)
               AND a.nonce >= $2 ORDER BY a.nonce, a.n",
            rows::ATTEMPT
        );
        let found = sqlx::query(AssertSqlSafe(sql))
            .bind(submitter.as_str())
            .bind(signed(run.watched_from().0))
            .fetch_all(&mut *tx)
            .await
            .map_err(error::reading)?;
        snapshot.attempts = found.iter().map(rows::attempt).collect::<StoreResult<Vec<StoredAttempt>>>()?;
    }
    let sql = format!(
        "SELECT {} FROM submitter_nonce_allocation x
         WHERE x.submitter = $1 AND (x.nonce >= $2 OR x.status <> 'FOREIGN') ORDER BY x.nonce",
        rows::ALLOCATION
    );
    let watched_from = snapshot.cursor.cursor.run.map_or(0, |run| signed(run.watched_from().0));
    let found =
        sqlx::query(AssertSqlSafe(sql)).bind(submitter.as_str()).bind(watched_from).fetch_all(&mut *tx).await;
    for row in found.map_err(error::reading)? {
        snapshot.allocations.push(rows::allocation(&row).map_err(error::reading)?.allocation()?);
    }
    let ids: Vec<Uuid> = (snapshot.attempts.iter().filter_map(|a| a.tx_id))
        .chain(snapshot.allocations.iter().filter_map(|a| a.tx_id))
        .map(|tx_id| tx_id.0)
        .collect();
    let sql = format!(
        "SELECT {} FROM (SELECT DISTINCT unnest($1::uuid[]) AS tx_id) u JOIN managed_tx m USING (tx_id) ORDER BY m.ord",
        rows::TX
    );
    let found =
        sqlx::query(AssertSqlSafe(sql)).bind(ids).fetch_all(&mut *tx).await.map_err(error::reading)?;
    snapshot.txs = found.iter().map(rows::tx).collect::<StoreResult<Vec<TxRecord>>>()?;
    snapshot.commands = waiting_commands(&mut tx, submitter, MAX_PAGE).await?;
    tx.commit().await.map_err(error::reading)?;
    Ok(Some(snapshot))
}

async fn fetch_optional(
    connection: &mut PgConnection,
    sql: String,
    submitter: &SubmitterId,
) -> StoreResult<Option<sqlx::postgres::PgRow>> {
    let query = sqlx::query(AssertSqlSafe(sql)).bind(submitter.as_str());
    query.fetch_optional(connection).await.map_err(error::reading)
}

pub(super) async fn peek_queue(
    connection: &mut PgConnection,
    submitter: &SubmitterId,
    limit: usize,
) -> StoreResult<Vec<TxRecord>> {
    bounded("peek_queue", limit, MAX_PAGE)?;
    let sql = format!(
        "SELECT {} FROM (SELECT * FROM tx_queue
             WHERE submitter_number = (SELECT number FROM submitter WHERE submitter = $1)
             ORDER BY submitter_number, ord LIMIT $2) q
         JOIN managed_tx m ON m.tx_id = q.tx_id ORDER BY q.ord",
        rows::TX
    );
    let found = sqlx::query(AssertSqlSafe(sql))
        .bind(submitter.as_str())
        .bind(limit as i64)
        .fetch_all(connection)
        .await
        .map_err(error::reading)?;
    found.iter().map(rows::tx).collect()
}

const INSERT_COMMANDS: &str = "
WITH input AS (
  SELECT * FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::text[])
    AS u(id, submitter, tx_id, verb, args, actor)
), ins AS (
  INSERT INTO lane_command (id, submitter, tx_id, verb, args, actor)
  SELECT i.id, i.submitter, i.tx_id, i.verb, i.args::json, i.actor
  FROM input i JOIN submitter s ON s.submitter = i.submitter
  ON CONFLICT (id) DO NOTHING RETURNING id
)
SELECT i.id, i.id IN (SELECT id FROM ins) AS inserted,
  EXISTS (SELECT FROM submitter s WHERE s.submitter = i.submitter) AS known
FROM input i";

pub(super) async fn insert_commands(
    connection: &mut PgConnection,
    commands: &[NewCommand],
) -> StoreResult<Vec<CommandReceipt>> {
    let found = sqlx::query(INSERT_COMMANDS)
        .bind(commands.iter().map(|c| c.id.0).collect::<Vec<_>>())
        .bind(commands.iter().map(|c| c.submitter.as_str()).collect::<Vec<_>>())
        .bind(commands.iter().map(|c| c.tx_id.map(|tx_id| tx_id.0)).collect::<Vec<_>>())
        .bind(commands.iter().map(|c| c.verb.name()).collect::<Vec<_>>())
        .bind(commands.iter().map(|c| c.args.to_string()).collect::<Vec<_>>())
        .bind(commands.iter().map(|c| c.actor.as_str()).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(error::writing)?;
    let mut receipts = Vec::with_capacity(found.len());
    let mut seen = std::collections::HashSet::new();
    for row in &found {
        let get = |column| row.try_get::<bool, _>(column).map_err(error::reading);
        let id: Uuid = row.try_get("id").map_err(error::reading)?;
        receipts.push(match (get("known")?, get("inserted")? && seen.insert(id)) {
            (false, _) => CommandReceipt::UnknownSubmitter,
            (true, true) => CommandReceipt::Inserted,
            (true, false) => CommandReceipt::Duplicate,
        });
    }
    Ok(receipts)
}

pub(super) async fn take_commands(
    connection: &mut PgConnection,
    submitter: &SubmitterId,
    limit: usize,
) -> StoreResult<Vec<Command>> {
    bounded("take_commands", limit, MAX_PAGE)?;
    waiting_commands(connection, submitter, limit).await
}

async fn waiting_commands(
    connection: &mut PgConnection,
    submitter: &SubmitterId,
    limit: usize,
) -> StoreResult<Vec<Command>> {
    let sql = format!(
        "SELECT {} FROM lane_command c WHERE c.submitter = $1 AND c.done_at IS NULL ORDER BY c.ord LIMIT $2",
        rows::COMMAND
    );
    let found = sqlx::query(AssertSqlSafe(sql))
        .bind(submitter.as_str())
        .bind(limit as i64)
        .fetch_all(connection)
        .await
        .map_err(error::reading)?;
    found.iter().map(|row| rows::command(row).map_err(error::reading)?.command()).collect()
}

pub(super) async fn command_end(
    connection: &mut PgConnection,
    id: CommandId,
) -> StoreResult<Option<CommandEnd>> {
    let sql = "SELECT outcome, code, result FROM lane_command WHERE id = $1 AND done_at IS NOT NULL";
    let found: Option<(String, Option<String>, Option<String>)> =
        sqlx::query_as(sql).bind(id.0).fetch_optional(connection).await.map_err(error::reading)?;
    let end = |(outcome, code, result): (String, Option<String>, Option<String>)| {
        flat::command_end(id.0, &outcome, code.as_deref(), result.as_deref())
    };
    found.map(end).transpose()
}

/// Reads the slot's row under its lock, lets `core` judge, and writes: the lane's own writes on this row
/// wait for it, or it for them.
pub(super) async fn mark(
    connection: &mut PgConnection,
    submitter: &SubmitterId,
    nonce: Nonce,
    owner: LockOwner,
    mark: Mark,
) -> StoreResult<MarkOutcome> {
    let mut tx = connection.begin().await.map_err(error::unavailable)?;
    let sql = format!(
        "SELECT {}, gapless_now() AS now FROM submitter_nonce_allocation x
         WHERE x.submitter = $1 AND x.nonce = $2 FOR UPDATE",
        rows::ALLOCATION
    );
    let row = sqlx::query(AssertSqlSafe(sql))
        .bind(submitter.as_str())
        .bind(signed(nonce.0))
        .fetch_optional(&mut *tx)
        .await
        .map_err(error::reading)?;
    let Some(row) = row else { return Ok(MarkOutcome::NotReserved) };
    let found = rows::allocation(&row).map_err(error::reading)?.allocation()?;
    let now: OffsetDateTime = row.try_get("now").map_err(error::reading)?;
    let marked = match mark.judge(owner, Some(&found), Timestamp::from_micros(rows::micros(now))) {
        Ok(marked) => FlatAllocation::from(&marked),
        Err(outcome) => return Ok(outcome),
    };
    sqlx::query("UPDATE submitter_nonce_allocation SET status = $3, used_hash = $4 WHERE submitter = $1 AND nonce = $2")
        .bind(submitter.as_str())
        .bind(signed(nonce.0))
        .bind(marked.status)
        .bind(marked.used_hash)
        .execute(&mut *tx)
        .await
        .map_err(error::writing)?;
    tx.commit().await.map_err(error::writing)?;
    Ok(MarkOutcome::Marked)
}
