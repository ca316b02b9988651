//! Commands: what operators and businesses ask of a lane. Any node inserts the row; only the lane
//! executes it, fenced, so a command can never race the lane's own decisions.

use serde_json::Value;

use crate::ids::{CommandId, TxId};
use crate::named::named_enum;
use crate::submitter::SubmitterId;
use crate::text::NodeText;
use crate::time::Timestamp;

named_enum! {
    /// What is asked.
    pub enum Verb {
        /// Withdraw a transaction.
        Cancel = "cancel",
        /// Give it another payload or other fees.
        Replace = "replace",
        /// Cancel everything that can be.
        Drain = "drain",
        /// Decide what happens to a stuck one.
        Resolve = "resolve",
        /// Take no new nonces.
        Pause = "pause",
        /// Go on.
        Resume = "resume",
        /// Acknowledge foreign use and go on.
        Unprotect = "unprotect",
        /// Re-read the chain.
        ResetNonce = "reset-nonce",
    }
}

/// A command to insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommand {
    /// Its id; a repeat is recognised by it.
    pub id: CommandId,
    /// For which lane.
    pub submitter: SubmitterId,
    /// For which transaction, if for one.
    pub tx_id: Option<TxId>,
    /// What.
    pub verb: Verb,
    /// With which figures.
    pub args: Value,
    /// Who asked, for the audit.
    pub actor: NodeText,
}

/// A command that waits for its lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// As inserted.
    pub command: NewCommand,
    /// When, by the database's clock.
    pub created_at: Timestamp,
}

/// What became of inserting one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CommandReceipt {
    /// Waiting for the lane.
    Inserted,
    /// This id is known; nothing was added.
    Duplicate,
    /// No such submitter.
    UnknownSubmitter,
}

named_enum! {
    /// How a command ended.
    pub enum CommandOutcome {
        /// Executed.
        Done = "done",
        /// Something else happened first.
        Lost = "lost",
        /// Not possible, see the code.
        Refused = "refused",
    }
}

/// A lane's word on a command it has executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandEnd {
    /// Which.
    pub id: CommandId,
    /// How it ended.
    pub outcome: CommandOutcome,
    /// Code of a refusal or a lost race.
    pub code: Option<NodeText>,
    /// What it found or did, in figures.
    pub result: Option<Value>,
}
