//! What the outside sees of an attempt.

use alloy_primitives::B256;
use gapless_core::attempt::{AttemptKind, Refusal, Route, StoredAttempt};
use gapless_core::fees::Fees;
use gapless_core::ids::TxId;
use gapless_core::text::NodeText;
use gapless_core::time::Timestamp;
use serde::Serialize;

/// What is known to have become of an attempt. From its commit on it is assumed sent: that alone is nothing to tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OutcomeView {
    /// `mined`, or the class of the last refusal.
    pub code: NodeText,
    /// A node's words.
    pub text: Option<NodeText>,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptView {
    /// Hash of its bytes.
    pub hash: B256,
    /// What it carries.
    pub kind: AttemptKind,
    /// Whose it is; none for a placeholder that filled a slot nobody had.
    pub tx_id: Option<TxId>,
    /// Its door.
    pub route: Route,
    /// Fees as signed.
    pub fees: Fees,
    /// When it was stored.
    pub at: Timestamp,
    /// What became of it, where something is known.
    pub outcome: Option<OutcomeView>,
}

impl AttemptView {
    /// The view of an attempt in a slot that went to the transaction `mined`, if it did.
    #[must_use]
    pub fn of(attempt: &StoredAttempt, mined: Option<B256>) -> Self {
        let refused = |refusal: Refusal| OutcomeView { code: refusal.code, text: Some(refusal.text) };
        let outcome = match mined == Some(attempt.hash) {
            true => Some(OutcomeView { code: NodeText::new("mined"), text: None }),
            false => attempt.refusal.clone().map(refused),
        };
        Self {
            hash: attempt.hash,
            kind: attempt.kind,
            tx_id: attempt.tx_id,
            route: attempt.route,
            fees: attempt.fees,
            at: attempt.stored_at,
            outcome,
        }
    }
}
