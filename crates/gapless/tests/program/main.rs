//! The program as its users start it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod cluster;
#[cfg(feature = "test-points")]
mod crashes;
mod dev;
mod leader;
mod metrics;
mod outage;
mod serve;
mod support;
