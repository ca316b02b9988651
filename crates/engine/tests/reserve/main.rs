//! Nonces for bytes that somebody else makes, on a real chain and real stores: whatever becomes of whoever got one, the run of
//! nonces has no hole and every effect happens once.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod closures;
mod killed;
mod leaders;
#[cfg(feature = "low-level")]
mod low_level;
mod refused;
mod support;
