//! The invariants, counted where slots move: a lane looks once more at what it lets go and at what it calls mined. Costs no
//! read and no more than the slots that moved; always zero.

use std::time::Duration;

use gapless_core::audit::{SlotFacts, Violation, ViolationKind, audit};
use gapless_core::change::LaneChange;
use gapless_core::ids::Nonce;
use tracing::error;

use super::Lane;
use super::memory::Memory;
use crate::names;

impl Lane {
    /// Looks at a change that was applied; `memory` is as it was before.
    pub(super) fn audit(&self, memory: &Memory, change: &LaneChange) {
        let (Some(before), Some(after)) = (memory.run(), change.cursor().run) else { return };
        let slot = |nonce: Nonce| {
            let txs = memory.txs_at(nonce).filter(|tx| !tx.facts.state.is_terminal());
            SlotFacts {
                attempts: memory.slots.get(&nonce).map_or(0, Vec::len),
                allocation: memory.allocations.get(&nonce).map(|row| row.status),
                receipts: txs.filter_map(|tx| tx.facts.mined).map(|mined| mined.hash).collect(),
                unread_for: None,
            }
        };
        let leaving = before.watched_from().0..after.watched_from().0;
        let leaving = leaving.map(Nonce).map(|nonce| (nonce, slot(nonce)));
        // What is called mined by this change.
        let mined = change.writes().txs.iter().map(|write| write.facts());
        let mined = mined.filter(|facts| !facts.state.is_terminal());
        let mined = mined.filter_map(|facts| Some((facts.nonce?, facts.mined?.hash))).map(|(nonce, hash)| {
            let attempts = memory.slots.get(&nonce).map_or(0, Vec::len);
            (nonce, SlotFacts { attempts, receipts: [hash].into(), ..SlotFacts::default() })
        });
        for violation in audit(&after, leaving.chain(mined), Duration::MAX) {
            self.violated(&violation);
        }
    }

    /// A slot of which a block tells and nobody has the receipt, for longer than they may be late.
    pub(super) fn missed_receipt(&self, nonce: Nonce) {
        self.violated(&Violation { kind: ViolationKind::NoReceipt, nonce, hashes: [].into() });
    }

    fn violated(&self, violation: &Violation) {
        metrics::counter!(names::INVARIANT, "kind" => violation.kind.name()).increment(1);
        error!(submitter = %self.submitter.id, nonce = violation.nonce.0, kind = violation.kind.name(),
            hashes = ?violation.hashes, "an invariant is violated");
    }
}
