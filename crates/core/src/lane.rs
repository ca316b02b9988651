//! The life of a lane on one node, as one pure function.
//!
//! A lane may bind only when it is *live*: granted, loaded from stored state alone, and reconciled with
//! the chain since it got its lease. A verdict `Fenced`, or a lease the local clock no longer trusts,
//! drops everything it knew. An unknown outcome raises the token before anything is read again, since a
//! ghost of its own write may still be on its way.

use thiserror::Error;

use crate::named::named_enum;

named_enum! {
    /// Where a lane stands on this node.
    pub enum LanePhase {
        /// Not ours.
        Absent = "absent",
        /// Granted; reading stored state.
        Loading = "loading",
        /// Loaded; comparing with the chain and sending open slots again.
        Reconciling = "reconciling",
        /// May bind.
        Live = "live",
        /// The answer to a write was lost; the token must rise first.
        InDoubt = "in_doubt",
        /// Finishing what is in hand, taking nothing new.
        Draining = "draining",
    }
}

named_enum! {
    /// What can happen to a lane.
    pub enum LaneEvent {
        /// The database granted the lease (or a raised token).
        Granted = "granted",
        /// Stored state was read.
        Loaded = "loaded",
        /// The chain was read and agrees.
        Reconciled = "reconciled",
        /// A write was refused by the fence.
        Fenced = "fenced",
        /// The lease expired, by the local clock or by a failed renewal.
        LeaseLost = "lease_lost",
        /// A write's outcome is unknown.
        OutcomeUnknown = "outcome_unknown",
        /// What is stored is not what was planned on: read it again.
        OutOfStep = "out_of_step",
        /// The process wants to stop, or the lane is idle.
        Drain = "drain",
        /// The lease was given back.
        Released = "released",
    }
}

/// An event that has no meaning in this phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a lane that is {from} cannot take {event}")]
pub struct IllegalLaneEvent {
    /// The phase it was in.
    pub from: LanePhase,
    /// The event refused.
    pub event: LaneEvent,
}

impl LanePhase {
    /// The phase after `event`, or why there is none.
    pub const fn next(self, event: LaneEvent) -> Result<Self, IllegalLaneEvent> {
        use LaneEvent as E;
        use LanePhase as P;
        let to = match (self, event) {
            (P::Absent | P::InDoubt, E::Granted) => P::Loading,
            (P::Loading, E::Loaded) => P::Reconciling,
            (P::Reconciling | P::Live, E::Reconciled) => P::Live,
            (P::Loading | P::Reconciling | P::Live | P::Draining, E::OutcomeUnknown) => P::InDoubt,
            (P::Loading | P::Reconciling | P::Live | P::Draining, E::OutOfStep) => P::Loading,
            (P::Loading | P::Reconciling | P::Live, E::Drain) => P::Draining,
            (P::Absent, E::Fenced | E::LeaseLost) => P::Absent,
            (_, E::Fenced | E::LeaseLost) => P::Absent,
            (P::Draining, E::Released) => P::Absent,
            _ => return Err(IllegalLaneEvent { from: self, event }),
        };
        Ok(to)
    }

    /// Whether new nonces may be bound.
    #[must_use]
    pub const fn may_bind(self) -> bool {
        matches!(self, Self::Live)
    }

    /// Whether stored bytes may be sent.
    #[must_use]
    pub const fn may_send(self) -> bool {
        matches!(self, Self::Reconciling | Self::Live | Self::Draining)
    }
}

#[cfg(test)]
mod tests {
    use super::LaneEvent as E;
    use super::LanePhase as P;

    #[test]
    fn every_pair_of_phase_and_event_has_its_answer() {
        type Answers = fn(E) -> Option<P>;
        let table: [(P, Answers); 6] = [
            (P::Absent, |e| match e {
                E::Granted => Some(P::Loading),
                E::Fenced | E::LeaseLost => Some(P::Absent),
                _ => None,
            }),
            (P::Loading, |e| match e {
                E::Loaded => Some(P::Reconciling),
                other => while_held(other),
            }),
            (P::Reconciling, |e| match e {
                E::Reconciled => Some(P::Live),
                other => while_held(other),
            }),
            (P::Live, |e| match e {
                E::Reconciled => Some(P::Live),
                other => while_held(other),
            }),
            (P::InDoubt, |e| match e {
                E::Granted => Some(P::Loading),
                E::Fenced | E::LeaseLost => Some(P::Absent),
                _ => None,
            }),
            (P::Draining, |e| match e {
                E::Released => Some(P::Absent),
                E::Drain => None,
                other => while_held(other),
            }),
        ];
        assert_eq!(table.len(), P::ALL.len());
        for (from, answers) in table {
            for event in E::ALL {
                assert_eq!(from.next(*event).ok(), answers(*event), "{from} + {event}");
            }
        }
    }

    /// What may happen to any lane that is held.
    fn while_held(event: E) -> Option<P> {
        match event {
            E::Fenced | E::LeaseLost => Some(P::Absent),
            E::OutcomeUnknown => Some(P::InDoubt),
            E::OutOfStep => Some(P::Loading),
            E::Drain => Some(P::Draining),
            _ => None,
        }
    }

    #[test]
    fn only_a_reconciled_lane_binds() {
        assert_eq!(P::ALL.iter().filter(|phase| phase.may_bind()).count(), 1);
        assert!(!P::InDoubt.may_send() && !P::Loading.may_send());
    }
}
