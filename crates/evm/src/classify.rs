//! What a node's refusal means.
//!
//! Text decides; codes are not portable between clients and only refine what no text explains. A text
//! that matches nothing is [`SendOutcome::Unknown`], *possibly sent*: reading it as "not sent" has made
//! others pay twice.

mod table;

use gapless_core::outcome::SendOutcome;
use gapless_core::text::NodeText;

use crate::rpc::{NodeError, Trouble, TroubleKind};
use table::{Class, TABLE};

/// Nobody writes the point later than this, and a bound keeps the search cheap.
const READ: usize = 4_096;

/// The meaning of a refusal's text and code.
#[must_use]
pub fn classify(code: i64, text: &str) -> SendOutcome {
    let kept = || NodeText::new(text);
    let mut lowered: String = text.chars().take(READ).collect();
    lowered.make_ascii_lowercase();
    let Some((_, class)) = TABLE.iter().find(|(parts, _)| occur_in_order(parts, &lowered)) else {
        return match code {
            // Rate limits and missing methods, by the numbers that EIP-1474 and HTTP give them.
            429 | -32005 | -32601 => SendOutcome::Unavailable(kept()),
            _ => SendOutcome::Unknown(kept()),
        };
    };
    match class {
        Class::AlreadyKnown => SendOutcome::AlreadyKnown,
        Class::NonceTooLow => SendOutcome::NonceTooLow,
        Class::NonceGap => SendOutcome::NonceGap,
        Class::NonceByNumbers => by_numbers(&lowered),
        Class::ReplacementUnderpriced => SendOutcome::ReplacementUnderpriced,
        Class::Underpriced => SendOutcome::Underpriced,
        Class::BelowBaseFee => SendOutcome::BelowBaseFee,
        Class::NodeFeeCap => SendOutcome::NodeFeeCap,
        Class::InvalidFees => SendOutcome::InvalidFees,
        Class::InsufficientFunds => SendOutcome::InsufficientFunds,
        Class::TypeConflict => SendOutcome::TypeConflict,
        Class::DelegationLimit => SendOutcome::DelegationLimit,
        Class::AccountLimit => SendOutcome::AccountLimit,
        Class::PoolFull => SendOutcome::PoolFull,
        Class::Retry => SendOutcome::Unavailable(kept()),
        Class::Invalid => SendOutcome::Invalid(kept()),
        Class::WrongEndpoint => SendOutcome::WrongEndpoint(kept()),
    }
}

fn occur_in_order(parts: &[&str], text: &str) -> bool {
    let mut rest = text;
    parts.iter().all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

/// `invalid nonce; got 7, expected 5` is one text for two opposite findings.
fn by_numbers(text: &str) -> SendOutcome {
    let number_after = |word: &str| {
        let rest = text[text.find(word)? + word.len()..].trim_start();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse::<u64>().ok()
    };
    match (number_after("got"), number_after("expected")) {
        (Some(got), Some(expected)) if got > expected => SendOutcome::NonceGap,
        _ => SendOutcome::NonceTooLow,
    }
}

/// The meaning of a node's refusal. Some put the point into `data`.
pub(crate) fn refused(error: &NodeError) -> SendOutcome {
    let by_message = classify(error.code, &error.message);
    match (&by_message, &error.data) {
        (SendOutcome::Unknown(_), Some(data)) => classify(error.code, &format!("{} {data}", error.message)),
        _ => by_message,
    }
}

/// The meaning of a failed exchange.
pub(crate) fn silent(trouble: &Trouble) -> SendOutcome {
    match trouble.kind {
        TroubleKind::TimedOut => SendOutcome::TimedOut,
        _ => SendOutcome::Unavailable(NodeText::new(&trouble.text)),
    }
}

/// One endpoint's outcome and another's, for the same bytes: which one is to be believed. Acceptance
/// beats refusal, what is known beats what is not, and `Invalid` yields to everything, so that it is
/// left only when all say so.
pub(crate) fn more_informative(a: SendOutcome, b: SendOutcome) -> SendOutcome {
    if rank(&b) < rank(&a) { b } else { a }
}

const fn rank(outcome: &SendOutcome) -> u8 {
    match outcome {
        SendOutcome::Accepted => 0,
        SendOutcome::AlreadyKnown => 1,
        SendOutcome::NonceTooLow => 2,
        SendOutcome::ReplacementUnderpriced => 3,
        SendOutcome::InsufficientFunds => 4,
        SendOutcome::TypeConflict => 5,
        SendOutcome::DelegationLimit => 6,
        SendOutcome::BelowBaseFee => 7,
        SendOutcome::Underpriced => 8,
        SendOutcome::NodeFeeCap => 9,
        SendOutcome::InvalidFees => 10,
        SendOutcome::NonceGap => 11,
        SendOutcome::AccountLimit => 12,
        SendOutcome::PoolFull => 13,
        SendOutcome::Unknown(_) => 14,
        SendOutcome::TimedOut => 15,
        SendOutcome::Unavailable(_) => 16,
        SendOutcome::Invalid(_) => 17,
        SendOutcome::WrongEndpoint(_) => 18,
    }
}

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
