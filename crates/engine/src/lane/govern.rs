//! The governor: what is done about a transaction that is bound and does not move. The policy decides, here it is carried out,
//! fenced and counted with the transaction, so that a budget is spent once, whoever runs the lane.

use std::time::Duration;

use gapless_core::change::{ResendClaim, TxWrite};
use gapless_core::condition::Protect;
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::Nonce;
use gapless_core::ports::policy::{Decision, Diagnosis, StuckAction, StuckContext};
use gapless_core::record::{TxFacts, TxRecord, Withdrawal};
use gapless_core::state::{SubState, TxEvent, TxState};
use gapless_core::wait::WaitReason;
use serde_json::json;
use tracing::warn;

use super::memory::Memory;
use super::{Lane, Stop};
use crate::names;

impl Lane {
    /// Looks at every open slot that has been waiting for long.
    pub(super) async fn govern(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        let stall_after = self.submitter.settings.stuck.stall_after;
        let (now, tick) = (self.database_time(), self.tick());
        let stalled = |tx: &TxRecord| {
            let waits = tx.facts.state.is_bound() && tx.facts.mined.is_none();
            waits && tx.facts.bound_at.is_some_and(|bound| now.since(bound) >= stall_after)
        };
        let due: Vec<Nonce> = memory
            .open()
            .map(|(nonce, _)| nonce)
            .filter(|nonce| memory.tx_of_current(*nonce).is_some_and(stalled))
            .filter(|nonce| {
                memory.noted(*nonce).and_then(|n| n.govern_after).is_none_or(|after| tick >= after)
            })
            .collect();
        for nonce in due {
            let pause = stall_after.clamp(Duration::from_millis(50), Duration::from_secs(30));
            memory.notes(nonce).govern_after = Some(tick.plus(pause));
            self.govern_one(memory, nonce).await?;
        }
        Ok(())
    }

    async fn govern_one(&mut self, memory: &mut Memory, nonce: Nonce) -> Result<(), Stop> {
        if self.submitter.settings.diagnose {
            let found = self.diagnose(memory, nonce).await;
            self.note_diagnosis(memory, nonce, found).await?;
        }
        let Some(tx) = memory.tx_of_current(nonce).cloned() else { return Ok(()) };
        let attempts = memory.slots.get(&nonce).cloned().unwrap_or_default();
        let diagnosis = tx.facts.amended.as_ref().and_then(|amended| amended.diagnosis.clone());
        let diagnosis = diagnosis.unwrap_or(Diagnosis::Unknown);
        let now = self.database_time();
        let context = StuckContext { tx: &tx, attempts: &attempts, diagnosis: &diagnosis, now };
        let decision = self.tools.policies.stuck_for(&self.submitter.settings).decide(&context);
        let action = decision.action;
        let done_before = match action {
            StuckAction::KeepTrying => true,
            StuckAction::Escalate => tx.facts.state == TxState::Stuck,
            StuckAction::Placeholder => tx.facts.withdrawal().is_some() || !self.can_fill(),
            StuckAction::Protect => memory.cursor.cursor.conditions.protect.is_some(),
            StuckAction::Rebroadcast | StuckAction::Bump => false,
        };
        if done_before {
            return Ok(());
        }
        warn!(submitter = %self.submitter.id, tx_id = %tx.tx_id(), nonce = nonce.0, ?action, "governing");
        metrics::counter!(names::STUCK_DECISION, "action" => action.name()).increment(1);
        self.carry_out(memory, nonce, &tx, decision).await
    }

    async fn carry_out(
        &mut self,
        memory: &mut Memory,
        nonce: Nonce,
        tx: &TxRecord,
        decision: Decision,
    ) -> Result<(), Stop> {
        let now = self.database_time();
        let mut draft = self.draft(memory)?;
        let (mut events, mut told) = (vec![], vec![]);
        match decision.action {
            StuckAction::Escalate => {
                events.push(TxEvent::Stick);
                told.push(Told::with(EventKind::TxStuck, json!({"by": "governor"})));
            }
            StuckAction::Protect => {
                draft.cursor.conditions.protect = Some(Protect { nonce, exhibit: None });
                let figures = json!({"nonce": nonce, "txId": tx.tx_id(), "by": "governor"});
                draft.writes.told = vec![Told::with(EventKind::SubmitterProtected, figures)];
            }
            StuckAction::Rebroadcast => {
                let current = memory.current(nonce);
                let claim = current.map(|attempt| ResendClaim {
                    nonce,
                    n: attempt.n,
                    next_send_at: now,
                    sends: false,
                });
                draft.writes.resends.extend(claim);
            }
            StuckAction::Placeholder | StuckAction::Bump | StuckAction::KeepTrying => {}
        }
        let placeholder = decision.action == StuckAction::Placeholder;
        let bump = decision.action == StuckAction::Bump;
        let outbid = memory.current(nonce).filter(|_| bump).map(|attempt| attempt.n);
        let write = TxWrite::new(tx.tx_id(), &tx.facts, &events, told, |facts| {
            spend(facts, decision, now);
            if outbid.is_some() {
                facts.amend().outbid = outbid;
            }
            if placeholder {
                facts.amend().withdrawal = Some(Withdrawal::Governor);
                facts.sub_state = Some(SubState::Cancelling);
            }
        });
        draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
        self.commit(memory, draft).await?;
        memory.notes(nonce).bid_after = None;
        Ok(())
    }

    /// Keeps what was seen, if it is news; a transaction that no pool holds says so, and goes out again.
    async fn note_diagnosis(
        &mut self,
        memory: &mut Memory,
        nonce: Nonce,
        found: Diagnosis,
    ) -> Result<(), Stop> {
        let Some(tx) = memory.tx_of_current(nonce) else { return Ok(()) };
        let before = tx.facts.amended.as_ref().and_then(|amended| amended.diagnosis.as_ref());
        let lost = matches!(found, Diagnosis::Lost);
        if before == Some(&found) && !lost {
            return Ok(());
        }
        let now = self.database_time();
        let wait = match &found {
            Diagnosis::Lost => Some(WaitReason::NotInPool { last_error: None }),
            Diagnosis::GapBelow { nonce } => Some(WaitReason::GapBelow { nonce: *nonce }),
            _ => None,
        };
        let mut draft = self.draft(memory)?;
        if lost {
            let current = memory.current(nonce);
            draft.writes.resends.extend(current.map(|attempt| ResendClaim {
                nonce,
                n: attempt.n,
                next_send_at: now,
                sends: false,
            }));
        }
        let write = TxWrite::new(tx.tx_id(), &tx.facts, &[], vec![], |facts| {
            facts.amend().diagnosis = Some(found);
            let stands = matches!(facts.wait, Some(WaitReason::NotInPool { last_error: Some(_) }));
            match wait {
                Some(wait) if !stands => facts.wait = Some(wait),
                None if matches!(
                    facts.wait,
                    Some(WaitReason::NotInPool { .. } | WaitReason::GapBelow { .. })
                ) =>
                {
                    facts.wait = None;
                }
                _ => {}
            }
        });
        draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
        self.commit(memory, draft).await
    }
}

/// Counts a step as taken.
fn spend(facts: &mut TxFacts, decision: Decision, now: gapless_core::time::Timestamp) {
    let amended = facts.amend();
    if let Some(step) = decision.step {
        if amended.steps.len() <= step {
            amended.steps.resize(step + 1, 0);
        }
        amended.steps[step] += 1;
    }
    amended.stepped_at = Some(now);
}
