//! The adapters against a real node, and against one that is made to fail.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod broadcast;
mod common;
mod conformance;
mod faults;
mod identity;
#[cfg(feature = "geth")]
mod on_geth;
mod quarantine;
mod signers;
mod tags;
