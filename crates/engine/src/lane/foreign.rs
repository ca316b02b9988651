//! Foreign use in pipelined mode: recorded with its exhibit, and the lane goes on.
//!
//! A window holds many transactions, so one stolen nonce must not stop the others until somebody looks: they are bound above
//! it, and would be mined anyway. What was displaced waits under *patient* and gets another nonce (see [`super::finish`]).
//! Nonces are walked from the lowest that is not consumed: each is ours, with its receipt, or somebody else's, with an
//! exhibit; where neither can be had the walk stops, and nothing is skipped on a guess.

use gapless_core::allocation::{AllocationWrite, Exhibit};
use gapless_core::condition::HoldCause;
use gapless_core::cursor::Run;
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::Nonce;
use gapless_core::ports::chain::{ChainError, Counts};
use gapless_core::text::NodeText;
use serde_json::json;
use tracing::warn;

use super::memory::Memory;
use super::ownership::Proof;
use super::{Lane, Stop};

/// Most nonces walked at one look; each costs a search through blocks.
const WALKED: u64 = 32;

impl Lane {
    /// Explains every nonce the chain counts and we do not.
    pub(super) async fn record_foreign(&mut self, memory: &mut Memory, counts: &Counts) -> Result<(), Stop> {
        for _ in 0..WALKED {
            let Some(run) = memory.run().filter(|run| run.consumed < counts.latest) else { break };
            let nonce = run.consumed;
            if memory.is_reserved(nonce) {
                // Its holder may have used it and not said so yet; its word, or the reservation's end, will tell.
                return Ok(());
            }
            match self.explained(memory, nonce).await {
                Some(true) => {
                    // Its receipt is there: taking it moves the prefix, or says why it cannot be believed yet.
                    self.settle(memory).await?;
                    if memory.run().is_none_or(|after| after.consumed <= nonce) {
                        return Ok(());
                    }
                    continue;
                }
                Some(false) => {}
                None => return Ok(()),
            }
            match self.find_user(nonce, counts.at).await {
                Ok(Proof::Foreign(exhibit)) => self.record(memory, run, exhibit).await?,
                Ok(Proof::Ours | Proof::NotYet) | Err(ChainError::Unavailable(_)) => return Ok(()),
                Err(ChainError::Pruned(words)) => {
                    let words = format!("nonce {nonce} was used, by whom cannot be proven: {words}");
                    return self.hold(memory, HoldCause::Unproven, &words).await;
                }
            }
        }
        let (next, walked) = memory.run().map(|run| (run.next, run.consumed)).unwrap_or_default();
        if walked < counts.latest {
            // The rest in the next round.
            memory.compared_at = None;
            return Ok(());
        }
        if counts.pending <= next {
            self.heal(memory, HoldCause::Counts).await?;
        }
        self.heal(memory, HoldCause::Unproven).await
    }

    /// Somebody else used the lowest nonce that was not consumed: the prefix passes it.
    async fn record(&self, memory: &mut Memory, run: Run, exhibit: Exhibit) -> Result<(), Stop> {
        let nonce = run.consumed;
        warn!(submitter = %self.submitter.id, nonce = nonce.0, hash = ?exhibit.hash,
            "somebody else used this account: recorded, and the lane goes on");
        let above = nonce.next();
        let mut draft = self.draft(memory)?;
        draft.writes.allocations.push(AllocationWrite::Foreign { nonce, exhibit });
        let passed = Run { next: run.next.max(above), consumed: above, ..run };
        draft.cursor.run = Some(passed);
        if passed.open() == 0 {
            draft.cursor.in_flight = None;
        }
        let figures = |reason: Option<NodeText>| {
            let (hash, block) = (exhibit.hash, exhibit.block_number);
            json!({"foreignNonce": nonce, "hash": hash, "blockNumber": block, "reason": reason})
        };
        draft.writes.told = vec![Told::with(EventKind::SubmitterHold, figures(Some(words(nonce, &exhibit))))];
        if memory.cursor.cursor.conditions.forbids_binding().is_none() {
            draft.writes.told.push(Told::with(EventKind::SubmitterResumed, figures(None)));
        }
        self.commit(memory, draft).await?;
        memory.ask_all_at = None;
        Ok(())
    }
}

fn words(nonce: Nonce, exhibit: &Exhibit) -> NodeText {
    let block = exhibit.block_number;
    NodeText::new(&match exhibit.hash {
        Some(hash) => {
            format!("somebody else used nonce {nonce} of this account: transaction {hash} in block {block}")
        }
        None => {
            format!("somebody else used nonce {nonce} of this account: an authorization in block {block}")
        }
    })
}
