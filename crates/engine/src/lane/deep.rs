//! Reorgs deeper than promised: what was final is not in the chain any more.
//!
//! States stay as they are (invariant *legal*: terminal states never change), but the break is told and counted, and the
//! nonces are open again: nothing above them can be mined before they are. So they are reopened and what had been mined goes
//! out again. Believed only with proof: the count fell at the very head this process follows, and the block that a stored
//! receipt names is not in that chain.

use gapless_core::change::{ResendClaim, TxWrite};
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::Nonce;
use gapless_core::ports::chain::{BlockRef, Counts};
use gapless_core::record::TxRecord;
use gapless_core::state::TxEvent;
use serde_json::json;
use tracing::error;

use super::memory::Memory;
use super::{Lane, Stop};
use crate::names;

/// Most slots reopened in one write.
const REOPENED: u64 = 256;

impl Lane {
    /// Reopens slots that were settled, if the chain has lost them. Everything is read again after it did.
    pub(super) async fn notice_deep_reorg(
        &mut self,
        memory: &mut Memory,
        counts: &Counts,
    ) -> Result<(), Stop> {
        let Some(run) = memory.run() else { return Ok(()) };
        let from = counts.latest.max(run.start);
        let ring = self.chain.heads.ring();
        if from >= run.settled.min(run.consumed) || ring.head().map(|head| head.this) != Some(counts.at) {
            return Ok(());
        }
        let Some(lost) = self.receipt_block(from).await? else { return Ok(()) };
        if self.is_canonical(&ring, lost).await != Some(false) {
            return Ok(());
        }
        let to = Nonce(run.consumed.0.min(from.0 + REOPENED));
        let settled = self.settled_txs(from, to.min(run.settled)).await?;
        error!(submitter = %self.submitter.id, from = from.0, to = run.consumed.0, block = lost.number,
            "a reorg deeper than promised: sending again what was final");
        metrics::counter!(names::DEEP_REORG).increment(1);
        let mut draft = self.draft(memory)?;
        let now = self.database_time();
        let attempts = self.tools.store.attempts(&self.submitter.id, from, to).await;
        for attempt in attempts.map_err(Stop::StoreDown)? {
            let mined = settled.iter().any(|tx| tx.facts.mined.is_some_and(|m| m.hash == attempt.hash));
            if mined && attempt.nonce < run.settled {
                let (nonce, n) = (attempt.nonce, attempt.n);
                draft.writes.resends.push(ResendClaim { nonce, n, next_send_at: now });
            }
        }
        for tx in settled.iter().filter(|tx| tx.facts.state.is_terminal()) {
            let told = vec![Told::with(EventKind::TxFinalityBroken, json!({"blockNumber": lost.number}))];
            let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::FinalityBroken], told, |_| {});
            draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
        }
        self.reopen(memory, run.settled, lost.number, &mut draft)?;
        if let Some(run) = &mut draft.cursor.run {
            run.consumed = from;
        }
        self.commit(memory, draft).await?;
        // The slots below are not in memory: take them up as after a restart.
        Err(Stop::OutOfStep)
    }

    /// Transactions of slots that are settled already, as stored.
    async fn settled_txs(&self, from: Nonce, to: Nonce) -> Result<Vec<TxRecord>, Stop> {
        let attempts = self.tools.store.attempts(&self.submitter.id, from, to).await;
        let mut ids: Vec<_> =
            attempts.map_err(Stop::StoreDown)?.iter().filter_map(|attempt| attempt.tx_id).collect();
        ids.dedup();
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            found.extend(self.tools.store.tx(id).await.map_err(Stop::StoreDown)?);
        }
        found.retain(|tx| tx.facts.nonce.is_some_and(|nonce| nonce >= from && nonce < to));
        Ok(found)
    }

    /// The block that a stored receipt names for a settled nonce.
    async fn receipt_block(&self, nonce: Nonce) -> Result<Option<BlockRef>, Stop> {
        let found = self.settled_txs(nonce, nonce.next()).await?;
        let mined = found.iter().find_map(|tx| tx.facts.mined);
        Ok(mined.map(|mined| BlockRef { number: mined.block_number, hash: mined.block_hash }))
    }
}
