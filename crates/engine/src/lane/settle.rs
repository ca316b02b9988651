//! From a block to a receipt, and back: what consumed our slots, and what is taken back when its block vanishes.
//!
//! Consumed means a receipt of our attempt in a block that our view of the chain holds canonical. A receipt that
//! vanished moves the slot back and is told; a null from a node that lags is lag. What had been mined goes out again,
//! whatever was intended since. What is deep enough to end is [`super::finish`]'s business.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::allocation::AllocationWrite;
use gapless_core::attempt::{AttemptKind, SUPERSEDED, StoredAttempt};
use gapless_core::change::{Draft, ResendClaim, TxWrite};
use gapless_core::cursor::InFlight;
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::Nonce;
use gapless_core::intent::OnExpiry;
use gapless_core::ports::chain::Receipt;
use gapless_core::record::{Mined, MinedAs, TxRecord};
use gapless_core::slot;
use gapless_core::state::{SubState, TxEvent};
use gapless_core::time::{Tick, Timestamp};
use gapless_core::wait::WaitReason;
use serde_json::json;

use super::bid::competing;
use super::memory::Memory;
use super::unread::Unread;
use super::{Lane, Stop};
use crate::calls::Wanted;
use crate::heads::Ring;
use crate::names;
use crate::points::Point;

/// Slots whose use is written in one change.
pub(super) const AT_ONCE: usize = 1_000;

impl Lane {
    /// Everything that blocks can tell about our slots, by one view of the chain.
    pub(super) async fn settle(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        let ring = self.chain.heads.ring();
        self.retract(memory, &ring).await?;
        memory.more_mined = true;
        while std::mem::take(&mut memory.more_mined) {
            self.find_mined(memory, &ring).await?;
        }
        self.tell_confirmations(memory, &ring).await?;
        while self.finish(memory, &ring).await? {}
        Ok(())
    }

    /// Takes back what stands in blocks that are gone: our receipts, and foreign use that was recorded.
    async fn retract(&mut self, memory: &mut Memory, ring: &Arc<Ring>) -> Result<(), Stop> {
        let look = (ring.head().map(|head| head.this), memory.run());
        if memory.all_stood == Some(look) {
            return Ok(());
        }
        let (mut gone, mut all_stand) = (None, true);
        for (nonce, block) in memory.consumed_in() {
            let stands = self.is_canonical(ring, block).await;
            all_stand &= stands == Some(true);
            if stands == Some(false) {
                gone = Some((nonce, block.number));
                break;
            }
        }
        memory.all_stood = all_stand.then_some(look);
        let Some((from, block_number)) = gone else { return Ok(()) };
        let mut draft = self.draft(memory)?;
        self.reopen(memory, from, block_number, &mut draft)?;
        // A nonce whose foreign use vanished goes back to its transaction, or to whoever comes next.
        for nonce in memory.foreign_from(from) {
            let bound = memory.txs_at(nonce).any(|tx| tx.facts.state.is_bound());
            draft.writes.allocations.push(match bound && memory.has_bytes_to_send(nonce) {
                true => AllocationWrite::Settle { nonce },
                false => AllocationWrite::Recycle { nonce },
            });
        }
        if let Some(run) = &mut draft.cursor.run {
            run.consumed = from;
        }
        self.commit(memory, draft).await?;
        metrics::counter!(names::NEW_FORK).increment(1);
        memory.searched = None;
        memory.ask_all_at = None;
        memory.placed.retain(|nonce, _| *nonce < from);
        let reopened: Vec<Nonce> = memory.open().map(|(nonce, _)| nonce).collect();
        memory.sending.queue(reopened);
        Ok(())
    }

    /// Retracts the receipts of all slots from this one on, and makes what had been mined go out again.
    pub(super) fn reopen(
        &self,
        memory: &mut Memory,
        from: Nonce,
        block_number: u64,
        draft: &mut Draft,
    ) -> Result<(), Stop> {
        let now = self.database_time();
        let slots: Vec<Nonce> = memory.slots.range(from..).map(|(nonce, _)| *nonce).collect();
        let mut broke = false;
        for nonce in slots {
            let mined = memory.txs_at(nonce).find_map(|tx| tx.facts.mined.map(|mined| mined.hash));
            for tx in memory.txs_at(nonce) {
                let Some(mined) = tx.facts.mined else { continue };
                broke |= tx.facts.state.is_terminal();
                draft.writes.txs.push(match tx.facts.state.is_terminal() {
                    true => broken(tx, block_number)?,
                    false => self.retracted(memory, tx, &mined, block_number)?,
                });
            }
            if let Some(mined) = mined {
                let attempts = memory.slots.get(&nonce).into_iter().flatten();
                draft.writes.resends.extend(attempts.filter_map(|attempt| {
                    let again = attempt.hash == mined;
                    let next_send_at = if again { now } else { SUPERSEDED };
                    let changes = again || !attempt.is_superseded();
                    changes.then_some(ResendClaim { nonce, n: attempt.n, next_send_at, sends: false })
                }));
            }
        }
        for tx in memory.txs.values() {
            memory.told_blocks.remove(&tx.tx_id());
        }
        if broke {
            metrics::counter!(names::DEEP_REORG).increment(1);
        }
        Ok(())
    }

    fn retracted(
        &self,
        memory: &Memory,
        tx: &TxRecord,
        mined: &Mined,
        block_number: u64,
    ) -> Result<TxWrite, Stop> {
        let own = mined.mined_as != MinedAs::Other;
        let attempt = tx.facts.nonce.and_then(|nonce| memory.slots.get(&nonce));
        let attempt = attempt.into_iter().flatten().find(|attempt| attempt.hash == mined.hash);
        let kind = attempt.filter(|_| own).map(|attempt| attempt.kind);
        let replaced = attempt.and_then(|attempt| self.chain.chain.contents(&attempt.raw));
        let mut told = vec![Told::with(EventKind::TxReorged, json!({"blockNumber": block_number}))];
        let overtaken = kind.is_some_and(AttemptKind::carries_effect);
        if overtaken {
            told.extend(self.lost_races(memory, tx, mined));
        }
        // Only who asked for it is ever withdrawn by the time.
        let may_expire = tx.request.intent.options.on_expiry == OnExpiry::Cancel;
        let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::Reorged], told, |facts| {
            facts.mined = None;
            if overtaken && may_expire {
                facts.amend().reopened = true;
            }
            if own {
                facts.tx_hash = Some(mined.hash);
            }
            // What was mined once is what goes out again; nothing else is intended any more.
            if let Some(amended) = facts.amended.as_mut().filter(|_| overtaken) {
                amended.withdrawal = None;
                amended.payload = replaced
                    .filter(|_| kind == Some(AttemptKind::Replacement))
                    .map(|contents| contents.payload);
            }
            let abandoned = facts.sub_state == Some(SubState::Abandoned);
            facts.sub_state = match kind {
                Some(kind) => Some(competing(kind)),
                None if abandoned => Some(SubState::Abandoned),
                None => Some(SubState::InPool),
            };
            facts.wait = Some(WaitReason::Reorged { block_number });
        });
        write.map_err(|_| Stop::OutOfStep)
    }

    /// Receipts worth asking for: those of transactions that a new block names, and now and then all of them.
    fn suspects(&self, memory: &mut Memory, ring: &Ring) -> Vec<Wanted> {
        let searched = memory.searched.filter(|seen| ring.hash_at(seen.number) == Some(seen.hash));
        let above = searched.map_or(0, |seen| seen.number);
        memory.searched = ring.head().map(|head| head.this);
        let now = self.tick();
        let all = memory.ask_all_at.is_none_or(|at| now >= at);
        if all {
            memory.ask_all_at = Some(now.plus(self.submitter.settings.stale_receipts));
        }
        if !all && memory.searched == searched {
            return Vec::new();
        }
        let above = if all { 0 } else { above };
        let wanted = |hash: B256| {
            let block = ring.holds(hash, above);
            let block = block.map(|block| (block.hash, ring.size_at(block.number).unwrap_or_default()));
            (all || block.is_some()).then_some(Wanted { hash, block })
        };
        memory.open().flat_map(|(_, attempts)| attempts).filter_map(|a| wanted(a.hash)).collect()
    }

    async fn find_mined(&mut self, memory: &mut Memory, ring: &Arc<Ring>) -> Result<(), Stop> {
        if memory.open().next().is_none() {
            // What is bound from now on has no receipt yet.
            memory.ask_all_at = Some(self.tick().plus(self.submitter.settings.stale_receipts));
            return Ok(());
        }
        let mut receipts: HashMap<B256, Receipt> = HashMap::new();
        let mut unread = Unread::default();
        let before = (memory.searched, memory.ask_all_at);
        let suspects = self.suspects(memory, ring);
        let answers = self.chain.calls.receipts(suspects.clone()).await;
        for (Wanted { hash, .. }, answer) in suspects.into_iter().zip(answers) {
            match answer.map(|receipt| receipt.ok_or_else(|| ring.holds(hash, 0))) {
                Ok(Ok(receipt)) => {
                    receipts.insert(hash, receipt);
                }
                Ok(Err(None)) => unread.unheard_of(hash),
                // A block names it and this endpoint has no receipt yet, or nothing can be said: ask again soon.
                Ok(Err(Some(block))) => {
                    unread.missing(hash, block);
                    memory.ask_all_at = self.soon();
                }
                Err(_) => memory.ask_all_at = self.soon(),
            }
        }
        if receipts.is_empty() {
            return self.note_unread(memory, &unread).await;
        }
        self.tools.points.reach(Point::AfterReceipt);
        let now = self.database_time();
        let mut draft = self.draft(memory)?;
        let mut consumed = memory.run().map(|run| run.consumed).unwrap_or_default();
        let mut placed = Vec::new();
        let mut unclear = false;
        for (nonce, attempts) in memory.open().take(AT_ONCE) {
            if nonce != consumed {
                break;
            }
            let mut found = None;
            for attempt in attempts {
                let Some(receipt) = receipts.get(&attempt.hash) else { continue };
                // A fresh look: the view may have changed while receipts were fetched. A receipt from a dead fork does not
                // hide that of another attempt.
                let ring = self.chain.heads.ring();
                match self.is_canonical(&ring, receipt.block).await {
                    Some(true) => {
                        found = Some((attempt, receipt));
                        break;
                    }
                    elsewhere => {
                        unread.elsewhere(attempt.hash, receipt.block, elsewhere.is_some());
                        unclear = true;
                    }
                }
            }
            let Some((attempt, receipt)) = found else { break };
            consumed = nonce.next();
            placed.push((nonce, receipt.block));
            for tx in memory.txs_at(nonce).filter(|tx| tx.facts.state.is_bound()) {
                draft.writes.txs.push(consume(tx, attempt, receipt, now)?);
            }
            // Somebody took it after all. What a holder said stays until it is settled: its hash stands nowhere else.
            if memory.allocations.contains_key(&nonce) && !memory.is_used(nonce) {
                draft.writes.allocations.push(AllocationWrite::Settle { nonce });
            }
        }
        if unclear {
            memory.searched = None;
            memory.ask_all_at = self.soon();
        }
        let Some(run) = draft.cursor.run.as_mut().filter(|run| run.consumed != consumed) else {
            return self.note_unread(memory, &unread).await;
        };
        run.consumed = consumed;
        let lowest = memory.slots.range(consumed..run.next.max(consumed)).next();
        draft.cursor.in_flight = lowest.map(|(nonce, attempts)| InFlight {
            nonce: *nonce,
            tx_id: slot::current(attempts).and_then(|attempt| attempt.tx_id),
        });
        if placed.len() == AT_ONCE {
            // The others are found at the next look, at once.
            (memory.searched, memory.ask_all_at) = before;
            memory.more_mined = true;
        }
        self.commit(memory, draft).await?;
        memory.invalid_in_row = 0;
        for (nonce, block) in placed {
            if !memory.txs_at(nonce).any(|tx| tx.facts.state.is_bound()) {
                memory.placed.insert(nonce, block);
            }
        }
        self.tools.points.reach(Point::AfterReceiptStored);
        Ok(())
    }

    /// When to ask for all of them again although the stale time-out is not over.
    pub(super) fn soon(&self) -> Option<Tick> {
        let settings = &self.submitter.settings;
        Some(self.tick().plus(settings.retry.min(settings.stale_receipts).max(Duration::from_millis(10))))
    }
}

/// A transaction that has ended is not in the chain any more: that is told, and its state stays.
pub(super) fn broken(tx: &TxRecord, block_number: u64) -> Result<TxWrite, Stop> {
    let told = vec![Told::with(EventKind::TxFinalityBroken, json!({"blockNumber": block_number}))];
    let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::FinalityBroken], told, |_| {});
    write.map_err(|_| Stop::OutOfStep)
}

/// A transaction's slot was consumed by this attempt, its own or another's.
fn consume(
    tx: &TxRecord,
    attempt: &StoredAttempt,
    receipt: &Receipt,
    now: Timestamp,
) -> Result<TxWrite, Stop> {
    let mined = mined(tx, attempt, receipt, now);
    let told = json!({
        "blockNumber": receipt.block.number,
        "status": u8::from(receipt.succeeded),
        "minedAs": mined.mined_as,
    });
    let told = vec![Told::with(EventKind::TxReceiptUpdated, told)];
    let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::Mined], told, |facts| {
        facts.mined = Some(mined);
        if mined.mined_as.carries_effect() || facts.sub_state != Some(SubState::Abandoned) {
            facts.sub_state = Some(SubState::Mined);
        }
        facts.wait = None;
    });
    if let Some(bound) = tx.facts.bound_at {
        metrics::histogram!(names::SENT_TO_MINED).record(now.since(bound).as_secs_f64());
    }
    metrics::histogram!(names::ACCEPTED_TO_MINED).record(now.since(tx.created_at).as_secs_f64());
    write.map_err(|_| Stop::OutOfStep)
}

fn mined(tx: &TxRecord, attempt: &StoredAttempt, receipt: &Receipt, at: Timestamp) -> Mined {
    let own = attempt.tx_id == Some(tx.tx_id());
    Mined {
        hash: receipt.hash,
        mined_as: match attempt.kind {
            _ if !own => MinedAs::Other,
            AttemptKind::Payload | AttemptKind::External => MinedAs::Payload,
            AttemptKind::Replacement => MinedAs::Replacement,
            AttemptKind::Placeholder => MinedAs::Placeholder,
        },
        block_number: receipt.block.number,
        block_hash: receipt.block.hash,
        succeeded: receipt.succeeded,
        gas_used: receipt.gas_used,
        effective_gas_price: receipt.effective_gas_price,
        contract_address: receipt.contract_address,
        at,
    }
}
