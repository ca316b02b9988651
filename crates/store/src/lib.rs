//! The Store port three times: [`memory`] (the model, and the simulator's store), [`sqlite`] (one
//! process, embedded) and [`postgres`] (the authority of a cluster). One conformance suite and one
//! model-based test hold them together.

pub mod clock;
mod flat;
pub mod memory;
mod notices;
mod open;
pub mod postgres;
mod schema;
pub mod sqlite;

pub use open::{OpenError, StoreUrl};
pub use schema::BINARY;
