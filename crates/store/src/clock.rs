//! The machine's clock: the only place that reads it.

use std::time::Duration;

use gapless_core::ports::clock::Clock;
use gapless_core::time::{Tick, Timestamp};
use uuid::Uuid;

/// The machine's own clock and randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn tick(&self) -> Tick {
        // CLOCK_BOOTTIME counts suspended time, which a lease's local deadline must; std's Instant does not.
        let uptime = std::fs::read_to_string("/proc/uptime").ok();
        let seconds = uptime.as_deref().and_then(|text| text.split(' ').next()).and_then(|s| s.parse().ok());
        Tick(Duration::from_secs_f64(seconds.unwrap_or_default()))
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
