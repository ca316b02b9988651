//! Policies that users replace: what to pay next, what the pool looks like, what to do with the stuck.
//! They only answer; the lane acts, within caps and fenced.

use alloy_primitives::B256;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::attempt::StoredAttempt;
use crate::bump::BumpRules;
use crate::fees::{FeeCaps, Fees};
use crate::ids::Nonce;
use crate::named::named_enum;
use crate::record::TxRecord;
use crate::time::Timestamp;

/// What a bump is decided on.
#[derive(Debug, Clone, Copy)]
pub struct BumpContext<'a> {
    /// Every attempt of the slot.
    pub attempts: &'a [StoredAttempt],
    /// What the market asks now.
    pub market: Fees,
    /// What nothing may exceed.
    pub caps: &'a FeeCaps,
    /// What the submitter's settings say.
    pub rules: &'a BumpRules,
    /// Now, by the database's clock.
    pub now: Timestamp,
}

/// Decides whether a slot gets a dearer attempt.
pub trait GasBumpPolicy: Send + Sync {
    /// New fees, or none to send the same bytes again. The lane enforces caps and the +10 % rule.
    fn bump(&self, context: &BumpContext<'_>) -> Option<Fees>;
}

/// What the pool seems to hold. Evidence, never proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "diagnosis", rename_all = "camelCase")]
pub enum Diagnosis {
    /// An attempt is in a pool.
    InPool,
    /// No pool holds any.
    Lost,
    /// Another transaction holds the nonce.
    ReplacedBy {
        /// Which.
        hash: B256,
    },
    /// It offers too little.
    Underpriced,
    /// A lower nonce is missing.
    GapBelow {
        /// Which.
        nonce: Nonce,
    },
    /// Nothing can be said.
    Unknown,
}

/// Looks into the pool.
#[async_trait]
pub trait MempoolInspector: Send + Sync {
    /// What the pool holds of a slot.
    async fn inspect(&self, attempts: &[StoredAttempt]) -> Diagnosis;
}

named_enum! {
    /// What to do with a transaction that does not move.
    pub enum StuckAction {
        /// Nothing beyond sending the same bytes again when they are due.
        KeepTrying = "keepTrying",
        /// Send the same bytes again now.
        Rebroadcast = "rebroadcast",
        /// Pay more.
        Bump = "bump",
        /// Let a placeholder take the nonce.
        Placeholder = "placeholder",
        /// Set it aside and tell a human.
        Escalate = "escalate",
        /// Stop the submitter.
        Protect = "protect",
    }
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// What to do.
    pub action: StuckAction,
    /// The step of the policy that says so; how often each was taken is kept with the transaction.
    pub step: Option<usize>,
}

impl From<StuckAction> for Decision {
    fn from(action: StuckAction) -> Self {
        Self { action, step: None }
    }
}

/// What a decision about the stuck is made on.
#[derive(Debug, Clone, Copy)]
pub struct StuckContext<'a> {
    /// The transaction.
    pub tx: &'a TxRecord,
    /// Its slot's attempts.
    pub attempts: &'a [StoredAttempt],
    /// What the pool seems to hold.
    pub diagnosis: &'a Diagnosis,
    /// Now, by the database's clock.
    pub now: Timestamp,
}

/// Governs the stuck. The default never cancels by itself.
pub trait StuckPolicy: Send + Sync {
    /// What to do now.
    fn decide(&self, context: &StuckContext<'_>) -> Decision;

    /// When it would next do something if nothing changes until then, for those who ask beforehand; none if nothing, or
    /// if it cannot tell.
    fn next_act(&self, _context: &StuckContext<'_>) -> Option<Timestamp> {
        None
    }
}
