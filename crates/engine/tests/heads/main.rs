//! The head tracker over a real chain port on real nodes: reorgs, chains that get shorter, endpoints that stand still,
//! jump back or disagree. The ring is one linked chain at any time, and it is never behind what was seen.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod endpoints;
mod genesis;
mod hints;
mod reorgs;
mod support;
