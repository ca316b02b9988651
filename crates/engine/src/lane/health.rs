//! An account's health: whether its chain can be reached at all, and whether it can pay.
//!
//! One bad endpoint of several is the pool's business. Only when none answers for a while is the submitter disabled: it binds
//! nothing new, requests still queue, and the first answer enables it again.

use gapless_core::change::ResendClaim;
use gapless_core::event::{EventKind, Told};
use gapless_core::record::TxRecord;
use gapless_core::slot;
use gapless_core::text::NodeText;
use gapless_core::wait::WaitReason;
use serde_json::json;

use super::memory::Memory;
use super::{Lane, Stop};

impl Lane {
    /// Notes whether the chain answered. Disables the submitter when it has been silent for two looks, enables it when it
    /// speaks again.
    pub(super) async fn heard(&mut self, memory: &mut Memory, silence: Option<NodeText>) -> Result<(), Stop> {
        let disabled = memory.cursor.cursor.conditions.disabled.is_some();
        let Some(words) = silence else {
            memory.silent_since = None;
            if disabled {
                let mut draft = self.draft(memory)?;
                draft.cursor.conditions.disabled = None;
                draft.writes.told = vec![Told::plain(EventKind::SubmitterEnabled)];
                self.commit(memory, draft).await?;
            }
            return Ok(());
        };
        let now = self.tick();
        let since = *memory.silent_since.get_or_insert(now);
        if disabled || now.since(since) < self.submitter.settings.reconcile {
            return Ok(());
        }
        tracing::warn!(submitter = %self.submitter.id, error = %words, "no endpoint answers: disabled");
        let mut draft = self.draft(memory)?;
        draft.writes.told = vec![Told::with(EventKind::SubmitterDisabled, json!({"reason": words}))];
        draft.cursor.conditions.disabled = Some(words);
        self.commit(memory, draft).await
    }

    /// Looks at the balance now and then: what it is short of, and whether it is low.
    pub(super) async fn watch_health(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        self.heal_refusals(memory).await?;
        let rules = self.submitter.settings.health;
        let short = memory.cursor.cursor.conditions.out_of_funds;
        let every = if short.is_some() { self.submitter.settings.reconcile } else { rules.balance_refresh };
        let now = self.tick();
        let (seen, was_low) = memory.balance_seen.map_or((None, false), |(at, low)| (Some(at), low));
        if (rules.min_balance.is_none() && short.is_none()) || seen.is_some_and(|at| now.since(at) < every) {
            return Ok(());
        }
        let Ok(balance) = self.chain.chain.balance(&self.submitter.id).await else { return Ok(()) };
        let low = rules.min_balance.is_some_and(|least| balance < least);
        memory.balance_seen = Some((now, low));
        // Where a node refused although the balance seems to suffice, it counts what we do not see (a fee for another layer,
        // say): then that balance is not enough for it, and only another one is a reason to think that it is. What is open is
        // tried on a timer all the while.
        let tried = memory.open().next().is_some();
        // The first of the queue asks for itself whether it can be paid; the figure it left is not today's.
        let asks = |tx: &TxRecord| matches!(tx.facts.wait, Some(WaitReason::OutOfFunds { .. }));
        let asks = memory.queue.front().is_some_and(asks);
        let open = self.cost_of_open(memory);
        let paid = short.is_some_and(|(before, _)| !asks && (balance != before || !tried) && balance >= open);
        if (!low || was_low) && !paid {
            return Ok(());
        }
        let mut draft = self.draft(memory)?;
        if low && !was_low {
            let figures = json!({"balance": balance, "minBalance": rules.min_balance});
            draft.writes.told = vec![Told::with(EventKind::SubmitterLowBalance, figures)];
        }
        if paid {
            draft.cursor.conditions.out_of_funds = None;
            // The timer has backed off, and what was refused is in no pool.
            let now = self.database_time();
            let open = memory.open().filter_map(|(_, attempts)| slot::current(attempts));
            draft.writes.resends = open
                .map(|attempt| ResendClaim {
                    nonce: attempt.nonce,
                    n: attempt.n,
                    next_send_at: now,
                    sends: false,
                })
                .collect();
        }
        self.commit(memory, draft).await
    }
}
