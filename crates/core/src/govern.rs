//! What is done about transactions that do not move, as data: steps with conditions and budgets.
//!
//! The default says what is wrong and goes on sending; it never cancels by itself.

use std::time::Duration;

use crate::ports::policy::{Decision, StuckAction, StuckContext, StuckPolicy};

/// One step: from an age on, at most so often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Not before the transaction has been bound for so long.
    pub after: Duration,
    /// What to do.
    pub action: StuckAction,
    /// At most so often.
    pub max: u32,
}

/// The rules of one submitter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckRules {
    /// A bound transaction younger than this is nobody's concern.
    pub stall_after: Duration,
    /// Sent so often, it is escalated.
    pub max_attempts: u32,
    /// Bound for so long, it is escalated.
    pub max_age: Duration,
    /// What to try before, in order.
    pub steps: Vec<Step>,
}

impl Default for StuckRules {
    fn default() -> Self {
        Self {
            stall_after: Duration::from_secs(60),
            max_attempts: 20,
            max_age: Duration::from_secs(3_600),
            steps: Vec::new(),
        }
    }
}

impl StuckPolicy for StuckRules {
    fn decide(&self, _context: &StuckContext<'_>) -> Decision {
        StuckAction::KeepTrying.into()
    }
}
