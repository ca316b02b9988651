//! Follows one chain: looks at its head now and then, fills what is missing below it, and posts the result.
//!
//! A branch that does not stand on the ring may belong to another chain of the same id. It is taken only after block 0
//! was found to be the same, and while block 0 is another, nothing is followed: everything the ring says would be taken
//! back at once, and transactions would be sent again to a chain that never heard of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::ports::chain::{Block, Chain, ChainError, ChainResult};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::genesis::Watch;
use super::pace::{Pace, Reason};
use super::ring::KEPT;
use super::{Board, Heads, Ring};

/// Follows one chain.
pub struct Tracker {
    chain: Arc<dyn Chain>,
    board: Arc<Board>,
    poke: Arc<Notify>,
    poll: Duration,
    /// Blocks of walks that did not come to an end. A backend that lags lacks now this parent, now that one: without
    /// these, the further behind we are, the less likely a walk would ever be complete. They stay when another branch grows
    /// meanwhile: of two forks, the one that is easier to reach must not keep us from the higher one.
    walked: HashMap<B256, Block>,
    genesis: Watch,
}

impl Tracker {
    /// A tracker and its handle. `poll` is how often to look.
    #[must_use]
    pub fn new(chain: Arc<dyn Chain>, poll: Duration) -> (Self, Heads) {
        let (board, poke) = (Arc::<Board>::default(), Arc::new(Notify::new()));
        let heads = Heads { board: board.clone(), seen: 0, poke: poke.clone() };
        (Self { chain, board, poke, poll, walked: HashMap::new(), genesis: Watch::default() }, heads)
    }

    /// Runs until cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let chain = self.chain.clone();
        let mut pace = Pace::new(self.poll);
        let mut reason = Reason::Timer;
        loop {
            let news = self.look().await.unwrap_or_else(|error| {
                tracing::debug!(%error, "the head cannot be read");
                false
            });
            let wait = pace.after(reason, news);
            let deaf_for = pace.deaf_for();
            let hint = async {
                tokio::time::sleep(deaf_for).await;
                chain.head_hint().await;
            };
            reason = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.poke.notified() => Reason::Poke,
                () = hint => Reason::Hint,
                () = tokio::time::sleep(wait) => Reason::Timer,
            };
        }
    }

    /// Looks at the head; says whether there is another than before.
    async fn look(&mut self) -> ChainResult<bool> {
        let read =
            if self.board.read().genesis_changed.is_none() { Some(self.chain.head().await) } else { None };
        let ring = self.board.read().ring;
        let doubtful = match &read {
            // Endpoints that serve another chain may all be out of use, which looks like this.
            None | Some(Err(_)) => true,
            Some(Ok(head)) => is_strange(&ring, head),
        };
        if self.genesis.is_due(doubtful, Instant::now()) && self.same_genesis().await == Ok(false) {
            return Ok(false);
        }
        let Some(head) = read.transpose()? else { return Ok(false) };
        if ring.head().is_some_and(|seen| head.this == seen.this || head.this.number < seen.this.number) {
            return Ok(false);
        }
        let branch = self.branch_to(&ring, head).await?;
        if !stands_on(&ring, &branch) && !self.same_genesis().await? {
            return Ok(false);
        }
        self.post(&ring, branch);
        Ok(true)
    }

    /// Asks for block 0, tells everybody, and says whether it is the one that was seen first.
    async fn same_genesis(&mut self) -> ChainResult<bool> {
        let changed = self.genesis.compare(self.chain.genesis().await?);
        if let Some((was, now)) = changed
            && self.board.read().genesis_changed.is_none()
        {
            tracing::error!(%was, %now, "block 0 is another: this is not the chain that was followed so far");
        }
        self.board.post_genesis(changed);
        Ok(changed.is_none())
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
                    if self.walked.len() >= 2 * KEPT {
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

/// Whether a head can be explained by neither growth nor lag.
fn is_strange(ring: &Ring, head: &Block) -> bool {
    let lower = ring.head().is_some_and(|seen| head.this.number < seen.this.number);
    lower && ring.hash_at(head.this.number) != Some(head.this.hash)
}

/// Whether a branch continues what the ring holds; anything does if that is nothing.
fn stands_on(ring: &Ring, branch: &[Block]) -> bool {
    let Some(first) = branch.first() else { return true };
    let below = first.this.number.checked_sub(1).and_then(|number| ring.hash_at(number));
    ring.head().is_none() || below == Some(first.parent)
}
