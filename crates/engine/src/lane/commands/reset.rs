//! Reset the nonce: read the chain again, take back what was handed to nobody, and refuse while stored bytes could still be
//! mined. Forced, those stay bound: their slots are free for whoever comes next, their transactions are STUCK and follow the
//! table, and the next nonce never falls below them.

use std::collections::BTreeSet;

use gapless_core::allocation::AllocationWrite;
use gapless_core::change::{Draft, TxWrite};
use gapless_core::command::Command;
use gapless_core::condition::{HoldCause, RESETS_KEPT, Reset};
use gapless_core::cursor::Run;
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::Nonce;
use gapless_core::record::TxRecord;
use gapless_core::state::{SubState, TxEvent, TxState};
use serde_json::json;

use super::Answer;
use crate::lane::bid::supersede;
use crate::lane::memory::Memory;
use crate::lane::{Lane, Stop};

impl Lane {
    pub(super) async fn reset_nonce(
        &mut self,
        memory: &mut Memory,
        draft: &mut Draft,
        command: &Command,
    ) -> Result<Answer, Stop> {
        let forced = command.command.args.get("force").and_then(serde_json::Value::as_bool) == Some(true);
        let Some(run) = memory.run() else { return Ok(Answer::Done(Some(json!({"nextNonce": null})))) };
        let Ok(all) = self.chain.chain.counts_of_all(&self.submitter.id).await else {
            return Ok(Answer::Later);
        };
        let seen = self.seen();
        let Some(counts) = all.iter().max_by_key(|counts| counts.at.number).filter(|c| c.at.number >= seen)
        else {
            return Ok(Answer::Later);
        };
        // Ours that are mined and not noticed yet, foreign use, deep reorgs: each has its own way, and it is not this one.
        if counts.latest < run.consumed || counts.latest > run.next {
            let figures = json!({"chain": counts.latest, "consumed": run.consumed, "next": run.next});
            return Ok(Answer::Refused("chain-disagrees".into(), Some(figures)));
        }
        if counts.latest > run.consumed {
            memory.ask_all_at = None;
            return Ok(Answer::Later);
        }
        let unsent = |nonce: &Nonce| memory.noted(*nonce).is_some_and(|notes| notes.unsent);
        let open: Vec<Nonce> = memory.open().map(|(nonce, _)| nonce).collect();
        let kept = open.iter().rev().position(|nonce| !unsent(nonce)).map_or(0, |i| open.len() - i);
        // What somebody holds may be used at any moment: the next nonce never falls below it.
        let held = memory.held();
        let kept = kept.max(open.partition_point(|nonce| held.last().is_some_and(|last| nonce <= last)));
        let (outstanding, taken_back) = open.split_at(kept);
        let nonces: BTreeSet<&Nonce> = outstanding.iter().chain(&held).collect();
        if !nonces.is_empty() && !forced {
            let figures = json!({"nonces": nonces});
            return Ok(Answer::Refused("attempts-outstanding".into(), Some(figures)));
        }
        for nonce in taken_back {
            for tx in memory.txs_at(*nonce).filter(|tx| tx.facts.state == TxState::Tracking) {
                draft.writes.txs.push(unbound(tx)?);
            }
            draft.writes.unbound.push(*nonce);
            if memory.allocations.contains_key(nonce) {
                draft.writes.allocations.push(AllocationWrite::Settle { nonce: *nonce });
            }
        }
        for nonce in outstanding {
            supersede(draft, memory, *nonce);
            if !memory.allocations.contains_key(nonce) || memory.is_used(*nonce) {
                draft.writes.allocations.push(AllocationWrite::Recycle { nonce: *nonce });
            }
            for tx in memory.txs_at(*nonce).filter(|tx| tx.facts.state == TxState::Tracking) {
                draft.writes.txs.push(stuck(tx)?);
            }
        }
        let next = taken_back.first().copied().unwrap_or(run.next);
        draft.cursor.run = Some(Run { next, ..run });
        if next == run.consumed {
            draft.cursor.in_flight = None;
        }
        let conditions = &mut draft.cursor.conditions;
        conditions.holds.remove(&HoldCause::Refusals);
        let actor = command.command.actor.clone();
        conditions.resets.push(Reset { at: self.database_time(), actor, forced, from: run.next, to: next });
        if conditions.resets.len() > RESETS_KEPT {
            conditions.resets.remove(0);
        }
        let result = json!({"nextNonce": next, "unbound": taken_back.len(), "recycled": outstanding.len()});
        Ok(Answer::Done(Some(result)))
    }
}

fn unbound(tx: &TxRecord) -> Result<TxWrite, Stop> {
    let told = vec![Told::with(EventKind::TxRequeued, json!({"reason": "the nonce was reset"}))];
    let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::Unbind], told, |facts| {
        (facts.nonce, facts.tx_hash, facts.sub_state) = (None, None, None);
        (facts.wait, facts.bound_at) = (None, None);
        if let Some(amended) = &mut facts.amended {
            amended.outbid = None;
        }
    });
    write.map_err(|_| Stop::OutOfStep)
}

fn stuck(tx: &TxRecord) -> Result<TxWrite, Stop> {
    let told = vec![Told::with(EventKind::TxStuck, json!({"by": "reset-nonce"}))];
    let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::Stick], told, |facts| {
        facts.sub_state = facts.sub_state.filter(|sub| *sub == SubState::Abandoned);
    });
    write.map_err(|_| Stop::OutOfStep)
}
