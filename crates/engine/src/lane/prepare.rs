//! Preparing: estimate, price, check. A refusal ends here, without a nonce; trouble with a node never refuses.

use gapless_core::change::TxWrite;
use gapless_core::event::{EventKind, Told};
use gapless_core::fees::Wei;
use gapless_core::ids::TxId;
use gapless_core::intrinsic;
use gapless_core::ports::chain::{ChainError, Estimate};
use gapless_core::record::{Failure, TxRecord};
use gapless_core::state::{SubState, TxEvent};
use gapless_core::text::NodeText;
use gapless_core::wait::WaitReason;

use super::memory::{Memory, Prepared};
use super::{Lane, Stop};
use crate::points::Point;

/// What preparing comes to.
pub(super) enum Outcome {
    Ready(Prepared),
    Refuse(&'static str, NodeText),
    Wait(SubState, WaitReason),
}

impl Lane {
    /// Prepares the head of the queue. Whether binding can go on.
    pub(super) async fn prepare(&mut self, memory: &mut Memory, tx_id: TxId) -> Result<bool, Stop> {
        let Some(tx) = memory.queue.front().filter(|tx| tx.tx_id() == tx_id).cloned() else {
            return Ok(false);
        };
        match self.judge(memory, &tx).await {
            Outcome::Ready(prepared) => {
                memory.prepared = Some((tx_id, prepared));
                self.tools.points.reach(Point::AfterPrepare);
                Ok(true)
            }
            Outcome::Refuse(code, reason) => {
                self.reject(memory, &tx, code, reason).await?;
                Ok(true)
            }
            Outcome::Wait(sub_state, reason) => {
                self.note_wait(memory, Some(sub_state), reason).await?;
                Ok(false)
            }
        }
    }

    async fn reject(
        &self,
        memory: &mut Memory,
        tx: &TxRecord,
        code: &str,
        reason: NodeText,
    ) -> Result<(), Stop> {
        let failure = Failure { code: NodeText::new(code), reason };
        let told = vec![Told::with(
            EventKind::TxRejected,
            serde_json::json!({"code": failure.code, "reason": failure.reason}),
        )];
        let now = self.database_time();
        let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::Refuse], told, |facts| {
            (facts.sub_state, facts.wait) = (None, None);
            (facts.failure, facts.ended_at) = (Some(failure), Some(now));
        });
        self.write_one(memory, write).await
    }

    pub(super) async fn judge(&self, memory: &mut Memory, tx: &TxRecord) -> Outcome {
        if self.submitter.signer.is_none() {
            let words = NodeText::new("no signer is configured for this submitter on the node that runs it");
            return Outcome::Refuse("no-signer", words);
        }
        match self.estimate_and_price(memory, tx).await {
            Ok(outcome) => outcome,
            Err(ChainError::Unavailable(last_error) | ChainError::Pruned(last_error)) => {
                Outcome::Wait(SubState::Preparing, WaitReason::NodeDown { last_error })
            }
        }
    }

    async fn estimate_and_price(&self, memory: &mut Memory, tx: &TxRecord) -> Result<Outcome, ChainError> {
        let (id, payload) = (&self.submitter.id, tx.payload());
        let chain = &self.chain.chain;
        // Before anything is asked: whoever answers below this height is behind what we have seen.
        let seen = self.chain.heads.ring().head().map_or(0, |head| head.this.number);
        let stored = memory.txs.values().filter_map(|tx| tx.facts.mined).map(|m| m.block_number);
        let seen = stored.fold(seen, u64::max);
        let head = chain.head().await?;
        let gas = match payload.gas_limit {
            Some(gas) if gas < intrinsic::gas(payload) => {
                let least = intrinsic::gas(payload).0;
                let words = format!("gasLimit {} is below the intrinsic gas of {least}", gas.0);
                return Ok(Outcome::Refuse("intrinsic-gas-too-low", NodeText::new(&words)));
            }
            Some(gas) => gas,
            None => match chain.estimate(id, payload).await? {
                Estimate::Gas(gas) => gas,
                Estimate::Unaffordable { .. } => {
                    let balance = chain.balance(id).await?;
                    let needed = Wei(payload.value.0.saturating_add(self.cost_of_open(memory).0));
                    return Ok(Outcome::Wait(
                        SubState::WaitingFunds,
                        WaitReason::OutOfFunds { balance, needed },
                    ));
                }
                Estimate::Reverts { reason, at } => {
                    // An earlier transaction may be what makes this one work: one that is still on its way, or one
                    // in a block that this endpoint has not reached.
                    if memory.open().next().is_none() && at.number >= seen {
                        return Ok(Outcome::Refuse("execution-reverted", reason));
                    }
                    let nonce = memory.run().map(|run| run.watched_from()).unwrap_or_default();
                    return Ok(Outcome::Wait(SubState::WaitingSlot, WaitReason::SlotBusy { nonce }));
                }
            },
        };
        if gas > head.gas_limit {
            let words = format!("it needs {} gas, a block holds {}", gas.0, head.gas_limit.0);
            return Ok(Outcome::Refuse("gas-above-block-limit", NodeText::new(&words)));
        }
        let quote = chain.quote(&tx.options()).await?;
        let fees = self.submitter.settings.caps.for_gas(gas).apply(quote.fees);
        if let Some(base_fee) = quote.base_fee.filter(|base_fee| fees.ceiling() < *base_fee) {
            let reason = WaitReason::FeeCap { cap: fees.ceiling(), market: base_fee };
            return Ok(Outcome::Wait(SubState::Preparing, reason));
        }
        let balance = chain.balance(id).await?;
        let own = fees.max_cost(gas, payload.value);
        let needed = Wei(own.0.saturating_add(self.cost_of_open(memory).0));
        if balance < needed {
            return Ok(Outcome::Wait(SubState::WaitingFunds, WaitReason::OutOfFunds { balance, needed }));
        }
        Ok(Outcome::Ready(Prepared { gas, fees }))
    }
}
