//! Binding: choose the nonce, sign in memory, write cursor, bytes, transaction and event in one fenced change, and only
//! then send.

use gapless_core::allocation::AllocationWrite;
use gapless_core::attempt::AttemptKind;
use gapless_core::change::TxWrite;
use gapless_core::cursor::{InFlight, Run};
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::Nonce;
use gapless_core::limits::MAX_PAGE;
use gapless_core::plan::{Action, Head, LaneView, Plan};
use gapless_core::record::TxRecord;
use gapless_core::state::{SubState, TxEvent, TxState};
use gapless_core::wait::WaitReason;

use super::market::is_no_news;
use super::memory::{Memory, Prepared};
use super::notes::Notes;
use super::signing::Wish;
use super::{Lane, Stop};
use crate::names;
use crate::points::Point;

/// Heads kept in memory; more are peeked when these are used up.
const PEEK: usize = 64;
const _: () = assert!(PEEK <= MAX_PAGE);

impl Lane {
    /// Binds as many as the plan allows, one after another.
    pub(super) async fn bind_next(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        if !self.phase.may_bind() {
            return Ok(());
        }
        loop {
            self.refill(memory).await?;
            let Some(action) = self.next_binding(memory) else { return Ok(()) };
            let went_on = match action {
                Action::Expire(tx_id) => self.expire(memory, tx_id).await?,
                Action::AgreeStart => self.agree_start(memory).await?,
                Action::Prepare(tx_id) => self.prepare(memory, tx_id).await?,
                Action::Bind { nonce, .. } => self.bind(memory, nonce).await?,
                Action::Wait(reason) => self.note_wait(memory, None, reason).await.map(|()| false)?,
                _ => false,
            };
            if !went_on {
                return Ok(());
            }
        }
    }

    /// Clear, then look: a wake that comes while we look is looked at again.
    async fn refill(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        if memory.queue.is_empty() || memory.look_again {
            memory.look_again = false;
            let found =
                self.tools.store.peek_queue(&self.submitter.id, PEEK).await.map_err(Stop::StoreDown)?;
            memory.queue = self.set_aside(memory, found).await?;
        }
        Ok(())
    }

    fn next_binding(&self, memory: &Memory) -> Option<Action> {
        let heads: Vec<Head> = memory.queue.iter().map(|tx| self.head(memory, tx)).collect();
        let allocations: Vec<_> = memory.allocations.values().cloned().collect();
        let run = memory.run();
        let view = LaneView {
            phase: self.phase,
            run: run.as_ref(),
            conditions: &memory.cursor.cursor.conditions,
            rules: self.submitter.settings.rules,
            queue: &heads,
            open: &[],
            allocations: &allocations,
            commands: &[],
        };
        let lapsed = |action: &Action| matches!(action, Action::Lapse(_));
        Plan::of(&view, self.database_time()).0.into_iter().find(|action| !lapsed(action))
    }

    fn head(&self, memory: &Memory, tx: &TxRecord) -> Head {
        Head {
            tx_id: tx.tx_id(),
            prepared: memory.prepared.as_ref().is_some_and(|(prepared, _)| *prepared == tx.tx_id()),
            valid_until: tx.request.intent.options.valid_until,
        }
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

    async fn bind(&mut self, memory: &mut Memory, nonce: Nonce) -> Result<bool, Stop> {
        let (Some(tx), Some((_, prepared))) = (memory.queue.front().cloned(), memory.prepared.take()) else {
            return Ok(false);
        };
        let Prepared { gas, fees } = prepared;
        let fees = match self.outbid_slot(memory, nonce, fees, gas).await {
            Ok(Ok(fees)) => fees,
            Ok(Err((cap, market))) => {
                let reason = WaitReason::FeeCap { cap, market };
                self.note_wait(memory, Some(SubState::WaitingSlot), reason).await?;
                return Ok(false);
            }
            Err(_) => return Ok(false),
        };
        let amended = tx.facts.amended.as_ref().is_some_and(|amended| amended.payload.is_some());
        let wish = Wish {
            nonce,
            n: self.next_ordinal(memory, nonce),
            tx_id: Some(tx.tx_id()),
            kind: if amended { AttemptKind::Replacement } else { AttemptKind::Payload },
            payload: tx.payload().clone(),
            gas,
            fees,
        };
        let attempt = match self.sign(wish).await {
            Ok(attempt) => attempt,
            Err(words) => {
                let reason = WaitReason::Held { reason: words };
                self.note_wait(memory, Some(SubState::Preparing), reason).await?;
                return Ok(false);
            }
        };
        #[cfg(feature = "test-hooks")]
        self.send_unstored(&attempt).await;
        let Some(run) = memory.run() else { return Ok(false) };
        let now = self.database_time();
        let mut draft = self.draft(memory)?;
        let told = vec![Told::with(EventKind::TxSubmitted, serde_json::json!({"txHash": attempt.hash}))];
        let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::Bind], told, |facts| {
            facts.nonce = Some(nonce);
            facts.tx_hash = Some(attempt.hash);
            facts.sub_state = Some(SubState::InPool);
            facts.wait = None;
            facts.bound_at = Some(now);
        });
        draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
        draft.writes.attempts.push(attempt);
        draft.cursor.run = Some(Run { next: run.next.max(nonce.next()), ..run });
        if memory.allocations.contains_key(&nonce) {
            draft.writes.allocations.push(AllocationWrite::Settle { nonce });
        }
        draft.cursor.in_flight = Some(InFlight { nonce, tx_id: Some(tx.tx_id()) });
        draft.cursor.conditions.out_of_funds = None;
        let recycled = memory.slots.contains_key(&nonce);
        self.commit(memory, draft).await?;
        if !recycled {
            let head = self.chain.heads.ring().head().map(|head| head.this.hash);
            memory.begin_notes(nonce, Notes::bound_here(head));
        }
        memory.notes(nonce).free_since = None;
        self.tools.points.reach(Point::AfterBindCommit);
        self.broadcast(memory, nonce).await?;
        let waited = self.database_time().since(tx.created_at);
        metrics::histogram!(names::ACCEPTED_TO_SENT).record(waited.as_secs_f64());
        Ok(memory.queue.front().is_some_and(|tx| tx.facts.state == TxState::Queued))
    }
}
