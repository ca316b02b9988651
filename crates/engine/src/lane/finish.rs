//! Ends: what is deep enough, as prefixes of the run.
//!
//! `resolved` counts slots whose use is as deep as the submitter's rule asks; with it end the transactions whose own attempt
//! was mined. `settled` lags behind where a slot went to anything else (a placeholder, another transaction, a stranger):
//! that transaction is told its end, or gets another nonce, only when no reorg is to be expected any more (*patient*).

use std::collections::HashSet;
use std::sync::Arc;

use alloy_primitives::B256;
use gapless_core::allocation::AllocationWrite;
use gapless_core::change::TxWrite;
use gapless_core::cursor::Run;
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::Nonce;
use gapless_core::ports::chain::{BlockRef, Tag};
use gapless_core::record::{Failure, Mined, TxRecord, Withdrawal};
use gapless_core::state::{SubState, TxEvent};
use gapless_core::text::NodeText;
use gapless_core::time::Timestamp;
use serde_json::json;

use super::commands::{done, lost};
use super::memory::Memory;
use super::settle::AT_ONCE;
use super::{Lane, Stop};
use crate::heads::Ring;
use crate::names;
use crate::points::Point;
use crate::settings::{FinalityRule, finality_floor};

/// How deep is deep enough, by one view of the chain.
struct Depths {
    head: u64,
    required: u64,
    /// By the submitter's rule, if it goes by a tag: everything up to here.
    tagged: Option<Option<u64>>,
    /// For what went elsewhere.
    patient: u64,
    /// And by the chain's word.
    finalized: Option<u64>,
}

impl Depths {
    fn is_resolved(&self, block: u64) -> bool {
        match self.tagged {
            Some(tagged) => tagged.is_some_and(|tagged| block <= tagged),
            None => self.head.saturating_sub(block) >= self.required,
        }
    }

    fn is_patient(&self, block: u64) -> bool {
        let deep = self.head.saturating_sub(block) >= self.patient;
        self.is_resolved(block) && (deep || self.finalized.is_some_and(|finalized| block <= finalized))
    }
}

impl Lane {
    /// Ends what is deep enough, so many at a time. Whether there may be more.
    pub(super) async fn finish(&mut self, memory: &mut Memory, ring: &Arc<Ring>) -> Result<bool, Stop> {
        let Some(head) = ring.head().map(|head| head.this) else { return Ok(false) };
        let Some(run) = memory.run().filter(|run| run.settled < run.consumed) else { return Ok(false) };
        let Some(depths) = self.depths(head).await else { return Ok(false) };
        let mut draft = self.draft(memory)?;
        let now = self.database_time();
        let mut resolved = run.resolved;
        let mut ended = HashSet::new();
        while resolved < run.consumed && ended.len() < AT_ONCE {
            let Some(block) = self.where_consumed(memory, resolved).await else { break };
            // The view may have changed since receipts were last taken back.
            if !depths.is_resolved(block.number) || self.is_canonical(ring, block).await != Some(true) {
                break;
            }
            for tx in memory.txs_at(resolved).filter(|tx| tx.facts.state.is_bound()) {
                if let Some(mined) = tx.facts.mined.filter(|mined| mined.mined_as.carries_effect()) {
                    draft.writes.txs.push(self.end(memory, tx, &mined, head.number, now)?);
                    ended.insert(tx.tx_id());
                }
            }
            resolved = resolved.next();
        }
        let mut settled = run.settled;
        while settled < resolved.min(run.consumed) {
            let left: Vec<TxRecord> = memory
                .txs_at(settled)
                .filter(|tx| tx.facts.state.is_bound() && !ended.contains(&tx.tx_id()))
                .cloned()
                .collect();
            if !left.is_empty() || memory.foreign(settled).is_some() {
                let Some(block) = self.where_consumed(memory, settled).await else { break };
                let own = left.iter().all(|tx| tx.facts.mined.is_some_and(|m| m.mined_as.carries_effect()));
                let own = own && memory.foreign(settled).is_none();
                let deep =
                    if own { depths.is_resolved(block.number) } else { depths.is_patient(block.number) };
                // Our bytes are void, and the nonce is used, only as long as that block stands.
                if !deep || self.is_canonical(ring, block).await != Some(true) {
                    break;
                }
                for tx in &left {
                    draft.writes.txs.push(match tx.facts.mined {
                        // It got its nonce back after the slot had been resolved.
                        Some(mined) if mined.mined_as.carries_effect() => {
                            self.end(memory, tx, &mined, head.number, now)?
                        }
                        _ => self.displaced(memory, tx, now)?,
                    });
                }
            }
            settled = settled.next();
        }
        if (resolved, settled) == (run.resolved, run.settled) {
            return Ok(false);
        }
        self.tools.points.reach(Point::AtConfirm);
        draft.cursor.run = Some(Run { resolved, settled, ..run });
        let over = (run.settled.0..settled.0).map(Nonce).filter(|nonce| memory.is_used(*nonce));
        draft.writes.allocations.extend(over.map(|nonce| AllocationWrite::Settle { nonce }));
        self.commit(memory, draft).await?;
        Ok(ended.len() >= AT_ONCE)
    }

    /// The block in which a nonce was consumed. Where it went to an attempt of no transaction, nothing stored tells it: the
    /// receipt does.
    async fn where_consumed(&self, memory: &mut Memory, nonce: Nonce) -> Option<BlockRef> {
        if let Some(block) = memory.consumed_at(nonce) {
            return Some(block);
        }
        let hashes: Vec<_> = memory.slots.get(&nonce)?.iter().map(|attempt| attempt.hash).collect();
        for hash in hashes {
            if let Ok(Some(receipt)) = self.chain.calls.receipt(hash).await
                && self.is_canonical(&self.chain.heads.ring(), receipt.block).await == Some(true)
            {
                memory.placed.insert(nonce, receipt.block);
                return Some(receipt.block);
            }
        }
        None
    }

    async fn depths(&self, head: BlockRef) -> Option<Depths> {
        let settings = &self.submitter.settings;
        let local = finality_floor(&self.submitter.id.chain()) == 0;
        let tagged = match settings.finality {
            FinalityRule::Depth => None,
            FinalityRule::Tag(tag) => {
                let found = self.chain.tags.read(self.chain.chain.as_ref(), tag, head).await.ok()?;
                Some(found.map(|block| block.number))
            }
        };
        let finalized = match settings.finality {
            FinalityRule::Tag(Tag::Finalized) if !local => tagged.flatten(),
            _ => None,
        };
        let patient = settings.patience(&self.submitter.id.chain());
        Some(Depths { head: head.number, required: settings.confirmations, tagged, patient, finalized })
    }

    /// Its own attempt was mined, deep enough.
    fn end(
        &self,
        memory: &Memory,
        tx: &TxRecord,
        mined: &Mined,
        head: u64,
        now: Timestamp,
    ) -> Result<TxWrite, Stop> {
        let confirmations = head.saturating_sub(mined.block_number);
        let mut told = self.lost_races(memory, tx, mined);
        told.extend((self.is_replaced(memory, tx, mined) == Some(true)).then(|| done("replace")));
        let event = if mined.succeeded {
            let figures = json!({"confirmations": confirmations, "newFork": false});
            told.push(Told::with(EventKind::TxConfirmed, figures));
            TxEvent::SucceededDeep
        } else {
            told.push(Told::with(EventKind::TxFailed, json!({"reason": "reverted"})));
            TxEvent::RevertedDeep
        };
        let result = if mined.succeeded { "confirmed" } else { "failed" };
        metrics::counter!(names::FINALITY, "result" => result).increment(1);
        metrics::histogram!(names::MINED_TO_CONFIRMED).record(now.since(mined.at).as_secs_f64());
        let reverted = !mined.succeeded;
        let write = TxWrite::new(tx.tx_id(), &tx.facts, &[event], told, |facts| {
            (facts.sub_state, facts.wait, facts.ended_at) = (None, None, Some(now));
            if reverted {
                let reason = NodeText::new("the transaction was mined and reverted");
                facts.failure = Some(Failure { code: NodeText::new("reverted"), reason });
            }
        });
        write.map_err(|_| Stop::OutOfStep)
    }

    /// The commands that competed with what was mined, and lost.
    pub(super) fn lost_races(&self, memory: &Memory, tx: &TxRecord, mined: &Mined) -> Vec<Told> {
        let cancel = tx.facts.withdrawal() == Some(Withdrawal::Cancel);
        let replace = self.is_replaced(memory, tx, mined) == Some(false);
        let commands = [("cancel", cancel), ("replace", replace)].into_iter().filter(|(_, beaten)| *beaten);
        commands.map(|(command, _)| lost(command, "mined-before")).collect()
    }

    /// Whether the replacement that was asked for is what was mined; none if none competed.
    fn is_replaced(&self, memory: &Memory, tx: &TxRecord, mined: &Mined) -> Option<bool> {
        let rivals = self.rivals(memory, tx);
        (!rivals.is_empty()).then(|| !rivals.contains(&mined.hash))
    }

    /// The transaction's own bytes that a replacement competes with. None for one that was replaced while it was queued: all
    /// its bytes carry the new payload, and that it is replaced was told then.
    fn rivals(&self, memory: &Memory, tx: &TxRecord) -> Vec<B256> {
        let Some(payload) = tx.facts.amended.as_ref().and_then(|amended| amended.payload.as_ref()) else {
            return Vec::new();
        };
        let attempts = tx.facts.nonce.and_then(|nonce| memory.slots.get(&nonce)).into_iter().flatten();
        let own =
            attempts.filter(|attempt| attempt.tx_id == Some(tx.tx_id()) && attempt.kind.carries_effect());
        own.filter(|attempt| !self.carries(attempt, payload)).map(|attempt| attempt.hash).collect()
    }

    /// Its slot went to something else, for good.
    fn displaced(&self, memory: &Memory, tx: &TxRecord, now: Timestamp) -> Result<TxWrite, Stop> {
        let (event, told) = match tx.facts.withdrawal() {
            Some(why @ (Withdrawal::Cancel | Withdrawal::Governor)) => {
                let told = Told::with(EventKind::TxCancelled, json!({"by": why}));
                let command = (why == Withdrawal::Cancel).then(|| done("cancel"));
                (TxEvent::CancelledDeep, command.into_iter().chain([told]).collect())
            }
            Some(Withdrawal::Expiry) => (TxEvent::ExpiredDeep, vec![Told::plain(EventKind::TxExpired)]),
            None if tx.facts.sub_state == Some(SubState::Abandoned) => {
                (TxEvent::InvalidDeep, vec![Told::with(EventKind::TxFailed, json!({"reason": "invalid"}))])
            }
            None => return requeue(tx, !self.rivals(memory, tx).is_empty()),
        };
        let attempts = tx.facts.nonce.and_then(|nonce| memory.slots.get(&nonce));
        let words = attempts.into_iter().flatten().filter(|attempt| attempt.tx_id == Some(tx.tx_id()));
        let words = words.filter_map(|attempt| attempt.refusal.as_ref()).next_back();
        let failure = (event == TxEvent::InvalidDeep).then(|| Failure {
            code: NodeText::new("invalid"),
            reason: words.map_or(NodeText::new("no chain could mine it"), |refusal| refusal.text.clone()),
        });
        let write = TxWrite::new(tx.tx_id(), &tx.facts, &[event], told, |facts| {
            (facts.sub_state, facts.wait, facts.ended_at) = (None, None, Some(now));
            facts.failure = failure.or_else(|| facts.failure.take());
        });
        let result = if event == TxEvent::InvalidDeep { "failed" } else { "withdrawn" };
        metrics::counter!(names::FINALITY, "result" => result).increment(1);
        write.map_err(|_| Stop::OutOfStep)
    }
}

/// A transaction whose nonce went to something else, for good: it needs another. If a replacement competed, the bytes it
/// competed with are void: it is what will be bound next.
fn requeue(tx: &TxRecord, replaced: bool) -> Result<TxWrite, Stop> {
    let ours = tx.facts.mined.is_some();
    let (reason, words) = match ours {
        true => ("slot_lost", "nonce used by another transaction of this account"),
        false => ("foreign_use", "nonce used by somebody else"),
    };
    metrics::counter!(names::TX_REQUEUED, "reason" => reason).increment(1);
    let requeued = Told::with(EventKind::TxRequeued, json!({"reason": words}));
    let told = replaced.then(|| done("replace")).into_iter().chain([requeued]).collect();
    let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::SlotLostDeep], told, |facts| {
        (facts.nonce, facts.tx_hash, facts.mined, facts.sub_state) = (None, None, None, None);
        (facts.wait, facts.bound_at) = (None, None);
        if let Some(amended) = &mut facts.amended {
            amended.outbid = None;
        }
    });
    write.map_err(|_| Stop::OutOfStep)
}
