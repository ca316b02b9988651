//! Attempts: signed bytes for one slot.
//!
//! Invariant *durable-first* lives in two types. A [`NewAttempt`] is signed in memory and can only
//! be written; a [`StoredAttempt`] comes out of a store and is the only thing a
//! [`Chain`](crate::ports::chain::Chain) will broadcast. There is no conversion from the first to the
//! second outside a store's answer, so bytes cannot reach a node before their commit.

use alloy_primitives::{B256, Bytes};
use serde::{Deserialize, Serialize};

use crate::fees::Fees;
use crate::ids::{Nonce, TxId};
use crate::named::named_enum;
use crate::text::NodeText;
use crate::time::Timestamp;

named_enum! {
    /// What an attempt carries.
    pub enum AttemptKind {
        /// The request's own payload.
        Payload = "payload",
        /// A payload that replaced it by command.
        Replacement = "replacement",
        /// Nothing: it only consumes the nonce.
        Placeholder = "placeholder",
        /// Bytes signed by the business or by an outside signer.
        External = "external",
    }
}

impl AttemptKind {
    /// Whether mining it gives the request its effect.
    #[must_use]
    pub const fn carries_effect(self) -> bool {
        !matches!(self, Self::Placeholder)
    }
}

named_enum! {
    /// Through which door an attempt goes out; it stays on it for ever.
    pub enum Route {
        /// The chain's public endpoints.
        Public = "public",
        /// The chain's private endpoints only.
        Private = "private",
    }
}

/// Freshly signed bytes, to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAttempt {
    /// The slot.
    pub nonce: Nonce,
    /// Ordinal within the slot, from 0.
    pub n: u32,
    /// The transaction it belongs to; none for a placeholder that fills a recycled slot.
    pub tx_id: Option<TxId>,
    /// What it carries.
    pub kind: AttemptKind,
    /// Its door.
    pub route: Route,
    /// Hash of the bytes.
    pub hash: B256,
    /// The signed bytes.
    pub raw: Bytes,
    /// Fees as signed.
    pub fees: Fees,
    /// When to send it again if nothing was heard, in database time.
    pub next_send_at: Timestamp,
}

/// Bytes the store holds, with what is known of their way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAttempt {
    attempt: NewAttempt,
    /// When it was stored.
    pub stored_at: Timestamp,
    /// How often it was claimed for sending again.
    pub resends: u32,
    /// The last refusal, if any.
    pub refusal: Option<Refusal>,
}

impl StoredAttempt {
    /// For store adapters only, on rows they have read back or committed.
    #[must_use]
    pub const fn read_from_store(
        attempt: NewAttempt,
        stored_at: Timestamp,
        resends: u32,
        refusal: Option<Refusal>,
    ) -> Self {
        Self { attempt, stored_at, resends, refusal }
    }

    /// Whether another attempt goes out in its place.
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        self.attempt.next_send_at >= SUPERSEDED
    }

    /// A claim to send it again was committed.
    pub fn claimed(&mut self, next_send_at: Timestamp, sends: bool) {
        self.attempt.next_send_at = next_send_at;
        self.resends = self.resends.saturating_add(u32::from(sends));
    }
}

impl std::ops::Deref for StoredAttempt {
    type Target = NewAttempt;

    fn deref(&self) -> &NewAttempt {
        &self.attempt
    }
}

/// When an attempt is due that must not go out any more: never. It is watched all the same.
pub const SUPERSEDED: Timestamp = Timestamp::from_micros(253_402_300_799_000_000);

/// What a node said when it did not take an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Class of the answer, as [`SendOutcome::code`](crate::outcome::SendOutcome::code).
    pub code: NodeText,
    /// The node's words.
    pub text: NodeText,
}
