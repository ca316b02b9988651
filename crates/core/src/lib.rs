//! The pure domain of Gapless.
//!
//! Everything here is a value or a decision over values. There is no I/O, no clock and no
//! randomness in this crate: time, ids and chain facts come in as arguments, so every rule can be
//! read, tabled and simulated. Adapters (`store`, `evm`, `events`) implement the [`ports`];
//! the engine drives them.

pub mod allocation;
pub mod attempt;
pub mod audit;
pub mod bump;
pub mod change;
pub mod command;
pub mod condition;
pub mod cursor;
pub mod digest;
pub mod event;
pub mod fees;
pub mod govern;
pub mod ids;
pub mod intent;
pub mod intrinsic;
pub mod lane;
pub mod lease;
pub mod limits;
mod named;
pub mod outcome;
pub mod plan;
pub mod ports;
pub mod record;
pub mod slot;
pub mod state;
pub mod submitter;
pub mod text;
pub mod time;
pub mod wait;
pub mod window;
