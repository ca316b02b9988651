//! Named points in the code. Tests stop, or end, a process exactly there; in production they do nothing.

use std::sync::Arc;

/// Where a process can be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// A batch of accepts is committed, nobody was told.
    AfterAcceptCommit,
    /// Estimated, priced and checked; nothing written.
    AfterPrepare,
    /// Bytes are stored, nothing was sent.
    AfterBindCommit,
    /// Bytes that take the place of others, or fill a free slot, are stored; they were not sent.
    AfterBidCommit,
    /// Sent, the answer not looked at.
    AfterSend,
    /// Refused, the refusal not recorded.
    AfterRefusal,
    /// A receipt is in hand, not stored.
    AfterReceipt,
    /// A receipt is stored.
    AfterReceiptStored,
    /// Deep enough, not written.
    AtConfirm,
    /// Granted, loading.
    DuringTakeover,
    /// A command is in hand, not executed.
    DuringCommand,
    /// A command is executed and its end is stored; nothing that follows from it was done.
    AfterCommand,
}

impl Point {
    /// All points.
    pub const ALL: [Self; 12] = [
        Self::AfterAcceptCommit,
        Self::AfterPrepare,
        Self::AfterBindCommit,
        Self::AfterBidCommit,
        Self::AfterSend,
        Self::AfterRefusal,
        Self::AfterReceipt,
        Self::AfterReceiptStored,
        Self::AtConfirm,
        Self::DuringTakeover,
        Self::DuringCommand,
        Self::AfterCommand,
    ];

    /// The name by which a test asks for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AfterAcceptCommit => "after-accept-commit",
            Self::AfterPrepare => "after-prepare",
            Self::AfterBindCommit => "after-bind-commit",
            Self::AfterBidCommit => "after-bid-commit",
            Self::AfterSend => "after-send",
            Self::AfterRefusal => "after-refusal",
            Self::AfterReceipt => "after-receipt",
            Self::AfterReceiptStored => "after-receipt-stored",
            Self::AtConfirm => "at-confirm",
            Self::DuringTakeover => "during-takeover",
            Self::DuringCommand => "during-command",
            Self::AfterCommand => "after-command",
        }
    }
}

/// What happens at a point.
pub type Reaction = Arc<dyn Fn(Point) + Send + Sync>;

/// Calls the reaction, if there is one.
#[derive(Clone, Default)]
pub struct Points(Option<Reaction>);

impl Points {
    /// Reacts at every point.
    #[must_use]
    pub fn new(reaction: Reaction) -> Self {
        Self(Some(reaction))
    }

    /// The code has come here.
    pub fn reach(&self, point: Point) {
        if let Some(reaction) = &self.0 {
            reaction(point);
        }
    }
}

impl std::fmt::Debug for Points {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Points(on)" } else { "Points(off)" })
    }
}
