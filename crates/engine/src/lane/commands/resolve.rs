//! Resolve: what an operator decides about a transaction that does not move.

use gapless_core::change::{Draft, ResendClaim, TxWrite};
use gapless_core::command::Command;
use gapless_core::condition::Protect;
use gapless_core::event::{EventKind, Told};
use gapless_core::record::Withdrawal;
use gapless_core::state::{SubState, TxEvent, TxState};
use serde_json::json;

use super::{Answer, done};
use crate::lane::memory::Memory;
use crate::lane::notes::Wanted;
use crate::lane::{Lane, Stop};

impl Lane {
    pub(super) async fn resolve(
        &self,
        memory: &mut Memory,
        draft: &mut Draft,
        command: &Command,
    ) -> Result<Answer, Stop> {
        let Some(tx) = self.subject(memory, command).await? else {
            return Ok(Answer::refused("unknown-transaction"));
        };
        if tx.facts.state.is_terminal() {
            return Ok(Answer::refused("already-final"));
        }
        let Some(nonce) = tx.facts.nonce.filter(|_| tx.facts.state.is_bound()) else {
            return Ok(Answer::refused("not-bound"));
        };
        if tx.facts.mined.is_some() {
            return Ok(Answer::Lost("already-mined"));
        }
        let action = command.command.args.get("action").and_then(serde_json::Value::as_str);
        let now = self.database_time();
        let mut told = vec![done("resolve")];
        let mut events = vec![];
        let mut withdrawal = None;
        match action {
            Some("retry") => {
                let current = memory.current(nonce);
                let claim = current.map(|attempt| ResendClaim { nonce, n: attempt.n, next_send_at: now });
                draft.writes.resends.extend(claim);
            }
            Some("bump") => {
                let notes = memory.notes(nonce);
                (notes.bid, notes.bid_after) = (Some(Wanted::Ordered), None);
            }
            Some("placeholder") => {
                if !self.submitter.signer.as_ref().is_some_and(|signer| signer.can_fill_slots()) {
                    return Ok(Answer::refused("no-placeholder"));
                }
                withdrawal = Some(Withdrawal::Cancel);
            }
            Some("protect") => {
                draft.cursor.conditions.protect = Some(Protect { nonce, exhibit: None });
                let figures = json!({"nonce": nonce, "txId": tx.tx_id(), "by": "operator"});
                draft.writes.told = vec![Told::with(EventKind::SubmitterProtected, figures)];
            }
            _ => return Ok(Answer::refused("invalid-request")),
        }
        if tx.facts.state == TxState::Stuck && action != Some("protect") {
            events.push(TxEvent::Unstick);
            told.push(Told::with(EventKind::TxUnstuck, json!({"by": "operator"})));
        }
        let write = TxWrite::new(tx.tx_id(), &tx.facts, &events, told, |facts| {
            if withdrawal.is_some() {
                facts.amend().withdrawal = withdrawal;
                facts.sub_state = Some(SubState::Cancelling);
            }
        });
        draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
        Ok(Answer::Done(None))
    }
}
