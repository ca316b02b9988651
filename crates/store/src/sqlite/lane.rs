//! Loading lanes, their queues, commands and reservations.

use std::collections::BTreeSet;

use gapless_core::allocation::{Allocation, Mark, MarkOutcome};
use gapless_core::command::{Command, CommandEnd, CommandReceipt, NewCommand};
use gapless_core::cursor::VersionedCursor;
use gapless_core::ids::{CommandId, LockOwner, Nonce, TxId};
use gapless_core::limits::MAX_PAGE;
use gapless_core::ports::store::{LaneSnapshot, Registered, StoreResult};
use gapless_core::record::TxRecord;
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use rusqlite::{Connection, params};

use super::read;
use super::rows::{self, Id};
use super::worker::unavailable;
use crate::flat::{self, FlatAllocation, FlatTx, signed};

pub(super) fn is_registered(db: &Connection, submitter: &SubmitterId) -> StoreResult<bool> {
    let sql = "SELECT 1 FROM submitter WHERE submitter = ?1";
    Ok(rows::first(db, sql, [submitter.as_str()], |_| Ok(()))?.is_some())
}

pub(super) fn register(
    db: &Connection,
    submitters: &[(SubmitterId, String)],
    now: Timestamp,
) -> StoreResult<Vec<Registered>> {
    let one = |(submitter, settings): &(SubmitterId, String)| {
        let sql = "INSERT INTO submitter (submitter, settings, created_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
        let new = rows::run(db, sql, params![submitter.as_str(), settings, now.as_micros()])
            .map_err(unavailable)?;
        if new == 0 {
            return Ok(Registered::Known);
        }
        let sql = "INSERT INTO submitter_nonce_cursor (submitter, updated_at) VALUES (?1, ?2)";
        rows::run(db, sql, params![submitter.as_str(), now.as_micros()]).map_err(unavailable)?;
        Ok(Registered::New)
    };
    submitters.iter().map(one).collect()
}

pub(super) fn cursor(db: &Connection, submitter: &SubmitterId) -> StoreResult<Option<VersionedCursor>> {
    let sql = "SELECT * FROM submitter_nonce_cursor WHERE submitter = ?1";
    rows::first(db, sql, [submitter.as_str()], rows::cursor)?.map(|flat| flat.cursor()).transpose()
}

pub(super) fn load(db: &Connection, submitter: &SubmitterId) -> StoreResult<Option<LaneSnapshot>> {
    let Some(cursor) = cursor(db, submitter)? else { return Ok(None) };
    let attempts = match cursor.cursor.run {
        Some(run) => read::attempts(db, submitter, run.watched_from(), Nonce(u64::MAX))?,
        None => Vec::new(),
    };
    let watched_from = cursor.cursor.run.map_or(Nonce(0), |run| run.watched_from());
    let sql = "SELECT * FROM submitter_nonce_allocation
               WHERE submitter = ?1 AND (nonce >= ?2 OR status <> 'FOREIGN') ORDER BY nonce";
    let found = rows::all(db, sql, params![submitter.as_str(), signed(watched_from.0)], rows::allocation)?;
    let allocations = found.into_iter().map(FlatAllocation::allocation).collect::<StoreResult<Vec<_>>>()?;
    let ids: BTreeSet<TxId> =
        attempts.iter().filter_map(|a| a.tx_id).chain(allocations.iter().filter_map(|a| a.tx_id)).collect();
    let mut txs = Vec::with_capacity(ids.len());
    for tx_id in ids {
        txs.extend(read::tx(db, tx_id)?);
    }
    txs.sort_by_key(|tx| tx.order);
    let commands = take_commands(db, submitter, MAX_PAGE)?;
    Ok(Some(LaneSnapshot { cursor, attempts, txs, allocations, commands }))
}

pub(super) fn peek_queue(
    db: &Connection,
    submitter: &SubmitterId,
    limit: usize,
) -> StoreResult<Vec<TxRecord>> {
    let sql =
        "SELECT * FROM managed_tx WHERE submitter = ?1 AND queue_ord IS NOT NULL ORDER BY queue_ord LIMIT ?2";
    let found = rows::all(db, sql, params![submitter.as_str(), signed(limit as u64)], rows::tx)?;
    found.into_iter().map(FlatTx::record).collect()
}

pub(super) fn insert_command(
    db: &Connection,
    command: &NewCommand,
    now: Timestamp,
) -> StoreResult<CommandReceipt> {
    if !is_registered(db, &command.submitter)? {
        return Ok(CommandReceipt::UnknownSubmitter);
    }
    let inserted = rows::run(
        db,
        "INSERT INTO lane_command (id, submitter, tx_id, verb, args, actor, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO NOTHING",
        params![
            Id(command.id.0),
            command.submitter.as_str(),
            command.tx_id.map(|tx_id| Id(tx_id.0)),
            command.verb.name(),
            command.args.to_string(),
            command.actor.as_str(),
            now.as_micros()
        ],
    )
    .map_err(unavailable)?;
    Ok(if inserted == 0 { CommandReceipt::Duplicate } else { CommandReceipt::Inserted })
}

pub(super) fn take_commands(
    db: &Connection,
    submitter: &SubmitterId,
    limit: usize,
) -> StoreResult<Vec<Command>> {
    let sql = "SELECT * FROM lane_command WHERE submitter = ?1 AND done_at IS NULL ORDER BY ord LIMIT ?2";
    let found = rows::all(db, sql, params![submitter.as_str(), signed(limit as u64)], rows::command)?;
    found.into_iter().map(|flat| flat.command()).collect()
}

pub(super) fn command_end(db: &Connection, id: CommandId) -> StoreResult<Option<CommandEnd>> {
    type Columns = (String, Option<String>, Option<String>);
    let sql = "SELECT outcome, code, result FROM lane_command WHERE id = ?1 AND done_at IS NOT NULL";
    let found: Option<Columns> =
        rows::first(db, sql, params![Id(id.0)], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let end = |(outcome, code, result): Columns| {
        flat::command_end(id.0, &outcome, code.as_deref(), result.as_deref())
    };
    found.map(end).transpose()
}

pub(super) fn allocation(
    db: &Connection,
    submitter: &SubmitterId,
    nonce: Nonce,
) -> StoreResult<Option<Allocation>> {
    Ok(read::allocations(db, submitter, nonce, nonce.next())?.into_iter().next())
}

pub(super) fn put_allocation(db: &Connection, submitter: &SubmitterId, row: &Allocation) -> StoreResult<()> {
    let flat = FlatAllocation::from(row);
    let sql =
        "INSERT OR REPLACE INTO submitter_nonce_allocation VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let params = params![
        submitter.as_str(),
        flat.nonce,
        flat.status,
        flat.lock_owner.map(Id),
        flat.locked_until,
        flat.tx_id.map(Id),
        flat.used_hash,
        flat.foreign_hash,
        flat.block_number,
        flat.block_hash
    ];
    rows::run(db, sql, params).map_err(unavailable)?;
    Ok(())
}

pub(super) fn mark(
    db: &Connection,
    submitter: &SubmitterId,
    nonce: Nonce,
    owner: LockOwner,
    mark: Mark,
    now: Timestamp,
) -> StoreResult<MarkOutcome> {
    let found = allocation(db, submitter, nonce)?;
    match mark.judge(owner, found.as_ref(), now) {
        Ok(row) => {
            put_allocation(db, submitter, &row)?;
            Ok(MarkOutcome::Marked)
        }
        Err(outcome) => Ok(outcome),
    }
}
