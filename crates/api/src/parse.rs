//! Identifiers in paths and queries.

use alloy_primitives::B256;
use gapless_core::ids::{CommandId, Nonce, Order, TxId};
use gapless_core::state::TxState;

use crate::near::nearest;
use crate::problem::Problem;

/// A transaction's id.
pub(crate) fn tx_id(text: &str) -> Result<TxId, Problem> {
    let parsed = text.parse().map(TxId);
    parsed.map_err(|_| {
        Problem::invalid("a transaction's id is a UUID; it was in the answer to POST /api/v1/tx")
    })
}

/// A command's id.
pub(crate) fn command_id(text: &str) -> Result<CommandId, Problem> {
    let parsed = text.parse().map(CommandId);
    parsed.map_err(|_| Problem::invalid("a command's id is a UUID; it was in the answer to the command"))
}

/// A nonce in a query, decimal or 0x-hex.
pub(crate) fn nonce(name: &str, text: &str) -> Result<Nonce, Problem> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map(Nonce).map_err(|_| Problem::invalid(format!("`{name}` must be a nonce, decimal or 0x-hex")))
}

/// A transaction's hash.
pub(crate) fn hash(text: &str) -> Result<B256, Problem> {
    let wrong = || Problem::invalid("a transaction's hash is 0x and 64 hex digits");
    text.strip_prefix("0x").filter(|digits| digits.len() == 64).ok_or_else(wrong)?;
    text.parse().map_err(|_| wrong())
}

/// A state by its name.
pub(crate) fn state(text: &str) -> Result<TxState, Problem> {
    TxState::named(text).ok_or_else(|| {
        let names = || TxState::ALL.iter().map(|state| state.name());
        let hint = match nearest(text, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known are {}", names().collect::<Vec<_>>().join(", ")),
        };
        Problem::invalid(format!("unknown state `{text}`; {hint}"))
    })
}

/// A list's cursor.
pub(crate) fn order(text: &str) -> Result<Order, Problem> {
    let parsed = text.strip_prefix('o').and_then(|digits| u64::from_str_radix(digits, 16).ok());
    parsed.map(Order).ok_or_else(|| Problem::invalid("`cursor` is not one that this API gave out"))
}

/// What [`order`] reads.
pub(crate) fn order_text(order: Order) -> String {
    format!("o{:x}", order.0)
}
