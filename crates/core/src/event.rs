//! Domain events (invariant *told*): what happened, in an order nobody can miss.
//!
//! Events are written in the same commit as the facts they tell. Per transaction they are numbered
//! 1..n without a hole; the number and the transaction's id make the event's id, so a consumer that
//! sees one twice knows it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{Epoch, Seq, TxId};
use crate::named::named_enum;
use crate::submitter::SubmitterId;
use crate::time::Timestamp;

named_enum! {
    /// What kind of thing happened.
    pub enum EventKind {
        /// Accepted and committed.
        TxAccepted = "tx.accepted",
        /// Bytes stored and on their way.
        TxSubmitted = "tx.submitted",
        /// A new attempt of this transaction.
        TxReplaced = "tx.replaced",
        /// A node refused; nothing is lost.
        TxAttemptRefused = "tx.attempt_refused",
        /// Mined.
        TxReceiptUpdated = "tx.receipt_updated",
        /// Confirmations changed.
        TxConfirmations = "tx.confirmations",
        /// Final success.
        TxConfirmed = "tx.confirmed",
        /// Final failure.
        TxFailed = "tx.failed",
        /// Withdrawn for good.
        TxCancelled = "tx.cancelled",
        /// Out of time for good.
        TxExpired = "tx.expired",
        /// Refused before a nonce was bound.
        TxRejected = "tx.rejected",
        /// Its block vanished.
        TxReorged = "tx.reorged",
        /// A reorg deeper than promised.
        TxFinalityBroken = "tx.finality_broken",
        /// Waits for another nonce.
        TxRequeued = "tx.requeued",
        /// Set aside.
        TxStuck = "tx.stuck",
        /// Taken up again.
        TxUnstuck = "tx.unstuck",
        /// A nonce is reserved for an outside signer.
        TxAllocated = "tx.allocated",
        /// A command was executed, lost its race, or was refused.
        TxCommand = "tx.command",
        /// Somebody else used the key.
        SubmitterProtected = "submitter.protected",
        /// No new nonces for now.
        SubmitterHold = "submitter.hold",
        /// Goes on.
        SubmitterResumed = "submitter.resumed",
        /// Below its threshold.
        SubmitterLowBalance = "submitter.low_balance",
        /// Health checks failed.
        SubmitterDisabled = "submitter.disabled",
        /// Health checks pass again.
        SubmitterEnabled = "submitter.enabled",
    }
}

impl EventKind {
    /// Whether it ends a transaction.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::TxConfirmed | Self::TxFailed | Self::TxCancelled | Self::TxExpired | Self::TxRejected
        )
    }
}

/// One thing to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// What kind.
    pub kind: EventKind,
    /// Its figures; an empty object if there are none.
    pub data: Value,
}

impl Told {
    /// An event without figures.
    #[must_use]
    pub fn plain(kind: EventKind) -> Self {
        Self { kind, data: Value::Object(serde_json::Map::new()) }
    }

    /// An event with figures.
    #[must_use]
    pub const fn with(kind: EventKind, data: Value) -> Self {
        Self { kind, data }
    }
}

/// The compact form in which a commit's events are stored, several to a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredEvent {
    /// Kind.
    #[serde(rename = "e")]
    pub kind: EventKind,
    /// Transaction; none for a submitter's event.
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    pub tx_id: Option<TxId>,
    /// Number within the transaction's history, or the lane's version for a submitter's event.
    #[serde(rename = "s")]
    pub seq: Seq,
    /// Figures.
    #[serde(rename = "d", default = "empty", skip_serializing_if = "is_empty")]
    pub data: Value,
}

fn empty() -> Value {
    Value::Object(serde_json::Map::new())
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty)
}

/// An event as a reader gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Unique; the same however often it is delivered.
    pub id: String,
    /// Kind.
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// Transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_id: Option<TxId>,
    /// Submitter.
    pub submitter: SubmitterId,
    /// Number within the transaction's history.
    pub seq: Seq,
    /// When it was committed, by the database's clock.
    pub at: Timestamp,
    /// Figures.
    pub data: Value,
}

impl Event {
    /// Unfolds a stored event.
    #[must_use]
    pub fn unfold(stored: StoredEvent, submitter: &SubmitterId, at: Timestamp, ordinal: usize) -> Self {
        let id = match stored.tx_id {
            Some(tx_id) => format!("{tx_id}:{}", stored.seq),
            None => format!("{}:{}.{ordinal}", submitter.as_str(), stored.seq),
        };
        let StoredEvent { kind, tx_id, seq, data } = stored;
        Self { id, kind, tx_id, submitter: submitter.clone(), seq, at, data }
    }
}

/// A place in the stream of events: everything up to it has been read.
///
/// `commit` orders by the writing transaction, not by when a row number was drawn: a reader that
/// followed row numbers would lose rows that commit late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventCursor {
    /// The database's epoch.
    pub epoch: Epoch,
    /// The writing transaction.
    pub commit: u64,
    /// The row within it.
    pub row: u64,
    /// How many of that row's events were read.
    pub taken: u64,
}

impl EventCursor {
    /// The beginning of an epoch.
    #[must_use]
    pub const fn start(epoch: Epoch) -> Self {
        Self { epoch, commit: 0, row: 0, taken: 0 }
    }

    /// The opaque text handed to readers.
    #[must_use]
    pub fn encode(&self) -> String {
        format!("{}.{:x}.{:x}.{:x}", self.epoch.0.simple(), self.commit, self.row, self.taken)
    }

    /// Reads [`Self::encode`]'s text.
    #[must_use]
    pub fn decode(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let epoch = Epoch(parts.next()?.parse().ok()?);
        let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
        let cursor = Self { epoch, commit: number()?, row: number()?, taken: number()? };
        parts.next().is_none().then_some(cursor)
    }
}

/// A row of the stream: one commit's events of one lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// The writing transaction.
    pub commit: u64,
    /// The row within it.
    pub row: u64,
    /// Whose events.
    pub submitter: SubmitterId,
    /// When.
    pub at: Timestamp,
    /// What, in order.
    pub events: Vec<StoredEvent>,
}

impl EventRow {
    /// The events as a reader gets them.
    pub fn unfold(self) -> impl Iterator<Item = Event> {
        let Self { submitter, at, events, .. } = self;
        events.into_iter().enumerate().map(move |(i, event)| Event::unfold(event, &submitter, at, i))
    }
}

/// A page of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPage {
    /// In order, at most as many as were asked for.
    pub events: Vec<Event>,
    /// Where to go on; the given cursor if there was nothing new.
    pub next: EventCursor,
}

impl EventPage {
    /// Pages through rows that stand at or after `cursor`, in order.
    #[must_use]
    pub fn of(cursor: EventCursor, limit: usize, rows: impl IntoIterator<Item = EventRow>) -> Self {
        let mut page = Self { events: Vec::new(), next: cursor };
        for row in rows {
            let (commit, id) = (row.commit, row.row);
            let begun = (commit, id) == (cursor.commit, cursor.row);
            let skip = if begun { cursor.taken } else { 0 };
            let room = limit - page.events.len();
            let before = page.events.len();
            page.events.extend(row.unfold().skip(skip as usize).take(room));
            let taken = (page.events.len() - before) as u64;
            if taken > 0 {
                page.next = EventCursor { commit, row: id, taken: skip + taken, ..cursor };
            }
            if page.events.len() >= limit {
                break;
            }
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn cursors_round_trip_and_nonsense_is_refused() {
        let cursor = EventCursor { epoch: Epoch(Uuid::from_u128(7)), commit: 4711, row: 12, taken: 3 };
        assert_eq!(EventCursor::decode(&cursor.encode()), Some(cursor));
        for bad in ["", "x.1.2", "1.2", &format!("{}.3", cursor.encode())] {
            assert_eq!(EventCursor::decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_stored_event_is_small_and_unfolds_with_a_stable_id() {
        let tx_id = TxId(Uuid::from_u128(1));
        let stored =
            StoredEvent { kind: EventKind::TxAccepted, tx_id: Some(tx_id), seq: Seq(1), data: empty() };
        let text = serde_json::to_string(&stored).unwrap();
        assert_eq!(text, r#"{"e":"tx.accepted","x":"00000000-0000-0000-0000-000000000001","s":1}"#);
        assert_eq!(serde_json::from_str::<StoredEvent>(&text).unwrap(), stored);
        let submitter = "eip155:1:0x0000000000000000000000000000000000000001".parse().unwrap();
        let event = Event::unfold(stored, &submitter, Timestamp::default(), 0);
        assert_eq!(event.id, format!("{tx_id}:1"));
    }

    #[test]
    fn pages_of_any_size_show_every_event_once() {
        let submitter: SubmitterId = "eip155:1:0x0000000000000000000000000000000000000001".parse().unwrap();
        let row = |row: u64, n: u64| EventRow {
            commit: 5,
            row,
            submitter: submitter.clone(),
            at: Timestamp::default(),
            events: (0..n)
                .map(|i| StoredEvent {
                    kind: EventKind::TxStuck,
                    tx_id: None,
                    seq: Seq(row * 10 + i),
                    data: empty(),
                })
                .collect(),
        };
        let rows = [row(1, 3), row(2, 1), row(4, 5)];
        for limit in 1..12 {
            let mut cursor = EventCursor::start(Epoch(Uuid::nil()));
            let mut seen = Vec::new();
            loop {
                let at_or_after = |row: &&EventRow| (row.commit, row.row) >= (cursor.commit, cursor.row);
                let page = EventPage::of(cursor, limit, rows.iter().filter(at_or_after).cloned());
                if page.events.is_empty() {
                    break;
                }
                assert!(page.events.len() <= limit);
                seen.extend(page.events.iter().map(|e| e.seq.0));
                cursor = page.next;
            }
            assert_eq!(seen, [10, 11, 12, 20, 40, 41, 42, 43, 44], "limit {limit}");
        }
    }

    #[test]
    fn names_round_trip() {
        assert!(EventKind::ALL.iter().all(|k| EventKind::named(k.name()) == Some(*k)));
    }
}
