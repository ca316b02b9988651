//! Where a test ends this process: `GAPLESS_CRASH_AT=after-send:3` aborts at the third time that point is reached.
//! Only compiled in with the feature `test-points`.

use gapless_engine::points::Points;

/// No reactions.
#[cfg(not(feature = "test-points"))]
pub(crate) fn from_env() -> anyhow::Result<Points> {
    Ok(Points::default())
}

/// The reaction named in the environment, if any.
#[cfg(feature = "test-points")]
pub(crate) fn from_env() -> anyhow::Result<Points> {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use anyhow::Context;
    use gapless_engine::points::Point;

    let Ok(wish) = std::env::var("GAPLESS_CRASH_AT") else { return Ok(Points::default()) };
    let (name, count) = wish.split_once(':').unwrap_or((&wish, "1"));
    let names = || Point::ALL.map(Point::name).join(", ");
    let known = Point::ALL.into_iter().find(|point| point.name() == name);
    let at = known.with_context(|| format!("GAPLESS_CRASH_AT: no point `{name}`; known are {}", names()))?;
    let count: u64 =
        count.parse().context("GAPLESS_CRASH_AT: the part after the colon is a number from 1")?;
    let reached = AtomicU64::new(0);
    Ok(Points::new(Arc::new(move |point| {
        if point == at && reached.fetch_add(1, Ordering::SeqCst) + 1 == count {
            eprintln!("gapless: aborting at {} as asked", point.name());
            std::process::abort();
        }
    })))
}
