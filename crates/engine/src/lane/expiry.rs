//! `validUntil` after binding: who asked for it gets a placeholder that competes for the nonce. Before binding the plan says
//! so ([`gapless_core::plan::Action::Expire`]). Time is the database's.

use gapless_core::change::TxWrite;
use gapless_core::intent::OnExpiry;
use gapless_core::record::{TxRecord, Withdrawal};
use gapless_core::state::SubState;

use super::memory::Memory;
use super::{Lane, Stop};

impl Lane {
    /// Withdraws what is bound, not mined, and over its time. What was mined once stays: somebody may have acted on it.
    pub(super) async fn expire_bound(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        let now = self.database_time();
        let over = |tx: &&TxRecord| {
            let options = tx.request.intent.options;
            options.on_expiry == OnExpiry::Cancel
                && options.valid_until.is_some_and(|until| until <= now)
                && tx.facts.state.is_bound()
                && tx.facts.mined.is_none()
                && tx.facts.withdrawal().is_none()
                && !tx.facts.is_reopened()
        };
        if !self.can_fill() {
            return Ok(());
        }
        let writes: Vec<_> =
            memory.txs.values().filter(over).map(|tx| withdrawn(tx, Withdrawal::Expiry)).collect();
        if writes.is_empty() {
            return Ok(());
        }
        let mut draft = self.draft(memory)?;
        for write in writes {
            draft.writes.txs.push(write?);
        }
        self.commit(memory, draft).await
    }
}

/// A bound transaction is to be withdrawn: from now on a placeholder is what it wants to be mined.
pub(super) fn withdrawn(tx: &TxRecord, why: Withdrawal) -> Result<TxWrite, Stop> {
    let write = TxWrite::new(tx.tx_id(), &tx.facts, &[], vec![], |facts| {
        facts.amend().withdrawal = Some(why);
        if facts.sub_state != Some(SubState::Abandoned) {
            facts.sub_state = Some(SubState::Cancelling);
        }
    });
    write.map_err(|_| Stop::OutOfStep)
}
