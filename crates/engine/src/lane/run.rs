//! A run of the queue gets its nonces: prepared together, signed together, and written as one fenced change with cursor,
//! bytes, transactions and events (invariants *gapless*, *durable-first*). What cannot go on cuts the run off: nobody overtakes,
//! and no nonce is left out.

use gapless_core::allocation::AllocationWrite;
use gapless_core::attempt::{AttemptKind, NewAttempt};
use gapless_core::change::{Draft, TxWrite};
use gapless_core::cursor::{InFlight, Run};
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::Nonce;
use gapless_core::record::TxRecord;
use gapless_core::state::{SubState, TxEvent, TxState};
use gapless_core::wait::WaitReason;

use super::memory::Memory;
use super::notes::Notes;
use super::prepare::{Judgement, Prepared};
use super::reserve::refused;
use super::signing::Wish;
use super::{Lane, Stop};
use crate::points::Point;

/// Why the rest of a run is not bound, and where its first stands.
type Halt = (SubState, WaitReason);

impl Lane {
    /// Binds the first of the queue to these slots, as far as it goes. Whether to go on at once.
    pub(super) async fn bind_run(&mut self, memory: &mut Memory, slots: Vec<Nonce>) -> Result<bool, Stop> {
        let now = self.database_time();
        let over = |tx: &&TxRecord| tx.request.intent.options.valid_until.is_some_and(|until| until <= now);
        // Where the first had to wait, it is looked at alone: those behind it need not be prepared each time it is not ready.
        let waited = memory.queue.front().is_some_and(|tx| tx.facts.wait.is_some());
        let most = if waited { 1 } else { slots.len() };
        let heads: Vec<TxRecord> =
            memory.queue.iter().take(most).take_while(|tx| !over(tx)).cloned().collect();
        let judgements = self.judge(memory, &heads).await;
        self.tools.points.reach(Point::AfterPrepare);
        let mut draft = self.draft(memory)?;
        let (wishes, mut halt) = self.wishes(memory, &heads, judgements, slots, &mut draft).await?;
        let (mut attempts, unsigned) = match wishes.is_empty() {
            true => (Vec::new(), None),
            false => self.sign_all(wishes).await,
        };
        if let Some(words) = unsigned {
            halt = Some((SubState::Preparing, WaitReason::Held { reason: words }));
        }
        // At the cap, a payload like the one that was given up here gives the same bytes: they cannot be stored twice.
        let stored = |attempt: &NewAttempt| memory.holds(attempt.nonce, attempt.hash);
        if let Some(place) = attempts.iter().position(stored) {
            halt = Some((SubState::WaitingSlot, WaitReason::SlotBusy { nonce: attempts[place].nonce }));
            attempts.truncate(place);
        }
        #[cfg(feature = "test-hooks")]
        self.send_unstored(&attempts).await;
        let rejected = draft.writes.txs.len();
        let bound = attempts.len();
        if rejected + bound > 0 {
            self.store_run(memory, draft, attempts).await?;
        }
        match halt {
            // Only the first of the queue says why it waits; whoever is first now was not a moment ago.
            Some((sub_state, reason)) if rejected + bound == 0 => {
                self.note_wait(memory, Some(sub_state), reason).await?;
                Ok(false)
            }
            _ => {
                Ok(memory.look_again
                    || memory.queue.front().is_some_and(|tx| tx.facts.state == TxState::Queued))
            }
        }
    }

    /// What to sign, one slot after another. Those that are refused end in the same change, and take no slot.
    async fn wishes(
        &self,
        memory: &Memory,
        heads: &[TxRecord],
        judgements: Vec<Judgement>,
        slots: Vec<Nonce>,
        draft: &mut Draft,
    ) -> Result<(Vec<Wish>, Option<Halt>), Stop> {
        let mut wishes = Vec::with_capacity(heads.len());
        let mut slots = slots.into_iter();
        for (tx, judgement) in heads.iter().zip(judgements) {
            let Prepared { gas, fees } = match judgement {
                Judgement::Ready(prepared) => prepared,
                Judgement::Refuse(code, reason) => {
                    draft.writes.txs.push(refused(tx, code, reason.as_str(), self.database_time())?);
                    continue;
                }
                Judgement::Wait(sub_state, reason) => return Ok((wishes, Some((sub_state, reason)))),
            };
            let Some(nonce) = slots.next() else { break };
            let fees = match self.outbid_slot(memory, nonce, fees, gas).await {
                Ok(Ok(fees)) => fees,
                Ok(Err((cap, market))) => {
                    return Ok((wishes, Some((SubState::WaitingSlot, WaitReason::FeeCap { cap, market }))));
                }
                // Ordinary waiting is not worth a word.
                Err(_) => return Ok((wishes, Some((SubState::WaitingSlot, WaitReason::SlotBusy { nonce })))),
            };
            let amended = tx.facts.amended.as_ref().is_some_and(|amended| amended.payload.is_some());
            wishes.push(Wish {
                nonce,
                n: self.next_ordinal(memory, nonce),
                tx_id: Some(tx.tx_id()),
                kind: if amended { AttemptKind::Replacement } else { AttemptKind::Payload },
                payload: tx.payload().clone(),
                gas,
                fees,
            });
        }
        Ok((wishes, None))
    }

    /// Stores signed bytes, and lets them go out.
    async fn store_run(
        &self,
        memory: &mut Memory,
        mut draft: Draft,
        attempts: Vec<NewAttempt>,
    ) -> Result<(), Stop> {
        let Some(run) = memory.run() else { return Err(Stop::OutOfStep) };
        let now = self.database_time();
        let mut next = run.next;
        let mut bound = Vec::with_capacity(attempts.len());
        for attempt in attempts {
            let (nonce, hash) = (attempt.nonce, attempt.hash);
            let Some(tx) = attempt.tx_id.and_then(|tx_id| memory.tx(tx_id)) else {
                return Err(Stop::OutOfStep);
            };
            let told = vec![Told::with(EventKind::TxSubmitted, serde_json::json!({"txHash": hash}))];
            let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::Bind], told, |facts| {
                facts.nonce = Some(nonce);
                facts.tx_hash = Some(hash);
                facts.sub_state = Some(SubState::InPool);
                facts.wait = None;
                facts.bound_at = Some(now);
            });
            draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?.at_place(tx.order));
            if memory.allocations.contains_key(&nonce) {
                draft.writes.allocations.push(AllocationWrite::Settle { nonce });
            }
            if draft.cursor.in_flight.is_none_or(|in_flight| in_flight.nonce >= nonce) {
                draft.cursor.in_flight = Some(InFlight { nonce, tx_id: attempt.tx_id });
            }
            next = next.max(nonce.next());
            bound.push((nonce, memory.slots.contains_key(&nonce)));
            draft.writes.attempts.push(attempt);
        }
        draft.cursor.run = Some(Run { next, ..run });
        if !bound.is_empty() {
            draft.cursor.conditions.out_of_funds = None;
        }
        self.commit(memory, draft).await?;
        let head = self.chain.heads.ring().head().map(|head| head.this.hash);
        for (nonce, recycled) in &bound {
            if !recycled {
                memory.begin_notes(*nonce, Notes::bound_here(head));
            }
            memory.notes(*nonce).free_since = None;
        }
        if !bound.is_empty() {
            self.tools.points.reach(Point::AfterBindCommit);
        }
        memory.sending.queue(bound.into_iter().map(|(nonce, _)| nonce));
        Ok(())
    }
}
