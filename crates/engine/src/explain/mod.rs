//! Why a transaction is where it is, what shows it, and what happens next: a pure function of what is stored and what
//! this node sees of the chain.
//!
//! Lanes write a reason only where a write is worth it, and a fact may have passed since. So the reason is told when it
//! is asked for: what is stored counts unless what is known now contradicts it ([`reason`]), and the rest is derived.
//! Nothing here decides anything, so a reader can never change what a lane does.

mod evidence;
mod next;
pub mod reason;
mod summary;

use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::allocation::Exhibit;
use gapless_core::attempt::StoredAttempt;
use gapless_core::cursor::Cursor;
use gapless_core::fees::GasPrice;
use gapless_core::ids::Nonce;
use gapless_core::ports::chain::EndpointStatus;
use gapless_core::record::{Mined, TxRecord};
use gapless_core::slot::current;
use gapless_core::state::TxState;
use gapless_core::time::Timestamp;
use gapless_core::wait::WaitReason;
use serde::Serialize;
use serde_json::Value;

use crate::settings::LaneSettings;

/// The chain as this node sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sight {
    /// Height of the head.
    pub head: Option<u64>,
    /// Its base fee.
    pub base_fee: Option<GasPrice>,
    /// The block that stands where the transaction was mined, if that is still known.
    pub at_mined: Option<B256>,
    /// The chain's endpoints; none where another node runs the lane, whose endpoints are what counts.
    pub endpoints: Vec<EndpointStatus>,
}

impl Sight {
    /// Whether no endpoint of the chain answers.
    fn is_dark(&self) -> bool {
        !self.endpoints.is_empty() && self.endpoints.iter().all(|endpoint| !endpoint.healthy)
    }
}

/// Everything an explanation is made of.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The transaction.
    pub tx: &'a TxRecord,
    /// Its submitter's cursor.
    pub cursor: &'a Cursor,
    /// Every attempt of its slot.
    pub attempts: &'a [StoredAttempt],
    /// Who else used its nonce, as recorded.
    pub foreign: Option<&'a Exhibit>,
    /// The first of its submitter's queue.
    pub first: Option<&'a TxRecord>,
    /// The chain.
    pub sight: &'a Sight,
    /// Its submitter's settings.
    pub settings: &'a LaneSettings,
    /// The node that runs its lane.
    pub owner: Option<&'a str>,
    /// Now, by the database's clock.
    pub now: Timestamp,
}

impl<'a> Scene<'a> {
    /// The attempt that goes out when the slot is sent again.
    pub(crate) fn current(&self) -> Option<&'a StoredAttempt> {
        current(self.attempts)
    }

    /// Confirmations so far, and how many are needed: more where the nonce went to something without the effect.
    fn depth(&self, mined: &Mined) -> (u64, u64) {
        let required = self.settings.confirmations;
        let required = match mined.mined_as.carries_effect() {
            true => required,
            false => required.max(self.settings.patience(&self.tx.request.submitter.chain())),
        };
        (self.sight.head.unwrap_or(mined.block_number).saturating_sub(mined.block_number), required)
    }

    /// Whether the chain's silence is a reason. An endpoint counts as down after one call that failed, and before the
    /// first that worked, so what has just changed is not judged by it.
    fn is_in_the_dark(&self) -> bool {
        self.sight.is_dark() && self.now.since(self.tx.updated_at) >= SILENCE
    }

    /// The slot it has or had.
    fn nonce(&self) -> Option<Nonce> {
        self.tx.facts.nonce
    }
}

/// A transaction that changed more recently does not wait for endpoints.
const SILENCE: Duration = Duration::from_secs(5);

/// A fact that a human can check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// What is told.
    pub what: &'static str,
    /// The figure, hash or text.
    pub value: Value,
}

/// What will happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Next {
    /// What Gapless does, or what a human must do.
    pub action: String,
    /// When, where that is known.
    pub at: Option<Timestamp>,
}

/// The answer to "why".
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Code of the wait, or of the story where nothing is waited for.
    pub reason: &'static str,
    /// One sentence with figures.
    pub summary: String,
    /// What shows it.
    pub evidence: Vec<Evidence>,
    /// What happens next.
    pub next: Next,
}

/// Where a transaction stands: it waits for something, or its story needs no wait.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    Waits(WaitReason),
    /// First in the queue, and nothing is in its way.
    AboutToBind,
    /// It has a nonce, and somebody else signs.
    Allocated,
    /// Sent, and nothing is known to be wrong.
    InPool,
    Ended(TxState),
}

impl Standing {
    fn of(scene: &Scene<'_>) -> Self {
        let state = scene.tx.facts.state;
        match reason::wait_reason(scene) {
            _ if state.is_terminal() => Self::Ended(state),
            Some(wait) => Self::Waits(wait),
            None if state.is_bound() => Self::InPool,
            None if state == TxState::Allocated => Self::Allocated,
            None => Self::AboutToBind,
        }
    }

    const fn code(&self) -> &'static str {
        match self {
            Self::Waits(wait) => wait.code(),
            Self::AboutToBind => "Queued",
            Self::Allocated => "Allocated",
            Self::InPool => "InPool",
            Self::Ended(TxState::Confirmed) => "Confirmed",
            Self::Ended(TxState::Rejected) => "Rejected",
            Self::Ended(TxState::Cancelled) => "Cancelled",
            Self::Ended(TxState::Expired) => "Expired",
            Self::Ended(_) => "Failed",
        }
    }
}

/// Explains a transaction.
#[must_use]
pub fn explain(scene: &Scene<'_>) -> Explanation {
    let standing = Standing::of(scene);
    Explanation {
        reason: standing.code(),
        summary: summary::of(scene, &standing),
        evidence: evidence::of(scene, &standing),
        next: next::of(scene, &standing),
    }
}

#[cfg(test)]
mod tests;
