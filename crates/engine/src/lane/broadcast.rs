//! What sending stored bytes comes to. Acceptance needs no write, but where it ends a wait; what a refusal means is in
//! [`super::refusals`]. Whatever a broadcast of many slots calls for is one write.

use gapless_core::attempt::StoredAttempt;
use gapless_core::change::{ResendClaim, TxWrite};
use gapless_core::ids::Nonce;
use gapless_core::outcome::SendOutcome;
use gapless_core::record::TxRecord;
use gapless_core::slot;
use gapless_core::wait::WaitReason;
use tracing::info;

use super::memory::Memory;
use super::notes::Invalid;
use super::{Lane, Stop};
use crate::names;

impl Lane {
    /// Sends again what is due: first the claim is written, then the bytes go out. What a node turned away is due soon,
    /// whether or not resubmission is switched on.
    pub(super) async fn send_due(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        let interval = self.submitter.settings.resubmit_after();
        let now = self.database_time();
        let due: Vec<(Nonce, u32)> = memory
            .open()
            .filter_map(|(nonce, attempts)| slot::current(attempts).map(|attempt| (nonce, attempt)))
            .filter(|(_, attempt)| attempt.next_send_at <= now)
            .map(|(nonce, attempt)| (nonce, attempt.n))
            .collect();
        if due.is_empty() || !self.phase.may_send() {
            return Ok(());
        }
        let mut draft = self.draft(memory)?;
        let next_send_at = now.plus(interval);
        draft.writes.resends = due
            .iter()
            .map(|(nonce, n)| ResendClaim { nonce: *nonce, n: *n, next_send_at, sends: true })
            .collect();
        self.commit(memory, draft).await?;
        metrics::counter!(names::RESUBMIT, "result" => "sent").increment(due.len() as u64);
        memory.sending.queue(due.into_iter().map(|(nonce, _)| nonce));
        Ok(())
    }

    /// Notes what nodes said of stored bytes that were handed to them.
    pub(super) async fn note_outcomes(
        &mut self,
        memory: &mut Memory,
        answers: Vec<(StoredAttempt, SendOutcome)>,
    ) -> Result<(), Stop> {
        let mut refused = Vec::new();
        let mut waited = Vec::new();
        for (attempt, outcome) in answers {
            let nonce = attempt.nonce;
            info!(submitter = %self.submitter.id, tx_id = ?attempt.tx_id.map(|id| id.to_string()), hash = %attempt.hash,
                outcome = outcome.code(), "sent");
            let open = memory.run().is_some_and(|run| run.consumed <= nonce && nonce < run.next);
            if open && (outcome.is_in_pool() || outcome.is_possibly_sent()) {
                // True of the slot, whichever of its attempts it was.
                memory.notes(nonce).perhaps_pooled = true;
            }
            // Mined meanwhile, or another attempt goes out now: then the answer changes nothing else.
            let current = memory.current(nonce).filter(|current| current.n == attempt.n && open);
            let Some(current) = current.cloned() else { continue };
            let notes = memory.notes(nonce);
            if !outcome.is_in_pool() {
                refused.push((current, outcome));
                continue;
            }
            notes.invalid = Invalid::default();
            // Another attempt of this slot is in the pool: that one is watched too, and this one should be dearer.
            notes.suggested |= outcome == SendOutcome::ReplacementUnderpriced;
            memory.invalid_in_row = 0;
            waited.push(nonce);
        }
        if !waited.is_empty() {
            self.chain.heads.expect_block();
            self.end_waits(memory, waited).await?;
        }
        self.refused(memory, refused).await
    }

    /// What a node has taken waits no more for being taken.
    async fn end_waits(&mut self, memory: &mut Memory, taken: Vec<Nonce>) -> Result<(), Stop> {
        // That no pool has it was seen there, and is over when it is seen there; the word of a node that took it before is not
        // enough.
        let diagnosed = self.submitter.settings.diagnose;
        let over = |wait: &WaitReason| match wait {
            WaitReason::NotInPool { last_error } => last_error.is_some() || !diagnosed,
            WaitReason::GapBelow { .. } | WaitReason::OutOfFunds { .. } | WaitReason::NodeDown { .. } => true,
            _ => false,
        };
        let waits = |tx: &&TxRecord| tx.facts.wait.as_ref().is_some_and(over);
        let txs = taken.into_iter().filter_map(|nonce| memory.tx_of_current(nonce)).filter(waits);
        let writes: Vec<TxWrite> = txs
            .map(|tx| TxWrite::new(tx.tx_id(), &tx.facts, &[], vec![], |facts| facts.wait = None))
            .collect::<Result<_, _>>()
            .map_err(|_| Stop::OutOfStep)?;
        // What is short may be the next of the queue, not what was taken.
        let poor = |tx: &TxRecord| matches!(tx.facts.wait, Some(WaitReason::OutOfFunds { .. }));
        let short = memory.queue.front().is_some_and(poor);
        let paid = memory.cursor.cursor.conditions.out_of_funds.is_some() && !short;
        if writes.is_empty() && !paid {
            return Ok(());
        }
        let mut draft = self.draft(memory)?;
        draft.writes.txs = writes;
        if paid {
            draft.cursor.conditions.out_of_funds = None;
        }
        self.commit(memory, draft).await
    }
}
