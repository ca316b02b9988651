//! Unprotect: a human has looked. What somebody else used is recorded with its exhibit, and the lane goes on above it.

use gapless_core::allocation::AllocationWrite;
use gapless_core::change::Draft;
use gapless_core::command::Command;
use gapless_core::condition::HoldCause;
use gapless_core::cursor::Run;
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::Nonce;
use gapless_core::ports::chain::{BlockRef, ChainError};
use serde_json::json;

use super::Answer;
use crate::lane::Lane;
use crate::lane::memory::Memory;

impl Lane {
    pub(super) async fn unprotect(&self, memory: &Memory, draft: &mut Draft, command: &Command) -> Answer {
        let acknowledged =
            command.command.args.get("acknowledgedNonce").and_then(serde_json::Value::as_u64).map(Nonce);
        let (Some(acknowledged), Some(run)) = (acknowledged, memory.run()) else {
            return Answer::refused("invalid-request");
        };
        let Some(protect) = &memory.cursor.cursor.conditions.protect else {
            return Answer::refused("not-protected");
        };
        if protect.nonce != acknowledged {
            return Answer::refused("nonce-mismatch");
        }
        let told = Told::with(EventKind::SubmitterResumed, json!({"acknowledgedNonce": acknowledged}));
        let Some(proven) = protect.exhibit else {
            // Protected by order: nobody used anything.
            draft.cursor.conditions.protect = None;
            draft.writes.told = vec![told];
            return Answer::Done(None);
        };
        // Every nonce that was not consumed by us and lies at or below the acknowledged one was somebody else's.
        for nonce in (run.consumed.0..=acknowledged.0).map(Nonce) {
            let found = if nonce == acknowledged {
                // Its exhibit is stored: while the block stands no history is needed, which a node may have pruned.
                let block = BlockRef { number: proven.block_number, hash: proven.block_hash };
                match self.is_canonical(&self.chain.heads.ring(), block).await {
                    Some(true) => Ok(Some(proven)),
                    // A reorg may have put it into another block.
                    _ => self.exhibit(nonce).await,
                }
            } else {
                self.exhibit(nonce).await
            };
            match found {
                Ok(Some(exhibit)) => {
                    if self.requeue_reserved(memory, nonce, draft).is_err() {
                        return Answer::Later;
                    }
                    draft.writes.allocations.push(AllocationWrite::Foreign { nonce, exhibit })
                }
                Err(ChainError::Pruned(_)) => return Answer::refused("unproven"),
                // Ours in between: what lies below is recorded, then its receipt can be taken, and the rest after it.
                Ok(None) if nonce > run.consumed => {
                    draft.cursor.run = Some(Run { next: run.next.max(nonce), consumed: nonce, ..run });
                    return Answer::Partly;
                }
                // Ours after all, or not to be told now: nothing may be skipped on a guess.
                Ok(None) | Err(ChainError::Unavailable(_)) => return Answer::Later,
            }
        }
        let above = acknowledged.next();
        draft.cursor.run = Some(Run { next: run.next.max(above), consumed: above.max(run.consumed), ..run });
        draft.cursor.conditions.protect = None;
        draft.cursor.conditions.holds.remove(&HoldCause::Counts);
        draft.cursor.conditions.holds.remove(&HoldCause::Unproven);
        if draft.cursor.run.is_some_and(|run| run.open() == 0) {
            draft.cursor.in_flight = None;
        }
        draft.writes.told = vec![told];
        Answer::Done(None)
    }
}
