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
}

impl EventCursor {
    /// The beginning of an epoch.
    #[must_use]
    pub const fn start(epoch: Epoch) -> Self {
        Self { epoch, commit: 0, row: 0 }
    }

    /// The opaque text handed to readers.
    #[must_use]
    pub fn encode(&self) -> String {
        format!("{}.{:x}.{:x}", self.epoch.0.simple(), self.commit, self.row)
    }

    /// Reads [`Self::encode`]'s text.
    #[must_use]
    pub fn decode(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let epoch = Epoch(parts.next()?.parse().ok()?);
        let commit = u64::from_str_radix(parts.next()?, 16).ok()?;
        let row = u64::from_str_radix(parts.next()?, 16).ok()?;
        parts.next().is_none().then_some(Self { epoch, commit, row })
    }
}

/// A page of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPage {
    /// In order.
    pub events: Vec<Event>,
    /// Where to go on; the given cursor if there was nothing new.
    pub next: EventCursor,
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn cursors_round_trip_and_nonsense_is_refused() {
        let cursor = EventCursor { epoch: Epoch(Uuid::from_u128(7)), commit: 4711, row: 12 };
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
    fn names_round_trip() {
        assert!(EventKind::ALL.iter().all(|k| EventKind::named(k.name()) == Some(*k)));
    }
}
