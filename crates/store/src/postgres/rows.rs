//! Columns of PostgreSQL rows as flat values.

use gapless_core::attempt::StoredAttempt;
use gapless_core::lease::LeaseRow;
use gapless_core::ports::store::StoreResult;
use gapless_core::record::TxRecord;
use sqlx::Row;
use sqlx::postgres::PgRow;
use time::OffsetDateTime;

use super::error;
use crate::flat::{self, FlatAllocation, FlatAttempt, FlatCommand, FlatCursor, FlatFacts, FlatTx};

pub(super) const TX: &str = "m.tx_id, m.ord, m.submitter, m.scope, m.request_id, m.digest, m.payload, \
    m.options, m.metadata, m.created_at, m.updated_at, m.fencing_token, m.state, m.sub_state, m.seq, \
    m.nonce, m.tx_hash, m.mined_hash, m.mined_as, m.block_number, m.block_hash, m.status, m.gas_used, \
    m.effective_gas_price::text, m.contract_address, m.mined_at, m.failure_code, m.failure_reason, \
    m.wait_reason, m.bound_at, m.ended_at, m.amended";

pub(super) const ATTEMPT: &str = "a.nonce, a.n, a.tx_id, a.kind, a.route, a.hash, a.raw, a.fees, \
    a.stored_at, a.next_send_at, a.resends, a.refusal_code, a.refusal_text";

pub(super) const ALLOCATION: &str = "x.nonce, x.status, x.lock_owner, x.locked_until, x.tx_id, x.used_hash, \
    x.foreign_hash, x.block_number, x.block_hash";

pub(super) const CURSOR: &str = "c.start_nonce, c.next_nonce, c.consumed, c.resolved, c.settled, c.in_flight_nonce, \
    c.in_flight_tx_id, c.condition, c.conditions::text, c.version";

pub(super) const COMMAND: &str = "c.id, c.submitter, c.tx_id, c.verb, c.args::text, c.actor, c.created_at";

/// Microseconds as the driver's time.
pub(super) fn at(micros: i64) -> OffsetDateTime {
    // What lies beyond the driver's last year becomes its last second.
    const LAST: i64 = 253_402_300_799_000_000;
    let nanos = i128::from(micros.min(LAST)) * 1_000;
    OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// The driver's time as microseconds.
pub(super) fn micros(at: OffsetDateTime) -> i64 {
    i64::try_from(at.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX)
}

pub(super) fn time(row: &PgRow, column: &str) -> Result<i64, sqlx::Error> {
    row.try_get(column).map(micros)
}

fn maybe_time(row: &PgRow, column: &str) -> Result<Option<i64>, sqlx::Error> {
    row.try_get::<Option<OffsetDateTime>, _>(column).map(|at| at.map(micros))
}

fn flat_tx(row: &PgRow) -> Result<FlatTx, sqlx::Error> {
    Ok(FlatTx {
        tx_id: row.try_get("tx_id")?,
        ord: row.try_get("ord")?,
        submitter: row.try_get("submitter")?,
        scope: row.try_get("scope")?,
        request_id: row.try_get("request_id")?,
        digest: row.try_get("digest")?,
        payload: row.try_get("payload")?,
        options: row.try_get("options")?,
        metadata: row.try_get("metadata")?,
        created_at: time(row, "created_at")?,
        updated_at: time(row, "updated_at")?,
        fencing_token: row.try_get("fencing_token")?,
        facts: FlatFacts {
            state: row.try_get("state")?,
            sub_state: row.try_get("sub_state")?,
            seq: row.try_get("seq")?,
            nonce: row.try_get("nonce")?,
            tx_hash: row.try_get("tx_hash")?,
            mined_hash: row.try_get("mined_hash")?,
            mined_as: row.try_get("mined_as")?,
            block_number: row.try_get("block_number")?,
            block_hash: row.try_get("block_hash")?,
            status: row.try_get("status")?,
            gas_used: row.try_get("gas_used")?,
            effective_gas_price: row.try_get("effective_gas_price")?,
            contract_address: row.try_get("contract_address")?,
            mined_at: maybe_time(row, "mined_at")?,
            failure_code: row.try_get("failure_code")?,
            failure_reason: row.try_get("failure_reason")?,
            wait_reason: row.try_get("wait_reason")?,
            bound_at: maybe_time(row, "bound_at")?,
            ended_at: maybe_time(row, "ended_at")?,
            amended: row.try_get("amended")?,
        },
    })
}

pub(super) fn tx(row: &PgRow) -> StoreResult<TxRecord> {
    flat_tx(row).map_err(error::reading)?.record()
}

pub(super) fn attempt(row: &PgRow) -> StoreResult<StoredAttempt> {
    let flat = || -> Result<FlatAttempt, sqlx::Error> {
        Ok(FlatAttempt {
            nonce: row.try_get("nonce")?,
            n: row.try_get("n")?,
            tx_id: row.try_get("tx_id")?,
            kind: row.try_get("kind")?,
            route: row.try_get("route")?,
            hash: row.try_get("hash")?,
            raw: row.try_get("raw")?,
            fees: row.try_get("fees")?,
            stored_at: time(row, "stored_at")?,
            next_send_at: time(row, "next_send_at")?,
            resends: row.try_get("resends")?,
            refusal_code: row.try_get("refusal_code")?,
            refusal_text: row.try_get("refusal_text")?,
        })
    };
    flat().map_err(error::reading)?.attempt()
}

pub(super) fn allocation(row: &PgRow) -> Result<FlatAllocation, sqlx::Error> {
    Ok(FlatAllocation {
        nonce: row.try_get("nonce")?,
        status: row.try_get("status")?,
        lock_owner: row.try_get("lock_owner")?,
        locked_until: maybe_time(row, "locked_until")?,
        tx_id: row.try_get("tx_id")?,
        used_hash: row.try_get("used_hash")?,
        foreign_hash: row.try_get("foreign_hash")?,
        block_number: row.try_get("block_number")?,
        block_hash: row.try_get("block_hash")?,
    })
}

pub(super) fn cursor(row: &PgRow) -> Result<FlatCursor, sqlx::Error> {
    Ok(FlatCursor {
        start_nonce: row.try_get("start_nonce")?,
        next_nonce: row.try_get("next_nonce")?,
        consumed: row.try_get("consumed")?,
        resolved: row.try_get("resolved")?,
        settled: row.try_get("settled")?,
        in_flight_nonce: row.try_get("in_flight_nonce")?,
        in_flight_tx_id: row.try_get("in_flight_tx_id")?,
        condition: row.try_get("condition")?,
        conditions: row.try_get("conditions")?,
        version: row.try_get("version")?,
    })
}

pub(super) fn command(row: &PgRow) -> Result<FlatCommand, sqlx::Error> {
    Ok(FlatCommand {
        id: row.try_get("id")?,
        submitter: row.try_get("submitter")?,
        tx_id: row.try_get("tx_id")?,
        verb: row.try_get("verb")?,
        args: row.try_get("args")?,
        actor: row.try_get("actor")?,
        created_at: time(row, "created_at")?,
    })
}

/// The lease columns of a left join; none if nobody ever held it.
pub(super) fn lease(row: &PgRow) -> StoreResult<Option<LeaseRow>> {
    let node: Option<String> = row.try_get("owner_node").map_err(error::reading)?;
    let Some(node) = node else { return Ok(None) };
    let process = row.try_get("owner_process").map_err(error::reading)?;
    let token = row.try_get("fencing_token").map_err(error::reading)?;
    let expires_at = time(row, "expires_at").map_err(error::reading)?;
    flat::lease_row(&node, process, token, expires_at).map(Some)
}
