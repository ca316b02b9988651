//! What a lane should do next: a pure function of what it knows and the time.
//!
//! Plans are lists of actions in the order they should run. Nothing here waits, reads or writes, so the
//! rules of binding read as tables: strict takes a nonce only when none is open, pipelined has a budget,
//! and a recycled slot goes first and lowest.

use crate::allocation::{Allocation, AllocationStatus};
use crate::condition::Conditions;
use crate::cursor::Run;
use crate::ids::{CommandId, Nonce, TxId};
use crate::lane::LanePhase;
use crate::named::named_enum;
use crate::time::Timestamp;
use crate::wait::WaitReason;
use crate::window::Narrowed;

named_enum! {
    /// How many nonces may be open at once.
    pub enum Mode {
        /// One.
        Strict = "strict",
        /// A window.
        Pipelined = "pipelined",
    }
}

named_enum! {
    /// When a strict lane lets the next nonce go.
    pub enum ReleaseAt {
        /// As soon as the last one is consumed.
        Mined = "mined",
        /// Only when it is resolved.
        Confirmed = "confirmed",
    }
}

/// The rules of binding of one submitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NonceRules {
    /// Strict or pipelined.
    pub mode: Mode,
    /// For strict.
    pub release_at: ReleaseAt,
    /// For pipelined.
    pub max_in_flight: u64,
}

impl NonceRules {
    /// The same with a window that nodes made narrower.
    #[must_use]
    pub fn narrowed(self, window: Option<Narrowed>) -> Self {
        let limit = window.map_or(self.max_in_flight, |window| window.size.min(self.max_in_flight));
        Self { max_in_flight: limit, ..self }
    }

    /// How many new nonces may be bound now.
    #[must_use]
    pub const fn budget(&self, run: &Run) -> u64 {
        match (self.mode, self.release_at) {
            (Mode::Strict, ReleaseAt::Mined) => (run.open() == 0) as u64,
            (Mode::Strict, ReleaseAt::Confirmed) => (run.open() == 0 && run.unresolved() == 0) as u64,
            (Mode::Pipelined, _) => self.max_in_flight.saturating_sub(run.open()),
        }
    }
}

/// One waiting transaction, as far as a plan needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Which.
    pub tx_id: TxId,
    /// Not to be bound after this.
    pub valid_until: Option<Timestamp>,
}

/// One open slot, as far as a plan needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenSlot {
    /// Which.
    pub nonce: Nonce,
    /// Its current attempt.
    pub n: u32,
    /// When that is due to be sent again.
    pub next_send_at: Timestamp,
}

/// What a lane knows.
#[derive(Debug, Clone, Copy)]
pub struct LaneView<'a> {
    /// Where it stands.
    pub phase: LanePhase,
    /// Its run; none before the start nonce was agreed.
    pub run: Option<&'a Run>,
    /// Its flags.
    pub conditions: &'a Conditions,
    /// Its rules.
    pub rules: NonceRules,
    /// Its queue, in order.
    pub queue: &'a [Head],
    /// Its open slots, by nonce.
    pub open: &'a [OpenSlot],
    /// Its exceptional slots, by nonce.
    pub allocations: &'a [Allocation],
    /// Commands that wait, oldest first.
    pub commands: &'a [CommandId],
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Execute a command; commands come before anything they might concern.
    Execute(CommandId),
    /// End a queued transaction whose time is over.
    Expire(TxId),
    /// Take back a reservation whose time is over.
    Lapse(Nonce),
    /// Agree the start nonce with the chain.
    AgreeStart,
    /// Claim a slot's current attempt and send it again.
    Resend {
        /// The slot.
        nonce: Nonce,
        /// The attempt.
        n: u32,
    },
    /// Estimate, price, check, sign and store under a nonce. In the order of the queue: whoever is not ready keeps everybody
    /// behind it.
    Bind {
        /// What.
        tx_id: TxId,
        /// Where.
        nonce: Nonce,
        /// Whether the slot was used before and must be outbid.
        recycled: bool,
    },
    /// Nothing more can be bound, for this reason.
    Wait(WaitReason),
}

/// What to do next, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan(pub Vec<Action>);

impl Plan {
    /// The plan for a lane at a time of the database's clock.
    #[must_use]
    pub fn of(view: &LaneView<'_>, now: Timestamp) -> Self {
        let mut actions: Vec<Action> = view.commands.iter().copied().map(Action::Execute).collect();
        if !matches!(view.phase, LanePhase::Live | LanePhase::Reconciling | LanePhase::Draining) {
            return Self(Vec::new());
        }
        let over = |until: Option<Timestamp>| until.is_some_and(|until| until <= now);
        let held = view.allocations.iter().filter(|a| a.status == AllocationStatus::Reserved);
        actions.extend(held.filter(|a| over(a.locked_until)).map(|a| Action::Lapse(a.nonce)));
        let due = view.open.iter().filter(|slot| slot.next_send_at <= now);
        actions.extend(due.map(|slot| Action::Resend { nonce: slot.nonce, n: slot.n }));
        actions.extend(
            view.queue.iter().filter(|head| over(head.valid_until)).map(|head| Action::Expire(head.tx_id)),
        );
        if view.phase.may_bind() {
            let waiting = view.queue.iter().filter(|head| !over(head.valid_until));
            actions.extend(bindings(view, waiting));
        }
        Self(actions)
    }
}

fn bindings<'a>(view: &LaneView<'_>, mut waiting: impl Iterator<Item = &'a Head>) -> Vec<Action> {
    let Some(first) = waiting.next() else { return Vec::new() };
    if let Some(reason) = view.conditions.forbids_binding() {
        return vec![Action::Wait(reason)];
    }
    let Some(run) = view.run else { return vec![Action::AgreeStart] };
    let open = run.consumed..run.next;
    let recycled = view.allocations.iter().filter(|a| a.status == AllocationStatus::Recyclable);
    let recycled = recycled.filter(|a| open.contains(&a.nonce));
    let fresh = (0..view.rules.budget(run)).map(|i| (Nonce(run.next.0 + i), false));
    let mut slots = recycled.map(|a| (a.nonce, true)).chain(fresh);
    let mut actions = Vec::new();
    for head in std::iter::once(first).chain(waiting) {
        let Some((nonce, recycled)) = slots.next() else {
            if actions.is_empty() {
                actions.push(Action::Wait(WaitReason::SlotBusy { nonce: run.watched_from() }));
            }
            break;
        };
        actions.push(Action::Bind { tx_id: head.tx_id, nonce, recycled });
    }
    actions
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
