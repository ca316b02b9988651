//! The program as its users start it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod acceptance;
mod asking;
mod audit;
mod bad_start;
mod bench;
mod beside;
mod cluster;
#[cfg(feature = "test-points")]
mod commands;
mod counter;
#[cfg(feature = "test-points")]
mod crashes;
mod dev;
#[cfg(feature = "test-points")]
mod drain;
#[cfg(feature = "test-points")]
mod dual_active;
mod full_queue;
mod half_funds;
mod holes;
mod leader;
mod logs;
mod metrics;
mod outage;
mod policies;
mod serve;
mod stuck;
mod support;
mod world;
