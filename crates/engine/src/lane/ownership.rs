//! Who took the nonce: proof before accusation.
//!
//! The block where the count passed the nonce is found by bisection; its body and the counts at it and at its parent are
//! read by block hash. A transaction with this sender and nonce whose hash we never stored, or none at all (an EIP-7702
//! authorization consumes a nonce without a transaction), is an exhibit. Without one there is only HOLD. Whoever does not
//! have a block that is young lags, and proves nothing; an exhibit whose block is gone is none any more.

use gapless_core::allocation::Exhibit;
use gapless_core::condition::{HoldCause, Protect};
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::Nonce;
use gapless_core::ports::chain::{Block, BlockRef, ChainError, ChainResult};
use serde_json::json;

use super::memory::Memory;
use super::{Lane, Stop};

/// No node prunes what lies less deep than this.
const YOUNG: u64 = 64;

/// What looking for the culprit comes to.
pub(super) enum Proof {
    /// One of our attempts did it; its receipt will come.
    Ours,
    /// Somebody else did it.
    Foreign(Exhibit),
    /// The chain changed while we looked; look again.
    NotYet,
}

impl Lane {
    /// Looks for who used a nonce; PROTECT if it was somebody else.
    pub(super) async fn prove_foreign(
        &mut self,
        memory: &mut Memory,
        nonce: Nonce,
        at: BlockRef,
    ) -> Result<(), Stop> {
        if let Some(protect) = memory.cursor.cursor.conditions.protect.clone().filter(|p| p.nonce >= nonce) {
            // Known; unless a reorg has put it into another block, which then is the exhibit.
            let Some(exhibit) = protect.exhibit.filter(|_| protect.nonce == nonce) else { return Ok(()) };
            let block = BlockRef { number: exhibit.block_number, hash: exhibit.block_hash };
            if self.is_canonical(&self.chain.heads.ring(), block).await != Some(false) {
                return Ok(());
            }
        }
        match self.find_user(nonce, at).await {
            Ok(Proof::Foreign(exhibit)) => self.protect(memory, nonce, exhibit).await,
            Ok(Proof::Ours | Proof::NotYet) => Ok(()),
            Err(ChainError::Pruned(words)) => {
                let words = format!("nonce {nonce} was used, by whom cannot be proven: {words}");
                self.hold(memory, HoldCause::Unproven, &words).await
            }
            Err(ChainError::Unavailable(_)) => Ok(()),
        }
    }

    /// PROTECT ends with its exhibit: the block is gone, and nobody has used the nonce.
    pub(super) async fn forget_vanished_exhibit(
        &self,
        memory: &mut Memory,
        latest: Nonce,
    ) -> Result<(), Stop> {
        let Some(protect) = memory.cursor.cursor.conditions.protect.clone() else { return Ok(()) };
        let Some(exhibit) = protect.exhibit else { return Ok(()) };
        let block = BlockRef { number: exhibit.block_number, hash: exhibit.block_hash };
        if latest > protect.nonce || self.is_canonical(&self.chain.heads.ring(), block).await != Some(false) {
            return Ok(());
        }
        tracing::warn!(submitter = %self.submitter.id, nonce = protect.nonce.0, "the foreign use vanished in a reorg");
        let mut draft = self.draft(memory)?;
        draft.cursor.conditions.protect = None;
        draft.writes.told =
            vec![Told::with(EventKind::SubmitterResumed, json!({"vanishedNonce": protect.nonce}))];
        self.commit(memory, draft).await
    }

    async fn protect(&self, memory: &mut Memory, nonce: Nonce, exhibit: Exhibit) -> Result<(), Stop> {
        let mut draft = self.draft(memory)?;
        draft.writes.told = vec![Told::with(
            EventKind::SubmitterProtected,
            json!({"nonce": nonce, "hash": exhibit.hash, "blockNumber": exhibit.block_number}),
        )];
        tracing::error!(submitter = %self.submitter.id, nonce = nonce.0, hash = ?exhibit.hash,
            "somebody else used this account: PROTECT");
        draft.cursor.conditions.protect = Some(Protect { nonce, exhibit: Some(exhibit) });
        self.commit(memory, draft).await
    }

    /// The exhibit for a nonce, if it was used by somebody else.
    pub(super) async fn exhibit(&self, nonce: Nonce) -> ChainResult<Option<Exhibit>> {
        let counts = self.chain.chain.counts(&self.submitter.id).await?;
        if counts.latest <= nonce {
            return Ok(None);
        }
        Ok(match self.find_user(nonce, counts.at).await? {
            Proof::Foreign(exhibit) => Some(exhibit),
            Proof::Ours | Proof::NotYet => None,
        })
    }

    pub(super) async fn find_user(&self, nonce: Nonce, at: BlockRef) -> ChainResult<Proof> {
        let Some(block) = self.block_that_passed(nonce, at).await? else { return Ok(Proof::NotYet) };
        let (chain, id) = (&self.chain.chain, &self.submitter.id);
        let ring = self.chain.heads.ring();
        // What the tracker does not hold yet may lose its race; nobody is accused over it.
        let below = ring.lowest().is_some_and(|lowest| block.this.number < lowest.this.number);
        if !below && ring.hash_at(block.this.number) != Some(block.this.hash) {
            return Ok(Proof::NotYet);
        }
        let has = |found| unless_young(found, block.this.number, at);
        let before = match block.this.number {
            0 => Some(Nonce(0)),
            _ => has(chain.count_at(id, block.parent).await)?,
        };
        let (Some(before), Some(after)) = (before, has(chain.count_at(id, block.this.hash).await)?) else {
            return Ok(Proof::NotYet);
        };
        if before > nonce || after <= nonce {
            return Ok(Proof::NotYet);
        }
        let sighting = chain.sighting(id, nonce, block.this.hash).await;
        let Some(sighting) = unless_young(sighting, block.this.number, at)? else { return Ok(Proof::NotYet) };
        // Counts that the block itself contradicts prove nothing: what stands in it was not used before it, and where nothing
        // happened no nonce was used.
        let contradicted = sighting.span.is_some_and(|(low, high)| low < before || high >= after);
        if contradicted || block.transactions.is_empty() {
            return Ok(Proof::NotYet);
        }
        if let Some(hash) = sighting.hash {
            // A fresh read: an attempt may have been stored since this lane last looked.
            let stored = self.tools.store.attempts(id, nonce, nonce.next()).await;
            let stored = stored.map_err(|error| ChainError::Unavailable(error.to_string().into()))?;
            if stored.iter().any(|attempt| attempt.hash == hash) {
                return Ok(Proof::Ours);
            }
            // What somebody to whom the nonce was given says used it is ours too.
            let held = self.tools.store.allocations(id, nonce, nonce.next()).await;
            let held = held.map_err(|error| ChainError::Unavailable(error.to_string().into()))?;
            if held.iter().any(|row| row.used_hash == Some(hash)) {
                return Ok(Proof::Ours);
            }
        }
        let this = block.this;
        Ok(Proof::Foreign(Exhibit { hash: sighting.hash, block_number: this.number, block_hash: this.hash }))
    }

    /// The first block at which the account's count is above the nonce. Looked for from the head down in growing steps, so
    /// that a node which keeps little history can tell of what happened lately.
    async fn block_that_passed(&self, nonce: Nonce, at: BlockRef) -> ChainResult<Option<Block>> {
        let (mut low, mut high, mut step) = (0_u64, at.number, 1_u64);
        while low < high {
            let middle = match low {
                0 => high.saturating_sub(step),
                _ => low + (high - low) / 2,
            };
            let Some(passed) = self.passed_at(nonce, middle, at).await? else { return Ok(None) };
            if passed {
                high = middle;
            } else {
                low = middle + 1;
            }
            step = step.saturating_mul(2);
        }
        self.chain.chain.block_at(low).await
    }

    /// Whether the count at a height is above the nonce; none if nobody who has the block answered.
    async fn passed_at(&self, nonce: Nonce, height: u64, at: BlockRef) -> ChainResult<Option<bool>> {
        let chain = &self.chain.chain;
        let Some(block) = unless_young(chain.block_at(height).await, height, at)?.flatten() else {
            return Ok(None);
        };
        let count = chain.count_at(&self.submitter.id, block.this.hash).await;
        Ok(unless_young(count, height, at)?.map(|count| count > nonce))
    }
}

/// Who lacks a young block lags: none, and not an error.
fn unless_young<T>(found: ChainResult<T>, block: u64, head: BlockRef) -> ChainResult<Option<T>> {
    match found {
        Err(ChainError::Pruned(_)) if head.number.saturating_sub(block) < YOUNG => Ok(None),
        found => found.map(Some),
    }
}
