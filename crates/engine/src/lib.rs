//! Drives the domain with ports: the only place where plans meet I/O.
//!
//! One [`Engine`] per process. It holds leases for submitters with work ([`keeper`]), runs a lane for each
//! ([`lane`]), and shares what is cheaper together: accepting ([`intake`]), fenced writes ([`writer`]), broadcasts and
//! receipts ([`calls`]), and one view of each chain's head ([`heads`]).
//!
//! Everything comes in from outside: ports, clock, spawning ([`tasks`]). There is no global state
//! and no thread of our own, so a simulator can run the same code on paused time.

mod balances;
mod batcher;
pub mod builder;
pub mod calls;
pub mod census;
pub mod commands;
mod depth;
mod desk;
pub mod engine;
pub mod explain;
mod gate;
pub mod handle;
pub mod heads;
pub mod intake;
pub mod keeper;
pub mod lane;
mod look;
mod lookups;
#[cfg(feature = "low-level")]
pub mod low_level;
pub mod names;
pub mod nonces;
pub mod points;
pub mod policies;
pub mod registry;
pub mod report;
pub mod settings;
pub mod stuck;
mod submit;
pub mod submitters;
mod tags;
pub mod tasks;
pub mod view;
pub mod with_nonce;
pub mod writer;

/// The page about the library, whose examples must compile.
#[cfg(all(doctest, feature = "low-level"))]
#[doc = include_str!("../../../docs/library.md")]
struct Library;

pub use builder::{Builder, Gapless, StartError};
pub use desk::NonceTx;
pub use engine::{Engine, EngineOptions};
pub use gapless_core::fees::FeeCaps;
pub use gate::{AcceptMode, AcceptRules};
pub use handle::{Handle, Refusal};
pub use policies::Policies;
pub use registry::{Registry, Submitter};
pub use settings::{FinalityRule, HealthRules, LaneSettings, finality_floor};
pub use with_nonce::{NonceContext, NonceRequest, WithNonceError};
