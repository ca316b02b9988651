//! What a node's answer to a broadcast means. Typed by what we know, not by where it came from.

use crate::text::NodeText;

/// Outcome of handing stored bytes to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendOutcome {
    /// In a pool.
    Accepted,
    /// Was in the pool already.
    AlreadyKnown,
    /// The nonce is consumed, by somebody.
    NonceTooLow,
    /// A lower slot is missing from this pool.
    NonceGap,
    /// Another attempt of this slot is in the pool.
    ReplacementUnderpriced,
    /// The tip is below the node's minimum.
    Underpriced,
    /// The total is below the base fee.
    BelowBaseFee,
    /// The node's own fee cap forbids it.
    NodeFeeCap,
    /// The fee fields contradict each other.
    InvalidFees,
    /// The account cannot pay.
    InsufficientFunds,
    /// The pool holds another type of transaction of this account.
    TypeConflict,
    /// A delegated account may have one transaction in flight only.
    DelegationLimit,
    /// The pool holds no more of this account.
    AccountLimit,
    /// The pool has no room.
    PoolFull,
    /// The endpoint could not take it now.
    Unavailable(NodeText),
    /// No answer in time.
    TimedOut,
    /// Every verified endpoint at the present head says that it can never be mined. Still only believed when
    /// our own check agrees, or when they say so over several heads.
    Invalid(NodeText),
    /// The endpoint cannot be what it claims (`invalid chain id`, `type not supported`).
    WrongEndpoint(NodeText),
    /// A text nobody has seen; possibly sent.
    Unknown(NodeText),
}

impl SendOutcome {
    /// Stable code, used in events and metrics.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::AlreadyKnown => "already-known",
            Self::NonceTooLow => "nonce-too-low",
            Self::NonceGap => "nonce-gap",
            Self::ReplacementUnderpriced => "replacement-underpriced",
            Self::Underpriced => "underpriced",
            Self::BelowBaseFee => "below-base-fee",
            Self::NodeFeeCap => "node-fee-cap",
            Self::InvalidFees => "invalid-fees",
            Self::InsufficientFunds => "insufficient-funds",
            Self::TypeConflict => "type-conflict",
            Self::DelegationLimit => "delegation-limit",
            Self::AccountLimit => "account-limit",
            Self::PoolFull => "pool-full",
            Self::Unavailable(_) => "unavailable",
            Self::TimedOut => "timed-out",
            Self::Invalid(_) => "invalid",
            Self::WrongEndpoint(_) => "wrong-endpoint",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Whether some pool now holds an attempt of this slot.
    #[must_use]
    pub const fn is_in_pool(&self) -> bool {
        matches!(self, Self::Accepted | Self::AlreadyKnown | Self::ReplacementUnderpriced)
    }

    /// Whether the node may have taken the bytes although it did not say so.
    #[must_use]
    pub const fn is_possibly_sent(&self) -> bool {
        matches!(
            self,
            Self::Unavailable(_) | Self::TimedOut | Self::AccountLimit | Self::PoolFull | Self::Unknown(_)
        )
    }
}
