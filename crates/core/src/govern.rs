//! What is done about transactions that do not move, as data: steps with conditions and budgets.
//!
//! The default says what is wrong and goes on sending; it never cancels by itself. Whatever the rules say, they come to
//! an end: every step has a budget, [`StuckRules::check`] refuses rules without one, and what was taken is kept with the
//! transaction, so neither a crash nor a takeover gives a budget back.

use std::collections::BTreeSet;
use std::time::Duration;

use thiserror::Error;

use crate::limits::{MAX_STUCK_BUDGET, MAX_STUCK_STEPS};
use crate::named::named_enum;
use crate::ports::policy::{Decision, Diagnosis, StuckAction, StuckContext, StuckPolicy};
use crate::state::TxState;
use crate::time::Timestamp;

named_enum! {
    /// A diagnosis without its figures, as conditions name it.
    pub enum Finding {
        /// An attempt is in a pool.
        InPool = "inPool",
        /// No pool holds any.
        Lost = "lost",
        /// Another transaction holds the nonce.
        ReplacedBy = "replacedBy",
        /// It offers too little.
        Underpriced = "underpriced",
        /// A lower nonce is missing.
        GapBelow = "gapBelow",
        /// Nothing can be said, or nobody looked.
        Unknown = "unknown",
    }
}

impl From<&Diagnosis> for Finding {
    fn from(diagnosis: &Diagnosis) -> Self {
        match diagnosis {
            Diagnosis::InPool => Self::InPool,
            Diagnosis::Lost => Self::Lost,
            Diagnosis::ReplacedBy { .. } => Self::ReplacedBy,
            Diagnosis::Underpriced => Self::Underpriced,
            Diagnosis::GapBelow { .. } => Self::GapBelow,
            Diagnosis::Unknown => Self::Unknown,
        }
    }
}

/// One step: from an age on, at most so often, under a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Not before the transaction has been bound for so long.
    pub after: Duration,
    /// What to do.
    pub action: StuckAction,
    /// At most so often; [`Step::UNBOUNDED`] if nobody said.
    pub max: u32,
    /// Only if the last diagnosis is one of these; none always.
    pub when: Option<BTreeSet<Finding>>,
}

impl Step {
    /// A budget that is none. Rules with it do not pass [`StuckRules::check`].
    pub const UNBOUNDED: u32 = u32::MAX;

    /// What `max` means where nobody wrote it: once, where more makes no sense.
    #[must_use]
    pub const fn default_max(action: StuckAction) -> u32 {
        if repeats(action) { Self::UNBOUNDED } else { 1 }
    }
}

const fn repeats(action: StuckAction) -> bool {
    matches!(action, StuckAction::Rebroadcast | StuckAction::Bump)
}

/// The rules of one submitter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckRules {
    /// A bound transaction younger than this is nobody's concern, and so long is waited after a step.
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

/// Why rules are refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// Nothing would be waited for between two steps.
    #[error("stall_after must be above zero: it is the pause between two steps")]
    NoPause,
    /// Escalated before it was looked at.
    #[error("{key} must be at least {least}: everything would be escalated before it was looked at")]
    EscalatesAtOnce {
        /// Which setting.
        key: &'static str,
        /// Its least value.
        least: String,
    },
    /// Too many steps.
    #[error("{count} steps; at most {MAX_STUCK_STEPS} are allowed")]
    TooManySteps {
        /// How many.
        count: usize,
    },
    /// A step that would never be taken.
    #[error("steps[{step}] ({action}) has max = 0 and would never be taken; remove it")]
    NeverTaken {
        /// Which.
        step: usize,
        /// What it does.
        action: &'static str,
    },
    /// A step that does nothing.
    #[error("steps[{step}]: keepTrying is what happens without a step; remove it")]
    DoesNothing {
        /// Which.
        step: usize,
    },
    /// A step without an end.
    #[error("steps[{step}] ({action}) has no max and would be taken for ever; write how often at most")]
    Unbounded {
        /// Which.
        step: usize,
        /// What it does.
        action: &'static str,
    },
    /// Budgets that come to no end that anybody would see.
    #[error("the steps may be taken {sum} times in all; at most {MAX_STUCK_BUDGET} are allowed")]
    BeyondBounds {
        /// All budgets together.
        sum: u64,
    },
    /// Something that can only happen once.
    #[error("steps[{step}]: {action} happens once at most; write it once, with max = 1")]
    OnlyOnce {
        /// Which.
        step: usize,
        /// What it does.
        action: &'static str,
    },
    /// Out of order.
    #[error("steps[{step}].after is below that of the step before; steps are in the order of their age")]
    OutOfOrder {
        /// Which.
        step: usize,
    },
    /// A step behind the last one.
    #[error("steps[{step}] ({action}) comes after {end}, which leaves the transaction to a human; remove it")]
    BehindTheEnd {
        /// Which.
        step: usize,
        /// What it does.
        action: &'static str,
        /// What it comes after.
        end: &'static str,
    },
    /// A condition that nothing meets.
    #[error("steps[{step}].when is empty and would never hold; remove it to take the step always")]
    NoCondition {
        /// Which.
        step: usize,
    },
}

impl PolicyError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoPause | Self::Unbounded { .. } | Self::BeyondBounds { .. } => "policy-cannot-terminate",
            _ => "policy-invalid",
        }
    }
}

impl StuckRules {
    /// Refuses rules that come to no end, or that cannot be meant.
    pub fn check(&self) -> Result<(), PolicyError> {
        if self.stall_after.is_zero() {
            return Err(PolicyError::NoPause);
        }
        if self.max_attempts == 0 {
            return Err(PolicyError::EscalatesAtOnce { key: "max_attempts", least: "1".to_owned() });
        }
        if self.max_age < self.stall_after {
            let least = format!("stall_after ({:?})", self.stall_after);
            return Err(PolicyError::EscalatesAtOnce { key: "max_age", least });
        }
        if self.steps.len() > MAX_STUCK_STEPS {
            return Err(PolicyError::TooManySteps { count: self.steps.len() });
        }
        for (step, this) in self.steps.iter().enumerate() {
            self.check_step(step, this)?;
        }
        let sum = self.budget();
        if sum > MAX_STUCK_BUDGET { Err(PolicyError::BeyondBounds { sum }) } else { Ok(()) }
    }

    fn check_step(&self, step: usize, this: &Step) -> Result<(), PolicyError> {
        use StuckAction as A;
        let action = this.action.name();
        let before = self.steps.get(..step).unwrap_or_default();
        let had = |wanted: A| before.iter().any(|earlier| earlier.action == wanted);
        if this.action == A::KeepTrying {
            return Err(PolicyError::DoesNothing { step });
        }
        if this.max == 0 {
            return Err(PolicyError::NeverTaken { step, action });
        }
        if this.max == Step::UNBOUNDED && repeats(this.action) {
            return Err(PolicyError::Unbounded { step, action });
        }
        if !repeats(this.action) && (this.max > 1 || had(this.action)) {
            return Err(PolicyError::OnlyOnce { step, action });
        }
        if before.last().is_some_and(|last| this.after < last.after) {
            return Err(PolicyError::OutOfOrder { step });
        }
        // A human may be told first and the submitter stopped later; nothing else goes on behind a human's back.
        let end = if had(A::Protect) {
            Some(A::Protect)
        } else {
            Some(A::Escalate).filter(|end| had(*end) && this.action != A::Protect)
        };
        if let Some(end) = end {
            return Err(PolicyError::BehindTheEnd { step, action, end: end.name() });
        }
        if this.when.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(PolicyError::NoCondition { step });
        }
        Ok(())
    }

    /// How often all steps together may be taken for one transaction.
    #[must_use]
    pub fn budget(&self) -> u64 {
        self.steps.iter().map(|step| u64::from(step.max)).sum()
    }

    /// When something would next be done if nothing changes until then; none if nothing would.
    #[must_use]
    pub fn next_act(&self, context: &StuckContext<'_>) -> Option<Timestamp> {
        let from = self.looked_at_from(context)?;
        let steps = self.steps.iter().enumerate().filter_map(|(at, step)| self.due(at, step, from, context));
        steps.chain(self.escalation_due(from, context)).min()
    }

    /// From when on a transaction is looked at; never if it is not bound or already mined.
    fn looked_at_from(&self, context: &StuckContext<'_>) -> Option<Timestamp> {
        let facts = &context.tx.facts;
        let waits = matches!(facts.state, TxState::Tracking | TxState::Stuck) && facts.mined.is_none();
        facts.bound_at.filter(|_| waits).map(|bound| bound.plus(self.stall_after))
    }

    /// When a step may be taken; never once its budget is spent or where its condition does not hold.
    fn due(&self, at: usize, step: &Step, from: Timestamp, context: &StuckContext<'_>) -> Option<Timestamp> {
        let facts = &context.tx.facts;
        let amended = facts.amended.as_deref();
        let taken = amended.and_then(|amended| amended.steps.get(at)).copied().unwrap_or(0);
        let applies = match step.action {
            StuckAction::KeepTrying => false,
            StuckAction::Placeholder => facts.withdrawal().is_none(),
            StuckAction::Escalate => facts.state != TxState::Stuck,
            StuckAction::Rebroadcast | StuckAction::Bump | StuckAction::Protect => true,
        };
        let found = Finding::from(context.diagnosis);
        let holds = step.when.as_ref().is_none_or(|wanted| wanted.contains(&found));
        if taken >= step.max || !applies || !holds {
            return None;
        }
        let old_enough = facts.bound_at?.plus(step.after);
        let rested = amended.and_then(|amended| amended.stepped_at).map(|last| last.plus(self.stall_after));
        Some(from.max(old_enough).max(rested.unwrap_or(from)))
    }

    /// When a human is told because attempts or age ran out; never twice.
    fn escalation_due(&self, from: Timestamp, context: &StuckContext<'_>) -> Option<Timestamp> {
        let facts = &context.tx.facts;
        if facts.state == TxState::Stuck {
            return None;
        }
        let worn_out = sent(context) >= u64::from(self.max_attempts);
        let too_old = facts.bound_at?.plus(self.max_age);
        Some(if worn_out { from } else { from.max(too_old) })
    }
}

/// How often a transaction's own bytes were sent, every attempt's first time included.
#[must_use]
pub fn sent(context: &StuckContext<'_>) -> u64 {
    let own = context
        .attempts
        .iter()
        .filter(|attempt| attempt.tx_id == Some(context.tx.tx_id()) && attempt.kind.carries_effect());
    own.map(|attempt| 1 + u64::from(attempt.resends)).sum()
}

impl StuckPolicy for StuckRules {
    fn decide(&self, context: &StuckContext<'_>) -> Decision {
        let Some(from) = self.looked_at_from(context) else { return StuckAction::KeepTrying.into() };
        let is_due = |due: Option<Timestamp>| due.is_some_and(|due| context.now >= due);
        let mut steps = self.steps.iter().enumerate();
        if let Some((at, step)) = steps.find(|(at, step)| is_due(self.due(*at, step, from, context))) {
            return Decision { action: step.action, step: Some(at) };
        }
        if is_due(self.escalation_due(from, context)) {
            return StuckAction::Escalate.into();
        }
        StuckAction::KeepTrying.into()
    }

    fn next_act(&self, context: &StuckContext<'_>) -> Option<Timestamp> {
        Self::next_act(self, context)
    }
}

#[cfg(test)]
#[path = "govern_tests.rs"]
mod tests;
