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
        let (mut withdrawal, mut outbid) = (None, None);
        // None if its slot is free for somebody else, or has been taken.
        let current = memory.current_of(&tx).map(|attempt| attempt.n);
        match (action, current) {
            (Some("retry" | "bump"), None) => return Ok(Answer::refused("slot-recycled")),
            (Some("retry"), Some(n)) => {
                draft.writes.resends.push(ResendClaim { nonce, n, next_send_at: now, sends: false });
            }
            // Bytes from outside are never signed again.
            (Some("bump"), Some(_)) if memory.is_signed_outside(&tx) => {
                return Ok(Answer::refused("signed-outside"));
            }
            (Some("bump"), Some(n)) => {
                memory.notes(nonce).bid_after = None;
                outbid = Some(n);
            }
            (Some("placeholder"), _) => {
                if !self.can_fill() {
                    return Ok(Answer::refused("no-placeholder"));
                }
                withdrawal = Some(Withdrawal::Cancel);
            }
            (Some("protect"), _) if memory.cursor.cursor.conditions.protect.is_some() => {}
            (Some("protect"), _) => {
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
            if outbid.is_some() {
                facts.amend().outbid = outbid;
            }
            if withdrawal.is_some() {
                facts.amend().withdrawal = withdrawal;
                facts.sub_state = Some(SubState::Cancelling);
            }
        });
        draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
        Ok(Answer::Done(None))
    }
}
