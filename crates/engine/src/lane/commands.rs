//! Commands: any node inserts them, only the lane executes them, so none can race the lane's own decisions.
//!
//! What a command writes and its own end are one fenced change: executed once, whoever crashes. One that cannot be decided
//! yet waits and keeps none of the others waiting. Where a command starts a race for a nonce, its row ends when the race
//! begins, and the transaction tells who won.

mod cancel;
mod drain;
mod replace;
mod reset;
mod resolve;
mod unprotect;

use std::time::Duration;

use gapless_core::change::Draft;
use gapless_core::command::{Command, CommandEnd, CommandOutcome, Verb};
use gapless_core::event::{EventKind, Told};
use gapless_core::limits::MAX_PAGE;
use gapless_core::record::TxRecord;
use gapless_core::text::NodeText;
use serde_json::{Value, json};
use tracing::info;

use super::memory::Memory;
use super::{Lane, Stop};
use crate::points::Point;

/// How long after one look for commands the next may be. Who is woken for every request must not look each time.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// What became of a command.
enum Answer {
    /// Executed, with what it found or did.
    Done(Option<Value>),
    /// Something else had happened first.
    Lost(&'static str),
    /// Not possible.
    Refused(String, Option<Value>),
    /// Part of it: what was drafted is written, the command waits on.
    Partly,
    /// Not to be decided now.
    Later,
}

impl Answer {
    fn refused(code: &str) -> Self {
        Self::Refused(code.to_owned(), None)
    }
}

impl Lane {
    /// Executes what waits, oldest first.
    pub(super) async fn execute_commands(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        let pause =
            memory.commands_read.map_or(Duration::ZERO, |at| PAUSE.saturating_sub(self.tick().since(at)));
        if memory.commands_due && pause.is_zero() {
            memory.commands_due = false;
            memory.commands_read = Some(self.tick());
            let found = self.tools.store.take_commands(&self.submitter.id, MAX_PAGE).await;
            memory.commands = found.map_err(Stop::StoreDown)?;
        }
        let now = self.tick();
        memory.later.retain(|_, until| *until > now);
        for command in memory.commands.clone() {
            if memory.later.contains_key(&command.command.id) {
                continue;
            }
            self.tools.points.reach(Point::DuringCommand);
            let mut draft = self.draft(memory)?;
            let answer = self.execute(memory, &mut draft, &command).await?;
            let (outcome, code, result) = match answer {
                Answer::Done(result) => (CommandOutcome::Done, None, result),
                Answer::Lost(code) => (CommandOutcome::Lost, Some(NodeText::new(code)), None),
                Answer::Refused(code, result) => {
                    (CommandOutcome::Refused, Some(NodeText::new(&code)), result)
                }
                Answer::Partly => {
                    self.commit(memory, draft).await?;
                    continue;
                }
                Answer::Later => {
                    memory.later.insert(command.command.id, now.plus(self.submitter.settings.retry));
                    continue;
                }
            };
            info!(submitter = %self.submitter.id, command = command.command.verb.name(), outcome = outcome.name(),
                code = code.as_ref().map(|code| code.as_str()), actor = %command.command.actor, "command executed");
            draft.writes.commands = vec![CommandEnd { id: command.command.id, outcome, code, result }];
            self.commit(memory, draft).await?;
            self.tools.points.reach(Point::AfterCommand);
        }
        Ok(())
    }

    async fn execute(
        &mut self,
        memory: &mut Memory,
        draft: &mut Draft,
        command: &Command,
    ) -> Result<Answer, Stop> {
        match command.command.verb {
            Verb::Pause => Ok(pause(draft, true)),
            Verb::Resume => Ok(pause(draft, false)),
            Verb::Unprotect => Ok(self.unprotect(memory, draft, command).await),
            Verb::Cancel => self.cancel(memory, draft, command).await,
            Verb::Replace => self.replace(memory, draft, command).await,
            Verb::Resolve => self.resolve(memory, draft, command).await,
            Verb::Drain => self.drain(memory, draft, command).await,
            Verb::ResetNonce => self.reset_nonce(memory, draft, command).await,
        }
    }

    /// The transaction a command is about, if it is this lane's.
    async fn subject(&self, memory: &Memory, command: &Command) -> Result<Option<TxRecord>, Stop> {
        let Some(tx_id) = command.command.tx_id else { return Ok(None) };
        if let Some(tx) = memory.tx(tx_id) {
            return Ok(Some(tx.clone()));
        }
        let found = self.tools.store.tx(tx_id).await.map_err(Stop::StoreDown)?;
        Ok(found.filter(|tx| tx.request.submitter == self.submitter.id))
    }
}

fn pause(draft: &mut Draft, paused: bool) -> Answer {
    draft.cursor.conditions.paused = paused;
    if !paused {
        draft.writes.told = vec![Told::plain(EventKind::SubmitterResumed)];
    }
    Answer::Done(None)
}

/// A command was executed.
pub(super) fn done(command: &str) -> Told {
    Told::with(EventKind::TxCommand, json!({"command": command, "outcome": CommandOutcome::Done}))
}

/// A command lost its race.
pub(super) fn lost(command: &str, code: &str) -> Told {
    Told::with(
        EventKind::TxCommand,
        json!({"command": command, "outcome": CommandOutcome::Lost, "code": code}),
    )
}

/// A command was refused.
fn turned_down(command: &str, code: &str) -> Told {
    Told::with(
        EventKind::TxCommand,
        json!({"command": command, "outcome": CommandOutcome::Refused, "code": code}),
    )
}
