//! Follows one chain: looks at its head now and then, fills what is missing below it, and posts the result.
//!
//! Hints that there is a new head only make it look at once. While they bring the news, it looks less often by itself;
//! the first head that no hint told ends that, so a feed that dies in silence delays one head and no more.

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

/// How much longer the way from one look to the next may be while hints bring the news.
const PATIENCE: u32 = 4;

/// A feed that chatters makes nobody look more often than this.
const HINT_GAP: Duration = Duration::from_millis(20);

/// Why to look at the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// It was time.
    Timer,
    /// Somebody said that there is a new one.
    Hint,
    /// Something was sent.
    Poke,
}

/// When to look next. Pure: knows why it was looked and whether there was news.
#[derive(Debug)]
struct Pace {
    poll: Duration,
    burst: &'static [Duration],
    hints_bring_news: bool,
}

impl Pace {
    const fn new(poll: Duration) -> Self {
        Self { poll, burst: &[], hints_bring_news: false }
    }

    /// How long to wait after a look.
    fn after(&mut self, reason: Reason, news: bool) -> Duration {
        match (reason, news) {
            (Reason::Hint, true) => {
                self.hints_bring_news = true;
                self.burst = &[];
            }
            // The hint may be quicker than the endpoint that is asked.
            (Reason::Hint, false) if self.burst.is_empty() => self.burst = &BURST[1..],
            (Reason::Timer, true) if self.burst.is_empty() => self.hints_bring_news = false,
            (Reason::Poke, _) => self.burst = &BURST,
            _ => {}
        }
        match self.burst {
            [wait, rest @ ..] => {
                self.burst = rest;
                *wait
            }
            [] if self.hints_bring_news => self.poll * PATIENCE,
            [] => self.poll,
        }
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
        let chain = self.chain.clone();
        let mut pace = Pace::new(self.poll);
        let mut reason = Reason::Timer;
        loop {
            let news = self.look().await.unwrap_or_else(|error| {
                tracing::debug!(%error, "the head cannot be read");
                false
            });
            let wait = pace.after(reason, news);
            let hint = async {
                tokio::time::sleep(HINT_GAP).await;
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
        let head = self.chain.head().await?;
        let ring = self.board.read().ring;
        if let Some(seen) = ring.head() {
            let lags = head.this.number < seen.this.number;
            if head.this == seen.this || lags {
                return Ok(false);
            }
        }
        let branch = self.branch_to(&ring, head).await?;
        self.walked.clear();
        self.post(&ring, branch);
        Ok(true)
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

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Duration = Duration::from_millis(500);

    #[test]
    fn without_hints_it_looks_at_every_poll() {
        let mut pace = Pace::new(POLL);
        assert_eq!(pace.after(Reason::Timer, true), POLL);
        assert_eq!(pace.after(Reason::Timer, false), POLL);
    }

    #[test]
    fn hints_that_bring_news_stretch_the_poll_until_one_head_came_without() {
        let mut pace = Pace::new(POLL);
        assert_eq!(pace.after(Reason::Hint, true), POLL * PATIENCE);
        assert_eq!(pace.after(Reason::Timer, false), POLL * PATIENCE);
        assert_eq!(pace.after(Reason::Timer, true), POLL);
        assert_eq!(pace.after(Reason::Timer, false), POLL);
    }

    #[test]
    fn a_hint_ahead_of_the_endpoint_is_looked_after_for_a_moment_and_empty_ones_stretch_nothing() {
        let mut pace = Pace::new(POLL);
        let mut waits = vec![pace.after(Reason::Hint, false)];
        waits.extend((0..5).map(|_| pace.after(Reason::Timer, false)));
        assert_eq!(waits[..4], BURST[1..]);
        assert_eq!(waits[4..], [POLL, POLL]);
    }

    #[test]
    fn a_poke_is_a_burst_whatever_hints_do() {
        let mut pace = Pace::new(POLL);
        pace.after(Reason::Hint, true);
        let mut waits = vec![pace.after(Reason::Poke, false)];
        waits.extend((0..5).map(|_| pace.after(Reason::Timer, true)));
        assert_eq!(waits[..5], BURST);
        assert_eq!(waits[5], POLL, "found by looking, not by a hint");
    }
}
