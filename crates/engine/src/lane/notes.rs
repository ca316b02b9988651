//! What a lane remembers of an open slot besides what is stored. All of it may be forgotten at any time: it only saves
//! questions, keeps tries apart, or allows what is allowed only to somebody who has seen everything.

use std::collections::BTreeSet;

use alloy_primitives::B256;
use gapless_core::fees::{GasPrice, Wei};
use gapless_core::time::Tick;

/// The notes on one slot.
#[derive(Debug)]
pub(super) struct Notes {
    /// Bound here, and handed to nobody yet.
    pub(super) unsent: bool,
    /// Some endpoint may hold an attempt of it. Only who bound it and heard every answer can know that none does.
    pub(super) perhaps_pooled: bool,
    /// What every endpoint has said of its current attempt.
    pub(super) invalid: Invalid,
    /// A node's answer suggests a dearer attempt; the rules decide.
    pub(super) suggested: bool,
    /// Not to be bid for before.
    pub(super) bid_after: Option<Tick>,
    /// The head at which it was last bid for.
    pub(super) bid_head: Option<B256>,
    /// The cap that was in the way of the last bid, and what was needed.
    pub(super) at_cap: Option<(GasPrice, GasPrice)>,
    /// Since when an attempt of it is known to be mined, or said to be, without a receipt that can be believed.
    pub(super) unread_since: Option<Tick>,
    /// Whether that was counted as missed.
    pub(super) missed: bool,
    /// When the policy for the stuck is asked again.
    pub(super) govern_after: Option<Tick>,
    /// Since when nobody has taken it, if it is free.
    pub(super) free_since: Option<Tick>,
    /// The most that so many attempts of it can cost.
    pub(super) cost: Option<(usize, Wei)>,
}

/// When every endpoint called an attempt invalid.
#[derive(Debug, Default)]
pub(super) struct Invalid {
    /// At these heads.
    pub(super) at: BTreeSet<u64>,
    /// So many times.
    pub(super) times: u32,
}

impl Default for Notes {
    /// Of a slot whose story this lane has not seen.
    fn default() -> Self {
        Self {
            unsent: false,
            perhaps_pooled: true,
            invalid: Invalid::default(),
            suggested: false,
            bid_after: None,
            bid_head: None,
            at_cap: None,
            unread_since: None,
            missed: false,
            govern_after: None,
            free_since: None,
            cost: None,
        }
    }
}

impl Notes {
    /// Of a slot that is being bound here and now.
    pub(super) fn bound_here(head: Option<B256>) -> Self {
        Self { unsent: true, perhaps_pooled: false, bid_head: head, ..Self::default() }
    }
}
