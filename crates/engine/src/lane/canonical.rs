//! Whether a block stands in the chain whose head this process follows.
//!
//! Inside the ring that is a look. Below it, one endpoint that is stuck on a dead fork could swear to a block that is
//! gone, and a transaction would be CONFIRMED, or moved to another nonce, on its word. So the way down from the ring is
//! walked by parent hash: whoever answers, a hash names one block only.

use alloy_primitives::B256;
use gapless_core::ports::chain::BlockRef;

use super::Lane;
use crate::heads::Ring;

/// Farthest walk below the ring. What lies deeper is asked by height, of somebody who has the ring's lowest block.
const WALK: u64 = 512;

impl Lane {
    /// Whether a block is canonical; `None` if that cannot be told now.
    pub(super) async fn is_canonical(&self, ring: &Ring, block: BlockRef) -> Option<bool> {
        if block.number > ring.head()?.this.number {
            return None;
        }
        if let Some(hash) = ring.hash_at(block.number) {
            return Some(hash == block.hash);
        }
        let lowest = ring.lowest()?;
        let found = if lowest.this.number - block.number <= WALK {
            self.ancestor(lowest.this.number - 1, lowest.parent, block.number).await?
        } else {
            self.at_height(lowest.this, block.number).await?
        };
        Some(found == block.hash)
    }

    /// The hash at a height, walking down from a block of the chain.
    async fn ancestor(&self, mut number: u64, mut hash: B256, height: u64) -> Option<B256> {
        let heads = &self.chain.heads;
        while number > height {
            hash = match heads.parent_of(hash) {
                Some(parent) => parent,
                None => {
                    let parent = self.chain.chain.block_by_hash(hash).await.ok()??.parent;
                    heads.remember_parent(hash, parent);
                    parent
                }
            };
            number -= 1;
        }
        Some(hash)
    }

    /// The hash at a height, of an endpoint that has our chain before and after it was asked.
    async fn at_height(&self, anchor: BlockRef, height: u64) -> Option<B256> {
        let chain = &self.chain.chain;
        let anchored = || async { Some(chain.block_at(anchor.number).await.ok()??.this == anchor) };
        if !anchored().await? {
            return None;
        }
        let found = chain.block_at(height).await.ok()??;
        anchored().await?.then_some(found.this.hash)
    }
}
