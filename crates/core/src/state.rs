//! The life of a transaction, as one pure function (invariant *legal*).
//!
//! [`TxState::next`] answers every (state, event) pair: a state or [`IllegalTransition`]. Terminal
//! states are never left. Who may raise which event, and when (*patient*: deep enough), is decided
//! by the lane; this table only says what an event does.

use thiserror::Error;

use crate::named::named_enum;

named_enum! {
    /// Where a transaction stands.
    pub enum TxState {
        /// Accepted, no nonce.
        Queued = "QUEUED",
        /// A nonce is reserved for bytes that somebody else will sign.
        Allocated = "ALLOCATED",
        /// Bound: bytes and hash are stored.
        Tracking = "TRACKING",
        /// Bound, and in need of the governor or an operator.
        Stuck = "STUCK",
        /// Its effect is on chain, deep enough.
        Confirmed = "CONFIRMED",
        /// It ran and reverted deep enough, or it can never run.
        FailedFinal = "FAILED_FINAL",
        /// Refused before a nonce was bound.
        Rejected = "REJECTED",
        /// Withdrawn by command; its effect did not and will not happen.
        Cancelled = "CANCELLED",
        /// Its time ran out; its effect did not and will not happen.
        Expired = "EXPIRED",
    }
}

/// What can happen to a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TxEvent {
    /// A nonce was reserved for bytes signed elsewhere.
    Reserve,
    /// Bytes and hash were stored under a nonce.
    Bind,
    /// Preparation refused it, or the closure that should sign it failed.
    Refuse,
    /// A cancel command met it before any bytes were stored.
    Withdraw,
    /// `validUntil` passed before any bytes were stored.
    Lapse,
    /// The outside signer failed or came late; the nonce is recycled.
    SignerFailed,
    /// The nonce was taken back: its bytes were certainly handed to nobody.
    Unbind,
    /// A new attempt of this transaction was stored.
    Replace,
    /// The current attempt went out again.
    Rebroadcast,
    /// An own attempt stands in a canonical block.
    Mined,
    /// The block with its receipt is gone.
    Reorged,
    /// Own attempt mined with status 1, deep enough.
    SucceededDeep,
    /// Own attempt mined and reverted, deep enough.
    RevertedDeep,
    /// Proven invalid, and its slot consumed by another hash, under *patient*.
    InvalidDeep,
    /// Its placeholder (or anything else) consumed the slot while a cancel was pending, under *patient*.
    CancelledDeep,
    /// The slot was consumed otherwise while expiry was pending, under *patient*.
    ExpiredDeep,
    /// The slot was consumed by something else, under *patient*: it needs another nonce.
    SlotLostDeep,
    /// The governor or an operator set it aside.
    Stick,
    /// The governor or an operator took it up again.
    Unstick,
    /// A reorg deeper than promised touched its block after the end.
    FinalityBroken,
}

/// An event that has no meaning in this state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a transaction in {from} cannot take {event:?}")]
pub struct IllegalTransition {
    /// The state it was in.
    pub from: TxState,
    /// The event refused.
    pub event: TxEvent,
}

impl TxState {
    /// Whether nothing can change it any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Confirmed | Self::FailedFinal | Self::Rejected | Self::Cancelled | Self::Expired)
    }

    /// Whether bytes of it are stored under a nonce.
    #[must_use]
    pub const fn is_bound(self) -> bool {
        matches!(self, Self::Tracking | Self::Stuck)
    }

    /// The state after `event`, or why there is none.
    pub const fn next(self, event: TxEvent) -> Result<Self, IllegalTransition> {
        use TxEvent as E;
        use TxState as S;
        let to = match (self, event) {
            (S::Queued, E::Reserve) => S::Allocated,
            (S::Queued | S::Allocated, E::Bind) => S::Tracking,
            (S::Queued | S::Allocated, E::Refuse) => S::Rejected,
            (S::Queued | S::Allocated, E::Withdraw) => S::Cancelled,
            (S::Queued | S::Allocated, E::Lapse) => S::Expired,
            (S::Allocated, E::SignerFailed) => S::Queued,
            (S::Tracking, E::Unbind) => S::Queued,
            (S::Tracking | S::Stuck, E::Replace | E::Rebroadcast | E::Mined | E::Reorged) => self,
            (S::Tracking | S::Stuck, E::SucceededDeep) => S::Confirmed,
            (S::Tracking | S::Stuck, E::RevertedDeep | E::InvalidDeep) => S::FailedFinal,
            (S::Tracking | S::Stuck, E::CancelledDeep) => S::Cancelled,
            (S::Tracking | S::Stuck, E::ExpiredDeep) => S::Expired,
            (S::Tracking | S::Stuck, E::SlotLostDeep) => S::Queued,
            (S::Tracking, E::Stick) => S::Stuck,
            (S::Stuck, E::Unstick) => S::Tracking,
            (S::Confirmed | S::FailedFinal | S::Cancelled | S::Expired, E::FinalityBroken) => self,
            _ => return Err(IllegalTransition { from: self, event }),
        };
        Ok(to)
    }
}

impl TxEvent {
    /// All events.
    pub const ALL: [Self; 20] = [
        Self::Reserve,
        Self::Bind,
        Self::Refuse,
        Self::Withdraw,
        Self::Lapse,
        Self::SignerFailed,
        Self::Unbind,
        Self::Replace,
        Self::Rebroadcast,
        Self::Mined,
        Self::Reorged,
        Self::SucceededDeep,
        Self::RevertedDeep,
        Self::InvalidDeep,
        Self::CancelledDeep,
        Self::ExpiredDeep,
        Self::SlotLostDeep,
        Self::Stick,
        Self::Unstick,
        Self::FinalityBroken,
    ];
}

named_enum! {
    /// Where exactly, within a state.
    pub enum SubState {
        /// Being estimated and checked.
        Preparing = "PREPARING",
        /// The account cannot pay for it yet.
        WaitingFunds = "WAITING_FUNDS",
        /// Ready, but its nonce's turn has not come.
        WaitingSlot = "WAITING_SLOT",
        /// Bytes stored and on their way.
        InPool = "IN_POOL",
        /// In a block, not deep enough yet.
        Mined = "MINED",
        /// A placeholder competes for its nonce.
        Cancelling = "CANCELLING",
        /// A replacement competes for its nonce.
        Replacing = "REPLACING",
        /// Proven invalid; its slot is being recycled.
        Abandoned = "ABANDONED",
        /// The submitter is in protect mode.
        Protected = "PROTECTED",
        /// The submitter is on hold.
        Held = "HELD",
    }
}

#[cfg(test)]
mod tests {
    use super::TxEvent as E;
    use super::TxState as S;
    use super::*;
    use proptest::prelude::*;

    /// The table of the protocols, written out a second time by hand: (from, event, to).
    const LEGAL: &[(S, E, S)] = &[
        (S::Queued, E::Reserve, S::Allocated),
        (S::Queued, E::Bind, S::Tracking),
        (S::Queued, E::Refuse, S::Rejected),
        (S::Queued, E::Withdraw, S::Cancelled),
        (S::Queued, E::Lapse, S::Expired),
        (S::Allocated, E::Bind, S::Tracking),
        (S::Allocated, E::Refuse, S::Rejected),
        (S::Allocated, E::Withdraw, S::Cancelled),
        (S::Allocated, E::Lapse, S::Expired),
        (S::Allocated, E::SignerFailed, S::Queued),
        (S::Tracking, E::Unbind, S::Queued),
        (S::Tracking, E::Replace, S::Tracking),
        (S::Tracking, E::Rebroadcast, S::Tracking),
        (S::Tracking, E::Mined, S::Tracking),
        (S::Tracking, E::Reorged, S::Tracking),
        (S::Tracking, E::SucceededDeep, S::Confirmed),
        (S::Tracking, E::RevertedDeep, S::FailedFinal),
        (S::Tracking, E::InvalidDeep, S::FailedFinal),
        (S::Tracking, E::CancelledDeep, S::Cancelled),
        (S::Tracking, E::ExpiredDeep, S::Expired),
        (S::Tracking, E::SlotLostDeep, S::Queued),
        (S::Tracking, E::Stick, S::Stuck),
        (S::Stuck, E::Replace, S::Stuck),
        (S::Stuck, E::Rebroadcast, S::Stuck),
        (S::Stuck, E::Mined, S::Stuck),
        (S::Stuck, E::Reorged, S::Stuck),
        (S::Stuck, E::SucceededDeep, S::Confirmed),
        (S::Stuck, E::RevertedDeep, S::FailedFinal),
        (S::Stuck, E::InvalidDeep, S::FailedFinal),
        (S::Stuck, E::CancelledDeep, S::Cancelled),
        (S::Stuck, E::ExpiredDeep, S::Expired),
        (S::Stuck, E::SlotLostDeep, S::Queued),
        (S::Stuck, E::Unstick, S::Tracking),
        (S::Confirmed, E::FinalityBroken, S::Confirmed),
        (S::FailedFinal, E::FinalityBroken, S::FailedFinal),
        (S::Cancelled, E::FinalityBroken, S::Cancelled),
        (S::Expired, E::FinalityBroken, S::Expired),
    ];

    #[test]
    fn every_pair_of_state_and_event_has_the_answer_of_the_table() {
        let mut legal = 0;
        for from in S::ALL.iter().copied() {
            for event in E::ALL {
                let expected = LEGAL.iter().find(|(f, e, _)| (*f, *e) == (from, event)).map(|(_, _, to)| *to);
                assert_eq!(from.next(event).ok(), expected, "{from} + {event:?}");
                legal += usize::from(expected.is_some());
            }
        }
        assert_eq!(legal, LEGAL.len(), "a row of the table was never reached");
    }

    #[test]
    fn names_round_trip() {
        assert!(S::ALL.iter().all(|s| S::named(s.name()) == Some(*s)));
        assert!(SubState::ALL.iter().all(|s| SubState::named(s.name()) == Some(*s)));
        assert_eq!(serde_json::to_string(&S::FailedFinal).unwrap(), "\"FAILED_FINAL\"");
    }

    proptest! {
        #[test]
        fn no_terminal_state_is_ever_left(events in proptest::collection::vec(0..E::ALL.len(), 0..60)) {
            let mut state = S::Queued;
            let mut ended = None;
            for event in events {
                if let Ok(next) = state.next(E::ALL[event]) {
                    state = next;
                }
                if let Some(ended) = ended {
                    prop_assert_eq!(state, ended);
                } else if state.is_terminal() {
                    ended = Some(state);
                }
            }
        }

        #[test]
        fn a_bound_transaction_was_never_simply_refused(events in proptest::collection::vec(0..E::ALL.len(), 0..60)) {
            let mut state = S::Queued;
            for event in events {
                let before = state;
                if let Ok(next) = state.next(E::ALL[event]) {
                    state = next;
                }
                prop_assert!(!(before.is_bound() && state == S::Rejected));
            }
        }
    }
}
