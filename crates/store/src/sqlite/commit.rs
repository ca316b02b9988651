//! Fenced commits on SQLite: one transaction for the batch, one savepoint per lane.

use std::collections::BTreeSet;

use gapless_core::attempt::NewAttempt;
use gapless_core::change::{LaneChange, TxWrite, Verdict};
use gapless_core::ports::store::{StoreError, StoreResult};
use gapless_core::submitter::SubmitterId;
use gapless_core::text::NodeText;
use gapless_core::time::Timestamp;
use rusqlite::{Connection, Savepoint, Transaction, params};

use super::accept::{is_poison, tell};
use super::rows::{self, Id};
use super::worker::unavailable;
use super::{lane, lease};
use crate::flat::{FlatCursor, FlatFacts, signed, to_json};

/// Why a lane's change stops: its own fault, or the store's.
enum Stop {
    Refused(String),
    Store(StoreError),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        if is_poison(&error) { Self::Refused(error.to_string()) } else { Self::Store(unavailable(error)) }
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

pub(super) fn commit(
    tx: &mut Transaction<'_>,
    changes: &[LaneChange],
    now: Timestamp,
) -> StoreResult<Vec<Verdict>> {
    let mut lanes = BTreeSet::new();
    let mut verdicts = Vec::with_capacity(changes.len());
    for change in changes {
        if !lanes.insert(change.submitter()) {
            verdicts.push(Verdict::Retry);
            continue;
        }
        if !passes_fence(tx, change, now)? {
            verdicts.push(Verdict::Fenced);
            continue;
        }
        let savepoint = tx.savepoint().map_err(unavailable)?;
        verdicts.push(match write(&savepoint, change, now) {
            Ok(()) => {
                savepoint.commit().map_err(unavailable)?;
                Verdict::Applied { version: change.expected().next() }
            }
            Err(Stop::Refused(reason)) => {
                drop::<Savepoint<'_>>(savepoint);
                Verdict::Refused { reason: NodeText::new(&reason) }
            }
            Err(Stop::Store(error)) => return Err(error),
        });
    }
    Ok(verdicts)
}

fn passes_fence(db: &Connection, change: &LaneChange, now: Timestamp) -> StoreResult<bool> {
    Ok(lease::passes(db, change.submitter(), change.owner(), change.token(), now)?
        && lane::cursor(db, change.submitter())?.is_some_and(|found| found.version == change.expected()))
}

/// A statement that must touch exactly one row.
fn expect_one(touched: usize, what: impl FnOnce() -> String) -> Result<(), Stop> {
    if touched == 1 {
        Ok(())
    } else {
        Err(Stop::Refused(format!("{}: {touched} rows touched, 1 planned", what())))
    }
}

fn write(db: &Connection, change: &LaneChange, now: Timestamp) -> Result<(), Stop> {
    let (submitter, writes) = (change.submitter(), change.writes());
    write_cursor(db, change, now)?;
    let events = change.events();
    let event_row = if events.is_empty() { None } else { Some(tell(db, submitter, &events, now)?) };
    for tx in &writes.txs {
        write_tx(db, change, tx, event_row.filter(|_| tx.tells()), now)?;
    }
    for nonce in &writes.unbound {
        let sql = "DELETE FROM tx_attempt WHERE submitter = ?1 AND nonce = ?2";
        let deleted = rows::run(db, sql, params![submitter.as_str(), signed(nonce.0)])?;
        expect_one(deleted.min(1), || format!("unbound slot {nonce}"))?;
    }
    for attempt in &writes.attempts {
        write_attempt(db, submitter, attempt, now)?;
    }
    for claim in &writes.resends {
        let sql = "UPDATE tx_attempt SET next_send_at = ?4, resends = resends + ?5
                   WHERE submitter = ?1 AND nonce = ?2 AND n = ?3";
        let at = claim.next_send_at.as_micros();
        let touched =
            rows::run(db, sql, params![submitter.as_str(), signed(claim.nonce.0), claim.n, at, claim.sends])?;
        expect_one(touched, || format!("attempt {}.{}", claim.nonce, claim.n))?;
    }
    for note in &writes.refusals {
        let sql = "UPDATE tx_attempt SET refusal_code = ?4, refusal_text = ?5
                   WHERE submitter = ?1 AND nonce = ?2 AND n = ?3";
        let (code, text) = (note.refusal.code.as_str(), note.refusal.text.as_str());
        let touched =
            rows::run(db, sql, params![submitter.as_str(), signed(note.nonce.0), note.n, code, text])?;
        expect_one(touched, || format!("attempt {}.{}", note.nonce, note.n))?;
    }
    for allocation in &writes.allocations {
        let found = lane::allocation(db, submitter, allocation.nonce())?;
        match allocation.apply(found.as_ref(), now).map_err(|error| Stop::Refused(error.to_string()))? {
            Some(row) => lane::put_allocation(db, submitter, &row)?,
            None => {
                let sql = "DELETE FROM submitter_nonce_allocation WHERE submitter = ?1 AND nonce = ?2";
                rows::run(db, sql, params![submitter.as_str(), signed(allocation.nonce().0)])?;
            }
        }
    }
    for end in &writes.commands {
        let sql = "UPDATE lane_command SET done_at = ?3, outcome = ?4, code = ?5, result = ?6
                   WHERE id = ?1 AND submitter = ?2 AND done_at IS NULL";
        let code = end.code.as_ref().map(|code| code.as_str());
        let result = end.result.as_ref().map(ToString::to_string);
        let params =
            params![Id(end.id.0), submitter.as_str(), now.as_micros(), end.outcome.name(), code, result];
        expect_one(rows::run(db, sql, params)?, || format!("command {}", end.id))?;
    }
    Ok(())
}

fn write_cursor(db: &Connection, change: &LaneChange, now: Timestamp) -> Result<(), Stop> {
    let flat = FlatCursor::from(change.cursor());
    let sql =
        "UPDATE submitter_nonce_cursor SET start_nonce = ?2, next_nonce = ?3, consumed = ?4, resolved = ?5, settled = ?13,
         in_flight_nonce = ?6, in_flight_tx_id = ?7, condition = ?8, conditions = ?9, version = ?10,
         fencing_token = ?11, updated_at = ?12 WHERE submitter = ?1";
    let params = params![
        change.submitter().as_str(),
        flat.start_nonce,
        flat.next_nonce,
        flat.consumed,
        flat.resolved,
        flat.in_flight_nonce,
        flat.in_flight_tx_id.map(Id),
        flat.condition,
        flat.conditions,
        signed(change.expected().next().0),
        signed(change.token().0),
        now.as_micros(),
        flat.settled
    ];
    expect_one(rows::run(db, sql, params)?, || "cursor".to_owned())
}

fn write_tx(
    db: &Connection,
    change: &LaneChange,
    write: &TxWrite,
    event_row: Option<i64>,
    now: Timestamp,
) -> Result<(), Stop> {
    let flat = FlatFacts::from(write.facts());
    let sql = "UPDATE managed_tx SET state = ?4, sub_state = ?5, seq = ?6, nonce = ?7, tx_hash = ?8, mined_hash = ?9,
         mined_as = ?10, block_number = ?11, block_hash = ?12, status = ?13, gas_used = ?14,
         effective_gas_price = ?15, contract_address = ?16, mined_at = ?17, failure_code = ?18,
         failure_reason = ?19, wait_reason = ?20, bound_at = ?21, ended_at = ?22, amended = ?27, updated_at = ?23,
         fencing_token = ?24, queue_ord = CASE WHEN ?4 = 'QUEUED' THEN ord END,
         event_rows = CASE WHEN ?25 IS NULL THEN event_rows ELSE json_insert(event_rows, '$[#]', ?25) END
       WHERE tx_id = ?1 AND submitter = ?2 AND state = ?3 AND seq = ?26";
    let params = params![
        Id(write.tx_id().0),
        change.submitter().as_str(),
        write.from().name(),
        flat.state,
        flat.sub_state,
        flat.seq,
        flat.nonce,
        flat.tx_hash,
        flat.mined_hash,
        flat.mined_as,
        flat.block_number,
        flat.block_hash,
        flat.status,
        flat.gas_used,
        flat.effective_gas_price,
        flat.contract_address,
        flat.mined_at,
        flat.failure_code,
        flat.failure_reason,
        flat.wait_reason,
        flat.bound_at,
        flat.ended_at,
        now.as_micros(),
        signed(change.token().0),
        event_row,
        signed(write.from_seq().0),
        flat.amended
    ];
    expect_one(rows::run(db, sql, params)?, || format!("transaction {}", write.tx_id()))
}

fn write_attempt(
    db: &Connection,
    submitter: &SubmitterId,
    attempt: &NewAttempt,
    now: Timestamp,
) -> Result<(), Stop> {
    let sql = "INSERT INTO tx_attempt (submitter, nonce, n, tx_id, kind, route, hash, raw, fees, stored_at, next_send_at)
       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    let params = params![
        submitter.as_str(),
        signed(attempt.nonce.0),
        attempt.n,
        attempt.tx_id.map(|tx_id| Id(tx_id.0)),
        attempt.kind.name(),
        attempt.route.name(),
        attempt.hash.as_slice(),
        &attempt.raw[..],
        to_json(&attempt.fees),
        now.as_micros(),
        attempt.next_send_at.as_micros()
    ];
    rows::run(db, sql, params)?;
    Ok(())
}
