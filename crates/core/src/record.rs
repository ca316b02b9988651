//! A transaction as the store holds it: the immutable request, and the facts that the lane writes.

use alloy_primitives::{Address, B256};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::digest::Digest;
use crate::fees::{Gas, GasPrice};
use crate::ids::{FencingToken, Nonce, Order, RequestId, Scope, Seq, TxId};
use crate::intent::{Intent, IntentError};
use crate::limits::MAX_METADATA_BYTES;
use crate::named::named_enum;
use crate::state::{SubState, TxState};
use crate::submitter::SubmitterId;
use crate::text::NodeText;
use crate::time::Timestamp;
use crate::wait::WaitReason;

/// A caller's own JSON, kept as given and never looked into.
#[derive(Debug, Clone)]
pub struct Metadata(Box<RawValue>);

impl Metadata {
    /// Keeps a JSON text; `None` if it is not JSON or too long.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() <= MAX_METADATA_BYTES)
            .then(|| RawValue::from_string(text.to_owned()).ok())
            .flatten()
            .map(Self)
    }

    /// The text as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Metadata {}

/// A checked request, ready to be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTx {
    /// The id it will have if it is new.
    pub tx_id: TxId,
    /// As addressed by the caller.
    pub scope: Scope,
    /// The account that will send it.
    pub submitter: SubmitterId,
    /// The caller's name for it.
    pub request_id: RequestId,
    /// What and how.
    pub intent: Intent,
    /// What "the same request" is compared by.
    pub digest: Digest,
    /// The caller's own notes.
    pub metadata: Option<Metadata>,
}

impl NewTx {
    /// Checks an intent and names it.
    pub fn new(
        tx_id: TxId,
        scope: Scope,
        submitter: SubmitterId,
        request_id: RequestId,
        intent: Intent,
        metadata: Option<Metadata>,
    ) -> Result<Self, IntentError> {
        intent.check()?;
        let digest = Digest::of(&scope, &intent);
        Ok(Self { tx_id, scope, submitter, request_id, intent, digest, metadata })
    }
}

/// What became of one item of an accept call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// It is new, under the id that was proposed.
    New {
        /// Its place in the order.
        order: Order,
    },
    /// It was accepted before; here it is.
    Known(Box<TxRecord>),
    /// This id was accepted before with another payload.
    Mismatch {
        /// The transaction that has the id.
        tx_id: TxId,
    },
    /// No such submitter is registered.
    UnknownSubmitter,
    /// The store cannot hold this item; the others are not affected.
    Poison {
        /// What the store said.
        reason: NodeText,
    },
}

named_enum! {
    /// Which attempt was mined, seen from the request.
    pub enum MinedAs {
        /// Its own payload.
        Payload = "payload",
        /// A payload that replaced it by command.
        Replacement = "replacement",
        /// A placeholder: its effect did not happen.
        Placeholder = "placeholder",
        /// Something else took the nonce.
        Other = "other",
    }
}

impl MinedAs {
    /// Whether the request's effect happened with it.
    #[must_use]
    pub const fn carries_effect(self) -> bool {
        matches!(self, Self::Payload | Self::Replacement)
    }
}

/// What was mined in a transaction's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mined {
    /// Hash of the mined transaction.
    pub hash: B256,
    /// What that was, seen from the request.
    pub mined_as: MinedAs,
    /// Height of its block.
    pub block_number: u64,
    /// Hash of its block.
    pub block_hash: B256,
    /// Whether it succeeded.
    pub succeeded: bool,
    /// Gas it used.
    pub gas_used: Gas,
    /// What it paid per gas.
    pub effective_gas_price: GasPrice,
    /// The contract it created.
    pub contract_address: Option<Address>,
    /// When we first saw it there.
    pub at: Timestamp,
}

/// Why a transaction ended badly.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failure {
    /// Stable code.
    pub code: NodeText,
    /// In words.
    pub reason: NodeText,
}

/// Everything about a transaction that changes. Only its lane writes it, whole, in a fenced commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxFacts {
    /// Where it stands.
    pub state: TxState,
    /// Where exactly.
    pub sub_state: Option<SubState>,
    /// Number of its last event.
    pub seq: Seq,
    /// The slot it has, if any.
    pub nonce: Option<Nonce>,
    /// Hash of its current attempt.
    pub tx_hash: Option<B256>,
    /// What was mined in its slot.
    pub mined: Option<Mined>,
    /// Why it ended badly.
    pub failure: Option<Failure>,
    /// Why it waits.
    pub wait: Option<WaitReason>,
    /// When bytes were first stored.
    pub bound_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

impl TxFacts {
    /// As accepted.
    #[must_use]
    pub const fn accepted() -> Self {
        Self {
            state: TxState::Queued,
            sub_state: None,
            seq: Seq(1),
            nonce: None,
            tx_hash: None,
            mined: None,
            failure: None,
            wait: None,
            bound_at: None,
            ended_at: None,
        }
    }

    /// Whether the facts can be true together. The schema repeats this as named CHECKs.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        let slot = match self.state {
            TxState::Queued | TxState::Rejected => self.nonce.is_none() && self.tx_hash.is_none(),
            TxState::Allocated => self.nonce.is_some(),
            TxState::Tracking | TxState::Stuck | TxState::Confirmed | TxState::FailedFinal => {
                self.nonce.is_some() && self.tx_hash.is_some()
            }
            TxState::Cancelled | TxState::Expired => true,
        };
        let ending = self.state.is_terminal() == self.ended_at.is_some();
        // A receipt resolved from a placeholder's hash would tell a shop that it was paid.
        let proof = match (self.state, &self.mined) {
            (TxState::Confirmed, Some(mined)) => mined.succeeded && mined.mined_as.carries_effect(),
            (TxState::Confirmed, None) => false,
            (TxState::Queued | TxState::Allocated | TxState::Rejected, mined) => mined.is_none(),
            (TxState::Cancelled | TxState::Expired, Some(mined)) => !mined.mined_as.carries_effect(),
            _ => true,
        };
        slot && ending && proof
    }
}

/// A transaction in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxRecord {
    /// The request.
    pub request: NewTx,
    /// Its place in the order of acceptance.
    pub order: Order,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// What is true of it now.
    pub facts: TxFacts,
    /// When that was written.
    pub updated_at: Timestamp,
    /// Token of the lane that wrote it last.
    pub fencing_token: Option<FencingToken>,
}

impl TxRecord {
    /// Its id.
    #[must_use]
    pub const fn tx_id(&self) -> TxId {
        self.request.tx_id
    }
}
