//! What a node's refusal means for a slot. Nothing is given up on an endpoint's word: the slot stays bound, the bytes stay
//! watched, and what happens next depends on what was refused: the price, the funds, the order, or the bytes themselves.

use std::collections::HashSet;
use std::time::Duration;

use gapless_core::attempt::{Refusal, StoredAttempt};
use gapless_core::change::{Draft, RefusalNote, ResendClaim, TxWrite};
use gapless_core::event::{EventKind, Told};
use gapless_core::fees::Wei;
use gapless_core::ids::Nonce;
use gapless_core::outcome::SendOutcome;
use gapless_core::slot;
use gapless_core::text::NodeText;
use gapless_core::wait::WaitReason;
use serde_json::json;

use super::memory::Memory;
use super::{Lane, Stop};
use crate::points::Point;

impl Lane {
    /// Notes refusals, of one attempt each of several slots, and does what they call for.
    pub(super) async fn refused(
        &mut self,
        memory: &mut Memory,
        refused: Vec<(StoredAttempt, SendOutcome)>,
    ) -> Result<(), Stop> {
        if refused.is_empty() {
            return Ok(());
        }
        self.tools.points.reach(Point::AfterRefusal);
        let mut draft = self.draft(memory)?;
        if refused.iter().any(|(_, outcome)| *outcome == SendOutcome::InsufficientFunds)
            && let Ok(balance) = self.chain.chain.balance(&self.submitter.id).await
        {
            draft.cursor.conditions.out_of_funds = Some((balance, self.cost_of_open(memory)));
        }
        let gap = |(_, outcome): &&(StoredAttempt, SendOutcome)| *outcome == SendOutcome::NonceGap;
        if let Some((highest, _)) = refused.iter().rev().find(gap) {
            self.send_lower_first(memory, highest.nonce, &refused, &mut draft);
        }
        for (attempt, outcome) in &refused {
            self.note_refusal(memory, attempt, outcome, &mut draft)?;
        }
        self.commit(memory, draft).await?;
        for (attempt, outcome) in refused {
            if let SendOutcome::Invalid(text) = outcome {
                self.doubt(memory, attempt.nonce, &text).await?;
            }
        }
        Ok(())
    }

    fn note_refusal(
        &self,
        memory: &mut Memory,
        attempt: &StoredAttempt,
        outcome: &SendOutcome,
        draft: &mut Draft,
    ) -> Result<(), Stop> {
        let nonce = attempt.nonce;
        let mut retry_in = back_off(attempt.resends, self.submitter.settings.retry);
        match outcome {
            SendOutcome::NonceTooLow => {
                // Consumed by somebody, perhaps by these very bytes: receipts tell, never the count.
                memory.ask_all_at = None;
                self.chain.heads.expect_block();
            }
            SendOutcome::Underpriced | SendOutcome::BelowBaseFee | SendOutcome::InvalidFees => {
                memory.notes(nonce).suggested = true;
            }
            SendOutcome::NonceGap => retry_in = retry_in.min(self.submitter.settings.retry),
            SendOutcome::Invalid(_) => {
                // Whether to believe it takes several heads at which this lane hears it, and all above waits for that: the
                // tries of those who had the lane before, whose notes are lost, must not make them rare.
                let invalid = &mut memory.notes(nonce).invalid;
                retry_in = back_off(invalid.times, self.submitter.settings.retry);
                invalid.times = invalid.times.saturating_add(1);
            }
            _ => {}
        }
        let narrowed = self.narrow(memory, attempt, outcome, draft);
        if narrowed.as_ref().is_some_and(|away| !away.soon) {
            // Progress sends it again, not time.
            retry_in = retry_in.max(self.submitter.settings.reconcile);
        }
        let text = match outcome {
            SendOutcome::Unavailable(text) | SendOutcome::Invalid(text) => text.clone(),
            SendOutcome::WrongEndpoint(text) | SendOutcome::Unknown(text) => text.clone(),
            other => NodeText::new(other.code()),
        };
        let refusal = Refusal { code: NodeText::new(outcome.code()), text };
        let next_send_at = self.database_time().plus(retry_in);
        draft.writes.resends.push(ResendClaim { nonce, n: attempt.n, next_send_at, sends: false });
        let tx = attempt.tx_id.and_then(|tx_id| memory.txs.get(&tx_id));
        if let Some(tx) = tx.filter(|tx| tx.facts.state.is_bound() && tx.facts.mined.is_none()) {
            let unread = memory.noted(nonce).is_some_and(|notes| notes.unread_since.is_some());
            let wait = match outcome {
                // Used by these very bytes, by all we know: what is missing is the receipt.
                SendOutcome::NonceTooLow if unread => tx.facts.wait.clone(),
                _ if narrowed.is_some() => {
                    Some(WaitReason::NotInPool { last_error: narrowed.map(|away| away.words) })
                }
                _ => Some(self.wait_after(outcome, attempt, draft, memory, &refusal)),
            };
            let news = attempt.refusal.as_ref() != Some(&refusal);
            let told = Told::with(EventKind::TxAttemptRefused, json!({"code": refusal.code}));
            let told = if news { vec![told] } else { vec![] };
            let code = |wait: &Option<WaitReason>| wait.as_ref().map(WaitReason::code);
            if news || code(&tx.facts.wait) != code(&wait) {
                let write = TxWrite::new(tx.tx_id(), &tx.facts, &[], told, |facts| facts.wait = wait);
                draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
            }
        }
        if attempt.refusal.as_ref() != Some(&refusal) {
            draft.writes.refusals.push(RefusalNote { nonce, n: attempt.n, refusal });
        }
        Ok(())
    }

    /// A lower slot is missing from this pool: they go out first, and then this one. Those that were refused with it have
    /// their own time.
    fn send_lower_first(
        &self,
        memory: &Memory,
        nonce: Nonce,
        refused: &[(StoredAttempt, SendOutcome)],
        draft: &mut Draft,
    ) {
        let now = self.database_time();
        let with_it: HashSet<Nonce> = refused.iter().map(|(attempt, _)| attempt.nonce).collect();
        let lower = memory.open().take_while(|(lower, _)| *lower < nonce);
        let lower = lower.filter(|(lower, _)| !with_it.contains(lower));
        let due = lower
            .filter_map(|(_, attempts)| slot::current(attempts))
            .filter(|attempt| attempt.next_send_at > now.plus(self.submitter.settings.retry))
            .map(|attempt| ResendClaim {
                nonce: attempt.nonce,
                n: attempt.n,
                next_send_at: now,
                sends: false,
            });
        draft.writes.resends.extend(due);
    }

    /// Why its transaction waits now.
    fn wait_after(
        &self,
        outcome: &SendOutcome,
        attempt: &StoredAttempt,
        draft: &Draft,
        memory: &Memory,
        refusal: &Refusal,
    ) -> WaitReason {
        let base_fee = self.chain.heads.ring().head().and_then(|head| head.base_fee);
        let offered = attempt.fees.ceiling();
        match (outcome, base_fee, draft.cursor.conditions.out_of_funds) {
            (SendOutcome::InsufficientFunds, _, Some((balance, needed))) => {
                WaitReason::OutOfFunds { balance, needed }
            }
            (SendOutcome::BelowBaseFee | SendOutcome::Underpriced, Some(base_fee), _)
                if base_fee > offered =>
            {
                WaitReason::BelowBaseFee { offered, base_fee }
            }
            (SendOutcome::NonceGap, ..) => {
                let lowest = memory.run().map_or(attempt.nonce, |run| run.consumed);
                WaitReason::GapBelow { nonce: lowest }
            }
            (SendOutcome::Unavailable(text), ..) => WaitReason::NodeDown { last_error: text.clone() },
            (SendOutcome::TimedOut, ..) => WaitReason::NodeDown { last_error: refusal.text.clone() },
            _ => WaitReason::NotInPool { last_error: Some(refusal.text.clone()) },
        }
    }

    /// The most that what is open can still cost: of each slot its dearest attempt, for any of them may be mined.
    pub(super) fn cost_of_open(&self, memory: &mut Memory) -> Wei {
        let open: Vec<Nonce> = memory.open().map(|(nonce, _)| nonce).collect();
        let mut sum = Wei::default();
        for nonce in open {
            sum = Wei(sum.0.saturating_add(self.cost_of_slot(memory, nonce).0));
        }
        sum
    }

    fn cost_of_slot(&self, memory: &mut Memory, nonce: Nonce) -> Wei {
        let attempts = memory.slots.get(&nonce).map(Vec::as_slice).unwrap_or_default();
        let made = attempts.len();
        if let Some((at, cost)) = memory.noted(nonce).and_then(|notes| notes.cost)
            && at == made
        {
            return cost;
        }
        let of = |attempt: &StoredAttempt| {
            let contents = self.chain.chain.contents(&attempt.raw)?;
            Some(attempt.fees.max_cost(contents.gas_limit, contents.payload.value))
        };
        let cost = attempts.iter().filter_map(of).max().unwrap_or_default();
        memory.notes(nonce).cost = Some((made, cost));
        cost
    }
}

/// Doubles from `first`, up to half a minute.
fn back_off(times: u32, first: Duration) -> Duration {
    first.saturating_mul(1 << times.min(8)).min(Duration::from_secs(30))
}
