//! Accepting: one writer, so looking before inserting is enough.

use gapless_core::event::{EventKind, StoredEvent, Told};
use gapless_core::ids::{Order, Seq};
use gapless_core::ports::store::StoreResult;
use gapless_core::record::{Accepted, NewTx};
use gapless_core::submitter::SubmitterId;
use gapless_core::text::NodeText;
use gapless_core::time::Timestamp;
use rusqlite::{Connection, Transaction, params};

use super::rows::{self, Id};
use super::worker::unavailable;
use super::{lane, read};
use crate::flat::{options_column, to_json};

pub(super) fn accept(
    tx: &mut Transaction<'_>,
    items: &[NewTx],
    now: Timestamp,
) -> StoreResult<Vec<Accepted>> {
    let mut told: Vec<(&SubmitterId, Vec<StoredEvent>)> = Vec::new();
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        let outcome = one(tx, item, now)?;
        if matches!(outcome, Accepted::New { .. }) {
            let Told { kind, data } = Told::plain(EventKind::TxAccepted);
            let event = StoredEvent { kind, tx_id: Some(item.tx_id), seq: Seq(1), data };
            match told.iter_mut().find(|(submitter, _)| **submitter == item.submitter) {
                Some((_, events)) => events.push(event),
                None => told.push((&item.submitter, vec![event])),
            }
        }
        outcomes.push(outcome);
    }
    for (submitter, events) in told {
        tell(tx, submitter, &events, now)?;
    }
    Ok(outcomes)
}

fn one(tx: &mut Transaction<'_>, item: &NewTx, now: Timestamp) -> StoreResult<Accepted> {
    if let Some(known) = read::tx_by_request(tx, item.scope.as_str(), item.request_id.as_str())? {
        return Ok(if known.request.digest == item.digest {
            Accepted::Known(Box::new(known))
        } else {
            Accepted::Mismatch { tx_id: known.tx_id() }
        });
    }
    if !lane::is_registered(tx, &item.submitter)? {
        return Ok(Accepted::UnknownSubmitter);
    }
    let inserted = rows::run(
        tx,
        "INSERT INTO managed_tx (tx_id, submitter, scope, request_id, digest, payload, options, metadata, created_at,
           updated_at, queue_ord)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, (SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence
           WHERE name = 'managed_tx'))",
        params![
            Id(item.tx_id.0),
            item.submitter.as_str(),
            item.scope.as_str(),
            item.request_id.as_str(),
            &item.digest.0[..],
            to_json(&item.intent.payload),
            options_column(&item.intent),
            item.metadata.as_ref().map(|m| m.as_str()),
            now.as_micros(),
        ],
    );
    match inserted {
        Ok(_) => Ok(Accepted::New { order: Order(tx.last_insert_rowid().unsigned_abs()), at: now }),
        Err(error) if is_poison(&error) => Ok(Accepted::Poison { reason: NodeText::new(&error.to_string()) }),
        Err(error) => Err(unavailable(error)),
    }
}

/// Appends one row of events; its number.
pub(super) fn tell(
    db: &Connection,
    submitter: &SubmitterId,
    events: &[StoredEvent],
    now: Timestamp,
) -> StoreResult<i64> {
    rows::run(
        db,
        "INSERT INTO outbox_event (submitter, at, events) VALUES (?1, ?2, ?3)",
        params![submitter.as_str(), now.as_micros(), to_json(&events)],
    )
    .map_err(unavailable)?;
    Ok(db.last_insert_rowid())
}

/// Whether a statement failed because of its own values.
pub(super) fn is_poison(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
}
