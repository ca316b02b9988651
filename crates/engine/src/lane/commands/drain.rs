//! Drain: cancel everything that was there when it was asked for. The queue goes in portions, each its own write, so that a
//! long one keeps nobody waiting and a crash in the middle only means to go on.

use gapless_core::change::Draft;
use gapless_core::command::Command;
use gapless_core::limits::MAX_PAGE;
use gapless_core::record::TxRecord;
use gapless_core::state::TxState;
use serde_json::{Value, json};

use super::Answer;
use super::cancel::Cancelling;
use crate::lane::memory::Memory;
use crate::lane::{Lane, Stop};

/// Transactions withdrawn in one write.
const PORTION: usize = 200;
const _: () = assert!(PORTION <= MAX_PAGE);

impl Lane {
    pub(super) async fn drain(
        &mut self,
        memory: &mut Memory,
        draft: &mut Draft,
        command: &Command,
    ) -> Result<Answer, Stop> {
        let mut cancelled = 0_u64;
        loop {
            let page = self.tools.store.peek_queue(&self.submitter.id, PORTION).await;
            let page = page.map_err(Stop::StoreDown)?;
            let meant: Vec<TxRecord> =
                page.into_iter().filter(|tx| tx.created_at <= command.created_at).collect();
            if meant.is_empty() {
                break;
            }
            let mut portion = self.draft(memory)?;
            for tx in &meant {
                if let Cancelling::Ended(write) = self.cancelling(tx)? {
                    portion.writes.txs.push(write);
                    cancelled += 1;
                }
            }
            self.commit(memory, portion).await?;
        }
        memory.look_again = true;
        let (mut cancelling, mut failed) = (0_u64, Vec::<Value>::new());
        // On the state after the portions: the version has moved on.
        *draft = self.draft(memory)?;
        let open = |tx: &&TxRecord| tx.facts.state.is_bound() || tx.facts.state == TxState::Allocated;
        let bound: Vec<TxRecord> = memory.txs.values().filter(open).cloned().collect();
        for tx in bound {
            let failure = match self.cancelling(&tx)? {
                Cancelling::Competes(write) => {
                    draft.writes.txs.push(write);
                    cancelling += 1;
                    continue;
                }
                Cancelling::Competing => {
                    cancelling += 1;
                    continue;
                }
                Cancelling::Mined(_) => "already-mined",
                Cancelling::NoPlaceholder => "no-placeholder",
                Cancelling::Ended(write) => {
                    draft.writes.txs.push(write);
                    draft.writes.allocations.extend(tx.facts.nonce.and_then(|nonce| memory.released(nonce)));
                    cancelled += 1;
                    continue;
                }
                Cancelling::Final => continue,
            };
            failed.push(json!({"txId": tx.tx_id(), "code": failure}));
        }
        let result = json!({"cancelled": cancelled, "cancelling": cancelling, "failed": failed});
        Ok(Answer::Done(Some(result)))
    }
}
