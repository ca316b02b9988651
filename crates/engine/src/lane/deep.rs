//! Reorgs deeper than promised: what was final is not in the chain any more.
//!
//! States stay as they are (invariant *legal*: terminal states never change), but the break is told and counted, and the
//! nonces are open again: nothing above them can be mined before they are. So they are reopened, and in each slot only what
//! had been mined goes out again: any other attempt of it may belong to a transaction that has found another nonce since, and
//! would take effect twice. Believed only with proof: the count fell at the very head this process follows, and the block that
//! a stored receipt names is not in that chain; where no receipt is stored, the count at that head's own hash says the same.

use std::collections::BTreeSet;

use gapless_core::allocation::{AllocationStatus, AllocationWrite};
use gapless_core::attempt::{SUPERSEDED, StoredAttempt};
use gapless_core::change::{Draft, ResendClaim};
use gapless_core::ids::Nonce;
use gapless_core::ports::chain::{BlockRef, Counts};
use gapless_core::record::TxRecord;
use tracing::error;

use super::memory::Memory;
use super::settle::broken;
use super::{Lane, Stop};
use crate::names;

/// What is stored of slots that a lane does not keep in memory any more.
struct Settled {
    attempts: Vec<StoredAttempt>,
    txs: Vec<TxRecord>,
}

impl Settled {
    /// The attempt of a slot that had been mined, as far as a transaction says so.
    fn mined(&self, nonce: Nonce) -> Option<&StoredAttempt> {
        let named = self.txs.iter().filter(|tx| tx.facts.nonce == Some(nonce));
        let hashes: Vec<_> = named.filter_map(|tx| tx.facts.mined.map(|mined| mined.hash)).collect();
        self.attempts.iter().find(|attempt| attempt.nonce == nonce && hashes.contains(&attempt.hash))
    }
}

impl Lane {
    /// Reopens slots that the chain has lost, as far down as its count fell. Everything is read again after it did.
    pub(super) async fn notice_deep_reorg(
        &mut self,
        memory: &mut Memory,
        counts: &Counts,
    ) -> Result<(), Stop> {
        let Some(run) = memory.run() else { return Ok(()) };
        let from = counts.latest.max(run.start);
        let ring = self.chain.heads.ring();
        if from >= run.consumed || ring.head().map(|head| head.this) != Some(counts.at) {
            return Ok(());
        }
        // Above what is settled, a receipt whose block is gone has been taken back already.
        if from >= run.settled && memory.consumed_at(from).is_some() {
            return Ok(());
        }
        let settled = self.settled(from, run.settled.max(from)).await?;
        let Some(lost) = self.lost_block(&settled, from).await? else {
            // Nothing is stored about where it was: the count at this very block is all there is.
            let again = self.chain.chain.count_at(&self.submitter.id, counts.at.hash).await;
            return match again {
                Ok(count) if count == counts.latest => {
                    self.give_back(memory, &settled, from, counts.at.number).await
                }
                _ => Ok(()),
            };
        };
        match self.is_canonical(&ring, lost).await {
            Some(false) => self.give_back(memory, &settled, from, lost.number).await,
            _ => Ok(()),
        }
    }

    async fn give_back(
        &mut self,
        memory: &mut Memory,
        settled: &Settled,
        from: Nonce,
        block_number: u64,
    ) -> Result<(), Stop> {
        let Some(run) = memory.run() else { return Ok(()) };
        error!(submitter = %self.submitter.id, from = from.0, to = run.consumed.0, block = block_number,
            "a reorg deeper than promised: sending again what was final");
        metrics::counter!(names::DEEP_REORG).increment(1);
        let mut draft = self.draft(memory)?;
        for nonce in (from.0..run.settled.0).map(Nonce) {
            self.send_only_what_was_mined(settled, nonce, &mut draft);
        }
        for tx in settled.txs.iter().filter(|tx| tx.facts.state.is_terminal() && tx.facts.mined.is_some()) {
            draft.writes.txs.push(broken(tx, block_number)?);
        }
        self.strike_out(memory, settled, from, &mut draft).await?;
        self.reopen(memory, run.settled.max(from), block_number, &mut draft)?;
        if let Some(run) = &mut draft.cursor.run {
            run.consumed = from;
        }
        self.commit(memory, draft).await?;
        // The slots below are not in memory: take them up as after a restart.
        Err(Stop::OutOfStep)
    }

    /// In a slot that was settled, the attempt that had been mined goes out, and no other ever.
    fn send_only_what_was_mined(&self, settled: &Settled, nonce: Nonce, draft: &mut Draft) {
        let now = self.database_time();
        let mined = settled.mined(nonce).map(|attempt| attempt.n);
        for attempt in settled.attempts.iter().filter(|attempt| attempt.nonce == nonce) {
            let again = Some(attempt.n) == mined;
            if again || !attempt.is_superseded() {
                let next_send_at = if again { now } else { SUPERSEDED };
                draft.writes.resends.push(ResendClaim { nonce, n: attempt.n, next_send_at, sends: false });
            }
        }
    }

    /// Foreign use that vanished is struck out. A slot that no attempt of ours had, or whose transaction has moved on, is for
    /// whoever comes next.
    async fn strike_out(
        &self,
        memory: &Memory,
        settled: &Settled,
        from: Nonce,
        draft: &mut Draft,
    ) -> Result<(), Stop> {
        let Some(run) = memory.run() else { return Ok(()) };
        let rows = self.tools.store.allocations(&self.submitter.id, from, run.consumed).await;
        let rows = rows.map_err(Stop::StoreDown)?;
        let foreign: BTreeSet<Nonce> =
            rows.iter().filter(|row| row.status == AllocationStatus::Foreign).map(|row| row.nonce).collect();
        for nonce in (from.0..run.consumed.0).map(Nonce) {
            let ours = match nonce < run.settled {
                true => settled.mined(nonce).is_some(),
                false => memory.has_bytes_to_send(nonce),
            };
            match (foreign.contains(&nonce), ours) {
                (true, true) => draft.writes.allocations.push(AllocationWrite::Settle { nonce }),
                (true, false) => draft.writes.allocations.push(AllocationWrite::Recycle { nonce }),
                (false, false) if rows.iter().all(|row| row.nonce != nonce) => {
                    draft.writes.allocations.push(AllocationWrite::Recycle { nonce });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What is stored of these slots.
    async fn settled(&self, from: Nonce, to: Nonce) -> Result<Settled, Stop> {
        let attempts = self.tools.store.attempts(&self.submitter.id, from, to).await;
        let attempts = attempts.map_err(Stop::StoreDown)?;
        let ids: BTreeSet<_> = attempts.iter().filter_map(|attempt| attempt.tx_id).collect();
        let mut txs = Vec::with_capacity(ids.len());
        for id in ids {
            txs.extend(self.tools.store.tx(id).await.map_err(Stop::StoreDown)?);
        }
        txs.retain(|tx| tx.facts.nonce.is_some_and(|nonce| nonce >= from && nonce < to));
        Ok(Settled { attempts, txs })
    }

    /// The block in which a nonce was used, as stored with a transaction or with foreign use.
    async fn lost_block(&self, settled: &Settled, nonce: Nonce) -> Result<Option<BlockRef>, Stop> {
        let named = settled.txs.iter().filter(|tx| tx.facts.nonce == Some(nonce));
        let mined = named.into_iter().find_map(|tx| tx.facts.mined);
        if let Some(mined) = mined {
            return Ok(Some(BlockRef { number: mined.block_number, hash: mined.block_hash }));
        }
        let rows = self.tools.store.allocations(&self.submitter.id, nonce, nonce.next()).await;
        let exhibit = rows.map_err(Stop::StoreDown)?.into_iter().find_map(|row| row.exhibit);
        Ok(exhibit.map(|exhibit| BlockRef { number: exhibit.block_number, hash: exhibit.block_hash }))
    }
}
