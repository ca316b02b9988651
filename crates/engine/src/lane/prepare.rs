//! Preparing: estimate, price, check. A refusal ends here, without a nonce; trouble with a node never refuses.
//!
//! Several of the queue are prepared together, in order, each for itself: what each may cost counts on top of what is open
//! and of those before it. Whoever is not ready keeps everybody behind it.

use alloy_primitives::B256;
use gapless_core::fees::{Fees, Gas, Wei};
use gapless_core::intent::Payload;
use gapless_core::intrinsic;
use gapless_core::ports::chain::{ChainError, ChainResult, Estimate};
use gapless_core::record::TxRecord;
use gapless_core::state::SubState;
use gapless_core::text::NodeText;
use gapless_core::wait::WaitReason;

use super::Lane;
use super::memory::Memory;

/// Estimated, priced and checked, against one head.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prepared {
    pub(super) gas: Gas,
    pub(super) fees: Fees,
}

/// What preparing comes to.
pub(super) enum Judgement {
    Ready(Prepared),
    Refuse(&'static str, NodeText),
    Wait(SubState, WaitReason),
}

/// What all of one round are judged by.
struct Scales {
    /// Gas a block holds.
    block_gas: Gas,
    /// Blocks that this process has seen: whoever answers below is behind.
    seen: u64,
    balance: Wei,
    /// What is open, and everybody before.
    spoken_for: Wei,
    /// Whether anything is open below.
    below: bool,
}

impl Lane {
    /// Judges the first of the queue, one after another, up to and with the first that must wait.
    pub(super) async fn judge(&self, memory: &mut Memory, heads: &[TxRecord]) -> Vec<Judgement> {
        let known = memory.balance_at.is_some();
        let judgements = self.judge_by_balance(memory, heads).await;
        let poor = |judgement: &Judgement| matches!(judgement, Judgement::Wait(SubState::WaitingFunds, _));
        if !known || !judgements.last().is_some_and(poor) {
            return judgements;
        }
        // Nobody waits for funds on an old figure.
        memory.balance_at = None;
        self.judge_by_balance(memory, heads).await
    }

    async fn judge_by_balance(&self, memory: &mut Memory, heads: &[TxRecord]) -> Vec<Judgement> {
        if self.submitter.signer.is_none() {
            let words = "no signer is configured for this submitter on the node that runs it";
            let refuse = |_: &TxRecord| Judgement::Refuse("no-signer", NodeText::new(words));
            return heads.iter().map(refuse).collect();
        }
        // What somebody else makes for a lower slot may be what these need; a transaction that has a slot looks below that.
        let own = heads.first().and_then(|tx| tx.facts.nonce);
        let awaited = memory.reserved().any(|row| own.is_none_or(|own| row.nonce < own));
        let mut scales = match self.scales(memory, awaited).await {
            Ok(scales) => scales,
            Err(error) => return vec![silent(error)],
        };
        let unknown: Vec<&Payload> =
            heads.iter().map(TxRecord::payload).filter(|payload| payload.gas_limit.is_none()).collect();
        let estimates = match unknown.is_empty() {
            true => Vec::new(),
            false => self.chain.chain.estimates(&self.submitter.id, &unknown).await,
        };
        let mut estimates = estimates.into_iter();
        let mut judgements = Vec::with_capacity(heads.len());
        for tx in heads {
            let estimate = match tx.payload().gas_limit {
                Some(_) => None,
                None => estimates.next(),
            };
            let judgement = match self.judge_one(memory, tx, estimate, &scales).await {
                Ok(judgement) => judgement,
                Err(error) => silent(error),
            };
            let waits = matches!(judgement, Judgement::Wait(..));
            if let Judgement::Ready(Prepared { gas, fees }) = judgement {
                let cost = fees.max_cost(gas, tx.payload().value);
                scales.spoken_for = Wei(scales.spoken_for.0.saturating_add(cost.0));
                scales.below = true;
            }
            judgements.push(judgement);
            if waits {
                break;
            }
        }
        judgements
    }

    async fn scales(&self, memory: &mut Memory, awaited: bool) -> ChainResult<Scales> {
        // Before anything is asked: whoever answers below this height is behind what we have seen.
        let ring = self.chain.heads.ring();
        let seen = ring.head().map_or(0, |head| head.this.number);
        let stored = memory.txs.values().filter_map(|tx| tx.facts.mined).map(|m| m.block_number);
        let seen = stored.fold(seen, u64::max);
        let block_gas = match ring.head() {
            Some(head) => head.gas_limit,
            None => self.chain.chain.head().await?.gas_limit,
        };
        let balance = self.balance(memory, ring.head().map(|head| head.this.hash)).await?;
        let below = awaited || memory.open().next().is_some();
        Ok(Scales { block_gas, seen, balance, spoken_for: self.cost_of_open(memory), below })
    }

    /// The balance at a head; read once per head, since nothing else changes it.
    async fn balance(&self, memory: &mut Memory, head: Option<B256>) -> ChainResult<Wei> {
        if let Some((at, balance)) = memory.balance_at
            && Some(at) == head
        {
            return Ok(balance);
        }
        let balance = self.chain.chain.balance(&self.submitter.id).await?;
        memory.balance_at = head.map(|head| (head, balance));
        Ok(balance)
    }

    async fn judge_one(
        &self,
        memory: &Memory,
        tx: &TxRecord,
        estimate: Option<ChainResult<Estimate>>,
        scales: &Scales,
    ) -> ChainResult<Judgement> {
        let payload = tx.payload();
        let out_of_funds = |own: Wei| {
            let needed = Wei(own.0.saturating_add(scales.spoken_for.0));
            Judgement::Wait(
                SubState::WaitingFunds,
                WaitReason::OutOfFunds { balance: scales.balance, needed },
            )
        };
        let gas = match (payload.gas_limit, estimate) {
            (Some(gas), _) if gas < intrinsic::gas(payload) => {
                let least = intrinsic::gas(payload).0;
                let words = format!("gasLimit {} is below the intrinsic gas of {least}", gas.0);
                return Ok(Judgement::Refuse("intrinsic-gas-too-low", NodeText::new(&words)));
            }
            (Some(gas), _) => gas,
            (None, None) => return Err(ChainError::Unavailable(NodeText::new("no estimate was given"))),
            (None, Some(estimate)) => match estimate? {
                Estimate::Gas(gas) if scales.below => with_margin(gas, payload).min(scales.block_gas),
                Estimate::Gas(gas) => gas,
                Estimate::Unaffordable { .. } => return Ok(out_of_funds(payload.value)),
                Estimate::Reverts { reason, at } => {
                    // An earlier transaction may be what makes this one work: one that is still on its way, or one
                    // in a block that this endpoint has not reached.
                    if !scales.below && at.number >= scales.seen {
                        return Ok(Judgement::Refuse("execution-reverted", reason));
                    }
                    let nonce = memory.run().map(|run| run.watched_from()).unwrap_or_default();
                    return Ok(Judgement::Wait(SubState::WaitingSlot, WaitReason::SlotBusy { nonce }));
                }
            },
        };
        if gas > scales.block_gas {
            let words = format!("it needs {} gas, a block holds {}", gas.0, scales.block_gas.0);
            return Ok(Judgement::Refuse("gas-above-block-limit", NodeText::new(&words)));
        }
        let quote = self.chain.chain.quote(&tx.options()).await?;
        let fees = self.submitter.settings.caps.for_gas(gas).apply(quote.fees);
        if let Some(base_fee) = quote.base_fee.filter(|base_fee| fees.ceiling() < *base_fee) {
            let reason = WaitReason::FeeCap { cap: fees.ceiling(), market: base_fee };
            return Ok(Judgement::Wait(SubState::Preparing, reason));
        }
        let own = fees.max_cost(gas, payload.value);
        if scales.balance.0 < own.0.saturating_add(scales.spoken_for.0) {
            return Ok(out_of_funds(own));
        }
        Ok(Judgement::Ready(Prepared { gas, fees }))
    }
}

/// Trouble with a node is a reason to wait.
fn silent(error: ChainError) -> Judgement {
    let (ChainError::Unavailable(last_error) | ChainError::Pruned(last_error)) = error;
    Judgement::Wait(SubState::Preparing, WaitReason::NodeDown { last_error })
}

/// What runs may cost more than was estimated once those before it, which the estimate may not have seen, have run.
fn with_margin(gas: Gas, payload: &Payload) -> Gas {
    let runs = payload.to.is_none() || !payload.data.is_empty();
    if runs { Gas(gas.0.saturating_add(gas.0 / 8)) } else { gas }
}
