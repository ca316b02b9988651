//! Columns of SQLite rows as flat values, and small helpers over prepared statements.

use gapless_core::ids::Epoch;
use gapless_core::ports::store::StoreResult;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Params, Row, ToSql};
use uuid::Uuid;

use super::worker::unavailable;
use crate::flat::{FlatAllocation, FlatAttempt, FlatCommand, FlatCursor, FlatFacts, FlatTx};

/// An id as 16 bytes.
pub(super) struct Id(pub(super) Uuid);

impl ToSql for Id {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.0.as_bytes().as_slice()))
    }
}

impl FromSql for Id {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Uuid::from_slice(value.as_blob()?).map(Self).map_err(|error| FromSqlError::Other(Box::new(error)))
    }
}

fn id(row: &Row<'_>, column: &str) -> rusqlite::Result<Uuid> {
    row.get::<_, Id>(column).map(|id| id.0)
}

fn maybe_id(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<Uuid>> {
    row.get::<_, Option<Id>>(column).map(|id| id.map(|id| id.0))
}

pub(super) fn epoch(connection: &Connection) -> StoreResult<Epoch> {
    let epoch: rusqlite::Result<Id> =
        connection.query_row("SELECT epoch FROM gapless_meta", [], |row| row.get(0));
    epoch.map(|id| Epoch(id.0)).map_err(unavailable)
}

/// All rows of a query.
pub(super) fn all<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> StoreResult<Vec<T>> {
    let mut statement = db.prepare_cached(sql).map_err(unavailable)?;
    let rows = statement.query_map(params, read).map_err(unavailable)?;
    rows.collect::<rusqlite::Result<Vec<T>>>().map_err(unavailable)
}

/// The first row of a query, if any.
pub(super) fn first<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> StoreResult<Option<T>> {
    Ok(all(db, sql, params, read)?.into_iter().next())
}

/// Runs a statement; how many rows it touched.
pub(super) fn run(db: &Connection, sql: &str, params: impl Params) -> rusqlite::Result<usize> {
    db.prepare_cached(sql)?.execute(params)
}

pub(super) fn tx(row: &Row<'_>) -> rusqlite::Result<FlatTx> {
    Ok(FlatTx {
        tx_id: id(row, "tx_id")?,
        ord: row.get("ord")?,
        submitter: row.get("submitter")?,
        scope: row.get("scope")?,
        request_id: row.get("request_id")?,
        digest: row.get("digest")?,
        payload: row.get("payload")?,
        options: row.get("options")?,
        metadata: row.get("metadata")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
        fencing_token: row.get("fencing_token")?,
        facts: FlatFacts {
            state: row.get("state")?,
            sub_state: row.get("sub_state")?,
            seq: row.get("seq")?,
            nonce: row.get("nonce")?,
            tx_hash: row.get("tx_hash")?,
            mined_hash: row.get("mined_hash")?,
            mined_as: row.get("mined_as")?,
            block_number: row.get("block_number")?,
            block_hash: row.get("block_hash")?,
            status: row.get("status")?,
            gas_used: row.get("gas_used")?,
            effective_gas_price: row.get("effective_gas_price")?,
            contract_address: row.get("contract_address")?,
            mined_at: row.get("mined_at")?,
            failure_code: row.get("failure_code")?,
            failure_reason: row.get("failure_reason")?,
            wait_reason: row.get("wait_reason")?,
            bound_at: row.get("bound_at")?,
            ended_at: row.get("ended_at")?,
            amended: row.get("amended")?,
        },
    })
}

pub(super) fn attempt(row: &Row<'_>) -> rusqlite::Result<FlatAttempt> {
    Ok(FlatAttempt {
        nonce: row.get("nonce")?,
        n: row.get("n")?,
        tx_id: maybe_id(row, "tx_id")?,
        kind: row.get("kind")?,
        route: row.get("route")?,
        hash: row.get("hash")?,
        raw: row.get("raw")?,
        fees: row.get("fees")?,
        stored_at: row.get("stored_at")?,
        next_send_at: row.get("next_send_at")?,
        resends: row.get("resends")?,
        refusal_code: row.get("refusal_code")?,
        refusal_text: row.get("refusal_text")?,
    })
}

pub(super) fn allocation(row: &Row<'_>) -> rusqlite::Result<FlatAllocation> {
    Ok(FlatAllocation {
        nonce: row.get("nonce")?,
        status: row.get("status")?,
        lock_owner: maybe_id(row, "lock_owner")?,
        locked_until: row.get("locked_until")?,
        tx_id: maybe_id(row, "tx_id")?,
        used_hash: row.get("used_hash")?,
        foreign_hash: row.get("foreign_hash")?,
        block_number: row.get("block_number")?,
        block_hash: row.get("block_hash")?,
    })
}

pub(super) fn cursor(row: &Row<'_>) -> rusqlite::Result<FlatCursor> {
    Ok(FlatCursor {
        start_nonce: row.get("start_nonce")?,
        next_nonce: row.get("next_nonce")?,
        consumed: row.get("consumed")?,
        resolved: row.get("resolved")?,
        settled: row.get("settled")?,
        in_flight_nonce: row.get("in_flight_nonce")?,
        in_flight_tx_id: maybe_id(row, "in_flight_tx_id")?,
        condition: row.get("condition")?,
        conditions: row.get("conditions")?,
        version: row.get("version")?,
    })
}

pub(super) fn command(row: &Row<'_>) -> rusqlite::Result<FlatCommand> {
    Ok(FlatCommand {
        id: id(row, "id")?,
        submitter: row.get("submitter")?,
        tx_id: maybe_id(row, "tx_id")?,
        verb: row.get("verb")?,
        args: row.get("args")?,
        actor: row.get("actor")?,
        created_at: row.get("created_at")?,
    })
}

/// (node, process, token, expires_at).
pub(super) type LeaseColumns = (String, Uuid, i64, i64);

pub(super) fn lease(row: &Row<'_>) -> rusqlite::Result<Option<LeaseColumns>> {
    let Some(node) = row.get::<_, Option<String>>("owner_node")? else { return Ok(None) };
    Ok(Some((node, id(row, "owner_process")?, row.get("fencing_token")?, row.get("expires_at")?)))
}
