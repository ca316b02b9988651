//! Dearer attempts: a price that fell behind, a placeholder that should win, a payload that replaces another.
//!
//! Every one of them is a bid for a slot that may already be taken in some pool, so it outbids the slot's dearest attempt,
//! whoever's that was, and stays within the caps or is not made (invariant *durable-first*: stored, then sent). A bid that
//! cannot be made changes nothing: the current attempt goes on being sent.

use gapless_core::attempt::{AttemptKind, NewAttempt, SUPERSEDED, StoredAttempt};
use gapless_core::bump::{Bid, Dearest, outbid};
use gapless_core::change::{Draft, ResendClaim, TxWrite};
use gapless_core::event::{EventKind, Told};
use gapless_core::fees::{FeeWishes, Gas};
use gapless_core::ids::Nonce;
use gapless_core::intent::{Options, Payload};
use gapless_core::intrinsic;
use gapless_core::ports::chain::{ChainResult, Contents, Estimate};
use gapless_core::ports::policy::BumpContext;
use gapless_core::record::TxRecord;
use gapless_core::state::{SubState, TxEvent};
use gapless_core::wait::WaitReason;
use serde_json::json;
use tracing::info;

use super::memory::Memory;
use super::notes::Invalid;
use super::signing::Wish;
use super::{Lane, Stop};
use crate::names;
use crate::points::Point;

/// What came of trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bidding {
    /// Stored; to be sent.
    Stored,
    /// A cap is in the way.
    AtCap,
    /// Not now: the chain or the signer does not answer.
    NotNow,
}

impl Lane {
    /// Makes the attempts that are wanted, and sends them.
    pub(super) async fn bid_due(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        if !self.phase.may_send() {
            return Ok(());
        }
        let open: Vec<Nonce> = memory.open().map(|(nonce, _)| nonce).collect();
        for nonce in open {
            if self.wants_bid(memory, nonce) && self.bid(memory, nonce).await? == Bidding::Stored {
                memory.sending.queue([nonce]);
            }
        }
        Ok(())
    }

    fn wants_bid(&self, memory: &Memory, nonce: Nonce) -> bool {
        let Some(current) = memory.current(nonce) else { return false };
        // Bytes from outside are never signed again; only what should take their place competes with them.
        let fixed = current.kind == AttemptKind::External;
        let notes = memory.noted(nonce);
        if notes.and_then(|notes| notes.bid_after).is_some_and(|after| self.tick() < after) {
            return false;
        }
        let ordered = |tx: &TxRecord| !fixed && is_ordered(tx, memory, nonce);
        let asked = |tx: &TxRecord| !self.carries_intent(tx, current) || ordered(tx);
        if memory.tx_of_current(nonce).is_some_and(asked) {
            return true;
        }
        let suggested = notes.is_some_and(|notes| notes.suggested);
        !fixed
            && self.may_raise(memory, nonce, current)
            && (suggested || self.is_overdue(memory, nonce, current))
    }

    /// Whether an attempt is what its transaction wants to be mined.
    pub(super) fn carries_intent(&self, tx: &TxRecord, current: &StoredAttempt) -> bool {
        // What has ended wants nothing: its slot is open again because the chain lost it.
        if !tx.facts.state.is_bound() {
            return true;
        }
        let kind = intended(tx, current.kind);
        kind == current.kind && (kind != AttemptKind::Replacement || self.carries(current, tx.payload()))
    }

    /// Whether an attempt carries this payload, whatever its gas.
    pub(super) fn carries(&self, attempt: &StoredAttempt, payload: &Payload) -> bool {
        let found = self.chain.chain.contents(&attempt.raw).map(|contents| contents.payload);
        found.is_none_or(|found| Payload { gas_limit: payload.gas_limit, ..found } == *payload)
    }

    /// Whether the rules allow another price. Placeholders are re-priced whatever they say; so is what no endpoint can hold.
    fn may_raise(&self, memory: &Memory, nonce: Nonce, current: &StoredAttempt) -> bool {
        let rules = &self.submitter.settings.bump;
        let nobody_holds_it = memory.noted(nonce).is_some_and(|notes| !notes.perhaps_pooled);
        let alike = |attempt: &&StoredAttempt| (attempt.tx_id, attempt.kind) == (current.tx_id, current.kind);
        let made = memory.slots.get(&nonce).map_or(0, |attempts| attempts.iter().filter(alike).count());
        let room = u32::try_from(made).is_ok_and(|made| made <= rules.max_attempts);
        let poor = |tx: &TxRecord| matches!(tx.facts.wait, Some(WaitReason::OutOfFunds { .. }));
        let funds = !memory.tx_of_current(nonce).is_some_and(poor);
        let allowed = rules.enabled || current.kind == AttemptKind::Placeholder || nobody_holds_it;
        allowed && room && funds
    }

    /// Whether it has been out for so long, and a block has passed it by. Only the lowest can be mined: what waits behind it
    /// would spend its attempts for nothing.
    fn is_overdue(&self, memory: &Memory, nonce: Nonce, current: &StoredAttempt) -> bool {
        let rules = &self.submitter.settings.bump;
        let pays = rules.enabled || current.kind == AttemptKind::Placeholder;
        let old = self.database_time().since(current.stored_at) >= rules.min_interval;
        let head = self.chain.heads.ring().head().map(|head| head.this.hash);
        let lowest = memory.open().next().is_some_and(|(lowest, _)| lowest == nonce);
        lowest && pays && old && memory.noted(nonce).and_then(|notes| notes.bid_head) != head
    }

    /// Makes one attempt, as the slot's transaction intends it.
    pub(super) async fn bid(&mut self, memory: &mut Memory, nonce: Nonce) -> Result<Bidding, Stop> {
        let retry = self.tick().plus(self.submitter.settings.retry);
        let head = self.chain.heads.ring().head().map(|head| head.this.hash);
        let notes = memory.notes(nonce);
        notes.bid_after = Some(retry);
        notes.bid_head = head;
        let Some(attempts) = memory.slots.get(&nonce).cloned() else { return Ok(Bidding::NotNow) };
        let Some(current) = memory.current(nonce).cloned() else { return Ok(Bidding::NotNow) };
        let tx = memory.tx_of_current(nonce).cloned();
        let kind = tx.as_ref().map_or(current.kind, |tx| intended(tx, current.kind));
        let same = tx.as_ref().is_none_or(|tx| self.carries_intent(tx, &current));
        let Ok(Some(contents)) = self.contents(tx.as_ref(), kind, same, &current).await else {
            return Ok(Bidding::NotNow);
        };
        let options = tx.as_ref().map(TxRecord::options).unwrap_or_default();
        let by_policy = same && !tx.as_ref().is_some_and(|tx| is_ordered(tx, memory, nonce));
        let Ok(Some(bid)) = self.price(by_policy, &attempts, &options, contents.gas_limit).await else {
            return Ok(Bidding::NotNow);
        };
        let fees = match bid {
            Bid::To(fees) => fees,
            Bid::AtCap { cap, needed } => {
                let later = self.tick().plus(self.submitter.settings.reconcile);
                let notes = memory.notes(nonce);
                (notes.at_cap, notes.bid_after) = (Some((cap, needed)), Some(later));
                return Ok(Bidding::AtCap);
            }
        };
        let wish = Wish {
            nonce,
            n: attempts.iter().map(|attempt| attempt.n + 1).max().unwrap_or_default(),
            tx_id: current.tx_id,
            kind,
            payload: contents.payload,
            gas: contents.gas_limit,
            fees,
        };
        let Ok(attempt) = self.sign(wish).await else { return Ok(Bidding::NotNow) };
        self.store_bid(memory, &current, tx.as_ref(), attempt).await?;
        Ok(Bidding::Stored)
    }

    /// What the attempt is to carry.
    async fn contents(
        &self,
        tx: Option<&TxRecord>,
        kind: AttemptKind,
        same: bool,
        current: &StoredAttempt,
    ) -> ChainResult<Option<Contents>> {
        if same {
            return Ok(self.chain.chain.contents(&current.raw));
        }
        let payload = match (kind, tx) {
            (AttemptKind::Placeholder, _) | (_, None) => self.nothing(),
            (_, Some(tx)) => tx.payload().clone(),
        };
        let gas_limit = match payload.gas_limit {
            Some(gas) => gas,
            None => self.gas_for(&payload).await?,
        };
        Ok(Some(Contents { payload, gas_limit }))
    }

    /// Gas by estimate, not by assumption; what cannot be estimated gets the least that any node takes.
    pub(super) async fn gas_for(&self, payload: &Payload) -> ChainResult<Gas> {
        Ok(match self.chain.chain.estimate(&self.submitter.id, payload).await? {
            Estimate::Gas(gas) => gas,
            Estimate::Unaffordable { .. } | Estimate::Reverts { .. } => intrinsic::gas(payload),
        })
    }

    /// What to offer; none if the policy wants nothing offered. It is asked where only the price changes and nobody ordered
    /// that, and what it says is held to the rule of nodes and to the caps.
    async fn price(
        &self,
        by_policy: bool,
        attempts: &[StoredAttempt],
        options: &Options,
        gas: Gas,
    ) -> ChainResult<Option<Bid>> {
        let settings = &self.submitter.settings;
        let market = self.chain.chain.quote(options).await?.fees;
        let caps = settings.caps.for_gas(gas);
        let Some(dearest) = Dearest::of(attempts) else {
            return Ok(Some(Bid::To(caps.apply(market))));
        };
        let by_rules = outbid(dearest, market, settings.bump.multiplier, &caps);
        // Who names a price that does gets that price.
        let named = caps.apply(market);
        if !by_policy && options.fees != FeeWishes::default() && dearest.is_outbid_by(named) {
            return Ok(Some(Bid::To(named)));
        }
        if !by_policy {
            return Ok(Some(by_rules));
        }
        let now = self.database_time();
        let context = BumpContext { attempts, market, caps: &caps, rules: &settings.bump, now };
        Ok(match (self.tools.policies.bump.bump(&context), by_rules) {
            (Some(fees), _) if dearest.is_outbid_by(fees) && caps.apply(fees) == fees => Some(Bid::To(fees)),
            (None, Bid::To(_)) => None,
            (_, by_rules) => Some(by_rules),
        })
    }

    async fn store_bid(
        &mut self,
        memory: &mut Memory,
        current: &StoredAttempt,
        tx: Option<&TxRecord>,
        attempt: NewAttempt,
    ) -> Result<(), Stop> {
        let (nonce, hash) = (attempt.nonce, attempt.hash);
        let mut draft = self.draft(memory)?;
        supersede(&mut draft, memory, nonce);
        if let Some(tx) = tx.filter(|tx| tx.facts.state.is_bound()) {
            let told = json!({"txHash": hash, "replaces": current.hash, "kind": attempt.kind});
            let told = vec![Told::with(EventKind::TxReplaced, told)];
            let sub_state = competing(attempt.kind);
            let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::Replace], told, |facts| {
                (facts.tx_hash, facts.wait) = (Some(hash), None);
                facts.sub_state = Some(sub_state);
            });
            draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
        }
        info!(submitter = %self.submitter.id, nonce = nonce.0, %hash, kind = attempt.kind.name(), "a dearer attempt");
        if attempt.kind == AttemptKind::Placeholder && current.kind != AttemptKind::Placeholder {
            let withdrawal = tx.and_then(|tx| tx.facts.withdrawal()).map_or("recycled", |why| why.name());
            metrics::counter!(names::PLACEHOLDER, "reason" => withdrawal).increment(1);
        }
        draft.writes.attempts.push(attempt);
        self.commit(memory, draft).await?;
        self.tools.points.reach(Point::AfterBidCommit);
        let notes = memory.notes(nonce);
        (notes.suggested, notes.at_cap) = (false, None);
        notes.invalid = Invalid::default();
        Ok(())
    }
}

/// Nothing of a slot goes out any more, but what the same change adds.
pub(super) fn supersede(draft: &mut Draft, memory: &Memory, nonce: Nonce) {
    let attempts = memory.slots.get(&nonce).into_iter().flatten();
    let claims = attempts.filter(|attempt| !attempt.is_superseded()).map(|attempt| ResendClaim {
        nonce,
        n: attempt.n,
        next_send_at: SUPERSEDED,
        sends: false,
    });
    draft.writes.resends.extend(claims);
}

/// Whether somebody asked for a dearer attempt, and none was made since. The rules do not matter then; the caps do.
fn is_ordered(tx: &TxRecord, memory: &Memory, nonce: Nonce) -> bool {
    let last = memory.slots.get(&nonce).and_then(|attempts| attempts.last()).map(|attempt| attempt.n);
    let outbid = tx.facts.amended.as_ref().and_then(|amended| amended.outbid);
    tx.facts.state.is_bound() && outbid.is_some_and(|outbid| last.is_some_and(|last| last <= outbid))
}

/// Which kind of attempt a transaction wants to be mined.
pub(super) fn intended(tx: &TxRecord, current: AttemptKind) -> AttemptKind {
    let amended = tx.facts.amended.as_ref();
    if amended.is_some_and(|amended| amended.withdrawal.is_some()) {
        AttemptKind::Placeholder
    } else if amended.is_some_and(|amended| amended.payload.is_some()) {
        AttemptKind::Replacement
    } else {
        current
    }
}

/// Where a transaction stands while an attempt of this kind is on its way.
pub(super) const fn competing(kind: AttemptKind) -> SubState {
    match kind {
        AttemptKind::Placeholder => SubState::Cancelling,
        AttemptKind::Replacement => SubState::Replacing,
        AttemptKind::Payload | AttemptKind::External => SubState::InPool,
    }
}
