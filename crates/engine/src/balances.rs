//! What accounts hold, asked of the chain when somebody looks and remembered for a moment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gapless_core::fees::Wei;
use gapless_core::ports::clock::Clock;
use gapless_core::submitter::SubmitterId;
use gapless_core::time::{Tick, Timestamp};

use crate::registry::Registry;

/// A balance younger than this is not asked for again.
const FRESH: Duration = Duration::from_secs(5);
/// Somebody who looks at a submitter does not wait longer for its chain.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most balances remembered.
const KEPT: usize = 10_000;

/// A balance and when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Balance {
    /// How much.
    pub(crate) wei: Wei,
    /// When it was read.
    pub(crate) at: Timestamp,
}

/// The balances this node has seen.
pub(crate) struct Balances {
    clock: Arc<dyn Clock>,
    registry: Registry,
    seen: Mutex<HashMap<SubmitterId, (Balance, Tick)>>,
}

impl Balances {
    pub(crate) fn new(clock: Arc<dyn Clock>, registry: Registry) -> Self {
        Self { clock, registry, seen: Mutex::default() }
    }

    /// The last one seen, however old.
    pub(crate) fn last(&self, submitter: &SubmitterId) -> Option<Balance> {
        self.entry(submitter).map(|(balance, _)| balance)
    }

    fn entry(&self, submitter: &SubmitterId) -> Option<(Balance, Tick)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(submitter).copied()
    }

    /// The balance now; the last one seen if the chain does not answer.
    pub(crate) async fn now(&self, submitter: &SubmitterId) -> Option<Balance> {
        let last = self.entry(submitter);
        if let Some((balance, read_at)) = last
            && self.clock.tick().since(read_at) < FRESH
        {
            return Some(balance);
        }
        let known = last.map(|(balance, _)| balance);
        let Some(chain) = self.registry.chain(&submitter.chain()) else { return known };
        let Ok(Ok(wei)) = tokio::time::timeout(PATIENCE, chain.balance(submitter)).await else {
            return known;
        };
        let balance = Balance { wei, at: self.clock.now() };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= KEPT {
            seen.clear();
        }
        seen.insert(submitter.clone(), (balance, self.clock.tick()));
        Some(balance)
    }
}
