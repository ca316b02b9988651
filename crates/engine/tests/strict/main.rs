//! The strict lane on a real chain, with everything the outside world does to it: lost and false answers, lagging
//! and rate-limiting endpoints, foreign use of the key, reorgs. Whatever happens, each request takes effect once, in an
//! unbroken run of nonces.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod beside;
mod burnt;
mod contest;
mod contracts;
mod deep;
mod drain;
mod expiry;
mod explain;
mod foreign;
mod gray_zone;
mod lagging;
mod lies;
mod market;
#[cfg(feature = "geth")]
mod on_geth;
mod ordinary;
mod peers;
mod prepare;
mod protect;
mod races;
mod reorg;
mod reorgs;
mod resets;
mod resolve;
mod support;
mod tags;
mod window;
