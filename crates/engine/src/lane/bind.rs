//! Binding: what is bound next, and why the first of the queue is not. How a run of the queue gets its nonces is in
//! [`super::run`].

use std::ops::RangeInclusive;

use gapless_core::change::TxWrite;
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::Nonce;
use gapless_core::limits::MAX_PAGE;
use gapless_core::plan::{Action, Head, LaneView, NonceRules, Plan};
use gapless_core::record::TxRecord;
use gapless_core::state::{SubState, TxEvent};
use gapless_core::wait::WaitReason;

use super::market::is_no_news;
use super::memory::Memory;
use super::{Lane, Stop};

/// Heads kept in memory, at most; more are peeked when these are used up. With many lanes it is these that take room, so none
/// holds many more than it can bind.
const PEEK: RangeInclusive<usize> = 32..=500;
const _: () = assert!(*PEEK.end() <= MAX_PAGE);

/// Runs bound before the lane looks at the chain again.
const RUNS: usize = 8;

impl Lane {
    /// Binds as many as the plan allows, a run of the queue at a time. Whether there is more to be done at once.
    pub(super) async fn bind_next(&mut self, memory: &mut Memory) -> Result<bool, Stop> {
        if !self.phase.may_bind() {
            return Ok(false);
        }
        let mut runs = 0;
        loop {
            self.refill(memory).await?;
            let actions = self.next_bindings(memory);
            let Some(action) = actions.first() else { return Ok(false) };
            let went_on = match action {
                Action::Expire(tx_id) => self.expire(memory, *tx_id).await?,
                Action::AgreeStart => self.agree_start(memory).await?,
                Action::Bind { .. } => {
                    runs += 1;
                    let slots = actions.iter().map_while(|action| match action {
                        Action::Bind { nonce, .. } => Some(*nonce),
                        _ => None,
                    });
                    let slots: Vec<Nonce> = slots.collect();
                    self.bind_run(memory, slots).await?
                }
                Action::Wait(reason) => self.note_wait(memory, None, reason.clone()).await.map(|()| false)?,
                _ => false,
            };
            if !went_on || runs == RUNS {
                return Ok(went_on);
            }
            self.hand_over(memory).await?;
        }
    }

    /// Clear, then look: a wake that comes while we look is looked at again. As long as those in memory are more than can be
    /// bound, nobody who came since can come before them.
    async fn refill(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        let budget = memory.run().map_or(1, |run| self.submitter.settings.rules.budget(&run));
        let enough = memory.queue.len() as u64 > budget;
        if memory.queue.is_empty() || memory.came_back || (memory.look_again && !enough) {
            (memory.look_again, memory.came_back) = (false, false);
            let most = usize::try_from(budget).unwrap_or(usize::MAX).saturating_add(1);
            let most = most.clamp(*PEEK.start(), *PEEK.end());
            let found =
                self.tools.store.peek_queue(&self.submitter.id, most).await.map_err(Stop::StoreDown)?;
            memory.look_again = found.len() == most;
            memory.queue = self.set_aside(memory, found).await?;
        }
        Ok(())
    }

    fn next_bindings(&self, memory: &Memory) -> Vec<Action> {
        let heads: Vec<Head> = memory.queue.iter().map(head).collect();
        let allocations: Vec<_> = memory.allocations.values().cloned().collect();
        let (run, rules) = (memory.run(), self.submitter.settings.rules);
        let view = LaneView {
            phase: self.phase,
            run: run.as_ref(),
            conditions: &memory.cursor.cursor.conditions,
            rules: NonceRules { max_in_flight: memory.window(rules.max_in_flight), ..rules },
            queue: &heads,
            open: &[],
            allocations: &allocations,
            commands: &[],
        };
        let lapsed = |action: &Action| matches!(action, Action::Lapse(_));
        Plan::of(&view, self.database_time()).0.into_iter().filter(|action| !lapsed(action)).collect()
    }

    async fn expire(&mut self, memory: &mut Memory, tx_id: gapless_core::ids::TxId) -> Result<bool, Stop> {
        let Some(tx) = memory.queue.iter().find(|tx| tx.tx_id() == tx_id) else { return Ok(false) };
        let told = vec![Told::plain(EventKind::TxExpired)];
        let now = self.database_time();
        let write = TxWrite::new(tx_id, &tx.facts, &[TxEvent::Lapse], told, |facts| {
            (facts.sub_state, facts.wait, facts.ended_at) = (None, None, Some(now));
        });
        self.write_one(memory, write).await?;
        Ok(true)
    }

    /// Writes one transaction's facts and nothing else.
    pub(super) async fn write_one(
        &self,
        memory: &mut Memory,
        write: Result<TxWrite, gapless_core::state::IllegalTransition>,
    ) -> Result<(), Stop> {
        let mut draft = self.draft(memory)?;
        draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
        self.commit(memory, draft).await
    }

    /// Writes why the first in the queue (or this one) waits, if that is news.
    pub(super) async fn note_wait(
        &self,
        memory: &mut Memory,
        sub_state: Option<SubState>,
        reason: WaitReason,
    ) -> Result<(), Stop> {
        let Some(tx) = memory.queue.front() else { return Ok(()) };
        let sub_state = sub_state.unwrap_or(match reason {
            WaitReason::Protected { .. } => SubState::Protected,
            WaitReason::Held { .. } => SubState::Held,
            _ => SubState::WaitingSlot,
        });
        // Ordinary waiting for a turn is not worth a write.
        let noted = tx.facts.wait.as_ref();
        let known = noted.is_some_and(|noted| is_no_news(noted, &reason));
        if matches!(reason, WaitReason::SlotBusy { .. }) || known {
            return Ok(());
        }
        let mut draft = self.draft(memory)?;
        if let WaitReason::OutOfFunds { balance, needed } = reason {
            draft.cursor.conditions.out_of_funds = Some((balance, needed));
        }
        let write = TxWrite::new(tx.tx_id(), &tx.facts, &[], vec![], |facts| {
            (facts.sub_state, facts.wait) = (Some(sub_state), Some(reason));
        });
        draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
        self.commit(memory, draft).await
    }
}

fn head(tx: &TxRecord) -> Head {
    Head { tx_id: tx.tx_id(), valid_until: tx.request.intent.options.valid_until }
}
