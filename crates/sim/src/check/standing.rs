//! What must hold at any time, of the store, of the chain, and between them. The checker remembers what it saw before,
//! so that what must never change or fall is noticed when it does.

use std::collections::BTreeMap;

use alloy_primitives::B256;
use gapless_core::allocation::{Allocation, AllocationStatus};
use gapless_core::cursor::Run;
use gapless_core::ids::{FencingToken, Nonce, TxId};
use gapless_core::lease::Owner;
use gapless_core::record::TxRecord;
use gapless_core::state::TxState;
use gapless_core::submitter::SubmitterId;

use super::Invariant::{Fenced, Gapless, Once, Unique};
use super::{Invariant, Seen, SeenLane, Violation};
use crate::chain::{Placed, SimChain};
use crate::scenario::Scenario;

/// What was seen before.
pub(crate) struct Checker {
    confirmations: u64,
    lost_depth: u64,
    bytes: BTreeMap<(SubmitterId, Nonce, u32), B256>,
    runs: BTreeMap<SubmitterId, Run>,
    tokens: BTreeMap<SubmitterId, (FencingToken, Owner)>,
    ends: BTreeMap<TxId, TxState>,
}

fn ensure(holds: bool, invariant: Invariant, what: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation::new(invariant, what())) }
}

impl Checker {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            confirmations: scenario.settings.confirmations,
            lost_depth: scenario.lost_depth(),
            bytes: BTreeMap::new(),
            runs: BTreeMap::new(),
            tokens: BTreeMap::new(),
            ends: BTreeMap::new(),
        }
    }

    /// Looks at everything. Where endpoints lied, slots may have gone from one transaction to another.
    pub(crate) fn look(&mut self, seen: &Seen, chain: &SimChain, lied: bool) -> Result<(), Violation> {
        let placed: Vec<Placed> = chain.canonical().collect();
        for (id, lane) in &seen.lanes {
            self.lease(id, lane)?;
            self.slots(id, lane)?;
            self.run(id, lane, lied)?;
            consumed(id, lane, &placed)?;
        }
        if !lied {
            owners_of_slots(seen)?;
        }
        one_slot_at_a_time(seen)?;
        effects(&placed)?;
        for tx in &seen.txs {
            self.end(tx, &placed, chain.head().number)?;
        }
        Ok(())
    }

    /// Tokens only rise, and one token has one owner.
    fn lease(&mut self, id: &SubmitterId, lane: &SeenLane) -> Result<(), Violation> {
        let Some(lease) = &lane.info.lease else { return Ok(()) };
        let now = (lease.token, lease.owner.clone());
        let before = self.tokens.insert(id.clone(), now.clone());
        let kept = before.as_ref().is_none_or(|before| before.0 < now.0 || *before == now);
        ensure(kept, Fenced, || format!("the lease of {id} went from {before:?} to {now:?}"))
    }

    /// Bytes once stored stay what they are.
    fn slots(&mut self, id: &SubmitterId, lane: &SeenLane) -> Result<(), Violation> {
        for attempt in &lane.attempts {
            let key = (id.clone(), attempt.nonce, attempt.n);
            let before = *self.bytes.entry(key).or_insert(attempt.hash);
            ensure(before == attempt.hash, Unique, || {
                format!("the bytes of {id} nonce {} changed from {before} to {}", attempt.nonce, attempt.hash)
            })?;
        }
        let lost = self
            .bytes
            .keys()
            .filter(|(owner, ..)| owner == id)
            .find(|(_, nonce, n)| !lane.attempts.iter().any(|a| (a.nonce, a.n) == (*nonce, *n)));
        ensure(lost.is_none(), Gapless, || format!("stored bytes are gone: {lost:?}"))
    }

    /// One contiguous run of bound nonces that never falls.
    fn run(&mut self, id: &SubmitterId, lane: &SeenLane, lied: bool) -> Result<(), Violation> {
        let conditions = &lane.info.cursor.cursor.conditions;
        let free = |a: &Allocation| lied && a.status == AllocationStatus::Recyclable;
        ensure(conditions.protect.is_none() && lane.allocations.iter().all(free), Gapless, || {
            format!("foreign use of {id} was recorded, and there was none: {:?}", conditions.protect)
        })?;
        let Some(run) = lane.info.cursor.cursor.run else {
            let fresh = lane.attempts.is_empty() && !self.runs.contains_key(id);
            return ensure(fresh, Gapless, || format!("{id} has slots and no run"));
        };
        ensure(run.is_sound(), Gapless, || format!("the run of {id} is unsound: {run:?}"))?;
        let before = self.runs.insert(id.clone(), run).unwrap_or(run);
        let kept = before.start == run.start
            && before.next <= run.next
            && before.resolved <= run.resolved
            && before.settled <= run.settled;
        ensure(kept, Gapless, || format!("the run of {id} went from {before:?} to {run:?}"))?;
        let mut bound: Vec<u64> = lane.attempts.iter().map(|attempt| attempt.nonce.0).collect();
        bound.dedup();
        ensure(bound.iter().copied().eq(run.start.0..run.next.0), Gapless, || {
            format!("the bound nonces of {id} are {bound:?}, the run is {run:?}")
        })
    }

    /// An end stands on the chain as it says, deep enough, and stays.
    fn end(&mut self, tx: &TxRecord, placed: &[Placed], head: u64) -> Result<(), Violation> {
        let (tx_id, state) = (tx.tx_id(), tx.facts.state);
        if let Some(before) = self.ends.get(&tx_id) {
            ensure(*before == state, Once, || format!("{tx_id} ended as {before} and is {state} now"))?;
        }
        if !state.is_terminal() {
            return Ok(());
        }
        self.ends.insert(tx_id, state);
        let request = tx.request.request_id.as_str();
        let named = |placed: &&Placed| {
            let mined = tx.facts.mined;
            mined.is_some_and(|m| (m.hash, m.block_hash) == (placed.tx.hash, placed.block.hash))
        };
        let found = placed.iter().find(named);
        let marks = [&tx.request.intent.payload.data, &tx.payload().data];
        let took_effect = placed.iter().any(|placed| marks.contains(&&placed.tx.mark));
        let stands = match state {
            TxState::Confirmed => found.is_some_and(|placed| {
                marks.contains(&&placed.tx.mark) && placed.block.number + self.confirmations <= head
            }),
            TxState::FailedFinal => {
                !took_effect && found.is_some_and(|placed| placed.block.number + self.lost_depth <= head)
            }
            // Withdrawn before it had bytes, or lost to a placeholder for good.
            TxState::Cancelled if tx.facts.nonce.is_none() => !took_effect,
            TxState::Cancelled => {
                !took_effect && found.is_some_and(|placed| placed.block.number + self.lost_depth <= head)
            }
            _ => false,
        };
        ensure(stands, Once, || {
            format!(
                "{request} ended as {state} by {:?}, and that is not so: {:?}",
                tx.facts.mined, tx.facts.failure
            )
        })
    }
}

/// Each nonce on the chain was consumed by bytes we had stored for it.
fn consumed(id: &SubmitterId, lane: &SeenLane, placed: &[Placed]) -> Result<(), Violation> {
    for Placed { tx, block } in placed.iter().filter(|placed| Some(placed.tx.from) == id.address()) {
        let ours = lane.attempts.iter().any(|a| (a.nonce.0, a.hash) == (tx.nonce, tx.hash));
        ensure(ours, Gapless, || {
            format!(
                "nonce {} of {id} was consumed by {} in block {}, not ours",
                tx.nonce, tx.hash, block.number
            )
        })?;
    }
    let run = lane.info.cursor.cursor.run;
    let mined = placed.iter().filter(|placed| Some(placed.tx.from) == id.address()).count() as u64;
    let resolved = run.map_or(0, |run| run.resolved.0 - run.start.0);
    ensure(resolved <= mined, Gapless, || {
        format!("{resolved} slots of {id} count as resolved, {mined} are mined")
    })
}

/// A slot has one transaction, and a transaction one slot.
fn owners_of_slots(seen: &Seen) -> Result<(), Violation> {
    let mut slots: BTreeMap<(&SubmitterId, Nonce), TxId> = BTreeMap::new();
    let mut owners: BTreeMap<TxId, Nonce> = BTreeMap::new();
    for (id, lane) in &seen.lanes {
        for attempt in &lane.attempts {
            let Some(tx_id) = attempt.tx_id else { continue };
            let first = *slots.entry((id, attempt.nonce)).or_insert(tx_id);
            ensure(first == tx_id, Unique, || {
                format!("nonce {} of {id} has bytes of {first} and of {tx_id}", attempt.nonce)
            })?;
            let nonce = *owners.entry(tx_id).or_insert(attempt.nonce);
            ensure(nonce == attempt.nonce, Unique, || {
                format!("{tx_id} has bytes under nonce {nonce} and under {}", attempt.nonce)
            })?;
        }
    }
    for tx in &seen.txs {
        let (tx_id, nonce) = (tx.tx_id(), tx.facts.nonce);
        ensure(owners.get(&tx_id).copied() == nonce, Unique, || {
            format!("{tx_id} says nonce {nonce:?}, its bytes stand under {:?}", owners.get(&tx_id))
        })?;
    }
    Ok(())
}

/// Whoever says it has a slot has bytes in it, and no other open one has bytes of it.
fn one_slot_at_a_time(seen: &Seen) -> Result<(), Violation> {
    for (id, lane) in &seen.lanes {
        let Some(run) = lane.info.cursor.cursor.run else { continue };
        for tx in seen.txs.iter().filter(|tx| tx.request.submitter == *id && tx.facts.state.is_bound()) {
            let mut slots = lane.attempts.iter().filter(|a| a.tx_id == Some(tx.tx_id())).map(|a| a.nonce);
            let own = tx.facts.nonce;
            ensure(slots.clone().any(|nonce| Some(nonce) == own), Unique, || {
                format!("{} says nonce {own:?} and has no bytes there", tx.tx_id())
            })?;
            let other = slots.find(|nonce| Some(*nonce) != own && *nonce >= run.resolved);
            ensure(other.is_none(), Unique, || {
                format!("{} has nonce {own:?}, and bytes under {other:?} that may still be mined", tx.tx_id())
            })?;
        }
    }
    Ok(())
}

/// No request's effect stands on the chain twice.
fn effects(placed: &[Placed]) -> Result<(), Violation> {
    let mut marks = BTreeMap::new();
    // Placeholders have no effect.
    for Placed { tx, block } in placed.iter().filter(|placed| !placed.tx.mark.is_empty()) {
        if let Some(other) = marks.insert(&tx.mark, block.number) {
            let mark = String::from_utf8_lossy(&tx.mark);
            let what = format!("{mark} took effect in block {} and in block {other}", block.number);
            return Err(Violation::new(Once, what));
        }
    }
    Ok(())
}
