//! Reserving: a nonce for bytes that somebody else will make.
//!
//! The same rules as for binding: only a live lane that nothing holds back, within the budget, in one fenced change that
//! moves the cursor past the nonce and leaves a reservation under it (invariant *gapless*). From then on the slot is bound:
//! it counts for the budget, higher ones may be bound and sent, and it ends in bytes of ours, in what its holder says used
//! it, or free for whoever comes next.
//!
//! A transaction whose payload its closure will make keeps its place in the queue, but cannot be prepared and can be served
//! only where its closure is. So such transactions never stand among those that are bound: the first one whose closure is
//! here gets its nonce when everybody before it has theirs; one whose closure is nowhere to be seen is overtaken, and
//! refused when as much time has passed as a reservation would have had.

use std::collections::VecDeque;
use std::time::Duration;

use gapless_core::allocation::{Allocation, AllocationStatus, AllocationWrite};
use gapless_core::change::TxWrite;
use gapless_core::cursor::{InFlight, Run};
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::{LockOwner, Nonce};
use gapless_core::limits::MAX_PAGE;
use gapless_core::plan::NonceRules;
use gapless_core::record::{Failure, TxRecord};
use gapless_core::state::TxEvent;
use gapless_core::text::NodeText;
use gapless_core::time::Timestamp;
use tracing::info;

use super::memory::Memory;
use super::{Lane, Stop};
use crate::desk::Granted;

/// What a lane knows of transactions that wait for their closure.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    /// The first whose closure is here.
    head: Option<TxRecord>,
    /// Those before it whose closure is not.
    lost: Vec<TxRecord>,
}

impl Deferred {
    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.head.is_none() && self.lost.is_empty()
    }
}

impl Lane {
    /// The part of the queue that can be bound: up to the first transaction whose closure is here.
    pub(super) async fn set_aside(
        &self,
        memory: &mut Memory,
        found: Vec<TxRecord>,
    ) -> Result<VecDeque<TxRecord>, Stop> {
        let (offered, now) = (self.tools.desk.offered(&self.submitter.id), self.database_time());
        let over = |tx: &TxRecord| tx.request.intent.options.valid_until.is_some_and(|until| until <= now);
        // What is over is for the plan to end, like any other.
        let ordinary = |tx: &TxRecord| !tx.awaits_closure() || over(tx);
        let lost = |tx: &TxRecord| !ordinary(tx) && !offered.contains(&tx.tx_id());
        let found = match found.iter().all(lost) && !found.is_empty() {
            // They must not hide what stands behind them.
            true => {
                let all = self.tools.store.peek_queue(&self.submitter.id, MAX_PAGE).await;
                all.map_err(Stop::StoreDown)?
            }
            false => found,
        };
        let mut queue = VecDeque::new();
        memory.deferred = Deferred::default();
        for tx in found {
            match () {
                () if ordinary(&tx) => queue.push_back(tx),
                () if lost(&tx) => memory.deferred.lost.push(tx),
                () => {
                    memory.deferred.head = Some(tx);
                    break;
                }
            }
        }
        Ok(queue)
    }

    /// Gives nonces to those who ask for one and nothing else.
    pub(super) async fn grant_asks(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        let id = self.submitter.id.clone();
        while let Some(ask) = self.tools.desk.next_ask(&id) {
            let Some(nonce) = self.nonce_to_reserve(memory).await? else {
                self.tools.desk.ask_again(&id, ask);
                return Ok(());
            };
            let granted = self.reserve(memory, nonce, None).await?;
            // Nobody waits for it any more: nobody has it.
            if ask.send(granted).is_err() {
                self.release(memory, nonce, granted.lock_owner).await?;
            }
        }
        Ok(())
    }

    /// Gives the next closure its nonce, once everybody before it has theirs. Whether the queue may go on.
    pub(super) async fn reserve_next(&mut self, memory: &mut Memory) -> Result<bool, Stop> {
        self.refuse_lost(memory).await?;
        let Some(tx) = memory.deferred.head.clone().filter(|_| memory.queue.is_empty()) else {
            return Ok(false);
        };
        let Some(nonce) = self.nonce_to_reserve(memory).await? else { return Ok(false) };
        let tx_id = tx.tx_id();
        memory.deferred.head = None;
        let granted = self.reserve(memory, nonce, Some(tx)).await?;
        if !self.tools.desk.grant(&self.submitter.id, tx_id, granted) {
            let words = "whoever asked for the nonce has stopped waiting";
            self.refuse_reserved(memory, nonce, "closure-dropped", words).await?;
        }
        Ok(true)
    }

    /// The nonce that may be reserved now: one that its last holder gave back untouched, or a new one.
    async fn nonce_to_reserve(&mut self, memory: &mut Memory) -> Result<Option<Nonce>, Stop> {
        if !self.phase.may_bind() || memory.cursor.cursor.conditions.forbids_binding().is_some() {
            return Ok(None);
        }
        if memory.run().is_none() && !self.agree_start(memory).await? {
            return Ok(None);
        }
        let Some(run) = memory.run() else { return Ok(None) };
        // Where bytes may be about, whoever comes next must outbid them, which nobody asks of bytes from outside.
        let untouched = |nonce: &Nonce| {
            let given_back = memory.allocations.get(nonce).is_some_and(|row| row.lock_owner.is_some());
            given_back && !memory.slots.contains_key(nonce)
        };
        let free = memory.free_slots().into_iter().find(untouched);
        let rules = self.submitter.settings.rules;
        let rules = NonceRules { max_in_flight: memory.window(rules.max_in_flight), ..rules };
        let fresh = (rules.budget(&run) > 0).then_some(run.next);
        Ok(free.or(fresh))
    }

    async fn reserve(
        &mut self,
        memory: &mut Memory,
        nonce: Nonce,
        tx: Option<TxRecord>,
    ) -> Result<Granted, Stop> {
        let Some(run) = memory.run() else { return Err(Stop::OutOfStep) };
        let hold = self.submitter.settings.reservation_timeout;
        let (lock_owner, until) = (LockOwner(self.tools.clock.draw()), self.tick().plus(hold));
        let tx_id = tx.as_ref().map(TxRecord::tx_id);
        let mut draft = self.draft(memory)?;
        if let Some(tx) = tx {
            let told = vec![Told::plain(EventKind::TxAllocated)];
            let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::Reserve], told, |facts| {
                facts.nonce = Some(nonce);
                (facts.sub_state, facts.wait) = (None, None);
            });
            draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
            memory.txs.insert(tx.tx_id(), tx);
        }
        draft.writes.allocations.push(AllocationWrite::Reserve { nonce, lock_owner, hold, tx_id });
        draft.cursor.run = Some(Run { next: run.next.max(nonce.next()), ..run });
        if draft.cursor.in_flight.is_none_or(|in_flight| in_flight.nonce >= nonce) {
            draft.cursor.in_flight = Some(InFlight { nonce, tx_id });
        }
        self.commit(memory, draft).await?;
        memory.notes(nonce).free_since = None;
        info!(submitter = %self.submitter.id, tx_id = ?tx_id.map(|id| id.to_string()), nonce = nonce.0,
            fencing_token = self.lease()?.token().0, "reserved");
        Ok(Granted { nonce, lock_owner, until })
    }

    /// Ends transactions whose closure has not been seen for as long as it could have had a nonce.
    async fn refuse_lost(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        let (now, most) = (self.database_time(), self.submitter.settings.reservation_timeout);
        let offered = self.tools.desk.offered(&self.submitter.id);
        if memory.deferred.lost.iter().any(|tx| offered.contains(&tx.tx_id())) {
            // Its closure came after the queue was looked at: look again.
            (memory.look_again, memory.came_back) = (true, true);
        }
        let over = |tx: &TxRecord| tx.created_at.plus(most) <= now && !offered.contains(&tx.tx_id());
        let (over, wait): (Vec<_>, Vec<_>) =
            std::mem::take(&mut memory.deferred.lost).into_iter().partition(over);
        memory.deferred.lost = wait;
        if over.is_empty() {
            return Ok(());
        }
        let mut draft = self.draft(memory)?;
        for tx in &over {
            let words = "the process that would have made it is gone, or does not run this lane any more";
            draft.writes.txs.push(refused(tx, "closure-lost", words, now)?);
        }
        self.commit(memory, draft).await
    }

    /// When reservations need a look, if nothing wakes the lane before.
    pub(super) fn next_reserved(&self, memory: &Memory) -> Duration {
        let settings = &self.submitter.settings;
        let now = self.database_time();
        let ends = memory.reserved().filter_map(|row| row.locked_until).map(|until| until.since(now)).min();
        let lost = memory.deferred.lost.iter();
        let lost = lost.map(|tx| tx.created_at.plus(settings.reservation_timeout).since(now)).min();
        let waits = (!self.tools.desk.handed_in(&self.submitter.id).is_empty()).then_some(settings.retry);
        let soonest = [ends, lost, waits].into_iter().flatten().min().unwrap_or(settings.reconcile);
        soonest.max(Duration::from_millis(10))
    }
}

impl Memory {
    /// Slots that somebody holds, lowest first.
    pub(super) fn reserved(&self) -> impl Iterator<Item = &Allocation> {
        self.allocations.values().filter(|row| row.status == AllocationStatus::Reserved)
    }

    /// Whether somebody holds this slot, who may have used it and not said so yet.
    pub(super) fn is_reserved(&self, nonce: Nonce) -> bool {
        self.allocations.get(&nonce).is_some_and(|row| row.status == AllocationStatus::Reserved)
    }
}

/// A transaction without bytes ends: refused.
pub(super) fn refused(tx: &TxRecord, code: &str, words: &str, now: Timestamp) -> Result<TxWrite, Stop> {
    let failure = Failure { code: NodeText::new(code), reason: NodeText::new(words) };
    let told = Told::with(
        EventKind::TxRejected,
        serde_json::json!({"code": failure.code, "reason": failure.reason}),
    );
    let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::Refuse], vec![told], |facts| {
        (facts.nonce, facts.sub_state, facts.wait) = (None, None, None);
        (facts.failure, facts.ended_at) = (Some(failure), Some(now));
    });
    write.map_err(|_| Stop::OutOfStep)
}
