//! What the policy for the stuck would do, without doing it.
//!
//! Reads the store alone, so any node can answer for any submitter it has settings for, and nothing changes by asking.
//! What is foretold holds as long as nothing moves: a receipt, a command or another diagnosis makes it void.

use std::collections::HashMap;

use gapless_core::attempt::StoredAttempt;
use gapless_core::govern;
use gapless_core::ids::{Nonce, RequestId, TxId};
use gapless_core::limits::MAX_PAGE;
use gapless_core::ports::policy::{Decision, Diagnosis, StuckAction, StuckContext, StuckPolicy};
use gapless_core::record::TxRecord;
use gapless_core::state::TxState;
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use gapless_core::wait::WaitReason;
use serde::Serialize;

use crate::handle::{Handle, Refusal};
use crate::settings::LaneSettings;

/// What would be done later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NextAct {
    /// What.
    pub action: StuckAction,
    /// By which step of the policy.
    pub step: Option<usize>,
    /// When.
    pub at: Timestamp,
}

/// One transaction that does not move, and what lies ahead of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outlook {
    /// Its id.
    pub tx_id: TxId,
    /// Its account.
    pub submitter: SubmitterId,
    /// The caller's name for it.
    pub request_id: RequestId,
    /// Where it stands.
    pub state: TxState,
    /// When it was bound.
    pub bound_at: Timestamp,
    /// For how long it has been, in seconds.
    pub age_seconds: u64,
    /// How often its own bytes were sent.
    pub attempts: u64,
    /// Why it waits, as far as its lane knows.
    pub wait_reason: Option<WaitReason>,
    /// What the pool seemed to hold when somebody last looked.
    pub diagnosis: Option<Diagnosis>,
    /// What the policy would do now.
    pub action: StuckAction,
    /// By which of its steps.
    pub step: Option<usize>,
    /// What it would do next, if nothing now; none if nothing ever, or if it cannot tell.
    pub next: Option<NextAct>,
}

impl Outlook {
    /// None for a transaction that is nobody's concern yet.
    fn of(
        tx: &TxRecord,
        attempts: &[StoredAttempt],
        settings: &LaneSettings,
        policy: &dyn StuckPolicy,
        now: Timestamp,
    ) -> Option<Self> {
        let facts = &tx.facts;
        let bound_at = facts.bound_at.filter(|_| facts.state.is_bound() && facts.mined.is_none())?;
        let age = now.since(bound_at);
        if age < settings.stuck.stall_after && facts.state != TxState::Stuck {
            return None;
        }
        let seen = facts.amended.as_ref().and_then(|amended| amended.diagnosis.clone());
        let diagnosis = seen.as_ref().unwrap_or(&Diagnosis::Unknown);
        let context = StuckContext { tx, attempts, diagnosis, now };
        let Decision { action, step } = policy.decide(&context);
        let idle = action == StuckAction::KeepTrying;
        let next = policy.next_act(&context).filter(|at| idle && *at > now).map(|at| {
            let Decision { action, step } = policy.decide(&StuckContext { now: at, ..context });
            NextAct { action, step, at }
        });
        Some(Self {
            tx_id: tx.tx_id(),
            submitter: tx.request.submitter.clone(),
            request_id: tx.request.request_id.clone(),
            state: facts.state,
            bound_at,
            age_seconds: age.as_secs(),
            attempts: govern::sent(&context),
            wait_reason: facts.wait.clone(),
            diagnosis: seen,
            action,
            step,
            next,
        })
    }
}

/// What lies ahead of everything that does not move.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StuckPlan {
    /// Each transaction, by submitter and nonce.
    pub items: Vec<Outlook>,
    /// Whether there is more than one answer holds.
    pub more: bool,
}

impl Handle {
    /// What the policy for the stuck would do at `now`, the store's time, for one submitter or for all. Changes nothing.
    pub async fn stuck_plan(
        &self,
        now: Timestamp,
        submitter: Option<&SubmitterId>,
    ) -> Result<StuckPlan, Refusal> {
        let mut plan = StuckPlan::default();
        if let Some(id) = submitter {
            self.store.submitter(id).await?.ok_or(Refusal::UnknownSubmitter)?;
            self.look_ahead(now, id, &mut plan).await?;
            return Ok(plan);
        }
        let mut after: Option<SubmitterId> = None;
        loop {
            let page = self.store.submitters(after.as_ref(), MAX_PAGE).await?;
            for info in page.iter().filter(|info| info.cursor.cursor.run.is_some_and(|run| run.open() > 0)) {
                self.look_ahead(now, &info.submitter, &mut plan).await?;
                if plan.more {
                    return Ok(plan);
                }
            }
            after = page.last().map(|info| info.submitter.clone());
            if page.len() < MAX_PAGE {
                return Ok(plan);
            }
        }
    }

    async fn look_ahead(
        &self,
        now: Timestamp,
        id: &SubmitterId,
        plan: &mut StuckPlan,
    ) -> Result<(), Refusal> {
        // Whose chain is not configured here is run, and decided about, elsewhere.
        let Some(settings) = self.registry.submitter(id).map(|found| found.settings) else { return Ok(()) };
        let Some(lane) = self.store.load_lane(id).await? else { return Ok(()) };
        let policies = self.policies.get().cloned().unwrap_or_default();
        let policy = policies.stuck_for(&settings);
        let mut slots: HashMap<Nonce, Vec<StoredAttempt>> = HashMap::new();
        for attempt in lane.attempts {
            slots.entry(attempt.nonce).or_default().push(attempt);
        }
        let mut bound: Vec<&TxRecord> = lane.txs.iter().filter(|tx| tx.facts.nonce.is_some()).collect();
        bound.sort_by_key(|tx| tx.facts.nonce);
        for tx in bound {
            let attempts = tx.facts.nonce.and_then(|nonce| slots.get(&nonce)).map_or(&[][..], Vec::as_slice);
            let Some(outlook) = Outlook::of(tx, attempts, &settings, policy, now) else { continue };
            if plan.items.len() == MAX_PAGE {
                plan.more = true;
                return Ok(());
            }
            plan.items.push(outlook);
        }
        Ok(())
    }
}
