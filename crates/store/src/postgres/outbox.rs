//! Reading events so that none is ever missed.
//!
//! A row's number is drawn before its transaction commits, so a reader of `id > last` passes over rows that
//! commit late. Rows are read in the order of (writing transaction, id), and only below the oldest
//! transaction still running: below that line nothing can appear any more.

use gapless_core::event::{Event, EventCursor, EventKind, EventPage, EventRow, StoredEvent, Told};
use gapless_core::ids::{Epoch, Seq, TxId};
use gapless_core::limits::MAX_PAGE;
use gapless_core::ports::store::{StoreError, StoreResult};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::{error, read, rows};
use crate::flat;
use crate::memory::bounded;

pub(super) async fn epoch(connection: &mut PgConnection) -> StoreResult<Epoch> {
    let epoch = sqlx::query_scalar("SELECT epoch FROM gapless_meta").fetch_one(connection).await;
    epoch.map(Epoch).map_err(error::reading)
}

const AFTER: &str = "
SELECT xid::text::bigint AS commit, id, submitter, at, events FROM outbox_event
WHERE (xid, id) >= ($1::text::xid8, $2) AND xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY xid, id LIMIT $3";

fn event_row(row: &PgRow) -> StoreResult<EventRow> {
    let read = || -> Result<_, sqlx::Error> {
        let (submitter, events): (String, String) = (row.try_get("submitter")?, row.try_get("events")?);
        Ok((row.try_get("commit")?, row.try_get("id")?, submitter, rows::micros(row.try_get("at")?), events))
    };
    let (commit, id, submitter, at, events) = read().map_err(error::reading)?;
    flat::event_row(commit, id, &submitter, at, &events)
}

pub(super) async fn after(
    connection: &mut PgConnection,
    cursor: Option<EventCursor>,
    limit: usize,
) -> StoreResult<EventPage> {
    bounded("events", limit, MAX_PAGE)?;
    let epoch = epoch(connection).await?;
    let cursor = cursor.unwrap_or(EventCursor::start(epoch));
    if cursor.epoch != epoch {
        return Err(StoreError::CursorExpired);
    }
    let found = sqlx::query(AFTER)
        .bind(cursor.commit.to_string())
        .bind(flat::signed(cursor.row))
        .bind(limit as i64 + 1)
        .fetch_all(connection)
        .await
        .map_err(error::reading)?;
    let found = found.iter().map(event_row).collect::<StoreResult<Vec<_>>>()?;
    Ok(EventPage::of(cursor, limit, found))
}

const OF_TX: &str = "
SELECT o.xid::text::bigint AS commit, o.id, o.submitter, o.at, o.events
FROM (SELECT ('x' || encode(substr(m.event_rows, 1 + 8 * g.i, 8), 'hex'))::bit(64)::bigint AS id
      FROM managed_tx m, generate_series(0, octet_length(m.event_rows) / 8 - 1) AS g(i) WHERE m.tx_id = $1) u
JOIN outbox_event o ON o.id = u.id ORDER BY o.id";

pub(super) async fn of_tx(connection: &mut PgConnection, tx_id: TxId) -> StoreResult<Vec<Event>> {
    let Some(tx) = read::tx(connection, tx_id).await? else { return Ok(Vec::new()) };
    let found = sqlx::query(OF_TX).bind(tx_id.0).fetch_all(connection).await.map_err(error::reading)?;
    let Told { kind, data } = Told::plain(EventKind::TxAccepted);
    let accepted = StoredEvent { kind, tx_id: Some(tx_id), seq: Seq(1), data };
    let mut events = vec![Event::unfold(accepted, &tx.request.submitter, tx.created_at, 0)];
    for row in &found {
        events.extend(event_row(row)?.unfold().filter(|event| event.tx_id == Some(tx_id)));
    }
    Ok(events)
}
