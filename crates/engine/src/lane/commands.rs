//! Commands: any node inserts them, only the lane executes them, so none can race the lane's own decisions.

use gapless_core::allocation::AllocationWrite;
use gapless_core::change::Draft;
use gapless_core::command::{Command, CommandEnd, CommandOutcome, Verb};
use gapless_core::condition::HoldCause;
use gapless_core::cursor::Run;
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::Nonce;
use gapless_core::limits::MAX_PAGE;
use gapless_core::ports::chain::{BlockRef, ChainError};
use gapless_core::text::NodeText;
use serde_json::json;
use tracing::info;

use super::memory::Memory;
use super::{Lane, Stop};
use crate::points::Point;

impl Lane {
    /// Executes what waits, oldest first.
    pub(super) async fn execute_commands(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        if memory.commands_due {
            memory.commands_due = false;
            let found = self.tools.store.take_commands(&self.submitter.id, MAX_PAGE).await;
            memory.commands = found.map_err(Stop::StoreDown)?;
        }
        while let Some(command) = memory.commands.first().cloned() {
            self.tools.points.reach(Point::DuringCommand);
            let mut draft = self.draft(memory)?;
            let refusal = match command.command.verb {
                Verb::Pause => pause(&mut draft, true),
                Verb::Resume => pause(&mut draft, false),
                Verb::Unprotect => self.unprotect(memory, &mut draft, &command).await,
                other => Some(format!("{other} is not supported")),
            };
            if refusal.as_deref() == Some(RETRY) {
                return Ok(());
            }
            let outcome = if refusal.is_some() { CommandOutcome::Refused } else { CommandOutcome::Done };
            info!(submitter = %self.submitter.id, command = command.command.verb.name(), outcome = outcome.name(),
                actor = %command.command.actor, "command executed");
            let code = refusal.as_deref().map(NodeText::new);
            draft.writes.commands = vec![CommandEnd { id: command.command.id, outcome, code, result: None }];
            self.commit(memory, draft).await?;
        }
        Ok(())
    }

    /// Records what somebody else used and goes on above it.
    async fn unprotect(&self, memory: &Memory, draft: &mut Draft, command: &Command) -> Option<String> {
        let acknowledged =
            command.command.args.get("acknowledgedNonce").and_then(serde_json::Value::as_u64).map(Nonce);
        let (Some(acknowledged), Some(run)) = (acknowledged, memory.run()) else {
            return Some("invalid-request".into());
        };
        let Some(protect) = &memory.cursor.cursor.conditions.protect else {
            return Some("not-protected".into());
        };
        if protect.nonce != acknowledged {
            return Some("nonce-mismatch".into());
        }
        // Every nonce that was not consumed by us and lies at or below the acknowledged one was somebody else's.
        for nonce in (run.consumed.0..=acknowledged.0).map(Nonce) {
            let proven = if nonce == acknowledged {
                // Its exhibit is stored: while the block stands no history is needed, which a node may have pruned.
                let block =
                    BlockRef { number: protect.exhibit.block_number, hash: protect.exhibit.block_hash };
                let stands = self.is_canonical(&self.chain.heads.ring(), block).await == Some(true);
                Ok(stands.then_some(protect.exhibit))
            } else {
                self.exhibit(nonce).await
            };
            match proven {
                Ok(Some(exhibit)) => {
                    draft.writes.allocations.push(AllocationWrite::Foreign { nonce, exhibit })
                }
                Err(ChainError::Pruned(_)) => return Some("unproven".into()),
                // Ours after all, or not to be told now: nothing may be skipped on a guess.
                Ok(None) | Err(ChainError::Unavailable(_)) => return Some(RETRY.into()),
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
        draft.writes.told =
            vec![Told::with(EventKind::SubmitterResumed, json!({"acknowledgedNonce": acknowledged}))];
        None
    }
}

/// Not a refusal: the command waits until it can be decided.
const RETRY: &str = "retry";

fn pause(draft: &mut Draft, paused: bool) -> Option<String> {
    draft.cursor.conditions.paused = paused;
    if !paused {
        draft.writes.told = vec![Told::plain(EventKind::SubmitterResumed)];
    }
    None
}
