//! The rules of binding as a table.

use uuid::Uuid;

use super::*;
use crate::ids::LockOwner;

const NOW: Timestamp = Timestamp::from_micros(1_000);
const LATER: Timestamp = Timestamp::from_micros(2_000);
const STRICT: NonceRules = NonceRules { mode: Mode::Strict, release_at: ReleaseAt::Mined, max_in_flight: 64 };

fn tx(n: u128) -> TxId {
    TxId(Uuid::from_u128(n))
}

fn head(n: u128) -> Head {
    Head { tx_id: tx(n), valid_until: None }
}

fn run(next: u64, consumed: u64, resolved: u64) -> Run {
    let (resolved, settled) = (Nonce(resolved), Nonce(resolved));
    Run { start: Nonce(0), next: Nonce(next), consumed: Nonce(consumed), resolved, settled }
}

fn allocation(nonce: u64, status: AllocationStatus) -> Allocation {
    Allocation {
        nonce: Nonce(nonce),
        status,
        lock_owner: Some(LockOwner(Uuid::nil())),
        locked_until: Some(NOW),
        tx_id: None,
        used_hash: None,
        exhibit: None,
    }
}

struct World {
    run: Option<Run>,
    rules: NonceRules,
    conditions: Conditions,
    queue: Vec<Head>,
    open: Vec<OpenSlot>,
    allocations: Vec<Allocation>,
    phase: LanePhase,
}

fn world(run: Run, rules: NonceRules, queue: Vec<Head>) -> World {
    World {
        run: Some(run),
        rules,
        conditions: Conditions::default(),
        queue,
        open: vec![],
        allocations: vec![],
        phase: LanePhase::Live,
    }
}

impl World {
    fn plan(&self) -> Vec<Action> {
        let view = LaneView {
            phase: self.phase,
            run: self.run.as_ref(),
            conditions: &self.conditions,
            rules: self.rules,
            queue: &self.queue,
            open: &self.open,
            allocations: &self.allocations,
            commands: &[],
        };
        Plan::of(&view, NOW).0
    }
}

fn bind(n: u128, nonce: u64) -> Action {
    Action::Bind { tx_id: tx(n), nonce: Nonce(nonce), recycled: false }
}

#[test]
fn strict_binds_one_and_only_when_none_is_open() {
    let busy = Action::Wait(WaitReason::SlotBusy { nonce: Nonce(4) });
    assert_eq!(world(run(5, 5, 3), STRICT, vec![head(1), head(2)]).plan(), [bind(1, 5)]);
    assert_eq!(world(run(5, 4, 4), STRICT, vec![head(1)]).plan(), vec![busy.clone()]);
    let careful = NonceRules { release_at: ReleaseAt::Confirmed, ..STRICT };
    assert_eq!(world(run(5, 5, 4), careful, vec![head(1)]).plan(), [busy]);
    assert_eq!(world(run(5, 5, 5), careful, vec![head(1)]).plan(), [bind(1, 5)]);
}

#[test]
fn pipelined_fills_its_window_in_order() {
    let rules = NonceRules { mode: Mode::Pipelined, max_in_flight: 4, ..STRICT };
    let queue = vec![head(1), head(2), head(3)];
    assert_eq!(world(run(7, 5, 1), rules, queue.clone()).plan(), [bind(1, 7), bind(2, 8)]);
    let narrowed = NonceRules { max_in_flight: 1, ..rules };
    assert!(matches!(world(run(7, 5, 1), narrowed, queue).plan()[..], [Action::Wait(_)]));
}

#[test]
fn a_recycled_slot_goes_first_and_lowest() {
    let mut world = world(run(5, 3, 3), STRICT, vec![head(1), head(2)]);
    world.allocations =
        vec![allocation(3, AllocationStatus::Recyclable), allocation(4, AllocationStatus::Recyclable)];
    let recycled = |n, nonce| Action::Bind { tx_id: tx(n), nonce: Nonce(nonce), recycled: true };
    assert_eq!(world.plan(), [recycled(1, 3), recycled(2, 4)]);
}

#[test]
fn flags_forbid_binding_but_not_sending_again() {
    let mut world = world(run(5, 4, 4), STRICT, vec![head(1)]);
    world.conditions.paused = true;
    world.open = vec![
        OpenSlot { nonce: Nonce(4), n: 1, next_send_at: NOW },
        OpenSlot { nonce: Nonce(5), n: 0, next_send_at: LATER },
    ];
    assert_eq!(world.plan(), [Action::Resend { nonce: Nonce(4), n: 1 }, Action::Wait(WaitReason::Paused)]);
    world.phase = LanePhase::Draining;
    assert_eq!(world.plan(), [Action::Resend { nonce: Nonce(4), n: 1 }]);
    world.phase = LanePhase::InDoubt;
    assert_eq!(world.plan(), []);
}

#[test]
fn what_is_over_ends_before_anything_is_bound() {
    let mut world = world(run(5, 5, 5), STRICT, vec![Head { valid_until: Some(NOW), ..head(1) }, head(2)]);
    world.allocations = vec![allocation(2, AllocationStatus::Reserved)];
    assert_eq!(world.plan(), [Action::Lapse(Nonce(2)), Action::Expire(tx(1)), bind(2, 5)]);
}

#[test]
fn the_start_is_agreed_first() {
    let mut world = world(run(0, 0, 0), STRICT, vec![head(1)]);
    world.run = None;
    assert_eq!(world.plan(), [Action::AgreeStart]);
}
