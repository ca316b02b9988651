//! Sending stored bytes, and what the answers mean. Acceptance needs no write; a refusal is noted once.

use std::time::Duration;

use gapless_core::attempt::{Refusal, StoredAttempt};
use gapless_core::change::{RefusalNote, ResendClaim, TxWrite};
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::Nonce;
use gapless_core::outcome::SendOutcome;
use gapless_core::text::NodeText;
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
            .filter_map(|(nonce, attempts)| attempts.last().map(|attempt| (nonce, attempt)))
            .filter(|(_, attempt)| attempt.next_send_at <= now)
            .map(|(nonce, attempt)| (nonce, attempt.n))
            .collect();
        if due.is_empty() || !self.phase.may_send() {
            return Ok(());
        }
        let mut draft = self.draft(memory)?;
        let next_send_at = now.plus(interval);
        draft.writes.resends =
            due.iter().map(|(nonce, n)| ResendClaim { nonce: *nonce, n: *n, next_send_at }).collect();
        self.commit(memory, draft).await?;
        for (nonce, _) in due {
            metrics::counter!(names::RESUBMIT, "result" => "sent").increment(1);
            self.broadcast(memory, nonce).await?;
        }
        Ok(())
    }

    /// Sends a slot's current attempt. The lease is looked at again right before.
    pub(super) async fn broadcast(&mut self, memory: &mut Memory, nonce: Nonce) -> Result<(), Stop> {
        let Some(attempt) = memory.slots.get(&nonce).and_then(|attempts| attempts.last()).cloned() else {
            return Ok(());
        };
        self.lease()?;
        let outcome = self.chain.calls.send(attempt.clone()).await;
        self.tools.points.reach(Point::AfterSend);
        info!(submitter = %self.submitter.id, tx_id = ?attempt.tx_id.map(|id| id.to_string()), hash = %attempt.hash,
            outcome = outcome.code(), "sent");
        if outcome.is_in_pool() {
            self.chain.heads.expect_block();
            return Ok(());
        }
        self.refused(memory, &attempt, outcome).await
    }

    async fn refused(
        &mut self,
        memory: &mut Memory,
        attempt: &StoredAttempt,
        outcome: SendOutcome,
    ) -> Result<(), Stop> {
        self.tools.points.reach(Point::AfterRefusal);
        if outcome == SendOutcome::NonceTooLow {
            // Consumed by somebody, perhaps by these very bytes: receipts tell, never the count.
            memory.ask_all_at = None;
            self.chain.heads.expect_block();
        }
        let text = match &outcome {
            SendOutcome::Unavailable(text) | SendOutcome::Invalid(text) => text.clone(),
            SendOutcome::WrongEndpoint(text) | SendOutcome::Unknown(text) => text.clone(),
            other => NodeText::new(other.code()),
        };
        let refusal = Refusal { code: NodeText::new(outcome.code()), text };
        let retry_at = self.database_time().plus(back_off(attempt.resends, self.submitter.settings.retry));
        let mut draft = self.draft(memory)?;
        draft.writes.resends =
            vec![ResendClaim { nonce: attempt.nonce, n: attempt.n, next_send_at: retry_at }];
        if attempt.refusal.as_ref() != Some(&refusal) {
            let tx = attempt.tx_id.and_then(|tx_id| memory.txs.get(&tx_id));
            if let Some(tx) = tx.filter(|tx| tx.facts.state.is_bound() && tx.facts.mined.is_none()) {
                let told = Told::with(EventKind::TxAttemptRefused, serde_json::json!({"code": refusal.code}));
                let wait = WaitReason::NotInPool { last_error: Some(refusal.text.clone()) };
                let write =
                    TxWrite::new(tx.tx_id(), &tx.facts, &[], vec![told], |facts| facts.wait = Some(wait));
                draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
            }
            draft.writes.refusals = vec![RefusalNote { nonce: attempt.nonce, n: attempt.n, refusal }];
        }
        self.commit(memory, draft).await
    }
}

/// Doubles from `first`, up to half a minute.
fn back_off(times: u32, first: Duration) -> Duration {
    first.saturating_mul(1 << times.min(8)).min(Duration::from_secs(30))
}
