//! What a test can switch in this process, from the environment. Only compiled in with the feature `test-points`:
//! in a release nothing here can be reached.
//!
//! - `GAPLESS_CRASH_AT=after-send:3` aborts at the third time that point is reached.
//! - `GAPLESS_FREEZE_AT=at-confirm` stops the whole process there, once, as SIGSTOP from outside would.
//! - `GAPLESS_ARMED_BY=FILE`: the two above count a point only while that file exists.
//! - `GAPLESS_TEST_GUARD=off`: lanes and keeper do not believe that their lease is over until a write is fenced.
//! - `GAPLESS_TEST_SWEEP=off`: work that nobody does is found only when somebody says so.

use std::time::Duration;

use gapless_engine::points::Points;

/// The switches of one process.
pub(crate) struct Switches {
    /// What happens at named points.
    pub(crate) points: Points,
    /// Whether the local clock is trusted to end a lease.
    pub(crate) guard: bool,
    /// How often to look for work that nobody does.
    pub(crate) sweep: Duration,
}

impl Switches {
    /// Nothing is switched.
    #[cfg(not(feature = "test-points"))]
    pub(crate) fn from_env(sweep: Duration) -> anyhow::Result<Self> {
        Ok(Self { points: Points::default(), guard: true, sweep })
    }

    /// As the environment says.
    #[cfg(feature = "test-points")]
    pub(crate) fn from_env(sweep: Duration) -> anyhow::Result<Self> {
        let sweep = if points::is_off("GAPLESS_TEST_SWEEP")? { points::NEVER } else { sweep };
        Ok(Self { points: points::from_env()?, guard: !points::is_off("GAPLESS_TEST_GUARD")?, sweep })
    }
}

#[cfg(feature = "test-points")]
mod points {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use anyhow::{Context, bail};
    use gapless_engine::points::{Point, Points};
    use nix::sys::signal::{Signal, raise};

    /// Longer than any test.
    pub(super) const NEVER: Duration = Duration::from_secs(86_400);

    pub(super) fn is_off(name: &str) -> anyhow::Result<bool> {
        match std::env::var(name).as_deref() {
            Err(_) => Ok(false),
            Ok("off") => Ok(true),
            Ok(other) => bail!("{name}: `{other}` is not `off`"),
        }
    }

    /// A point and the how-manieth time it counts.
    type Wish = (Point, u64);

    fn wish(name: &str) -> anyhow::Result<Option<Wish>> {
        let Ok(wish) = std::env::var(name) else { return Ok(None) };
        let (point, count) = wish.split_once(':').unwrap_or((&wish, "1"));
        let names = || Point::ALL.map(Point::name).join(", ");
        let known = Point::ALL.into_iter().find(|known| known.name() == point);
        let at = known.with_context(|| format!("{name}: no point `{point}`; known are {}", names()))?;
        let count =
            count.parse().with_context(|| format!("{name}: after the colon stands a number from 1"))?;
        Ok(Some((at, count)))
    }

    pub(super) fn from_env() -> anyhow::Result<Points> {
        let reactions: [(Option<Wish>, fn()); 2] = [
            (wish("GAPLESS_CRASH_AT")?, || std::process::abort()),
            (wish("GAPLESS_FREEZE_AT")?, || {
                let _ = raise(Signal::SIGSTOP);
            }),
        ];
        let armed_by = std::env::var_os("GAPLESS_ARMED_BY").map(PathBuf::from);
        let wishes: Vec<_> = reactions
            .into_iter()
            .filter_map(|(wish, react)| wish.map(|(at, count)| (at, count, AtomicU64::new(0), react)))
            .collect();
        if wishes.is_empty() {
            return Ok(Points::default());
        }
        Ok(Points::new(Arc::new(move |point| {
            for (at, count, reached, react) in &wishes {
                let counts = point == *at && armed_by.as_ref().is_none_or(|file| file.exists());
                if counts && reached.fetch_add(1, Ordering::SeqCst) + 1 == *count {
                    eprintln!("gapless: ending or stopping at {} as asked", point.name());
                    react();
                }
            }
        })))
    }
}
