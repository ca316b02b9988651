//! What operators see of a transaction beside its view: the nonce and the machinery.

use alloy_primitives::B256;
use gapless_core::attempt::{Refusal, StoredAttempt};
use gapless_core::fees::Fees;
use gapless_core::ids::{FencingToken, Nonce};
use gapless_core::ports::policy::Diagnosis;
use gapless_core::record::MinedAs;
use gapless_core::time::Timestamp;
use serde::Serialize;

use super::AttemptView;
use crate::explain::Scene;

/// The machinery of a transaction. Every field is always there; what nobody knows is null.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorView {
    /// Its slot.
    pub nonce: Option<Nonce>,
    /// Every attempt of the slot.
    pub attempts: Vec<AttemptView>,
    /// What used the nonce instead of its own attempts.
    pub replaced_by_hash: Option<B256>,
    /// How often bytes of the slot were handed out.
    pub submit_attempts: u64,
    /// When they last were, as far as that is kept: an attempt that was refused keeps only when it was stored.
    pub last_submit_at: Option<Timestamp>,
    /// When the current attempt is due again.
    pub next_resubmit_at: Option<Timestamp>,
    /// What a node last said against it.
    pub last_error: Option<Refusal>,
    /// Fees of the current attempt.
    pub last_gas_params: Option<Fees>,
    /// What the pool seemed to hold when somebody last looked.
    pub last_mempool_diag: Option<Diagnosis>,
    /// Who runs its lane now.
    pub owner_node: Option<String>,
    /// Token of the lane that wrote it last.
    pub fencing_token: Option<FencingToken>,
}

impl OperatorView {
    /// From everything around a transaction.
    #[must_use]
    pub fn of(scene: &Scene<'_>) -> Self {
        let (facts, attempts) = (&scene.tx.facts, scene.attempts);
        let mined = facts.mined.as_ref();
        let elsewhere = mined.filter(|mined| matches!(mined.mined_as, MinedAs::Placeholder | MinedAs::Other));
        let foreign = scene.foreign.and_then(|exhibit| exhibit.hash);
        let current = scene.current();
        let open = mined.is_none() && facts.state.is_bound();
        Self {
            nonce: facts.nonce,
            attempts: attempts.iter().map(|a| AttemptView::of(a, mined.map(|mined| mined.hash))).collect(),
            replaced_by_hash: elsewhere.map(|mined| mined.hash).or(foreign),
            submit_attempts: attempts.iter().map(|attempt| 1 + u64::from(attempt.resends)).sum(),
            last_submit_at: attempts.iter().map(|attempt| sent_at(scene, attempt)).max(),
            next_resubmit_at: current.filter(|_| open).map(|attempt| attempt.next_send_at),
            last_error: attempts.iter().rev().find_map(|attempt| attempt.refusal.clone()),
            last_gas_params: current.map(|attempt| attempt.fees),
            last_mempool_diag: facts.amended.as_ref().and_then(|amended| amended.diagnosis.clone()),
            owner_node: scene.owner.map(str::to_owned),
            fencing_token: scene.tx.fencing_token,
        }
    }
}

/// A claim to send again names when the next one is due: an interval earlier it was made.
fn sent_at(scene: &Scene<'_>, attempt: &StoredAttempt) -> Timestamp {
    let refused = attempt.refusal.is_some();
    match scene.settings.resubmit.filter(|_| attempt.resends > 0 && !refused) {
        Some(interval) => attempt.next_send_at.minus(interval).max(attempt.stored_at).min(scene.now),
        None => attempt.stored_at,
    }
}
