//! The machine's clock: the only place that reads it.

use std::time::Duration;

use gapless_core::ports::clock::Clock;
use gapless_core::time::{Tick, Timestamp};
use nix::time::{ClockId, clock_gettime};
use uuid::Uuid;

/// The machine's own clock and randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn tick(&self) -> Tick {
        // It counts suspended time, which a lease's local deadline must; std's Instant does not. A clock that cannot be
        // read is at the end of time: every lease is over, none is for ever.
        let read = clock_gettime(ClockId::CLOCK_BOOTTIME);
        Tick(read.map_or(Duration::MAX, Duration::from))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock adapter")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn draw(&self) -> Uuid {
        Uuid::now_v7()
    }
}
