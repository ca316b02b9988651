//! Why a transaction is where it is. Every wait has a reason with its figures.

use alloy_primitives::B256;
use serde::{Deserialize, Serialize};

use crate::fees::{GasPrice, Wei};
use crate::ids::Nonce;
use crate::text::NodeText;

/// A reason to wait, with the evidence a reader needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "code", rename_all_fields = "camelCase")]
pub enum WaitReason {
    /// Another nonce of the submitter must be consumed first.
    SlotBusy {
        /// That nonce.
        nonce: Nonce,
    },
    /// What it offers is below the block's base fee.
    BelowBaseFee {
        /// Offered at most.
        offered: GasPrice,
        /// Needed at least.
        base_fee: GasPrice,
    },
    /// No endpoint holds it in its pool.
    NotInPool {
        /// What the last endpoint said, if anything.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_error: Option<NodeText>,
    },
    /// A lower nonce is missing from the pool.
    GapBelow {
        /// The lowest missing one.
        nonce: Nonce,
    },
    /// The account cannot pay.
    OutOfFunds {
        /// What it has.
        balance: Wei,
        /// What is needed.
        needed: Wei,
    },
    /// The submitter takes no new nonces for now; or, of a bound transaction, what is known of its nonce allows nothing yet:
    /// it was used by somebody else, or by it, without a receipt that can be believed.
    Held {
        /// Why.
        reason: NodeText,
    },
    /// Somebody else used the key; a human must look.
    Protected {
        /// The foreign nonce.
        nonce: Nonce,
        /// The foreign transaction; none if an authorization consumed the nonce.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hash: Option<B256>,
    },
    /// An operator paused the submitter.
    Paused,
    /// No endpoint of the chain answers.
    NodeDown {
        /// What the last one said.
        last_error: NodeText,
    },
    /// The market is above the configured cap.
    FeeCap {
        /// The cap.
        cap: GasPrice,
        /// The market.
        market: GasPrice,
    },
    /// Mined, growing confirmations.
    Confirming {
        /// Confirmations so far.
        count: u64,
        /// Confirmations needed.
        required: u64,
    },
    /// Its block vanished; it is being sent again.
    Reorged {
        /// Height of the vanished block.
        block_number: u64,
    },
}

impl WaitReason {
    /// The code used in the API.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::SlotBusy { .. } => "SlotBusy",
            Self::BelowBaseFee { .. } => "BelowBaseFee",
            Self::NotInPool { .. } => "NotInPool",
            Self::GapBelow { .. } => "GapBelow",
            Self::OutOfFunds { .. } => "OutOfFunds",
            Self::Held { .. } => "Held",
            Self::Protected { .. } => "Protected",
            Self::Paused => "Paused",
            Self::NodeDown { .. } => "NodeDown",
            Self::FeeCap { .. } => "FeeCap",
            Self::Confirming { .. } => "Confirming",
            Self::Reorged { .. } => "Reorged",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_stands_beside_its_figures() {
        let reason = WaitReason::BelowBaseFee { offered: GasPrice(16), base_fee: GasPrice(32) };
        let json = serde_json::to_value(&reason).unwrap();
        assert_eq!(json, serde_json::json!({"code": reason.code(), "offered": "0x10", "baseFee": "0x20"}));
        assert_eq!(serde_json::from_value::<WaitReason>(json).unwrap(), reason);
        let paused = serde_json::to_value(WaitReason::Paused).unwrap();
        assert_eq!(paused, serde_json::json!({"code": "Paused"}));
    }
}
