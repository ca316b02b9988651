//! Cancel: what is queued ends at once; what is bound gets a placeholder that competes for its nonce, and whichever hash is
//! mined decides.

use gapless_core::change::{Draft, TxWrite};
use gapless_core::command::Command;
use gapless_core::event::{EventKind, Told};
use gapless_core::record::{TxRecord, Withdrawal};
use gapless_core::state::{TxEvent, TxState};
use gapless_core::time::Timestamp;
use serde_json::json;

use super::{Answer, done, lost};
use crate::lane::expiry::withdrawn;
use crate::lane::memory::Memory;
use crate::lane::{Lane, Stop};

/// What cancelling one transaction comes to.
pub(super) enum Cancelling {
    /// It is over.
    Ended(TxWrite),
    /// A placeholder will compete.
    Competes(TxWrite),
    /// One does already.
    Competing,
    /// Too late.
    Mined(TxWrite),
    /// It has ended before.
    Final,
    /// Nobody could make a placeholder.
    NoPlaceholder,
}

impl Lane {
    pub(super) async fn cancel(
        &self,
        memory: &Memory,
        draft: &mut Draft,
        command: &Command,
    ) -> Result<Answer, Stop> {
        let Some(tx) = self.subject(memory, command).await? else {
            return Ok(Answer::refused("unknown-transaction"));
        };
        let (write, answer) = match self.cancelling(&tx)? {
            Cancelling::Ended(write) | Cancelling::Competes(write) => (Some(write), Answer::Done(None)),
            Cancelling::Competing => (None, Answer::Done(None)),
            Cancelling::Mined(write) => (Some(write), Answer::Lost("already-mined")),
            Cancelling::Final => (None, Answer::refused("already-final")),
            Cancelling::NoPlaceholder => (None, Answer::refused("no-placeholder")),
        };
        if let Some(nonce) = tx.facts.nonce.filter(|_| tx.facts.state == TxState::Allocated) {
            draft.writes.allocations.extend(memory.released(nonce));
        }
        draft.writes.txs.extend(write);
        Ok(answer)
    }

    pub(super) fn cancelling(&self, tx: &TxRecord) -> Result<Cancelling, Stop> {
        let facts = &tx.facts;
        let effect = facts.mined.is_some_and(|mined| mined.mined_as.carries_effect());
        Ok(match facts.state {
            state if state.is_terminal() => Cancelling::Final,
            TxState::Queued | TxState::Allocated => Cancelling::Ended(end(tx, self.database_time())?),
            _ if effect => {
                let told = vec![lost("cancel", "already-mined")];
                let write = TxWrite::new(tx.tx_id(), facts, &[], told, |_| {});
                Cancelling::Mined(write.map_err(|_| Stop::OutOfStep)?)
            }
            _ if facts.withdrawal().is_some() => Cancelling::Competing,
            _ if !self.can_fill() => Cancelling::NoPlaceholder,
            _ => Cancelling::Competes(withdrawn(tx, Withdrawal::Cancel)?),
        })
    }
}

/// A transaction without bytes is withdrawn at once.
fn end(tx: &TxRecord, now: Timestamp) -> Result<TxWrite, Stop> {
    let told = vec![done("cancel"), Told::with(EventKind::TxCancelled, json!({"by": Withdrawal::Cancel}))];
    let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::Withdraw], told, |facts| {
        (facts.nonce, facts.sub_state, facts.wait) = (None, None, None);
        facts.ended_at = Some(now);
    });
    write.map_err(|_| Stop::OutOfStep)
}
