//! Conditions of a submitter: independent flags, each set and cleared by its own cause only.
//!
//! What a reader sees is the gravest; what binding asks is whether any of them forbids a new nonce.

use std::collections::BTreeMap;

use alloy_primitives::B256;
use serde::{Deserialize, Serialize};

use crate::allocation::Exhibit;
use crate::fees::Wei;
use crate::ids::Nonce;
use crate::named::named_enum;
use crate::text::NodeText;
use crate::time::Timestamp;
use crate::wait::WaitReason;
use crate::window::Narrowed;

/// Nothing may be bound, and nobody may ask for more, until a human has looked: somebody else used the key, proven, or
/// an operator or the policy for the stuck said so.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Protect {
    /// The highest foreign nonce proven, or the one that was to be protected.
    pub nonce: Nonce,
    /// Its exhibit; none if it was ordered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exhibit: Option<Exhibit>,
}

impl Protect {
    /// The foreign transaction, if there is one.
    #[must_use]
    pub fn hash(&self) -> Option<B256> {
        self.exhibit.and_then(|exhibit| exhibit.hash)
    }
}

named_enum! {
    /// What caused a hold, and so what ends it.
    pub enum HoldCause {
        /// The database may have lost commits; ended by `recover`.
        Epoch = "epoch",
        /// The chain restarted under the same id; ended by `recover`.
        Genesis = "genesis",
        /// Foreign use is certain, its exhibit cannot be had; ended by `unprotect`.
        Unproven = "unproven",
        /// The chain's counts are not explained by our slots; heals when they are.
        Counts = "counts",
        /// Endpoints refuse transactions in a row; ends after a back-off.
        Refusals = "refusals",
    }
}

/// The flags of one submitter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Conditions {
    /// Foreign use, proven.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protect: Option<Protect>,
    /// Paused by an operator.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Disabled by health checks, with the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<NodeText>,
    /// On hold (no new nonces; bound slots go on), by cause, in words. Each ends by its own cause only.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub holds: BTreeMap<HoldCause, NodeText>,
    /// Cannot pay: (balance, needed).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_of_funds: Option<(Wei, Wei)>,
    /// What nodes made of its window, as last seen. No flag either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Narrowed>,
    /// The last nonce resets, oldest first. No flag, but kept with them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resets: Vec<Reset>,
}

/// A nonce reset that was carried out.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reset {
    /// When, by the database's clock.
    pub at: Timestamp,
    /// Who asked.
    pub actor: NodeText,
    /// Whether it was forced.
    pub forced: bool,
    /// The next nonce before.
    pub from: Nonce,
    /// And after.
    pub to: Nonce,
}

/// Resets kept.
pub const RESETS_KEPT: usize = 5;

named_enum! {
    /// The gravest condition, as shown.
    pub enum Condition {
        /// Foreign use.
        Protect = "protect",
        /// Operator's pause.
        Paused = "paused",
        /// Health checks failed.
        Disabled = "disabled",
        /// No new nonces.
        Hold = "hold",
        /// Cannot pay.
        OutOfFunds = "out_of_funds",
        /// Nothing wrong.
        Ok = "ok",
    }
}

impl Conditions {
    /// The gravest flag that is up.
    #[must_use]
    pub fn gravest(&self) -> Condition {
        if self.protect.is_some() {
            Condition::Protect
        } else if self.paused {
            Condition::Paused
        } else if self.disabled.is_some() {
            Condition::Disabled
        } else if !self.holds.is_empty() {
            Condition::Hold
        } else if self.out_of_funds.is_some() {
            Condition::OutOfFunds
        } else {
            Condition::Ok
        }
    }

    /// Why no new nonce may be bound, if so.
    #[must_use]
    pub fn forbids_binding(&self) -> Option<WaitReason> {
        if let Some(protect) = &self.protect {
            return Some(WaitReason::Protected { nonce: protect.nonce, hash: protect.hash() });
        }
        if self.paused {
            return Some(WaitReason::Paused);
        }
        if let Some(reason) = &self.disabled {
            return Some(WaitReason::NodeDown { last_error: reason.clone() });
        }
        if let Some(reason) = self.holds.values().next() {
            return Some(WaitReason::Held { reason: reason.clone() });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gravest_flag_is_shown_and_each_stays_until_its_own_cause_ends() {
        let mut flags = Conditions { out_of_funds: Some(Default::default()), ..Default::default() };
        assert_eq!(flags.gravest(), Condition::OutOfFunds);
        flags.paused = true;
        assert_eq!(flags.gravest(), Condition::Paused);
        assert_eq!(flags.forbids_binding(), Some(WaitReason::Paused));
        flags.paused = false;
        assert_eq!(flags.gravest(), Condition::OutOfFunds);
        flags.out_of_funds = None;
        assert_eq!((flags.gravest(), flags.forbids_binding()), (Condition::Ok, None));
    }

    #[test]
    fn a_hold_that_heals_does_not_end_another() {
        let mut flags = Conditions::default();
        flags.holds.insert(HoldCause::Counts, NodeText::new("odd counts"));
        flags.holds.insert(HoldCause::Epoch, NodeText::new("restored"));
        flags.holds.remove(&HoldCause::Counts);
        assert_eq!(flags.gravest(), Condition::Hold);
        let text = serde_json::to_string(&flags).unwrap();
        assert_eq!(text, r#"{"holds":{"epoch":"restored"}}"#);
        assert_eq!(serde_json::from_str::<Conditions>(&text).unwrap(), flags);
    }

    #[test]
    fn healthy_flags_are_an_empty_document() {
        assert_eq!(serde_json::to_string(&Conditions::default()).unwrap(), "{}");
        assert_eq!(serde_json::from_str::<Conditions>("{}").unwrap(), Conditions::default());
    }
}
