//! One view of a chain's head per process: the last blocks, linked by parent hash.
//!
//! An endpoint that lags behind what was seen is ignored, not believed: a block is gone only when another one stands
//! at its height on a chain that is at least as high.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::ports::chain::{Block, BlockRef, Chain, ChainError, ChainResult};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Blocks kept. A reorg deeper than this is answered by asking the chain.
const KEPT: usize = 256;

/// Parents remembered from walks below the ring.
const WALKED: usize = 4_096;

/// After a broadcast a block may come at once (chains that mine on demand): look more often for a moment.
const BURST: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(5),
    Duration::from_millis(15),
    Duration::from_millis(40),
    Duration::from_millis(80),
];

struct Kept {
    block: Block,
    transactions: HashSet<B256>,
}

/// The last blocks of the canonical chain, as this process sees it.
#[derive(Clone, Default)]
pub struct Ring {
    blocks: BTreeMap<u64, Arc<Kept>>,
}

impl Ring {
    /// The head, if any block was seen.
    #[must_use]
    pub fn head(&self) -> Option<&Block> {
        self.blocks.last_key_value().map(|(_, kept)| &kept.block)
    }

    /// The lowest block that is kept.
    #[must_use]
    pub fn lowest(&self) -> Option<&Block> {
        self.blocks.first_key_value().map(|(_, kept)| &kept.block)
    }

    /// Hash of the canonical block at a height, if it is kept.
    #[must_use]
    pub fn hash_at(&self, number: u64) -> Option<B256> {
        self.blocks.get(&number).map(|kept| kept.block.this.hash)
    }

    /// The kept block that holds a transaction, among those above `above`.
    #[must_use]
    pub fn holds(&self, transaction: B256, above: u64) -> Option<BlockRef> {
        let mut later = self.blocks.range(above.saturating_add(1)..).map(|(_, kept)| kept);
        later.find(|kept| kept.transactions.contains(&transaction)).map(|kept| kept.block.this)
    }

    /// The ring with `branch` (oldest first, linked) put where it belongs; everything above it goes.
    fn with(&self, branch: Vec<Block>) -> Self {
        let Some(first) = branch.first().map(|block| block.this.number) else { return self.clone() };
        let mut blocks = self.blocks.clone();
        blocks.split_off(&first);
        for block in branch {
            let transactions = block.transactions.iter().copied().collect();
            blocks.insert(block.this.number, Arc::new(Kept { block, transactions }));
        }
        while blocks.len() > KEPT {
            blocks.pop_first();
        }
        Self { blocks }
    }
}

/// The present ring and how often it changed. Not a `watch` channel: that one wakes its receivers in random order, and
/// the same blocks would not give the same history twice.
#[derive(Default)]
struct Board {
    ring: Mutex<(u64, Arc<Ring>)>,
    changed: Notify,
    /// Parents of blocks below the ring, by hash: true for ever, whoever said it.
    parents: Mutex<HashMap<B256, B256>>,
}

impl Board {
    fn read(&self) -> (u64, Arc<Ring>) {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn post(&self, ring: Ring) {
        let mut posted = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        *posted = (posted.0 + 1, Arc::new(ring));
        drop(posted);
        self.changed.notify_waiters();
    }
}

/// What lanes hold of a chain's tracker.
#[derive(Clone)]
pub struct Heads {
    board: Arc<Board>,
    /// The change this holder has waited for last.
    seen: u64,
    poke: Arc<Notify>,
}

impl Heads {
    /// The present ring.
    #[must_use]
    pub fn ring(&self) -> Arc<Ring> {
        self.board.read().1
    }

    /// The parent of a block below the ring, if somebody walked there before.
    pub(crate) fn parent_of(&self, hash: B256) -> Option<B256> {
        self.board.parents.lock().unwrap_or_else(PoisonError::into_inner).get(&hash).copied()
    }

    /// Spares the next one the walk.
    pub(crate) fn remember_parent(&self, hash: B256, parent: B256) {
        let mut parents = self.board.parents.lock().unwrap_or_else(PoisonError::into_inner);
        if parents.len() >= WALKED {
            parents.clear();
        }
        parents.insert(hash, parent);
    }

    /// Waits for another head than the one this holder waited for last.
    pub async fn changed(&mut self) {
        loop {
            // Made before looking: a change in between is not missed.
            let changed = self.board.changed.notified();
            let (version, _) = self.board.read();
            if version != self.seen {
                self.seen = version;
                return;
            }
            changed.await;
        }
    }

    /// Something was sent: a block may come soon.
    pub fn expect_block(&self) {
        self.poke.notify_one();
    }
}

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
        let (_, ring) = self.board.read();
        if let Some(seen) = ring.head() {
            let lags = head.this.number < seen.this.number;
            if head.this == seen.this || lags {
                return Ok(());
            }
        }
        let branch = self.branch_to(&ring, head).await?;
        self.walked.clear();
        self.board.post(ring.with(branch));
        Ok(())
    }

    /// Walks from a new head down to a block we know (or as far as we keep).
    async fn branch_to(&mut self, ring: &Ring, head: Block) -> ChainResult<Vec<Block>> {
        let mut branch = vec![head];
        while let Some(lowest) = branch.last() {
            let number = lowest.this.number;
            let linked = number == 0 || ring.hash_at(number - 1) == Some(lowest.parent);
            if linked || branch.len() >= KEPT || ring.blocks.is_empty() {
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
