//! The window as far as nodes allow it: slots they turned away because the account has too many in flight stay bound and go
//! out again when lower ones are consumed, and no more is bound than nodes take.
//!
//! The rule is [`gapless_core::window`]; here it hears of refusals and of progress. Nothing of it costs a write of its own:
//! what is to be shown travels with the refusal, or with the claim to send again.

use std::collections::BTreeMap;
use std::time::Duration;

use gapless_core::attempt::StoredAttempt;
use gapless_core::change::{Draft, ResendClaim};
use gapless_core::ids::Nonce;
use gapless_core::outcome::SendOutcome;
use gapless_core::text::NodeText;
use gapless_core::time::Tick;
use gapless_core::window::{Narrowed, Narrowing, Window};

use super::memory::Memory;
use super::{Lane, Stop};

/// A pool may hear of a block a little later than we do, and until then holds what was mined in it.
const LATE: Duration = Duration::from_secs(2);

/// A slot that was turned away for the number in flight.
pub(super) struct TurnedAway {
    /// For the transaction that waits.
    pub(super) words: NodeText,
    /// Whether it may fit at any moment; otherwise only progress makes room.
    pub(super) soon: bool,
}

/// What a lane knows of its window.
#[derive(Debug, Default)]
pub(super) struct Room {
    window: Window,
    /// Slots that were turned away for it, with the number of times their bytes had been sent again.
    away: BTreeMap<Nonce, u32>,
    /// Up to here nonces had been consumed when it was last looked at.
    seen: Option<Nonce>,
    /// When that was news, and how many nodes had let be in flight before.
    progress: Option<(Tick, u64)>,
}

impl Room {
    /// As last written down.
    pub(super) fn as_last_seen(narrowed: Option<Narrowed>) -> Self {
        Self { window: Window::as_last_seen(narrowed), ..Self::default() }
    }

    /// How many may be in flight, of so many that are allowed.
    fn limit(&self, most: u64) -> u64 {
        self.window.limit(most)
    }
}

impl Memory {
    /// How many nonces may be open for a new one to be bound, of so many that are allowed. None while a slot waits to be
    /// let in: what is bound above it would take its place in the pool.
    pub(super) fn window(&self, most: u64) -> u64 {
        let waits = |(nonce, resends): (&Nonce, &u32)| {
            self.current(*nonce).is_some_and(|attempt| attempt.resends == *resends)
        };
        let lowest = self.run().map_or(Nonce(0), |run| run.consumed);
        match self.room.away.range(lowest..).any(waits) {
            true => 0,
            false => self.room.limit(most),
        }
    }
}

impl Lane {
    /// A slot was turned away: if that is for the number in flight, the window is as narrow as that, in the same write.
    pub(super) fn narrow(
        &self,
        memory: &mut Memory,
        attempt: &StoredAttempt,
        outcome: &SendOutcome,
        draft: &mut Draft,
    ) -> Option<TurnedAway> {
        let cause = Narrowing::of(outcome)?;
        let (nonce, lowest, now) = (attempt.nonce, memory.run()?.consumed, self.tick());
        let below = nonce.0.saturating_sub(lowest.0);
        let room = &mut memory.room;
        room.away.insert(nonce, attempt.resends);
        let late = room.progress.is_some_and(|(at, fit)| now.since(at) < LATE && below < fit);
        if !late {
            room.window.turned_away(cause, below, now);
        }
        draft.cursor.conditions.window = room.window.narrowed();
        let words =
            room.window.narrowed().map_or_else(|| outcome.code().to_owned(), |narrowed| narrowed.words());
        let words = NodeText::new(&match below {
            0 => words,
            _ => format!("{words}; nonce {lowest} must be mined first, {below} lie below this one"),
        });
        Some(TurnedAway { words, soon: late || below == 0 })
    }

    /// Lower nonces were consumed: what was turned away goes out again, as far as there is room now.
    pub(super) async fn widen(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        let Some(run) = memory.run() else { return Ok(()) };
        let seen = memory.room.seen.replace(run.consumed);
        if seen.is_none_or(|seen| seen >= run.consumed) {
            return Ok(());
        }
        let most = self.submitter.settings.rules.max_in_flight;
        let now = self.tick();
        memory.room.progress = Some((now, memory.room.limit(most)));
        memory.room.window.progressed(most, now);
        let end = Nonce(run.consumed.0.saturating_add(memory.room.limit(most)));
        let further = memory.room.away.split_off(&end);
        let fit = std::mem::replace(&mut memory.room.away, further);
        let narrowed = memory.room.window.narrowed();
        let now = self.database_time();
        let current = fit.range(run.consumed..).filter_map(|(nonce, _)| memory.current(*nonce));
        let due: Vec<ResendClaim> = current
            .filter(|attempt| attempt.next_send_at > now)
            .map(|attempt| ResendClaim {
                nonce: attempt.nonce,
                n: attempt.n,
                next_send_at: now,
                sends: false,
            })
            .collect();
        let shown = memory.cursor.cursor.conditions.window;
        // That it grew by a little is worth no write; that it is as it should be is.
        if due.is_empty() && (narrowed.is_some() || shown.is_none()) {
            return Ok(());
        }
        let mut draft = self.draft(memory)?;
        draft.writes.resends = due;
        draft.cursor.conditions.window = narrowed;
        self.commit(memory, draft).await
    }
}
