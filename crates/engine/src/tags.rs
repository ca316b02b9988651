//! What the chain calls safe or finalized, asked once per head for all lanes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use alloy_primitives::B256;
use gapless_core::ports::chain::{BlockRef, Chain, ChainResult, Tag};

/// What a tag named, and at which head that was asked.
type Answer = (B256, Option<BlockRef>);

/// The answers at the present head. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tags(Arc<Mutex<HashMap<Tag, Answer>>>);

impl Tags {
    /// The block a tag names, as asked at this head.
    pub async fn read(&self, chain: &dyn Chain, tag: Tag, head: BlockRef) -> ChainResult<Option<BlockRef>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&tag).copied();
        if let Some((_, found)) = known.filter(|(at, _)| *at == head.hash) {
            return Ok(found);
        }
        let found = chain.tagged(tag).await?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(tag, (head.hash, found));
        Ok(found)
    }
}
