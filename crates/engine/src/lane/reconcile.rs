//! Agreeing with the chain: the start nonce, open slots after a take-up, and counts while live.
//!
//! Counts say when to look, never what happened. What our slots do not explain puts the lane on HOLD; only an exhibit
//! makes it PROTECT (see [`super::ownership`]).

use std::collections::BTreeSet;

use gapless_core::condition::HoldCause;
use gapless_core::cursor::Run;
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::Nonce;
use gapless_core::lane::LaneEvent;
use gapless_core::plan::Mode;
use gapless_core::ports::chain::{ChainResult, Counts};
use gapless_core::state::SubState;
use gapless_core::text::NodeText;
use gapless_core::wait::WaitReason;
use serde_json::json;

use super::memory::Memory;
use super::{Lane, Stop};

/// Heads after which a suspicion from pools alone lapses.
const HEARSAY: usize = 3;

impl Lane {
    /// After a take-up: look at the chain, send every open slot's current attempt again. Only then may it bind. An endpoint
    /// that lags tells nothing, so the lane waits for one that does not.
    pub(super) async fn reconcile(&mut self, memory: &mut Memory) -> Result<bool, Stop> {
        if self.chain.heads.ring().head().is_none() {
            self.heard(memory, Some(NodeText::new("no head has been seen yet"))).await?;
            return Ok(false);
        }
        self.settle(memory).await?;
        memory.compared_at = None;
        if !self.watch_counts(memory).await? {
            return Ok(false);
        }
        let open: Vec<Nonce> = memory.open().map(|(nonce, _)| nonce).collect();
        memory.sending.queue(open);
        self.send_queued(memory).await?;
        self.advance(LaneEvent::Reconciled);
        Ok(true)
    }

    /// Compares counts with our slots, now and then. Whether they could be had from somebody who does not lag.
    pub(super) async fn watch_counts(&mut self, memory: &mut Memory) -> Result<bool, Stop> {
        let now = self.tick();
        if memory.compared_at.is_some_and(|at| now.since(at) < self.submitter.settings.reconcile) {
            return Ok(true);
        }
        let seen = self.seen();
        let counts = match self.chain.chain.counts(&self.submitter.id).await {
            Ok(counts) => counts,
            Err(error) => {
                self.heard(memory, Some(NodeText::new(&error.to_string()))).await?;
                return Ok(memory.run().is_none());
            }
        };
        self.heard(memory, None).await?;
        // Before the first nonce there is nothing to compare: whether anybody answers is all.
        let Some(run) = memory.run() else {
            memory.compared_at = Some(now);
            return Ok(true);
        };
        if counts.at.number < seen {
            // Without a nonce there is nothing to compare; agreeing on the first one tells of the lag in words.
            return Ok(memory.run().is_none());
        }
        memory.compared_at = Some(now);
        self.forget_vanished_exhibit(memory, counts.latest).await?;
        self.notice_deep_reorg(memory, &counts).await?;
        if counts.latest > run.next {
            self.hold(memory, HoldCause::Counts, &unexplained(counts.latest, run.next)).await?;
            match self.submitter.settings.rules.mode {
                Mode::Strict => self.prove_foreign(memory, Nonce(counts.latest.0 - 1), counts.at).await?,
                Mode::Pipelined => self.record_foreign(memory, &counts).await?,
            }
        } else if counts.latest > run.consumed && memory.is_reserved(run.consumed) {
            // Its holder may have used it and not said so yet; its word, or the reservation's end, will tell.
        } else if counts.latest > run.consumed && self.submitter.settings.rules.mode == Mode::Pipelined {
            self.record_foreign(memory, &counts).await?;
        } else if counts.latest > run.consumed {
            match self.explained(memory, run.consumed).await {
                Some(true) => self.heal(memory, HoldCause::Counts).await?,
                Some(false) => self.prove_foreign(memory, run.consumed, counts.at).await?,
                None => {}
            }
        } else if self.runs_ahead(memory, &counts, run.next) {
            let words = format!(
                "{} transactions of this account are pending, we have bound {}",
                counts.pending, run.next
            );
            self.hold(memory, HoldCause::Counts, &words).await?;
        } else {
            self.heal(memory, HoldCause::Counts).await?;
            self.heal(memory, HoldCause::Unproven).await?;
        }
        Ok(true)
    }

    /// Whether somebody else seems to have a transaction of this account in a pool. Pools are hearsay: after a few heads at
    /// which nothing came of it, it is ignored.
    fn runs_ahead(&self, memory: &mut Memory, counts: &Counts, next: Nonce) -> bool {
        if counts.pending <= next {
            memory.ahead = None;
            return false;
        }
        let (pending, heads) = memory.ahead.get_or_insert_with(|| (counts.pending, BTreeSet::new()));
        if *pending != counts.pending {
            (*pending, *heads) = (counts.pending, BTreeSet::new());
        }
        if heads.len() <= HEARSAY {
            heads.insert(counts.at.number);
        }
        heads.len() <= HEARSAY
    }

    /// The highest block this process has seen. To be read before asking: what is answered below it lags.
    pub(super) fn seen(&self) -> u64 {
        self.chain.heads.ring().head().map_or(0, |head| head.this.number)
    }

    /// Whether a receipt of one of our attempts stands for this nonce; none if that cannot be told now.
    pub(super) async fn explained(&self, memory: &mut Memory, nonce: Nonce) -> Option<bool> {
        let hashes: Vec<_> =
            memory.slots.get(&nonce).into_iter().flatten().map(|attempt| attempt.hash).collect();
        let mut silent = false;
        for hash in hashes {
            match self.chain.calls.receipt(hash).await {
                Ok(Some(_)) => {
                    memory.ask_all_at = None;
                    return Some(true);
                }
                Ok(None) => {}
                Err(_) => silent = true,
            }
        }
        (!silent).then_some(false)
    }

    /// Takes no new nonces for now.
    pub(super) async fn hold(&self, memory: &mut Memory, cause: HoldCause, words: &str) -> Result<(), Stop> {
        let conditions = &memory.cursor.cursor.conditions;
        if conditions.holds.contains_key(&cause) || conditions.protect.is_some() {
            return Ok(());
        }
        let mut draft = self.draft(memory)?;
        let reason = NodeText::new(words);
        draft.writes.told = vec![Told::with(EventKind::SubmitterHold, json!({"reason": reason}))];
        draft.cursor.conditions.holds.insert(cause, reason);
        self.commit(memory, draft).await
    }

    /// Ends a hold whose cause is over.
    pub(super) async fn heal(&self, memory: &mut Memory, cause: HoldCause) -> Result<(), Stop> {
        if !memory.cursor.cursor.conditions.holds.contains_key(&cause) {
            return Ok(());
        }
        let mut draft = self.draft(memory)?;
        draft.cursor.conditions.holds.remove(&cause);
        draft.writes.told = vec![Told::plain(EventKind::SubmitterResumed)];
        self.commit(memory, draft).await
    }

    /// Agrees the start nonce: the counts at the head, some blocks before it, and of what is pending are one.
    pub(super) async fn agree_start(&mut self, memory: &mut Memory) -> Result<bool, Stop> {
        let agreed = match self.read_start().await {
            Ok(agreed) => agreed,
            Err(error) => {
                let last_error = NodeText::new(&error.to_string());
                self.note_wait(memory, Some(SubState::Preparing), WaitReason::NodeDown { last_error })
                    .await?;
                return Ok(false);
            }
        };
        match agreed {
            Ok(start) => {
                let mut draft = self.draft(memory)?;
                draft.cursor.run = Some(Run::starting_at(start));
                self.commit(memory, draft).await?;
                Ok(true)
            }
            Err(words) => {
                let reason = WaitReason::Held { reason: NodeText::new(&words) };
                self.note_wait(memory, Some(SubState::Held), reason).await?;
                Ok(false)
            }
        }
    }

    async fn read_start(&self) -> ChainResult<Result<Nonce, String>> {
        let (chain, id) = (&self.chain.chain, &self.submitter.id);
        let seen = self.seen();
        let all = chain.counts_of_all(id).await?;
        let Some(counts) = all.iter().max_by_key(|counts| counts.at.number).copied() else {
            return Ok(Err("no endpoint tells the account's count".to_owned()));
        };
        if counts.at.number < seen {
            return Ok(Err(format!(
                "the endpoint lags: it is at block {}, {seen} has been seen",
                counts.at.number
            )));
        }
        if let Some(other) = all.iter().find(|other| other.latest != counts.latest) {
            return Ok(Err(format!(
                "endpoints disagree: {} transactions at block {}, {} at block {}",
                counts.latest, counts.at.number, other.latest, other.at.number
            )));
        }
        if let Some(counts) = all.iter().find(|counts| counts.pending != counts.latest) {
            return Ok(Err(format!(
                "the account has transactions in flight: {} mined, {} pending",
                counts.latest, counts.pending
            )));
        }
        let deep = counts.at.number.saturating_sub(self.submitter.settings.confirmations);
        let Some(block) = chain.block_at(deep).await? else {
            return Ok(Err(format!("the endpoint does not have block {deep}")));
        };
        let before = chain.count_at(id, block.this.hash).await?;
        if before != counts.latest {
            return Ok(Err(format!(
                "the account moved within the last blocks: {before} at block {deep}, {} now",
                counts.latest
            )));
        }
        Ok(match self.submitter.settings.start_from {
            Some(start) if start != counts.latest => {
                Err(format!("nonce.start_from is {start}, the account's count is {}", counts.latest))
            }
            _ => Ok(counts.latest),
        })
    }
}

fn unexplained(latest: Nonce, next: Nonce) -> String {
    format!("the chain counts {latest} transactions of this account, we have bound {next}")
}
