//! Sending stored bytes. Acceptance needs no write, but where it ends a wait; what a refusal means is in
//! [`super::refusals`].

use gapless_core::change::{ResendClaim, TxWrite};
use gapless_core::ids::Nonce;
use gapless_core::slot;
use gapless_core::wait::WaitReason;
use tracing::info;

use super::memory::Memory;
use super::{Lane, Stop};
use crate::names;
use crate::points::Point;

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
        for (nonce, _) in due {
            metrics::counter!(names::RESUBMIT, "result" => "sent").increment(1);
            self.broadcast(memory, nonce).await?;
        }
        Ok(())
    }

    /// Sends a slot's current attempt. The lease is looked at again right before.
    pub(super) async fn broadcast(&mut self, memory: &mut Memory, nonce: Nonce) -> Result<(), Stop> {
        let Some(attempt) = memory.current(nonce).cloned() else { return Ok(()) };
        self.lease()?;
        memory.notes(nonce).unsent = false;
        let outcome = self.chain.calls.send(attempt.clone()).await;
        self.tools.points.reach(Point::AfterSend);
        info!(submitter = %self.submitter.id, tx_id = ?attempt.tx_id.map(|id| id.to_string()), hash = %attempt.hash,
            outcome = outcome.code(), "sent");
        if outcome.is_in_pool() || outcome.is_possibly_sent() {
            memory.notes(nonce).perhaps_pooled = true;
        }
        if !outcome.is_in_pool() {
            return self.refused(memory, &attempt, outcome).await;
        }
        memory.invalid_in_row = 0;
        memory.notes(nonce).invalid_at.clear();
        self.chain.heads.expect_block();
        if outcome == gapless_core::outcome::SendOutcome::ReplacementUnderpriced {
            // Another attempt of this slot is in the pool: that one is watched too, and this one should be dearer.
            memory.notes(nonce).suggested = true;
        }
        self.end_wait(memory, nonce).await
    }

    /// What a node has taken waits no more for being taken.
    async fn end_wait(&mut self, memory: &mut Memory, nonce: Nonce) -> Result<(), Stop> {
        // That no pool has it was seen there, and is over when it is seen there; the word of a node that took it before is not
        // enough.
        let diagnosed = self.submitter.settings.diagnose;
        let over = |wait: &WaitReason| match wait {
            WaitReason::NotInPool { last_error } => last_error.is_some() || !diagnosed,
            WaitReason::GapBelow { .. } | WaitReason::OutOfFunds { .. } | WaitReason::NodeDown { .. } => true,
            _ => false,
        };
        let paid = memory.cursor.cursor.conditions.out_of_funds.is_some();
        let tx = memory.tx_of_current(nonce).filter(|tx| tx.facts.wait.as_ref().is_some_and(over));
        if tx.is_none() && !paid {
            return Ok(());
        }
        let mut draft = self.draft(memory)?;
        if let Some(tx) = tx {
            let write = TxWrite::new(tx.tx_id(), &tx.facts, &[], vec![], |facts| facts.wait = None);
            draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
        }
        draft.cursor.conditions.out_of_funds = None;
        self.commit(memory, draft).await
    }
}
