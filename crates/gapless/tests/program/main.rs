//! The program as its users start it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod cluster;
#[cfg(feature = "test-points")]
mod crashes;
mod dev;
mod serve;
mod support;
