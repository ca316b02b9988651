//! One view of a chain's head per process: the last blocks, linked by parent hash.
//!
//! An endpoint that lags behind what was seen is ignored, not believed: a block is gone only when another one stands
//! at its height on a chain that is at least as high.

mod genesis;
mod pace;
mod ring;
mod tracker;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use alloy_primitives::B256;
use tokio::sync::Notify;

pub use ring::{Change, Ring};
pub use tracker::Tracker;

/// Parents remembered from walks below the ring.
const WALKED: usize = 4_096;

/// What was posted last.
#[derive(Clone, Default)]
struct Posted {
    version: u64,
    ring: Arc<Ring>,
    change: Option<Change>,
    /// Block 0 as first seen and as it is now, where these differ.
    genesis_changed: Option<(B256, B256)>,
}

/// The present ring and how often it changed. Not a `watch` channel: that one wakes its receivers in random order, and
/// the same blocks would not give the same history twice.
#[derive(Default)]
struct Board {
    posted: Mutex<Posted>,
    changed: Notify,
    /// Parents of blocks below the ring, by hash: true for ever, whoever said it.
    parents: Mutex<HashMap<B256, B256>>,
}

impl Board {
    fn read(&self) -> Posted {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn post(&self, ring: Ring, change: Option<Change>) {
        self.update(|posted| {
            posted.ring = Arc::new(ring);
            posted.change = change;
        });
    }

    fn post_genesis(&self, changed: Option<(B256, B256)>) {
        if self.read().genesis_changed != changed {
            self.update(|posted| posted.genesis_changed = changed);
        }
    }

    fn update(&self, update: impl FnOnce(&mut Posted)) {
        let mut posted = self.posted.lock().unwrap_or_else(PoisonError::into_inner);
        update(&mut posted);
        posted.version += 1;
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
        self.board.read().ring
    }

    /// How the present ring differs from the one before. Who may have slept over a change compares with the ring it
    /// acted on instead: [`Ring::since`].
    #[must_use]
    pub fn last_change(&self) -> Option<Change> {
        self.board.read().change
    }

    /// Block 0 as it was first seen and as it is now, while these differ: the chain was restarted under its id, or the
    /// endpoints were given another. The ring stays as it was before.
    #[must_use]
    pub fn genesis_changed(&self) -> Option<(B256, B256)> {
        self.board.read().genesis_changed
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

    /// Waits for another head, or another word about block 0, than this holder waited for last.
    pub async fn changed(&mut self) {
        loop {
            // Made before looking: a change in between is not missed.
            let changed = self.board.changed.notified();
            let version = self.board.read().version;
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
