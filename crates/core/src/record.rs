//! A transaction as the store holds it: the immutable request, and the facts that the lane writes.

use alloy_primitives::{Address, B256};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::digest::Digest;
use crate::fees::{FeeWishes, Gas, GasPrice};
use crate::ids::{FencingToken, Nonce, Order, RequestId, Scope, Seq, TxId};
use crate::intent::{Intent, IntentError, Options, Payload};
use crate::limits::MAX_METADATA_BYTES;
use crate::named::named_enum;
use crate::ports::policy::Diagnosis;
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
        /// When, by the store's clock.
        at: Timestamp,
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

named_enum! {
    /// Why a placeholder competes with a transaction for its nonce, and so how it ends if that one wins.
    pub enum Withdrawal {
        /// By command.
        Cancel = "cancel",
        /// Its `validUntil` passed, and it asked for this.
        Expiry = "expiry",
        /// The policy for the stuck decided so.
        Governor = "governor",
    }
}

/// What became of a transaction besides the ordinary way: what was asked of it since it was accepted, and what was done
/// because it did not move. Ordinary transactions have none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Amendment {
    /// What should happen instead of what was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    /// What its closure made of it, where the request did not say what should happen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filled: Option<Payload>,
    /// Fees asked for instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fees: Option<FeeWishes>,
    /// A placeholder competes for its nonce.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withdrawal: Option<Withdrawal>,
    /// A dearer attempt than this one of its slot is ordered; in vain once there is a later one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outbid: Option<u32>,
    /// It was mined once and its block vanished: it goes out again, and its `validUntil` does not withdraw it any more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reopened: bool,
    /// What the pool seemed to hold when somebody last looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diagnosis: Option<Diagnosis>,
    /// How often each step of the policy for the stuck was taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<u32>,
    /// When the last of them was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stepped_at: Option<Timestamp>,
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
    /// What left the ordinary way.
    pub amended: Option<Box<Amendment>>,
}

impl TxFacts {
    /// The amendment, made if there is none.
    pub fn amend(&mut self) -> &mut Amendment {
        self.amended.get_or_insert_default()
    }

    /// Why a placeholder competes for its nonce, if one does.
    #[must_use]
    pub fn withdrawal(&self) -> Option<Withdrawal> {
        self.amended.as_ref().and_then(|amended| amended.withdrawal)
    }

    /// Whether it was mined once, and its block vanished.
    #[must_use]
    pub fn is_reopened(&self) -> bool {
        self.amended.as_ref().is_some_and(|amended| amended.reopened)
    }

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
            amended: None,
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
    /// What was just accepted.
    #[must_use]
    pub const fn accepted(request: NewTx, order: Order, at: Timestamp) -> Self {
        let facts = TxFacts::accepted();
        Self { request, order, created_at: at, facts, updated_at: at, fencing_token: None }
    }

    /// Its id.
    #[must_use]
    pub const fn tx_id(&self) -> TxId {
        self.request.tx_id
    }

    /// What should happen: as accepted, as its closure made it, or as replaced since.
    #[must_use]
    pub fn payload(&self) -> &Payload {
        let amended = self.facts.amended.as_ref();
        let since = amended.and_then(|amended| amended.payload.as_ref().or(amended.filled.as_ref()));
        since.unwrap_or(&self.request.intent.payload)
    }

    /// Whether nobody knows yet what should happen: its closure has not returned.
    #[must_use]
    pub fn awaits_closure(&self) -> bool {
        let amended = self.facts.amended.as_ref();
        let known = amended.is_some_and(|amended| amended.payload.is_some() || amended.filled.is_some());
        self.request.intent.options.deferred && !known
    }

    /// How it should happen: as accepted, or with other fees asked for since.
    #[must_use]
    pub fn options(&self) -> Options {
        let fees = self.facts.amended.as_ref().and_then(|amended| amended.fees);
        Options { fees: fees.unwrap_or(self.request.intent.options.fees), ..self.request.intent.options }
    }
}
