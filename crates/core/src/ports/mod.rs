//! The ports: what the domain needs of the world, as traits. Adapters depend inward on these.

pub mod chain;
pub mod clock;
pub mod policy;
pub mod signer;
pub mod sink;
pub mod store;
