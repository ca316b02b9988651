//! Follows one chain: looks at its head now and then, fills what is missing below it, and posts the result.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::ports::chain::{Block, Chain, ChainError, ChainResult};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::ring::KEPT;
use super::{Board, Heads, Ring};

/// After a broadcast a block may come at once (chains that mine on demand): look more often for a moment.
const BURST: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(5),
    Duration::from_millis(15),
    Duration::from_millis(40),
    Duration::from_millis(80),
];

/// Follows one chain.
pub struct Tracker {
    chain: Arc<dyn Chain>,
    board: Arc<Board>,
    poke: Arc<Notify>,
    poll: Duration,
    /// Blocks of walks that did not come to an end. A backend that lags lacks now this parent, now that one: without
    /// these, the further behind we are, the less likely a walk would ever be complete.
    walked: HashMap<B256, Block>,
}

impl Tracker {
    /// A tracker and its handle. `poll` is how often to look.
    #[must_use]
    pub fn new(chain: Arc<dyn Chain>, poll: Duration) -> (Self, Heads) {
        let (board, poke) = (Arc::<Board>::default(), Arc::new(Notify::new()));
        let heads = Heads { board: board.clone(), seen: 0, poke: poke.clone() };
        (Self { chain, board, poke, poll, walked: HashMap::new() }, heads)
    }

    /// Runs until cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut burst: &[Duration] = &[];
        loop {
            if let Err(error) = self.look().await {
                tracing::debug!(%error, "the head cannot be read");
            }
            let wait = burst.first().copied().unwrap_or(self.poll);
            burst = burst.get(1..).unwrap_or_default();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.poke.notified() => burst = &BURST,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn look(&mut self) -> ChainResult<()> {
        let head = self.chain.head().await?;
        let ring = self.board.read().ring;
        if let Some(seen) = ring.head() {
            let lags = head.this.number < seen.this.number;
            if head.this == seen.this || lags {
                return Ok(());
            }
        }
        let branch = self.branch_to(&ring, head).await?;
        self.walked.clear();
        self.post(&ring, branch);
        Ok(())
    }

    fn post(&self, ring: &Ring, branch: Vec<Block>) {
        let next = ring.with(branch);
        let change = next.since(ring);
        if let Some(change) = change
            && change.depth() != Some(0)
        {
            tracing::info!(depth = change.depth(), was = ?change.was, now = ?change.now, "the chain has changed");
        }
        self.board.post(next, change);
    }

    /// Walks from a new head down to a block we know (or as far as we keep).
    async fn branch_to(&mut self, ring: &Ring, head: Block) -> ChainResult<Vec<Block>> {
        let mut branch = vec![head];
        while let Some(lowest) = branch.last() {
            let number = lowest.this.number;
            let linked = number == 0 || ring.hash_at(number - 1) == Some(lowest.parent);
            if linked || branch.len() >= KEPT || ring.head().is_none() {
                break;
            }
            let parent = match self.walked.remove(&lowest.parent) {
                Some(known) => Ok(Some(known)),
                None => self.chain.block_by_hash(lowest.parent).await,
            };
            let missing =
                || ChainError::Unavailable("the parent of a block is not there yet".to_owned().into());
            match parent.and_then(|parent| parent.ok_or_else(missing)) {
                Ok(parent) => branch.push(parent),
                Err(error) => {
                    if self.walked.len() >= KEPT {
                        self.walked.clear();
                    }
                    self.walked.extend(branch.into_iter().map(|block| (block.this.hash, block)));
                    return Err(error);
                }
            }
        }
        branch.reverse();
        Ok(branch)
    }
}
