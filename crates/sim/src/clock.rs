//! Clocks that stand on tokio's paused time. The store's is exact; each node's runs a little fast or slow and begins
//! elsewhere, within what the lease's allowance forgives.

use std::sync::Arc;
use std::time::Duration;

use gapless_core::ports::clock::Clock;
use gapless_core::time::{Tick, Timestamp};
use tokio::time::Instant;
use uuid::Uuid;

use crate::dice::Dice;

/// Simulated worlds begin here, in milliseconds since the Unix epoch.
const EPOCH_MILLIS: u64 = 1_800_000_000_000;

const MILLION: u64 = 1_000_000;

pub(crate) struct SimClock {
    began: Instant,
    /// Parts of a million that this clock runs; a million is exact.
    rate: u64,
    offset: Duration,
    dice: Arc<Dice>,
}

impl SimClock {
    pub(crate) fn exact(began: Instant, dice: Arc<Dice>) -> Self {
        Self { began, rate: MILLION, offset: Duration::ZERO, dice }
    }

    /// A node's clock: up to 1 % off, begun at any time.
    pub(crate) fn skewed(began: Instant, dice: Arc<Dice>) -> Self {
        let rate = dice.between(990_000..=1_010_000);
        let offset = dice.millis(0..=100_000);
        Self { began, rate, offset, dice }
    }
}

impl Clock for SimClock {
    fn tick(&self) -> Tick {
        let micros = self.began.elapsed().as_micros() * u128::from(self.rate) / u128::from(MILLION);
        Tick(self.offset + Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
    }

    fn now(&self) -> Timestamp {
        let began = Duration::from_millis(EPOCH_MILLIS);
        Timestamp::from_micros(gapless_core::time::micros(began + self.began.elapsed()))
    }

    fn draw(&self) -> Uuid {
        let elapsed = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        uuid::Builder::from_unix_timestamp_millis(EPOCH_MILLIS + elapsed, &self.dice.bytes()).into_uuid()
    }
}
