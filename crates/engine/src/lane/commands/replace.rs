//! Replace: another payload, other fees, or both. Before binding it is only another wish; after it, a new attempt competes
//! for the nonce, and it must outbid everything the slot has seen.

use gapless_core::bump::Dearest;
use gapless_core::change::{Draft, TxWrite};
use gapless_core::command::Command;
use gapless_core::fees::{FeeWishes, Gas};
use gapless_core::intent::{Intent, Options, Payload};
use gapless_core::intrinsic;
use gapless_core::ports::chain::Estimate;
use gapless_core::record::TxRecord;
use gapless_core::state::{SubState, TxState};
use serde::Deserialize;

use super::{Answer, done, lost, turned_down};
use crate::lane::memory::Memory;
use crate::lane::{Lane, Stop};

/// What is asked.
#[derive(Debug, Deserialize)]
struct Args {
    #[serde(default)]
    payload: Option<Payload>,
    #[serde(default)]
    fees: Option<FeeWishes>,
}

impl Lane {
    pub(super) async fn replace(
        &self,
        memory: &mut Memory,
        draft: &mut Draft,
        command: &Command,
    ) -> Result<Answer, Stop> {
        let Some(tx) = self.subject(memory, command).await? else {
            return Ok(Answer::refused("unknown-transaction"));
        };
        let Ok(Args { payload, fees }) = Args::deserialize(&command.command.args) else {
            return Ok(Answer::refused("invalid-request"));
        };
        if payload.is_none() && fees.is_none() {
            return Ok(Answer::refused("invalid-request"));
        }
        if tx.facts.state.is_terminal() {
            return Ok(Answer::refused("already-final"));
        }
        // Nobody knows yet what would be replaced.
        if tx.facts.state == TxState::Allocated {
            return Ok(Answer::Later);
        }
        let mut payload = payload;
        let refusal = match self.refuses_replacement(memory, &tx, &mut payload, fees).await {
            Ok(refusal) => refusal,
            Err(_) => return Ok(Answer::Later),
        };
        if let Some(code) = refusal {
            let mined = code == "already-mined";
            let told = if mined { lost("replace", code) } else { turned_down("replace", code) };
            let write = TxWrite::new(tx.tx_id(), &tx.facts, &[], vec![told], |_| {});
            draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
            return Ok(if mined { Answer::Lost("already-mined") } else { Answer::refused(code) });
        }
        let bound = tx.facts.state.is_bound();
        // A race is told when it is decided; everything else is done now.
        let races = bound && payload.is_some();
        let told = if races { vec![] } else { vec![done("replace")] };
        let outbid = memory.current_of(&tx).map(|attempt| attempt.n);
        let write = TxWrite::new(tx.tx_id(), &tx.facts, &[], told, |facts| {
            let amended = facts.amend();
            amended.outbid = outbid;
            amended.fees = fees.or(amended.fees);
            if payload.is_some() {
                amended.payload = payload;
            }
            if races {
                facts.sub_state = Some(SubState::Replacing);
            }
        });
        draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
        if let Some(nonce) = tx.facts.nonce.filter(|_| bound) {
            memory.notes(nonce).bid_after = None;
        }
        Ok(Answer::Done(None))
    }

    /// Why it cannot be, if so. A bound one's payload gets its gas here, once.
    async fn refuses_replacement(
        &self,
        memory: &Memory,
        tx: &TxRecord,
        payload: &mut Option<Payload>,
        fees: Option<FeeWishes>,
    ) -> gapless_core::ports::chain::ChainResult<Option<&'static str>> {
        let options = Options { fees: fees.unwrap_or(tx.options().fees), ..tx.options() };
        let wished = Intent { payload: payload.as_ref().unwrap_or(tx.payload()).clone(), options };
        if let Err(error) = wished.check() {
            return Ok(Some(error.code()));
        }
        if tx.facts.state == TxState::Queued {
            return Ok(None);
        }
        if tx.facts.mined.is_some() {
            return Ok(Some("already-mined"));
        }
        if tx.facts.withdrawal().is_some() {
            return Ok(Some("cancelling"));
        }
        if payload.is_none() && memory.is_signed_outside(tx) {
            return Ok(Some("signed-outside"));
        }
        let attempts = tx.facts.nonce.and_then(|nonce| memory.slots.get(&nonce));
        if let (Some(fees), Some(dearest)) = (fees, attempts.and_then(|attempts| Dearest::of(attempts)))
            && !dearest.admits(fees)
        {
            return Ok(Some("fee-too-low"));
        }
        let Some(payload) = payload else { return Ok(None) };
        let least = intrinsic::gas(payload);
        if payload.gas_limit.is_some_and(|gas| gas < least) {
            return Ok(Some("intrinsic-gas-too-low"));
        }
        if payload.gas_limit.is_none() {
            match self.chain.chain.estimate(&self.submitter.id, payload).await? {
                Estimate::Gas(gas) => payload.gas_limit = Some(gas),
                Estimate::Unaffordable { .. } => payload.gas_limit = Some(Gas(least.0)),
                Estimate::Reverts { .. } => return Ok(Some("execution-reverted")),
            }
        }
        Ok(None)
    }
}
