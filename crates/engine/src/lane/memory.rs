//! What a lane knows: a copy of its stored state, kept in step by its own commits, and a few notes of its own that
//! may be forgotten at any time.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::allocation::{Allocation, AllocationStatus, Exhibit};
use gapless_core::attempt::StoredAttempt;
use gapless_core::change::{LaneChange, Verdict};
use gapless_core::command::Command;
use gapless_core::cursor::{Run, VersionedCursor};
use gapless_core::fees::Wei;
use gapless_core::ids::{CommandId, Nonce, TxId};
use gapless_core::ports::chain::BlockRef;
use gapless_core::ports::store::LaneSnapshot;
use gapless_core::record::TxRecord;
use gapless_core::slot;
use gapless_core::state::TxState;
use gapless_core::time::{Tick, Timestamp};

use super::notes::Notes;
use super::reserve::Deferred;
use super::sending::Sending;
use super::window::Room;
use crate::settings::LaneSettings;

/// A lane's memory.
pub(super) struct Memory {
    pub(super) cursor: VersionedCursor,
    /// Attempts of every slot still watched.
    pub(super) slots: BTreeMap<Nonce, Vec<StoredAttempt>>,
    /// Transactions of those slots.
    pub(super) txs: BTreeMap<TxId, TxRecord>,
    pub(super) allocations: BTreeMap<Nonce, Allocation>,
    pub(super) commands: Vec<Command>,
    /// The next ones in order, as last peeked.
    pub(super) queue: VecDeque<TxRecord>,
    /// Whether the queue may hold more than was peeked.
    pub(super) look_again: bool,
    /// Whether somebody came back to the queue who stands before those that were peeked.
    pub(super) came_back: bool,
    /// What goes out, and what is on its way.
    pub(super) sending: Sending,
    /// Whether more was mined than one change may say.
    pub(super) more_mined: bool,
    /// Blocks up to here were searched for our hashes.
    pub(super) searched: Option<BlockRef>,
    /// When to ask for all receipts although no block names them; at once if none.
    pub(super) ask_all_at: Option<Tick>,
    /// When counts were last compared with the chain.
    pub(super) compared_at: Option<Tick>,
    /// Whether commands may have come in.
    pub(super) commands_due: bool,
    /// When they were last looked for.
    pub(super) commands_read: Option<Tick>,
    /// Commands that could not be decided, and when to try them again.
    pub(super) later: BTreeMap<CommandId, Tick>,
    /// Notes on open slots.
    notes: BTreeMap<Nonce, Notes>,
    /// The head and the run at which every block that used one of our nonces was last found to stand.
    pub(super) all_stood: Option<(Option<BlockRef>, Option<Run>)>,
    /// Where a nonce was consumed, as far as no transaction that still changes says so.
    pub(super) placed: BTreeMap<Nonce, BlockRef>,
    /// The confirming blocks that were told of each transaction.
    pub(super) told_blocks: HashMap<TxId, Vec<BlockRef>>,
    /// Transactions abandoned as invalid since one was last taken.
    pub(super) invalid_in_row: u32,
    /// When the hold for refusals ends.
    pub(super) held_until: Option<Tick>,
    /// Heads at which the pending count ran ahead of what we bound, and to where.
    pub(super) ahead: Option<(Nonce, BTreeSet<u64>)>,
    /// Whether this lane saw the chain turn into another one.
    pub(super) saw_another_chain: bool,
    /// Since when no endpoint answers.
    pub(super) silent_since: Option<Tick>,
    /// Transactions that wait for their closure.
    pub(super) deferred: Deferred,
    /// The balance as read at a head.
    pub(super) balance_at: Option<(B256, Wei)>,
    /// When the balance was last looked at, and whether it was low then.
    pub(super) balance_seen: Option<(Tick, bool)>,
    /// What nodes made of the window.
    pub(super) room: Room,
}

impl Memory {
    pub(super) fn load(snapshot: LaneSnapshot) -> Self {
        let mut slots: BTreeMap<Nonce, Vec<StoredAttempt>> = BTreeMap::new();
        for attempt in snapshot.attempts {
            slots.entry(attempt.nonce).or_default().push(attempt);
        }
        Self {
            room: Room::as_last_seen(snapshot.cursor.cursor.conditions.window),
            cursor: snapshot.cursor,
            slots,
            txs: snapshot.txs.into_iter().map(|tx| (tx.tx_id(), tx)).collect(),
            allocations: snapshot.allocations.into_iter().map(|a| (a.nonce, a)).collect(),
            commands: snapshot.commands,
            queue: VecDeque::new(),
            look_again: true,
            came_back: false,
            sending: Sending::default(),
            more_mined: false,
            searched: None,
            ask_all_at: None,
            compared_at: None,
            commands_due: false,
            commands_read: None,
            later: BTreeMap::new(),
            notes: BTreeMap::new(),
            all_stood: None,
            placed: BTreeMap::new(),
            told_blocks: HashMap::new(),
            invalid_in_row: 0,
            held_until: None,
            ahead: None,
            saw_another_chain: false,
            silent_since: None,
            deferred: Deferred::default(),
            balance_at: None,
            balance_seen: None,
        }
    }

    /// The notes on a slot.
    pub(super) fn notes(&mut self, nonce: Nonce) -> &mut Notes {
        self.notes.entry(nonce).or_default()
    }

    /// The notes on a slot, if there are any.
    pub(super) fn noted(&self, nonce: Nonce) -> Option<&Notes> {
        self.notes.get(&nonce)
    }

    /// Begins the notes on a slot that is bound here and now.
    pub(super) fn begin_notes(&mut self, nonce: Nonce, notes: Notes) {
        self.notes.insert(nonce, notes);
    }

    pub(super) fn run(&self) -> Option<Run> {
        self.cursor.cursor.run
    }

    /// Bound and not consumed, lowest first.
    pub(super) fn open(&self) -> impl Iterator<Item = (Nonce, &Vec<StoredAttempt>)> {
        let (from, to) = self.run().map_or((Nonce(0), Nonce(0)), |run| (run.consumed, run.next));
        self.slots.range(from..to.max(from)).map(|(nonce, attempts)| (*nonce, attempts))
    }

    /// Where what is consumed and not settled was consumed, by us or by somebody else, lowest first.
    pub(super) fn consumed_in(&self) -> Vec<(Nonce, BlockRef)> {
        let Some(run) = self.run() else { return Vec::new() };
        let block = |nonce| self.consumed_at(nonce).map(|block| (nonce, block));
        (run.settled.0..run.consumed.0).map(Nonce).filter_map(block).collect()
    }

    /// The block in which a nonce was consumed, as far as it is known.
    pub(super) fn consumed_at(&self, nonce: Nonce) -> Option<BlockRef> {
        // What was seen last comes first: the receipt of a transaction that has ended is frozen, wherever it stands now.
        let by_us = self.txs_at(nonce).find_map(|tx| tx.facts.mined);
        let by_us = by_us.map(|m| BlockRef { number: m.block_number, hash: m.block_hash });
        let foreign = self.foreign(nonce);
        let foreign = foreign.map(|e| BlockRef { number: e.block_number, hash: e.block_hash });
        self.placed.get(&nonce).copied().or(by_us).or(foreign)
    }

    /// Nonces that somebody else is recorded to have used, from this one on.
    pub(super) fn foreign_from(&self, from: Nonce) -> Vec<Nonce> {
        let rows = self.allocations.range(from..).filter(|(_, row)| row.status == AllocationStatus::Foreign);
        rows.map(|(nonce, _)| *nonce).collect()
    }

    /// The transactions that have this slot, by their first attempt. Several, if one was abandoned and another came in.
    pub(super) fn txs_at(&self, nonce: Nonce) -> impl Iterator<Item = &TxRecord> {
        let mut seen = BTreeSet::new();
        let attempts = self.slots.get(&nonce).into_iter().flatten();
        let ids = attempts.filter_map(|attempt| attempt.tx_id).filter(move |tx_id| seen.insert(*tx_id));
        ids.filter_map(|tx_id| self.txs.get(&tx_id)).filter(move |tx| tx.facts.nonce == Some(nonce))
    }

    /// Whether a slot has these bytes already.
    pub(super) fn holds(&self, nonce: Nonce, hash: B256) -> bool {
        self.slots.get(&nonce).into_iter().flatten().any(|attempt| attempt.hash == hash)
    }

    /// The attempt of a slot that goes out.
    pub(super) fn current(&self, nonce: Nonce) -> Option<&StoredAttempt> {
        self.slots.get(&nonce).and_then(|attempts| slot::current(attempts))
    }

    /// Whether a slot that opens again has something of its own to send: what goes out now, or what had been mined. One whose
    /// attempts were all given up has not, and is for whoever comes next.
    pub(super) fn has_bytes_to_send(&self, nonce: Nonce) -> bool {
        let mined = || self.txs_at(nonce).filter_map(|tx| tx.facts.mined).map(|mined| mined.hash);
        self.current(nonce).is_some() || mined().any(|hash| self.holds(nonce, hash))
    }

    /// The transaction whose attempt goes out.
    pub(super) fn tx_of_current(&self, nonce: Nonce) -> Option<&TxRecord> {
        let tx = self.current(nonce).and_then(|attempt| attempt.tx_id).and_then(|tx_id| self.txs.get(&tx_id));
        tx.filter(|tx| tx.facts.nonce == Some(nonce))
    }

    /// The attempt of its slot that goes out, if it is this transaction's.
    pub(super) fn current_of(&self, tx: &TxRecord) -> Option<&StoredAttempt> {
        let nonce = tx.facts.nonce.filter(|_| tx.facts.state.is_bound())?;
        self.current(nonce).filter(|attempt| attempt.tx_id == Some(tx.tx_id()))
    }

    /// A transaction of this lane that is in memory.
    pub(super) fn tx(&self, tx_id: TxId) -> Option<&TxRecord> {
        self.txs.get(&tx_id).or_else(|| self.queue.iter().find(|tx| tx.tx_id() == tx_id))
    }

    /// Open slots that wait for somebody to take them.
    pub(super) fn free_slots(&self) -> Vec<Nonce> {
        let Some(run) = self.run() else { return Vec::new() };
        let open = self.allocations.range(run.consumed..run.next.max(run.consumed));
        open.filter(|(_, row)| row.status == AllocationStatus::Recyclable).map(|(nonce, _)| *nonce).collect()
    }

    /// Who else used a nonce, as recorded.
    pub(super) fn foreign(&self, nonce: Nonce) -> Option<Exhibit> {
        let allocation = self.allocations.get(&nonce).filter(|a| a.status == AllocationStatus::Foreign);
        allocation.and_then(|a| a.exhibit)
    }

    pub(super) fn watches(&self) -> bool {
        self.run().is_some_and(|run| run.watched_from() < run.next) || !self.queue.is_empty()
    }

    pub(super) fn has_work(&self) -> bool {
        let held = self.allocations.values().any(|a| a.status != AllocationStatus::Foreign);
        let deferred = !self.deferred.is_empty();
        self.watches() || held || deferred || self.look_again || !self.commands.is_empty()
    }

    /// When to look again if nothing wakes us.
    pub(super) fn next_tick(&self, now: Timestamp, settings: &LaneSettings) -> Duration {
        let current = self.open().filter_map(|(_, attempts)| slot::current(attempts));
        let due = current.map(|attempt| attempt.next_send_at.since(now)).min();
        let waiting = (!self.queue.is_empty() || !self.free_slots().is_empty()).then_some(settings.retry);
        let soonest = [due, waiting].into_iter().flatten().min().unwrap_or(settings.reconcile);
        soonest.clamp(Duration::from_millis(10), settings.reconcile.max(Duration::from_millis(10)))
    }

    /// Takes over what an applied change wrote.
    pub(super) fn take_over(&mut self, change: &LaneChange, verdict: &Verdict, at: Timestamp) {
        let Verdict::Applied { version } = verdict else { return };
        let writes = change.writes();
        for write in &writes.txs {
            let (tx_id, facts) = (write.tx_id(), write.facts().clone());
            let queued = self.queue.iter().position(|tx| tx.tx_id() == tx_id);
            match (queued, facts.state == TxState::Queued) {
                (Some(place), true) => self.queue[place].facts = facts,
                (Some(place), false) => {
                    if let Some(mut tx) = self.queue.remove(place) {
                        tx.facts = facts;
                        if !tx.facts.state.is_terminal() {
                            self.txs.insert(tx_id, tx);
                        }
                    }
                }
                (None, requeued) => {
                    if let Some(tx) = self.txs.get_mut(&tx_id) {
                        tx.facts = facts;
                    }
                    (self.look_again, self.came_back) =
                        (self.look_again | requeued, self.came_back | requeued);
                }
            }
        }
        for nonce in &writes.unbound {
            self.slots.remove(nonce);
        }
        for stored in change.stored(verdict, at) {
            self.slots.entry(stored.nonce).or_default().push(stored);
        }
        for claim in &writes.resends {
            for attempt in self.slots.get_mut(&claim.nonce).into_iter().flatten().filter(|a| a.n == claim.n) {
                attempt.claimed(claim.next_send_at, claim.sends);
            }
        }
        for note in &writes.refusals {
            for attempt in self.slots.get_mut(&note.nonce).into_iter().flatten().filter(|a| a.n == note.n) {
                attempt.refusal = Some(note.refusal.clone());
            }
        }
        for write in &writes.allocations {
            match write.apply(self.allocations.get(&write.nonce()), at) {
                Ok(Some(row)) => self.allocations.insert(write.nonce(), row),
                Ok(None) | Err(_) => self.allocations.remove(&write.nonce()),
            };
        }
        self.commands.retain(|command| writes.commands.iter().all(|end| end.id != command.command.id));
        self.cursor = VersionedCursor { cursor: change.cursor().clone(), version: *version };
        if let Some(run) = self.run() {
            self.notes = self.notes.split_off(&run.consumed);
            self.placed = self.placed.split_off(&run.watched_from());
            let keep = self.slots.split_off(&run.watched_from());
            for attempt in std::mem::replace(&mut self.slots, keep).into_values().flatten() {
                // Who moved on to another nonce stays.
                let left = |tx: &TxRecord| tx.facts.nonce.is_none_or(|nonce| nonce <= attempt.nonce);
                if let Some(tx_id) = attempt.tx_id.filter(|id| self.txs.get(id).is_some_and(left)) {
                    self.txs.remove(&tx_id);
                    self.told_blocks.remove(&tx_id);
                }
            }
        }
    }
}
