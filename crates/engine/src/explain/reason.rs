//! Why a transaction waits, from what is stored and what is known now.
//!
//! A stored reason counts unless it is plainly outdated: a transaction in a block is not looked for in pools, a
//! submitter that was resumed is not paused. A lane does not write that a node took the bytes after all, or that a
//! hold healed while the slot was busy; whoever reads must see through that.

use gapless_core::fees::GasPrice;
use gapless_core::ids::Nonce;
use gapless_core::plan::ReleaseAt;
use gapless_core::ports::policy::Diagnosis;
use gapless_core::record::Mined;
use gapless_core::state::{SubState, TxState};
use gapless_core::text::NodeText;
use gapless_core::wait::WaitReason;

use super::Scene;

/// Why it waits; none if it has ended, or if nothing is known to be in its way.
#[must_use]
pub fn wait_reason(scene: &Scene<'_>) -> Option<WaitReason> {
    let facts = &scene.tx.facts;
    if facts.state.is_terminal() {
        return None;
    }
    match &facts.mined {
        Some(mined) => Some(in_a_block(scene, mined)),
        None if facts.state.is_bound() => bound(scene),
        None => unbound(scene),
    }
}

/// It stands in a block, or stood in one that another has replaced.
fn in_a_block(scene: &Scene<'_>, mined: &Mined) -> WaitReason {
    if scene.sight.at_mined.is_some_and(|hash| hash != mined.block_hash) {
        return WaitReason::Reorged { block_number: mined.block_number };
    }
    let (count, required) = scene.depth(mined);
    WaitReason::Confirming { count, required }
}

fn bound(scene: &Scene<'_>) -> Option<WaitReason> {
    if let Some(taken) = taken(scene) {
        return Some(taken);
    }
    let stored = scene.tx.facts.wait.as_ref();
    match (stored, below_base_fee(scene)) {
        (None | Some(WaitReason::NotInPool { .. } | WaitReason::BelowBaseFee { .. }), Some(below)) => {
            return Some(below);
        }
        (Some(stored), _) if still_true_of_bound(scene, stored) => return Some(stored.clone()),
        _ => {}
    }
    if scene.is_in_the_dark() {
        return Some(node_down(scene));
    }
    // Endpoints answer, but none has taken it since: that would have ended the wait.
    if let Some(WaitReason::NodeDown { last_error }) = stored {
        return Some(WaitReason::NotInPool { last_error: Some(last_error.clone()) });
    }
    let refusal = scene.current().and_then(|attempt| attempt.refusal.as_ref());
    match scene.tx.facts.amended.as_ref().and_then(|amended| amended.diagnosis.as_ref()) {
        Some(Diagnosis::Lost) => {
            return Some(WaitReason::NotInPool { last_error: refusal.map(|refusal| refusal.text.clone()) });
        }
        Some(Diagnosis::GapBelow { nonce }) => return Some(WaitReason::GapBelow { nonce: *nonce }),
        _ => {}
    }
    if let Some((balance, needed)) = scene.cursor.conditions.out_of_funds
        && refusal.is_some_and(|refusal| refusal.code.as_str() == "insufficient-funds")
    {
        return Some(WaitReason::OutOfFunds { balance, needed });
    }
    let lowest = scene.cursor.run.map(|run| run.consumed);
    lowest.filter(|lowest| scene.nonce() > Some(*lowest)).map(|nonce| WaitReason::SlotBusy { nonce })
}

/// Somebody else used its nonce: proven and not acknowledged, or acknowledged and not deep enough to move on.
fn taken(scene: &Scene<'_>) -> Option<WaitReason> {
    let nonce = scene.nonce()?;
    if let Some(protect) = scene.cursor.conditions.protect.as_ref().filter(|protect| protect.nonce >= nonce) {
        return Some(WaitReason::Protected { nonce: protect.nonce, hash: protect.hash() });
    }
    let exhibit = scene.foreign?;
    let reason = format!(
        "somebody else used its nonce {nonce} in block {}; it gets another when that block is deep enough",
        exhibit.block_number
    );
    Some(WaitReason::Held { reason: NodeText::new(&reason) })
}

fn below_base_fee(scene: &Scene<'_>) -> Option<WaitReason> {
    let offered: GasPrice = scene.current()?.fees.ceiling();
    let base_fee = scene.sight.base_fee.filter(|base_fee| *base_fee > offered)?;
    Some(WaitReason::BelowBaseFee { offered, base_fee })
}

fn still_true_of_bound(scene: &Scene<'_>, stored: &WaitReason) -> bool {
    let diagnosis = scene.tx.facts.amended.as_ref().and_then(|amended| amended.diagnosis.as_ref());
    match stored {
        WaitReason::NotInPool { .. } => diagnosis != Some(&Diagnosis::InPool),
        // A head is known, and it asks for no more than is offered.
        WaitReason::BelowBaseFee { .. } => scene.sight.base_fee.is_none(),
        WaitReason::GapBelow { nonce } => scene.cursor.run.is_none_or(|run| *nonce >= run.consumed),
        WaitReason::NodeDown { .. } => scene.sight.endpoints.is_empty() || scene.sight.is_dark(),
        WaitReason::OutOfFunds { .. }
        | WaitReason::FeeCap { .. }
        | WaitReason::Reorged { .. }
        | WaitReason::Held { .. } => true,
        WaitReason::SlotBusy { .. }
        | WaitReason::Protected { .. }
        | WaitReason::Paused
        | WaitReason::Confirming { .. } => false,
    }
}

fn unbound(scene: &Scene<'_>) -> Option<WaitReason> {
    if let Some(forbidden) = scene.cursor.conditions.forbids_binding() {
        return Some(forbidden);
    }
    // Nobody is kept from asking again, but the one before could not be paid, and so this one waits.
    if let Some((balance, needed)) = scene.cursor.conditions.out_of_funds {
        return Some(WaitReason::OutOfFunds { balance, needed });
    }
    let facts = &scene.tx.facts;
    let stored = facts.wait.clone().filter(|stored| match stored {
        // A hold of the submitter has healed if no condition says so. A signer's words stay until it is bound, and so
        // does what keeps a lane from its first nonce, for which there is no condition.
        WaitReason::Held { .. } => facts.sub_state != Some(SubState::Held) || scene.cursor.run.is_none(),
        WaitReason::OutOfFunds { .. } | WaitReason::FeeCap { .. } | WaitReason::NodeDown { .. } => true,
        _ => false,
    });
    if stored.is_some() || facts.state == TxState::Allocated {
        return stored;
    }
    if scene.is_in_the_dark() {
        return Some(node_down(scene));
    }
    busy_slot(scene).map(|nonce| WaitReason::SlotBusy { nonce })
}

/// The nonce that must be used before this transaction can have one.
fn busy_slot(scene: &Scene<'_>) -> Option<Nonce> {
    let run = scene.cursor.run?;
    if scene.settings.rules.narrowed(scene.cursor.conditions.window).budget(&run) == 0 {
        let confirmed = scene.settings.rules.release_at == ReleaseAt::Confirmed;
        return Some(if confirmed { run.consumed.min(run.resolved) } else { run.consumed });
    }
    // There is room: the first in the queue takes it, and whoever stands behind waits for that.
    let behind = scene.first.is_some_and(|first| first.tx_id() != scene.tx.tx_id());
    behind.then_some(run.next)
}

fn node_down(scene: &Scene<'_>) -> WaitReason {
    let last = scene.sight.endpoints.last().map_or("", |endpoint| endpoint.detail.as_str());
    WaitReason::NodeDown { last_error: NodeText::new(last) }
}
