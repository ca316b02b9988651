//! How reservations end: by their holder's word, or by their time.
//!
//! The race is the late holder's. A mark is written by its holder under the row's own lock, without any lease, so what a lane
//! remembers of a reserved slot may be old: it is read again before it counts, and a lapse that crosses a mark is refused by
//! the store as a whole. What a holder says used a slot is ours to watch by its hash, though its bytes are not ours to send;
//! it is never called foreign, and the slot stays open until a receipt shows it consumed.

use gapless_core::allocation::{Allocation, AllocationStatus, AllocationWrite};
use gapless_core::attempt::{AttemptKind, NewAttempt, Route, SUPERSEDED, StoredAttempt};
use gapless_core::change::{Draft, TxWrite};
use gapless_core::event::{EventKind, Told};
use gapless_core::fees::{Fees, GasPrice};
use gapless_core::ids::{LockOwner, Nonce};
use gapless_core::record::TxRecord;
use gapless_core::state::{TxEvent, TxState};
use serde_json::json;
use tracing::info;

use super::memory::Memory;
use super::reserve::refused;
use super::{Lane, Stop};

impl Lane {
    /// Hears what holders said, takes back what is over, takes in what closures made.
    pub(super) async fn watch_reserved(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        self.hear_marks(memory).await?;
        self.lapse_due(memory).await?;
        self.take_in(memory).await
    }

    /// Reads again what holders outside may have marked.
    async fn hear_marks(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        let held: Vec<Nonce> =
            memory.reserved().filter(|row| row.tx_id.is_none()).map(|row| row.nonce).collect();
        let (Some(first), Some(last)) = (held.first(), held.last()) else { return Ok(()) };
        let rows = self.tools.store.allocations(&self.submitter.id, *first, last.next()).await;
        for row in rows.map_err(Stop::StoreDown)? {
            if held.contains(&row.nonce) && row.status != AllocationStatus::Reserved {
                info!(submitter = %self.submitter.id, nonce = row.nonce.0, status = row.status.name(), "marked");
                memory.watch_used(&row);
                memory.allocations.insert(row.nonce, row);
            }
        }
        Ok(())
    }

    /// Takes back reservations whose time is over, by the database's own clock.
    async fn lapse_due(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        let guess = self.database_time();
        let over = |row: &Allocation, now| {
            let late = row.locked_until.is_some_and(|until| until <= now);
            let tx = row.tx_id.and_then(|tx_id| memory.txs.get(&tx_id));
            let valid_until = tx.and_then(|tx| tx.request.intent.options.valid_until);
            (late, valid_until.is_some_and(|until| until <= now))
        };
        if memory.reserved().all(|row| over(row, guess) == (false, false)) {
            return Ok(());
        }
        // The guess runs ahead of the database by as long as an answer takes.
        let now = self.tools.store.now().await.map_err(Stop::StoreDown)?;
        let mut draft = self.draft(memory)?;
        let mut ended = Vec::new();
        for row in memory.reserved() {
            let (nonce, tx) = (row.nonce, memory.reserved_for(row.nonce));
            let write = match (over(row, now), row.lock_owner) {
                ((true, _), _) => AllocationWrite::Lapse { nonce },
                ((false, true), Some(lock_owner)) => AllocationWrite::Release { nonce, lock_owner },
                _ => continue,
            };
            if let Some(tx) = tx {
                let expired = over(row, now).1;
                draft.writes.txs.push(match expired {
                    true => ended_without_bytes(tx, TxEvent::Lapse, Told::plain(EventKind::TxExpired), now)?,
                    false => {
                        refused(tx, "reservation-expired", "nothing was made for its nonce in time", now)?
                    }
                });
                ended.push(tx.tx_id());
            }
            info!(submitter = %self.submitter.id, nonce = nonce.0, "the reservation is over");
            draft.writes.allocations.push(write);
        }
        if draft.writes.allocations.is_empty() {
            return Ok(());
        }
        self.commit(memory, draft).await?;
        for tx_id in ended {
            self.forget(memory, tx_id);
        }
        Ok(())
    }

    /// Takes back a slot that its holder will not use.
    pub(super) async fn release(
        &mut self,
        memory: &mut Memory,
        nonce: Nonce,
        lock_owner: LockOwner,
    ) -> Result<(), Stop> {
        let mut draft = self.draft(memory)?;
        draft.writes.allocations.push(AllocationWrite::Release { nonce, lock_owner });
        self.commit(memory, draft).await
    }

    /// Takes a slot back from the transaction it was reserved for, which ends with it.
    pub(super) async fn refuse_reserved(
        &mut self,
        memory: &mut Memory,
        nonce: Nonce,
        code: &str,
        words: &str,
    ) -> Result<(), Stop> {
        let Some(tx) = memory.reserved_for(nonce) else { return Ok(()) };
        let (tx_id, write) = (tx.tx_id(), refused(tx, code, words, self.database_time())?);
        info!(submitter = %self.submitter.id, %tx_id, nonce = nonce.0, code, words, "nothing was made for the nonce");
        let mut draft = self.draft(memory)?;
        draft.writes.txs.push(write);
        draft.writes.allocations.extend(memory.released(nonce));
        self.commit(memory, draft).await?;
        self.forget(memory, tx_id);
        Ok(())
    }

    /// A transaction that ended before it had bytes leaves nothing in memory.
    pub(super) fn forget(&self, memory: &mut Memory, tx_id: gapless_core::ids::TxId) {
        memory.txs.remove(&tx_id);
        self.tools.desk.done(&self.submitter.id, tx_id);
    }

    /// A reserved slot was used by somebody else: its transaction needs another nonce, and its closure runs again.
    pub(super) fn requeue_reserved(
        &self,
        memory: &Memory,
        nonce: Nonce,
        draft: &mut Draft,
    ) -> Result<(), Stop> {
        let Some(tx) = memory.reserved_for(nonce) else { return Ok(()) };
        let told = vec![Told::with(EventKind::TxRequeued, json!({"reason": "nonce used by somebody else"}))];
        let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::SignerFailed], told, |facts| {
            (facts.nonce, facts.sub_state, facts.wait) = (None, None, None);
        });
        draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
        Ok(())
    }
}

impl Memory {
    /// The transaction that a slot is reserved for.
    pub(super) fn reserved_for(&self, nonce: Nonce) -> Option<&TxRecord> {
        let row = self.allocations.get(&nonce).filter(|row| row.status == AllocationStatus::Reserved);
        let tx = row.and_then(|row| row.tx_id).and_then(|tx_id| self.txs.get(&tx_id));
        tx.filter(|tx| tx.facts.state == TxState::Allocated)
    }

    /// What takes a reserved slot back from its holder.
    pub(super) fn released(&self, nonce: Nonce) -> Option<AllocationWrite> {
        let row = self.allocations.get(&nonce).filter(|row| row.status == AllocationStatus::Reserved)?;
        row.lock_owner.map(|lock_owner| AllocationWrite::Release { nonce, lock_owner })
    }

    /// Open slots that somebody holds, or says to have used.
    pub(super) fn held(&self) -> Vec<Nonce> {
        let Some(run) = self.run() else { return Vec::new() };
        let open = self.allocations.range(run.consumed..run.next.max(run.consumed));
        let held =
            |row: &Allocation| matches!(row.status, AllocationStatus::Reserved | AllocationStatus::Used);
        open.filter(|(_, row)| held(row)).map(|(nonce, _)| *nonce).collect()
    }

    /// Whether a holder's word stands for this slot.
    pub(super) fn is_used(&self, nonce: Nonce) -> bool {
        self.allocations.get(&nonce).is_some_and(|row| row.status == AllocationStatus::Used)
    }

    /// Watches what a holder says used a slot. Without bytes it can never go out: it counts as superseded from the start.
    pub(super) fn watch_used(&mut self, row: &Allocation) {
        let (AllocationStatus::Used, Some(hash)) = (row.status, row.used_hash) else { return };
        let nothing = GasPrice(0);
        let watched = NewAttempt {
            nonce: row.nonce,
            n: 0,
            tx_id: None,
            kind: AttemptKind::External,
            route: Route::Public,
            hash,
            raw: alloy_primitives::Bytes::new(),
            fees: Fees::Legacy { gas_price: nothing },
            next_send_at: SUPERSEDED,
        };
        let watched = StoredAttempt::read_from_store(watched, SUPERSEDED, 0, None);
        self.slots.entry(row.nonce).or_insert_with(|| vec![watched]);
        self.ask_all_at = None;
    }

    /// Watches what holders say used their slots, after a take-up.
    pub(super) fn watch_all_used(&mut self) {
        for row in self.allocations.values().cloned().collect::<Vec<_>>() {
            self.watch_used(&row);
        }
    }
}

/// A transaction without bytes ends.
pub(super) fn ended_without_bytes(
    tx: &TxRecord,
    event: TxEvent,
    told: Told,
    now: gapless_core::time::Timestamp,
) -> Result<TxWrite, Stop> {
    let write = TxWrite::new(tx.tx_id(), &tx.facts, &[event], vec![told], |facts| {
        (facts.nonce, facts.sub_state, facts.wait) = (None, None, None);
        facts.ended_at = Some(now);
    });
    write.map_err(|_| Stop::OutOfStep)
}
