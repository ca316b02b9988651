//! What happens next, and when.

use gapless_core::condition::HoldCause;
use gapless_core::plan::ReleaseAt;
use gapless_core::record::Withdrawal;
use gapless_core::state::TxState;
use gapless_core::time::Timestamp;
use gapless_core::wait::WaitReason;

use super::{Next, Scene, Standing};

/// Further ahead than this nothing is planned: it is how a lane writes "never".
const PLANNED: std::time::Duration = std::time::Duration::from_secs(86_400 * 30);

fn says(action: impl Into<String>) -> Next {
    Next { action: action.into(), at: None }
}

pub(super) fn of(scene: &Scene<'_>, standing: &Standing) -> Next {
    match standing {
        Standing::Ended(_) => says("Nothing: it has ended."),
        Standing::AboutToBind if scene.tx.awaits_closure() => Next {
            action: "Reserves a nonce for it, or refuses it if nobody who could make it is seen until then."
                .to_owned(),
            at: Some(scene.tx.created_at.plus(scene.settings.reservation_timeout)),
        },
        Standing::AboutToBind => match scene.owner {
            Some(_) => says("Prepares it, takes the next nonce, signs, stores and sends it."),
            None => says("A node takes up the submitter's lane, prepares it and sends it."),
        },
        Standing::Allocated => Next {
            action: "Takes the nonce back if the signer fails or is late.".to_owned(),
            at: Some(scene.tx.updated_at.plus(scene.settings.reservation_timeout)),
        },
        _ if scene.tx.facts.state == TxState::Stuck && scene.tx.facts.mined.is_none() => stuck(scene),
        Standing::InPool => send_again(scene),
        Standing::Waits(wait) => of_wait(scene, wait),
    }
}

fn of_wait(scene: &Scene<'_>, wait: &WaitReason) -> Next {
    let bound = scene.tx.facts.state.is_bound();
    match wait {
        WaitReason::SlotBusy { .. } if bound => send_again(scene),
        WaitReason::SlotBusy { nonce } => {
            let when = match scene.settings.rules.release_at {
                ReleaseAt::Mined => "mined",
                ReleaseAt::Confirmed => "confirmed",
            };
            says(format!("Takes a nonce for it, in the order of acceptance, once nonce {nonce} is {when}."))
        }
        WaitReason::BelowBaseFee { .. } => bump(scene).unwrap_or_else(|| {
            let again = send_again(scene);
            Next { action: format!("Waits for the base fee to fall. {}", again.action), ..again }
        }),
        WaitReason::NotInPool { .. } | WaitReason::GapBelow { .. } | WaitReason::Reorged { .. } => {
            send_again(scene)
        }
        WaitReason::OutOfFunds { .. } => {
            says("Goes on by itself when the account can pay: send it coin. Nothing is lost meanwhile.")
        }
        WaitReason::Held { .. } => held(scene),
        WaitReason::Protected { nonce, .. } => says(format!(
            "A human must find out who used the key, then unprotect with acknowledgedNonce {nonce}."
        )),
        WaitReason::Paused => says("An operator must resume the submitter."),
        WaitReason::NodeDown { .. } => says("Asks the endpoints again and goes on when one of them answers."),
        WaitReason::FeeCap { .. } => {
            let again = send_again(scene);
            let action =
                "Waits for the market to fall below the cap; a higher cap or a replacement helps too.";
            if bound { Next { action: format!("{action} {}", again.action), ..again } } else { says(action) }
        }
        WaitReason::Confirming { count, required } => {
            let end = end(scene);
            match required.saturating_sub(*count) {
                0 => says(format!("Ends it as {end} as soon as the lane looks.")),
                1 => says(format!("Ends it as {end} after 1 more block.")),
                more => says(format!("Ends it as {end} after {more} more blocks.")),
            }
        }
    }
}

/// How a mined transaction ends if its block stays.
fn end(scene: &Scene<'_>) -> &'static str {
    let facts = &scene.tx.facts;
    match facts.mined {
        Some(mined) if mined.mined_as.carries_effect() && mined.succeeded => TxState::Confirmed.name(),
        Some(mined) if mined.mined_as.carries_effect() => TxState::FailedFinal.name(),
        _ => match facts.withdrawal() {
            Some(Withdrawal::Expiry) => TxState::Expired.name(),
            Some(Withdrawal::Cancel | Withdrawal::Governor) => TxState::Cancelled.name(),
            None => TxState::Queued.name(),
        },
    }
}

fn held(scene: &Scene<'_>) -> Next {
    if scene.tx.facts.state.is_bound() && scene.foreign.is_none() {
        return says("Asks for its receipt again, until one names a block of the chain.");
    }
    let holds = &scene.cursor.conditions.holds;
    let has = |cause| holds.contains_key(&cause);
    if has(HoldCause::Epoch) || has(HoldCause::Genesis) {
        return says("A human must run `gapless recover`.");
    }
    if has(HoldCause::Unproven) {
        return says("A human must look at the account's history and unprotect the submitter.");
    }
    if has(HoldCause::Counts) {
        return says("Compares with the chain again and goes on when its own slots explain the count.");
    }
    if has(HoldCause::Refusals) {
        return says("Tries again after a while: endpoints refused several transactions in a row.");
    }
    if scene.foreign.is_some() {
        return says(
            "Gives it another nonce when the foreign block is deep enough; its place in the order stays.",
        );
    }
    says("Tries again by itself.")
}

/// When the slot's bytes go out again.
fn send_again(scene: &Scene<'_>) -> Next {
    let due = scene.current().map(|attempt| attempt.next_send_at);
    match due.filter(|at| at.since(scene.now) < PLANNED) {
        Some(at) if at <= scene.now => {
            Next { action: "Sends the same bytes again now.".into(), at: Some(at) }
        }
        Some(at) => Next { action: "Sends the same bytes again if no block took them.".into(), at: Some(at) },
        None => says("Watches the chain for it; sending again is switched off."),
    }
}

/// When a dearer attempt is made, if one is.
fn bump(scene: &Scene<'_>) -> Option<Next> {
    let rules = &scene.settings.bump;
    let room = u64::from(rules.max_attempts) > scene.attempts.len() as u64;
    if !rules.enabled || !room {
        return None;
    }
    let newest = scene.attempts.iter().map(|attempt| attempt.stored_at).max()?;
    let at: Timestamp = newest.plus(rules.min_interval).max(scene.now);
    Some(Next { action: "Makes a dearer attempt, within the caps.".into(), at: Some(at) })
}

fn stuck(scene: &Scene<'_>) -> Next {
    let again = send_again(scene);
    let human = "It was set aside for a human: resolve it with retry, bump or placeholder, or cancel it.";
    Next { action: format!("{human} {}", again.action), ..again }
}
