//! JSON-RPC over HTTP, batch first.
//!
//! Three kinds of failure are kept apart to the top, because each permits another conclusion: a node's
//! own words ([`NodeError`]), a call that certainly never reached a node, and a call whose answer was
//! lost (both [`Trouble`]).

pub(crate) mod endpoint;
pub(crate) mod feed;
mod health;
pub(crate) mod pool;
mod socket;
mod verify;
pub(crate) mod wire;

pub(crate) use health::Quarantine;
pub(crate) use verify::{Identity, Strictness};

use std::fmt;
use std::time::Duration;

use gapless_core::text::NodeText;
use serde_json::Value;
use serde_json::value::RawValue;
use thiserror::Error;

/// One call of a batch.
#[derive(Debug, Clone)]
pub struct Call {
    /// Method.
    pub method: &'static str,
    /// Parameters, an array.
    pub params: Value,
}

impl Call {
    /// A call.
    #[must_use]
    pub const fn new(method: &'static str, params: Value) -> Self {
        Self { method, params }
    }
}

/// A node's refusal of one call.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message} (code {code})")]
pub struct NodeError {
    /// JSON-RPC code; not portable between clients.
    pub code: i64,
    /// Its words.
    pub message: String,
    /// What it added, such as a revert's return data.
    pub data: Option<Value>,
}

impl NodeError {
    /// Its words, bounded.
    #[must_use]
    pub fn text(&self) -> NodeText {
        NodeText::new(&self.to_string())
    }
}

/// How an HTTP exchange failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TroubleKind {
    /// No place among the requests under way: it never left.
    Busy,
    /// No connection: it never left.
    NotSent,
    /// No answer in time.
    TimedOut,
    /// The connection broke before the answer was whole.
    Broken,
    /// An HTTP status that is no JSON-RPC answer.
    Status {
        /// Which.
        status: u16,
        /// When the server wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// The answer cannot be understood.
    Malformed,
}

/// A failed HTTP exchange. Says nothing about the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// How.
    pub kind: TroubleKind,
    /// In words, without addresses.
    pub text: String,
}

impl Trouble {
    pub(crate) fn new(kind: TroubleKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub(crate) fn malformed(text: impl Into<String>) -> Self {
        Self::new(TroubleKind::Malformed, text)
    }

    /// Whether a node may have acted on the request all the same.
    #[must_use]
    pub const fn may_have_arrived(&self) -> bool {
        match self.kind {
            TroubleKind::Busy | TroubleKind::NotSent => false,
            TroubleKind::Status { status, .. } => !matches!(status, 429 | 503),
            TroubleKind::TimedOut | TroubleKind::Broken | TroubleKind::Malformed => true,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Trouble {}

/// Why one call of a batch has no result.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RpcError {
    /// The node refused it.
    #[error(transparent)]
    Node(NodeError),
    /// Nobody knows.
    #[error(transparent)]
    Trouble(#[from] Trouble),
}

/// The answer to one call: its result as raw JSON (`null` included), or why there is none.
pub type Reply = Result<Box<RawValue>, RpcError>;
