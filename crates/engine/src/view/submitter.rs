//! What the outside sees of a submitter.

use alloy_primitives::B256;
use gapless_core::condition::{Condition, Conditions, Reset};
use gapless_core::fees::{Gas, Wei};
use gapless_core::ids::Nonce;
use gapless_core::plan::{Mode, NonceRules};
use gapless_core::ports::store::SubmitterInfo;
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use serde::Serialize;

use crate::balances::Balance;

/// Foreign use as shown.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProtectView {
    nonce: Nonce,
    hash: Option<B256>,
    block_number: Option<Gas>,
    block_hash: Option<B256>,
}

/// The window of a pipelined submitter as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WindowView {
    /// As it is set.
    pub size: u64,
    /// As nodes let it be used.
    pub effective: u64,
    /// Why it is narrower than it is set.
    pub reason: Option<String>,
}

/// A submitter as shown. Every field is always there; what nobody knows is null.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubmitterView {
    /// Which.
    pub submitter: SubmitterId,
    /// Strict or pipelined.
    pub mode: &'static str,
    /// The gravest condition.
    pub condition: Condition,
    /// Why, in words.
    pub reason: Option<String>,
    /// Who runs it now.
    pub owner_node: Option<String>,
    /// The next nonce to bind.
    pub next_nonce: Option<Nonce>,
    /// Used in a canonical block.
    pub consumed: Option<Nonce>,
    /// And deep enough.
    pub resolved: Option<Nonce>,
    /// Accepted and not bound.
    pub queued: u64,
    /// Bound and not consumed.
    pub open: u64,
    /// Open slots that wait for another transaction.
    pub recyclable: u64,
    /// What the account holds, as last read from the chain.
    pub balance: Option<Wei>,
    /// When that was read.
    pub balance_fetched_at: Option<Timestamp>,
    /// When a nonce of it was last given bytes or consumed. A list leaves it out.
    pub last_movement_at: Option<Timestamp>,
    /// When a transaction of it last came to its end. A list leaves it out.
    pub last_confirmation_at: Option<Timestamp>,
    /// How many nonces may be open at once; none in strict mode.
    pub window: Option<WindowView>,
    /// Its last nonce resets, oldest first.
    pub resets: Vec<Reset>,
    /// Foreign use.
    pub protect: Option<ProtectView>,
}

/// What a view shows beside the stored row.
pub(crate) struct Surroundings {
    /// None if it is not configured here.
    pub(crate) rules: Option<NonceRules>,
    /// By the database's clock.
    pub(crate) now: Timestamp,
    pub(crate) queued: u64,
    pub(crate) recyclable: u64,
    pub(crate) balance: Option<Balance>,
    pub(crate) moved_at: Option<Timestamp>,
    pub(crate) confirmed_at: Option<Timestamp>,
}

impl SubmitterView {
    /// The view of a submitter.
    #[must_use]
    pub(crate) fn of(info: &SubmitterInfo, around: &Surroundings) -> Self {
        let conditions = &info.cursor.cursor.conditions;
        let run = info.cursor.cursor.run;
        // A lease that is over is nobody's, whoever had it last.
        let lease = info.lease.as_ref().filter(|lease| lease.expires_at > around.now);
        Self {
            submitter: info.submitter.clone(),
            mode: around.rules.map_or("strict", |rules| rules.mode.name()),
            condition: conditions.gravest(),
            reason: sentence(conditions),
            owner_node: lease.map(|lease| lease.owner.node().to_owned()),
            next_nonce: run.map(|run| run.next),
            consumed: run.map(|run| run.consumed),
            resolved: run.map(|run| run.resolved),
            queued: around.queued,
            open: run.map_or(0, |run| run.open()),
            recyclable: around.recyclable,
            balance: around.balance.map(|balance| balance.wei),
            balance_fetched_at: around.balance.map(|balance| balance.at),
            last_movement_at: around.moved_at,
            last_confirmation_at: around.confirmed_at,
            window: around.rules.filter(|rules| rules.mode == Mode::Pipelined).map(|rules| WindowView {
                size: rules.max_in_flight,
                effective: rules.narrowed(conditions.window).max_in_flight,
                reason: conditions.window.map(|window| window.words()),
            }),
            resets: conditions.resets.clone(),
            protect: conditions.protect.as_ref().map(|protect| ProtectView {
                nonce: protect.nonce,
                hash: protect.hash(),
                block_number: protect.exhibit.map(|exhibit| Gas(exhibit.block_number)),
                block_hash: protect.exhibit.map(|exhibit| exhibit.block_hash),
            }),
        }
    }
}

/// The gravest condition in a sentence, with its figures and what ends it.
fn sentence(conditions: &Conditions) -> Option<String> {
    if let Some(protect) = &conditions.protect {
        let Some(exhibit) = protect.exhibit else {
            let nonce = protect.nonce;
            return Some(format!(
                "it was protected by order, at nonce {nonce}; unprotect it when you know why"
            ));
        };
        let by = match exhibit.hash {
            Some(hash) => format!("transaction {hash}"),
            None => "an authorization without a transaction".to_owned(),
        };
        return Some(format!(
            "somebody else used nonce {} of this account: {by} in block {}; unprotect it when you know why",
            protect.nonce, exhibit.block_number
        ));
    }
    if conditions.paused {
        return Some("an operator paused it; resume ends that".to_owned());
    }
    if let Some(reason) = &conditions.disabled {
        return Some(format!("health checks disabled it: {reason}"));
    }
    if !conditions.holds.is_empty() {
        let causes: Vec<&str> = conditions.holds.values().map(|words| words.as_str()).collect();
        return Some(format!("it takes no new nonces: {}", causes.join("; ")));
    }
    if let Some((balance, needed)) = conditions.out_of_funds {
        return Some(format!("it holds {} wei and needs {} wei", balance.0, needed.0));
    }
    conditions.window.map(|window| window.words())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::U256;
    use gapless_core::allocation::Exhibit;
    use gapless_core::condition::{HoldCause, Protect};
    use gapless_core::text::NodeText;
    use gapless_core::window::{Narrowed, Narrowing};

    #[test]
    fn the_reason_is_a_sentence_about_the_gravest_condition() {
        let mut conditions = Conditions::default();
        assert_eq!(sentence(&conditions), None);
        conditions.window = Some(Narrowed { size: 16, cause: Narrowing::AccountLimit });
        assert!(sentence(&conditions).unwrap().contains("no more than 16"), "{:?}", sentence(&conditions));
        conditions.out_of_funds = Some((Wei(U256::from(7)), Wei(U256::from(21_000))));
        assert_eq!(sentence(&conditions).unwrap(), "it holds 7 wei and needs 21000 wei");
        conditions.holds.insert(HoldCause::Counts, NodeText::new("the chain counts 3, we have bound 2"));
        assert!(sentence(&conditions).unwrap().ends_with("the chain counts 3, we have bound 2"));
        conditions.paused = true;
        assert!(sentence(&conditions).unwrap().contains("resume"));
        let exhibit = Exhibit { hash: None, block_number: 9, block_hash: B256::ZERO };
        conditions.protect = Some(Protect { nonce: Nonce(5), exhibit: Some(exhibit) });
        let said = sentence(&conditions).unwrap();
        assert!(said.contains("nonce 5") && said.contains("block 9") && !said.contains('{'), "{said}");
    }
}
