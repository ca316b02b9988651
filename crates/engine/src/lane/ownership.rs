//! Who took the nonce: proof before accusation.
//!
//! The block where the count passed the nonce is found by bisection; its body and the counts at it and at its parent are
//! read by block hash. A transaction with this sender and nonce whose hash we never stored, or none at all (an EIP-7702
//! authorization consumes a nonce without a transaction), is an exhibit. Without one there is only HOLD.

use gapless_core::allocation::Exhibit;
use gapless_core::condition::{HoldCause, Protect};
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::Nonce;
use gapless_core::ports::chain::{Block, BlockRef, ChainError, ChainResult};
use serde_json::json;

use super::memory::Memory;
use super::{Lane, Stop};

/// What looking for the culprit comes to.
enum Proof {
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
        if memory.cursor.cursor.conditions.protect.as_ref().is_some_and(|p| p.nonce >= nonce) {
            return Ok(());
        }
        match self.find_user(nonce, at).await {
            Ok(Proof::Foreign(exhibit)) => self.protect(memory, Protect { nonce, exhibit }).await,
            Ok(Proof::Ours | Proof::NotYet) => Ok(()),
            Err(ChainError::Pruned(words)) => {
                let words = format!("nonce {nonce} was used, by whom cannot be proven: {words}");
                self.hold(memory, HoldCause::Unproven, &words).await
            }
            Err(ChainError::Unavailable(_)) => Ok(()),
        }
    }

    async fn protect(&self, memory: &mut Memory, protect: Protect) -> Result<(), Stop> {
        let mut draft = self.draft(memory)?;
        draft.writes.told = vec![Told::with(
            EventKind::SubmitterProtected,
            json!({"nonce": protect.nonce, "hash": protect.exhibit.hash, "blockNumber": protect.exhibit.block_number}),
        )];
        tracing::error!(submitter = %self.submitter.id, nonce = protect.nonce.0, hash = ?protect.exhibit.hash,
            "somebody else used this account: PROTECT");
        draft.cursor.conditions.protect = Some(protect);
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

    async fn find_user(&self, nonce: Nonce, at: BlockRef) -> ChainResult<Proof> {
        let Some(block) = self.block_that_passed(nonce, at).await? else { return Ok(Proof::NotYet) };
        let (chain, id) = (&self.chain.chain, &self.submitter.id);
        let ring = self.chain.heads.ring();
        if ring.hash_at(block.this.number).is_some_and(|hash| hash != block.this.hash) {
            return Ok(Proof::NotYet);
        }
        let after = chain.count_at(id, block.this.hash).await?;
        let before = if block.this.number == 0 { Nonce(0) } else { chain.count_at(id, block.parent).await? };
        if before > nonce || after <= nonce {
            return Ok(Proof::NotYet);
        }
        let sighting = chain.sighting(id, nonce, block.this.hash).await?;
        if let Some(hash) = sighting.hash {
            // A fresh read: an attempt may have been stored since this lane last looked.
            let stored = self.tools.store.attempts(id, nonce, nonce.next()).await;
            let stored = stored.map_err(|error| ChainError::Unavailable(error.to_string().into()))?;
            if stored.iter().any(|attempt| attempt.hash == hash) {
                return Ok(Proof::Ours);
            }
        }
        let this = block.this;
        Ok(Proof::Foreign(Exhibit { hash: sighting.hash, block_number: this.number, block_hash: this.hash }))
    }

    /// The first block at which the account's count is above the nonce.
    async fn block_that_passed(&self, nonce: Nonce, at: BlockRef) -> ChainResult<Option<Block>> {
        let (chain, id) = (&self.chain.chain, &self.submitter.id);
        let (mut low, mut high) = (0_u64, at.number);
        while low < high {
            let middle = low + (high - low) / 2;
            let Some(block) = chain.block_at(middle).await? else { return Ok(None) };
            if chain.count_at(id, block.this.hash).await? > nonce {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        chain.block_at(low).await
    }
}
