//! How long each queue is, as far as this node knows: what the store counted lately, plus what was let in here since.
//!
//! An estimate on purpose. Counting in every accept would cost more than the limit is worth; what other nodes accept
//! between two counts, and what is on its way to the store while one runs, can pass the limit by so much and no more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gapless_core::limits::MAX_PAGE;
use gapless_core::ports::clock::Clock;
use gapless_core::ports::store::{Store, StoreResult};
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Tick;

/// A count older than this is made again.
const FRESH: Duration = Duration::from_secs(1);
/// Most submitters remembered.
const KEPT: usize = 10_000;

#[derive(Debug, Clone, Copy)]
struct Depth {
    queued: u64,
    read_at: Tick,
}

/// The estimates.
pub(crate) struct Depths {
    clock: Arc<dyn Clock>,
    known: Mutex<HashMap<SubmitterId, Depth>>,
}

impl Depths {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<SubmitterId, Depth>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts again what was not counted lately.
    pub(crate) async fn refresh(&self, store: &dyn Store, submitters: &[SubmitterId]) -> StoreResult<()> {
        let now = self.clock.tick();
        let fresh = |depth: &Depth| now.since(depth.read_at) < FRESH;
        let stale: Vec<SubmitterId> = {
            let known = self.known();
            submitters.iter().filter(|name| !known.get(*name).is_some_and(fresh)).cloned().collect()
        };
        for page in stale.chunks(MAX_PAGE) {
            let counted = store.queue_depths(page).await?;
            let mut known = self.known();
            if known.len() + page.len() > KEPT {
                known.retain(|_, depth| fresh(depth));
            }
            known.extend(
                page.iter().cloned().zip(counted.into_iter().map(|queued| Depth { queued, read_at: now })),
            );
        }
        Ok(())
    }

    /// Takes room for up to `count` more; how many there is room for.
    pub(crate) fn take(&self, submitter: &SubmitterId, count: u64, limit: u64) -> u64 {
        let mut known = self.known();
        let Some(depth) = known.get_mut(submitter) else { return count };
        let granted = count.min(limit.saturating_sub(depth.queued));
        depth.queued += granted;
        granted
    }

    /// Gives back room that was not needed.
    pub(crate) fn give_back(&self, submitter: &SubmitterId, count: u64) {
        if let Some(depth) = self.known().get_mut(submitter) {
            depth.queued = depth.queued.saturating_sub(count);
        }
    }
}
