//! Bytes that can never be mined, and the slots they leave.
//!
//! An endpoint's "invalid" is believed only if our own check agrees, or if every endpoint says so over several heads. Then
//! the transaction is abandoned: its bytes stay watched (if they are mined after all, it is CONFIRMED), and its slot goes to
//! the next transaction, or to a placeholder when nobody comes. Several in a row say more about the endpoints than about the
//! transactions: the lane holds, so that a bad endpoint does not burn the queue.

use std::time::Duration;

use gapless_core::allocation::AllocationWrite;
use gapless_core::attempt::{AttemptKind, StoredAttempt};
use gapless_core::bump::{Bid, Dearest, outbid};
use gapless_core::change::{ResendClaim, TxWrite};
use gapless_core::condition::HoldCause;
use gapless_core::cursor::InFlight;
use gapless_core::event::{EventKind, Told};
use gapless_core::fees::{Fees, Gas};
use gapless_core::ids::Nonce;
use gapless_core::intent::Options;
use gapless_core::intrinsic;
use gapless_core::limits::MAX_RAW_BYTES;
use gapless_core::plan::Mode;
use gapless_core::ports::chain::ChainResult;
use gapless_core::state::SubState;
use gapless_core::text::NodeText;
use serde_json::json;
use tracing::warn;

use super::bid::supersede;
use super::memory::Memory;
use super::notes::Invalid;
use super::signing::Wish;
use super::{Lane, Stop};
use crate::names;
use crate::points::Point;

/// So many heads must have passed, with every endpoint saying the same.
const HEADS: usize = 3;

impl Lane {
    /// Every endpoint calls the current attempt invalid; perhaps it is.
    pub(super) async fn doubt(
        &mut self,
        memory: &mut Memory,
        nonce: Nonce,
        text: &NodeText,
    ) -> Result<(), Stop> {
        let Some(current) = memory.current(nonce).cloned() else { return Ok(()) };
        let Some(head) = self.chain.heads.ring().head().map(|head| head.this.number) else { return Ok(()) };
        let heads = &mut memory.notes(nonce).invalid.at;
        heads.insert(head);
        if heads.len() < HEADS && !self.is_invalid(&current) {
            return Ok(());
        }
        // While the endpoints are doubted, a window full of slots is not given up on their word.
        if memory.cursor.cursor.conditions.holds.contains_key(&HoldCause::Refusals)
            && !self.is_invalid(&current)
        {
            return Ok(());
        }
        self.abandon(memory, nonce, text).await
    }

    /// Our own check: what no chain could mine.
    fn is_invalid(&self, attempt: &StoredAttempt) -> bool {
        let upside_down = attempt.fees.tip() > attempt.fees.ceiling();
        let starved = |contents: gapless_core::ports::chain::Contents| {
            contents.gas_limit < intrinsic::gas(&contents.payload)
        };
        attempt.raw.len() > MAX_RAW_BYTES
            || upside_down
            || self.chain.chain.contents(&attempt.raw).is_some_and(starved)
    }

    async fn abandon(&mut self, memory: &mut Memory, nonce: Nonce, text: &NodeText) -> Result<(), Stop> {
        warn!(submitter = %self.submitter.id, nonce = nonce.0, %text, "invalid: its nonce goes to somebody else");
        let mut draft = self.draft(memory)?;
        supersede(&mut draft, memory, nonce);
        draft.writes.allocations.push(AllocationWrite::Recycle { nonce });
        if let Some(tx) = memory.tx_of_current(nonce).filter(|tx| tx.facts.state.is_bound()) {
            let told = Told::with(EventKind::TxAttemptRefused, json!({"code": "invalid", "abandoned": true}));
            let write = TxWrite::new(tx.tx_id(), &tx.facts, &[], vec![told], |facts| {
                facts.sub_state = Some(SubState::Abandoned);
                facts.wait = None;
            });
            draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
        }
        self.commit(memory, draft).await?;
        let now = self.tick();
        let notes = memory.notes(nonce);
        notes.free_since = Some(now);
        // What was said of these bytes is not said of whoever takes the slot.
        notes.invalid = Invalid::default();
        (notes.suggested, notes.bid_after, notes.at_cap) = (false, None, None);
        memory.invalid_in_row += 1;
        let rules = self.submitter.settings.rules;
        let most = match rules.mode {
            Mode::Strict => 1,
            Mode::Pipelined => rules.max_in_flight / 10,
        };
        let beyond = u64::from(memory.invalid_in_row).saturating_sub(most);
        if beyond == 0 {
            return Ok(());
        }
        // Twice as long each time, however wide the window is.
        memory.held_until =
            Some(now.plus(self.submitter.settings.health.retry.saturating_mul(1 << beyond.min(6))));
        let words = format!(
            "endpoints called {} transactions in a row invalid, the last one: {text}",
            memory.invalid_in_row
        );
        self.hold(memory, HoldCause::Refusals, &words).await
    }

    /// The hold for refusals ends after its time.
    pub(super) async fn heal_refusals(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        if !memory.cursor.cursor.conditions.holds.contains_key(&HoldCause::Refusals) {
            return Ok(());
        }
        let retry = self.submitter.settings.health.retry;
        let now = self.tick();
        if now >= *memory.held_until.get_or_insert(now.plus(retry)) {
            memory.held_until = None;
            self.heal(memory, HoldCause::Refusals).await?;
        }
        Ok(())
    }

    /// Placeholders for free slots that nobody has taken for long: what is bound above them would wait for ever.
    pub(super) async fn fill_free(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        let free = memory.free_slots();
        if free.is_empty() || !self.phase.may_send() {
            return Ok(());
        }
        let (now, hold) = (self.tick(), self.submitter.settings.recycle_hold);
        let next = memory.run().map(|run| run.next).unwrap_or_default();
        let forbidden = memory.cursor.cursor.conditions.forbids_binding().is_some();
        for nonce in free {
            let since = *memory.notes(nonce).free_since.get_or_insert(now);
            // On hold nothing new is bound, but what is bound above must not wait for this one.
            let needed = !forbidden || nonce.next() < next;
            if needed && now.since(since) >= hold.max(Duration::from_millis(1)) {
                self.fill(memory, nonce).await?;
            }
        }
        Ok(())
    }

    async fn fill(&mut self, memory: &mut Memory, nonce: Nonce) -> Result<(), Stop> {
        let (now, retry) = (self.tick(), self.submitter.settings.retry);
        let paced = memory.notes(nonce).bid_after.is_some_and(|after| now < after);
        if paced || !self.can_fill() {
            return Ok(());
        }
        memory.notes(nonce).bid_after = Some(now.plus(retry));
        let payload = self.nothing();
        let Ok(gas) = self.gas_for(&payload).await else { return Ok(()) };
        let Ok(quote) = self.chain.chain.quote(&Options::default()).await else { return Ok(()) };
        let Ok(Ok(fees)) = self.outbid_slot(memory, nonce, quote.fees, gas).await else { return Ok(()) };
        let n = self.next_ordinal(memory, nonce);
        let kind = AttemptKind::Placeholder;
        let Ok(attempt) = self.sign(Wish { nonce, n, tx_id: None, kind, payload, gas, fees }).await else {
            return Ok(());
        };
        let mut draft = self.draft(memory)?;
        let made = memory.slots.get(&nonce).into_iter().flatten().find(|made| made.hash == attempt.hash);
        match made.map(|made| made.n) {
            // The very same bytes were made before: they go out again.
            Some(n) => {
                let next_send_at = self.database_time();
                draft.writes.resends.push(ResendClaim { nonce, n, next_send_at, sends: false });
            }
            None => draft.writes.attempts.push(attempt),
        }
        draft.writes.allocations.push(AllocationWrite::Settle { nonce });
        if draft.cursor.in_flight.is_none_or(|in_flight| in_flight.nonce >= nonce) {
            draft.cursor.in_flight = Some(InFlight { nonce, tx_id: None });
        }
        self.commit(memory, draft).await?;
        self.tools.points.reach(Point::AfterBidCommit);
        metrics::counter!(names::PLACEHOLDER, "reason" => "recycled").increment(1);
        memory.notes(nonce).free_since = None;
        memory.sending.queue([nonce]);
        Ok(())
    }

    pub(super) fn next_ordinal(&self, memory: &Memory, nonce: Nonce) -> u32 {
        memory.slots.get(&nonce).and_then(|attempts| attempts.last()).map_or(0, |last| last.n + 1)
    }

    /// Fees that take a slot others have bid for; the cap that is in the way and what was needed, if there is one. Where no
    /// endpoint holds any of those bids, whatever the caps allow will do.
    pub(super) async fn outbid_slot(
        &self,
        memory: &Memory,
        nonce: Nonce,
        market: Fees,
        gas: Gas,
    ) -> ChainResult<Result<Fees, (gapless_core::fees::GasPrice, gapless_core::fees::GasPrice)>> {
        let settings = &self.submitter.settings;
        let caps = settings.caps.for_gas(gas);
        let attempts = memory.slots.get(&nonce).map(Vec::as_slice).unwrap_or_default();
        let Some(dearest) = Dearest::of(attempts) else { return Ok(Ok(caps.apply(market))) };
        match outbid(dearest, market, settings.bump.multiplier, &caps) {
            Bid::To(fees) => Ok(Ok(fees)),
            Bid::AtCap { cap, needed } => {
                let hashes: Vec<_> = attempts.iter().map(|attempt| attempt.hash).collect();
                let held = self.chain.chain.pooled(&hashes).await?.contains(&true);
                Ok(if held { Err((cap, needed)) } else { Ok(caps.apply(market)) })
            }
        }
    }
}
