//! One sentence with figures.

use gapless_core::fees::GasPrice;
use gapless_core::record::{MinedAs, TxRecord};
use gapless_core::state::TxState;
use gapless_core::wait::WaitReason;

use super::{Scene, Standing};

pub(super) fn of(scene: &Scene<'_>, standing: &Standing) -> String {
    match standing {
        Standing::Waits(wait) => waits(scene, wait),
        Standing::AboutToBind if scene.tx.awaits_closure() => {
            "Its turn has come; it gets a nonce as soon as the process that makes it asks for one.".to_owned()
        }
        Standing::AboutToBind => "It is the first in the queue and nothing is in its way.".to_owned(),
        Standing::Allocated => match scene.nonce() {
            Some(nonce) => format!("Nonce {nonce} is reserved for whoever makes and signs it."),
            None => "It waits for whoever makes and signs it.".to_owned(),
        },
        Standing::InPool => match scene.nonce() {
            Some(nonce) => format!("It was sent with nonce {nonce} and waits for a block to take it."),
            None => "It waits for a block to take it.".to_owned(),
        },
        Standing::Ended(state) => ended(scene.tx, *state),
    }
}

fn waits(scene: &Scene<'_>, wait: &WaitReason) -> String {
    match wait {
        WaitReason::SlotBusy { nonce } => match scene.nonce() {
            Some(own) => format!("It was sent with nonce {own}; nonce {nonce} must be mined before it."),
            None => {
                format!(
                    "It waits for its turn: nonce {nonce} of this account must be used before it gets one."
                )
            }
        },
        WaitReason::BelowBaseFee { offered, base_fee } => format!(
            "It offers at most {} per gas, and the last block's base fee was {}.",
            gwei(*offered),
            gwei(*base_fee)
        ),
        WaitReason::NotInPool { last_error: Some(words) } => {
            format!("No endpoint is known to hold it; the last one said: {words}")
        }
        WaitReason::NotInPool { last_error: None } => "No endpoint is known to hold it.".to_owned(),
        WaitReason::GapBelow { nonce } => {
            format!("Nonce {nonce}, which comes before it, is missing from the pool.")
        }
        WaitReason::OutOfFunds { balance, needed } => {
            format!("The account holds {} wei, and {} wei are needed.", balance.0, needed.0)
        }
        WaitReason::Held { reason } => format!("It is held back: {reason}"),
        WaitReason::Protected { nonce, .. } => {
            format!("Somebody else used nonce {nonce} of this account; a human must look at it.")
        }
        WaitReason::Paused => "An operator paused the submitter.".to_owned(),
        WaitReason::NodeDown { last_error } if last_error.as_str().is_empty() => {
            "No endpoint of the chain answers.".to_owned()
        }
        WaitReason::NodeDown { last_error } => {
            format!("No endpoint of the chain answers; the last one said: {last_error}")
        }
        WaitReason::FeeCap { cap, market } => {
            format!("The market asks {} per gas, and no more than {} may be paid.", gwei(*market), gwei(*cap))
        }
        WaitReason::Confirming { count, required } => {
            let block = scene.tx.facts.mined.map(|mined| mined.block_number).unwrap_or_default();
            format!("It was mined in block {block} and has {count} of {required} confirmations.")
        }
        WaitReason::Reorged { block_number } => {
            format!("Block {block_number}, which held it, was replaced by another; it is being sent again.")
        }
    }
}

fn ended(tx: &TxRecord, state: TxState) -> String {
    let failure = tx.facts.failure.as_ref();
    let because = |what: &str| match failure {
        Some(failure) => format!("{what}: {} ({}).", failure.reason, failure.code),
        None => format!("{what}."),
    };
    let mined = tx.facts.mined.as_ref();
    match state {
        TxState::Confirmed => match mined {
            Some(mined) => {
                let what = match mined.mined_as {
                    MinedAs::Replacement => "Its replacement",
                    _ => "It",
                };
                format!("{what} was mined in block {} and is final.", mined.block_number)
            }
            None => "It is final.".to_owned(),
        },
        TxState::Rejected => because("It was refused before it got a nonce"),
        TxState::Cancelled => match mined {
            Some(mined) => format!(
                "It was cancelled: something without its effect used its nonce in block {}.",
                mined.block_number
            ),
            None => "It was cancelled before it got a nonce.".to_owned(),
        },
        TxState::Expired => match mined {
            Some(mined) => format!(
                "Its time ran out: something without its effect used its nonce in block {}.",
                mined.block_number
            ),
            None => "Its time ran out before it got a nonce.".to_owned(),
        },
        _ => match mined {
            Some(mined) => {
                because(&format!("It was mined in block {} and had no effect", mined.block_number))
            }
            None => because("It could not be carried out"),
        },
    }
}

/// A price as people write it.
pub(super) fn gwei(price: GasPrice) -> String {
    let (whole, rest) = (price.0 / 1_000_000_000, price.0 % 1_000_000_000);
    if rest == 0 {
        return format!("{whole} gwei");
    }
    let digits = format!("{rest:09}");
    format!("{whole}.{} gwei", digits.trim_end_matches('0'))
}
