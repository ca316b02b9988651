//! From a block to the end: receipts, confirmations, retraction.
//!
//! Consumed means a receipt of our attempt in a block that our view of the chain holds canonical. A receipt that
//! vanished moves the slot back and is told; a null from a node that lags is lag.

use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::allocation::AllocationWrite;
use gapless_core::allocation::Exhibit;
use gapless_core::attempt::{AttemptKind, StoredAttempt};
use gapless_core::change::TxWrite;
use gapless_core::cursor::Run;
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::Nonce;
use gapless_core::ports::chain::{BlockRef, Receipt};
use gapless_core::record::{Failure, Mined, MinedAs, TxRecord};
use gapless_core::state::{SubState, TxEvent};
use gapless_core::text::NodeText;
use gapless_core::wait::WaitReason;
use serde_json::json;

use super::memory::Memory;
use super::{Lane, Stop};
use crate::names;
use crate::points::Point;

impl Lane {
    /// Everything that blocks can tell about our slots.
    pub(super) async fn settle(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        self.retract(memory).await?;
        self.find_mined(memory).await?;
        self.finish(memory).await
    }

    /// Takes back what stands in blocks that are gone: our receipts, and foreign use that was recorded.
    async fn retract(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        let ring = self.chain.heads.ring();
        let mut gone = None;
        for (nonce, block) in memory.consumed_in() {
            if self.is_canonical(&ring, block).await == Some(false) {
                gone = Some((nonce, block.number));
                break;
            }
        }
        let Some((from, block_number)) = gone else { return Ok(()) };
        let mut draft = self.draft(memory)?;
        for (_, attempts) in memory.unsettled().filter(|(nonce, _)| *nonce >= from) {
            let open = |tx: &&TxRecord| tx.facts.state.is_bound() && tx.facts.mined.is_some();
            let Some(tx) = memory.tx_of(attempts).filter(open) else { continue };
            let told = vec![Told::with(EventKind::TxReorged, json!({"blockNumber": block_number}))];
            let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::Reorged], told, |facts| {
                facts.mined = None;
                facts.sub_state = Some(SubState::InPool);
                facts.wait = Some(WaitReason::Reorged { block_number });
            });
            draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
        }
        // A nonce whose foreign use vanished goes back to its transaction, or to whoever comes next.
        for nonce in memory.foreign_from(from) {
            let bound = memory.tx_at(nonce).is_some();
            let write =
                if bound { AllocationWrite::Settle { nonce } } else { AllocationWrite::Recycle { nonce } };
            draft.writes.allocations.push(write);
        }
        if let Some(run) = &mut draft.cursor.run {
            run.consumed = from;
        }
        self.commit(memory, draft).await?;
        metrics::counter!(names::NEW_FORK).increment(1);
        memory.searched = None;
        memory.ask_all_at = None;
        let reopened: Vec<Nonce> = memory.open().map(|(nonce, _)| nonce).collect();
        for nonce in reopened {
            self.broadcast(memory, nonce).await?;
        }
        Ok(())
    }

    /// Hashes worth asking for: those a new block names, and now and then all of them.
    fn suspects(&self, memory: &mut Memory) -> Vec<B256> {
        let ring = self.chain.heads.ring();
        let hashes: Vec<B256> =
            memory.open().flat_map(|(_, attempts)| attempts.iter().map(|a| a.hash)).collect();
        let searched = memory.searched.filter(|seen| ring.hash_at(seen.number) == Some(seen.hash));
        let above = searched.map_or(0, |seen| seen.number);
        memory.searched = ring.head().map(|head| head.this);
        let now = self.tick();
        if memory.ask_all_at.is_none_or(|at| now >= at) {
            memory.ask_all_at = Some(now.plus(self.submitter.settings.stale_receipts));
            return hashes;
        }
        hashes.into_iter().filter(|hash| ring.holds(*hash, above).is_some()).collect()
    }

    async fn find_mined(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        if memory.open().next().is_none() {
            return Ok(());
        }
        let mut receipts: Vec<Receipt> = Vec::new();
        for hash in self.suspects(memory) {
            match self.chain.calls.receipt(hash).await {
                Ok(Some(receipt)) => receipts.push(receipt),
                // A block names it and this endpoint has no receipt yet, or nothing can be said: ask again soon.
                Ok(None) if self.chain.heads.ring().holds(hash, 0).is_none() => {}
                Ok(None) | Err(_) => memory.ask_all_at = self.soon(),
            }
        }
        if receipts.is_empty() {
            return Ok(());
        }
        self.tools.points.reach(Point::AfterReceipt);
        let now = self.database_time();
        let mut draft = self.draft(memory)?;
        let mut consumed = memory.run().map(|run| run.consumed).unwrap_or_default();
        let mut unclear = false;
        for (nonce, attempts) in memory.open() {
            let found =
                attempts.iter().find_map(|a| receipts.iter().find(|r| r.hash == a.hash).map(|r| (a, r)));
            let Some((attempt, receipt)) = found.filter(|_| nonce == consumed) else { break };
            if self.is_canonical(&self.chain.heads.ring(), receipt.block).await != Some(true) {
                unclear = true;
                break;
            }
            consumed = nonce.next();
            if let Some(tx) = memory.tx_of(attempts).filter(|tx| tx.facts.state.is_bound()) {
                let status = u8::from(receipt.succeeded);
                let told = vec![Told::with(
                    EventKind::TxReceiptUpdated,
                    json!({"blockNumber": receipt.block.number, "status": status}),
                )];
                let mined = mined(attempt, receipt, now);
                let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::Mined], told, |facts| {
                    facts.mined = Some(mined);
                    facts.sub_state = Some(SubState::Mined);
                    facts.wait = None;
                });
                if let Some(bound) = tx.facts.bound_at {
                    metrics::histogram!(names::SENT_TO_MINED).record(now.since(bound).as_secs_f64());
                }
                metrics::histogram!(names::ACCEPTED_TO_MINED).record(now.since(tx.created_at).as_secs_f64());
                draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
            }
        }
        if unclear {
            memory.searched = None;
            memory.ask_all_at = self.soon();
        }
        let Some(run) = draft.cursor.run.as_mut().filter(|run| run.consumed != consumed) else {
            return Ok(());
        };
        run.consumed = consumed;
        if run.open() == 0 {
            draft.cursor.in_flight = None;
        }
        self.commit(memory, draft).await?;
        self.tools.points.reach(Point::AfterReceiptStored);
        Ok(())
    }

    /// When to ask for all of them again although the stale time-out is not over.
    fn soon(&self) -> Option<gapless_core::time::Tick> {
        let settings = &self.submitter.settings;
        Some(self.tick().plus(settings.retry.min(settings.stale_receipts).max(Duration::from_millis(10))))
    }

    /// Ends what is deep enough, as a prefix. A transaction that lost its slot waits longer (*patient*), and only it.
    async fn finish(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        let ring = self.chain.heads.ring();
        let Some(head) = ring.head().map(|head| head.this.number) else { return Ok(()) };
        let Some(run) = memory.run() else { return Ok(()) };
        let required = self.submitter.settings.confirmations;
        let deep = |block: u64, depth: u64| head.saturating_sub(block) >= depth;
        let mut draft = self.draft(memory)?;
        let now = self.database_time();
        let mut resolved = run.resolved;
        while resolved < run.consumed {
            if let Some(exhibit) = memory.foreign(resolved) {
                if !deep(exhibit.block_number, required)
                    || self.is_canonical(&ring, block_of_exhibit(&exhibit)).await != Some(true)
                {
                    break;
                }
            } else if let Some(tx) = memory.tx_at(resolved) {
                let Some(mined) = tx.facts.mined.filter(|m| deep(m.block_number, required)) else { break };
                // The view may have changed since receipts were last taken back.
                if self.is_canonical(&ring, block_of(&mined)).await != Some(true) {
                    break;
                }
                draft.writes.txs.push(end(tx, &mined, head, now)?);
            }
            resolved = resolved.next();
        }
        let mut settled = run.settled;
        while settled < resolved.min(run.consumed) {
            let bound = memory.tx_at(settled).filter(|tx| tx.facts.state.is_bound());
            match (bound, memory.foreign(settled)) {
                (displaced, Some(exhibit)) => {
                    let patient = deep(exhibit.block_number, required.max(self.patience()));
                    // Our bytes are void, and the nonce is used, only as long as that block stands.
                    if !patient || self.is_canonical(&ring, block_of_exhibit(&exhibit)).await != Some(true) {
                        break;
                    }
                    if let Some(tx) = displaced {
                        draft.writes.txs.push(requeue(tx)?);
                    }
                }
                // It got its nonce back after the foreign use had been resolved.
                (Some(tx), None) if settled < run.resolved => {
                    let Some(mined) = tx.facts.mined.filter(|m| deep(m.block_number, required)) else {
                        break;
                    };
                    if self.is_canonical(&ring, block_of(&mined)).await != Some(true) {
                        break;
                    }
                    draft.writes.txs.push(end(tx, &mined, head, now)?);
                }
                _ => {}
            }
            settled = settled.next();
        }
        if (resolved, settled) == (run.resolved, run.settled) {
            return Ok(());
        }
        self.tools.points.reach(Point::AtConfirm);
        draft.cursor.run = Some(Run { resolved, settled, ..run });
        self.commit(memory, draft).await
    }

    /// How deep foreign use must lie before a displaced transaction may move on.
    fn patience(&self) -> u64 {
        match self.submitter.id.chain().evm() {
            Some(1_337 | 31_337) => 12,
            _ => 64,
        }
    }
}

const fn block_of_exhibit(exhibit: &Exhibit) -> BlockRef {
    BlockRef { number: exhibit.block_number, hash: exhibit.block_hash }
}

const fn block_of(mined: &Mined) -> BlockRef {
    BlockRef { number: mined.block_number, hash: mined.block_hash }
}

fn mined(attempt: &StoredAttempt, receipt: &Receipt, at: gapless_core::time::Timestamp) -> Mined {
    Mined {
        hash: receipt.hash,
        mined_as: match attempt.kind {
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

fn end(tx: &TxRecord, mined: &Mined, head: u64, now: gapless_core::time::Timestamp) -> Result<TxWrite, Stop> {
    let confirmations = head.saturating_sub(mined.block_number);
    let (event, told, result) = if mined.succeeded {
        let told =
            Told::with(EventKind::TxConfirmed, json!({"confirmations": confirmations, "newFork": false}));
        (TxEvent::SucceededDeep, told, "confirmed")
    } else {
        (TxEvent::RevertedDeep, Told::with(EventKind::TxFailed, json!({"reason": "reverted"})), "failed")
    };
    metrics::counter!(names::FINALITY, "result" => result).increment(1);
    metrics::histogram!(names::MINED_TO_CONFIRMED).record(now.since(mined.at).as_secs_f64());
    let reverted = !mined.succeeded;
    let write = TxWrite::new(tx.tx_id(), &tx.facts, &[event], vec![told], |facts| {
        (facts.sub_state, facts.wait, facts.ended_at) = (None, None, Some(now));
        if reverted {
            let reason = NodeText::new("the transaction was mined and reverted");
            facts.failure = Some(Failure { code: NodeText::new("reverted"), reason });
        }
    });
    write.map_err(|_| Stop::OutOfStep)
}

/// A transaction whose nonce went to somebody else, for good: it needs another.
fn requeue(tx: &TxRecord) -> Result<TxWrite, Stop> {
    metrics::counter!(names::TX_REQUEUED, "reason" => "foreign_use").increment(1);
    let told = vec![Told::with(EventKind::TxRequeued, json!({"reason": "nonce used by somebody else"}))];
    let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::SlotLostDeep], told, |facts| {
        (facts.nonce, facts.tx_hash, facts.sub_state, facts.wait, facts.bound_at) =
            (None, None, None, None, None);
    });
    write.map_err(|_| Stop::OutOfStep)
}
