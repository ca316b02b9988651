//! Reads.

use alloy_primitives::B256;
use gapless_core::allocation::Allocation;
use gapless_core::attempt::StoredAttempt;
use gapless_core::event::{Event, EventCursor, EventKind, EventPage, EventRow, StoredEvent, Told};
use gapless_core::ids::{Nonce, Seq, TxId};
use gapless_core::ports::store::{StoreResult, SubmitterInfo, TxFilter};
use gapless_core::record::TxRecord;
use gapless_core::submitter::SubmitterId;
use rusqlite::{Connection, Row, params};

use super::rows::{self, Id};
use crate::flat::{self, FlatTx, signed};

const SUBMITTER: &str = "SELECT s.settings, s.created_at, c.*, l.owner_node, l.owner_process, l.expires_at,
    l.fencing_token AS lease_token
  FROM submitter s JOIN submitter_nonce_cursor c ON c.submitter = s.submitter
  LEFT JOIN submitter_lease l ON l.submitter = s.submitter";

type InfoColumns = (String, String, i64, flat::FlatCursor, Option<(String, uuid::Uuid, i64, i64)>);

fn info_columns(row: &Row<'_>) -> rusqlite::Result<InfoColumns> {
    let lease = match row.get::<_, Option<String>>("owner_node")? {
        Some(node) => {
            let process: Id = row.get("owner_process")?;
            Some((node, process.0, row.get("lease_token")?, row.get("expires_at")?))
        }
        None => None,
    };
    Ok((row.get("submitter")?, row.get("settings")?, row.get("created_at")?, rows::cursor(row)?, lease))
}

fn info((name, settings, created_at, cursor, lease): InfoColumns) -> StoreResult<SubmitterInfo> {
    let lease =
        lease.map(|(node, process, token, at)| flat::lease_row(&node, process, token, at)).transpose()?;
    flat::submitter_info(&name, settings, created_at, cursor, lease)
}

pub(super) fn submitter(db: &Connection, submitter: &SubmitterId) -> StoreResult<Option<SubmitterInfo>> {
    let sql = format!("{SUBMITTER} WHERE s.submitter = ?1");
    rows::first(db, &sql, [submitter.as_str()], info_columns)?.map(info).transpose()
}

pub(super) fn submitters(db: &Connection, after: &str, limit: usize) -> StoreResult<Vec<SubmitterInfo>> {
    let sql = format!("{SUBMITTER} WHERE s.submitter > ?1 ORDER BY s.submitter LIMIT ?2");
    let found = rows::all(db, &sql, params![after, signed(limit as u64)], info_columns)?;
    found.into_iter().map(info).collect()
}

pub(super) fn tx(db: &Connection, tx_id: TxId) -> StoreResult<Option<TxRecord>> {
    let sql = "SELECT * FROM managed_tx WHERE tx_id = ?1";
    rows::first(db, sql, [Id(tx_id.0)], rows::tx)?.map(FlatTx::record).transpose()
}

pub(super) fn tx_by_request(db: &Connection, scope: &str, request_id: &str) -> StoreResult<Option<TxRecord>> {
    let sql = "SELECT * FROM managed_tx WHERE scope = ?1 AND request_id = ?2";
    rows::first(db, sql, [scope, request_id], rows::tx)?.map(FlatTx::record).transpose()
}

pub(super) fn tx_by_hash(db: &Connection, hash: B256) -> StoreResult<Option<TxRecord>> {
    let sql = "SELECT m.* FROM tx_attempt a JOIN managed_tx m ON m.tx_id = a.tx_id WHERE a.hash = ?1";
    rows::first(db, sql, [hash.as_slice()], rows::tx)?.map(FlatTx::record).transpose()
}

pub(super) fn list(db: &Connection, filter: &TxFilter) -> StoreResult<Vec<TxRecord>> {
    let names: Vec<String> = filter.states.iter().map(|state| format!("'{state}'")).collect();
    let states = if names.is_empty() { String::new() } else { format!("AND state IN ({})", names.join(",")) };
    let after = filter.after.map_or(0, |order| signed(order.0));
    let limit = signed(filter.limit as u64);
    let found = match &filter.submitter {
        Some(submitter) => {
            let sql = format!(
                "SELECT * FROM managed_tx WHERE submitter = ?1 AND ord > ?2 {states} ORDER BY ord LIMIT ?3"
            );
            rows::all(db, &sql, params![submitter.as_str(), after, limit], rows::tx)?
        }
        None => {
            let sql = format!("SELECT * FROM managed_tx WHERE ord > ?1 {states} ORDER BY ord LIMIT ?2");
            rows::all(db, &sql, params![after, limit], rows::tx)?
        }
    };
    found.into_iter().map(FlatTx::record).collect()
}

pub(super) fn attempts(
    db: &Connection,
    submitter: &SubmitterId,
    from: Nonce,
    to: Nonce,
) -> StoreResult<Vec<StoredAttempt>> {
    let sql =
        "SELECT * FROM tx_attempt WHERE submitter = ?1 AND nonce >= ?2 AND nonce < ?3 ORDER BY nonce, n";
    let found = rows::all(db, sql, params![submitter.as_str(), signed(from.0), signed(to.0)], rows::attempt)?;
    found.into_iter().map(|flat| flat.attempt()).collect()
}

pub(super) fn allocations(
    db: &Connection,
    submitter: &SubmitterId,
    from: Nonce,
    to: Nonce,
) -> StoreResult<Vec<Allocation>> {
    let sql = "SELECT * FROM submitter_nonce_allocation
               WHERE submitter = ?1 AND nonce >= ?2 AND nonce < ?3 ORDER BY nonce";
    let found =
        rows::all(db, sql, params![submitter.as_str(), signed(from.0), signed(to.0)], rows::allocation)?;
    found.into_iter().map(|flat| flat.allocation()).collect()
}

type EventColumns = (i64, String, i64, String);

fn event_columns(row: &Row<'_>) -> rusqlite::Result<EventColumns> {
    Ok((row.get("id")?, row.get("submitter")?, row.get("at")?, row.get("events")?))
}

fn event_row((id, submitter, at, events): EventColumns) -> StoreResult<EventRow> {
    flat::event_row(id, id, &submitter, at, &events)
}

pub(super) fn events_after(db: &Connection, cursor: EventCursor, limit: usize) -> StoreResult<EventPage> {
    let sql = "SELECT * FROM outbox_event WHERE id >= ?1 ORDER BY id LIMIT ?2";
    let found = rows::all(db, sql, params![signed(cursor.row), signed(limit as u64 + 1)], event_columns)?;
    let found = found.into_iter().map(event_row).collect::<StoreResult<Vec<_>>>()?;
    Ok(EventPage::of(cursor, limit, found))
}

pub(super) fn tx_events(db: &Connection, tx_id: TxId) -> StoreResult<Vec<Event>> {
    let Some(record) = tx(db, tx_id)? else { return Ok(Vec::new()) };
    let Told { kind, data } = Told::plain(EventKind::TxAccepted);
    let accepted = StoredEvent { kind, tx_id: Some(tx_id), seq: Seq(1), data };
    let mut events = vec![Event::unfold(accepted, &record.request.submitter, record.created_at, 0)];
    let sql = "SELECT o.* FROM managed_tx m, json_each(m.event_rows) e JOIN outbox_event o ON o.id = e.value
               WHERE m.tx_id = ?1 ORDER BY o.id";
    for columns in rows::all(db, sql, [Id(tx_id.0)], event_columns)? {
        events.extend(event_row(columns)?.unfold().filter(|event| event.tx_id == Some(tx_id)));
    }
    Ok(events)
}
