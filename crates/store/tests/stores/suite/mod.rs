//! The bodies of the conformance suite. Each takes a world and must hold on every store.

pub mod accepting;
pub mod events;
pub mod fencing;
pub mod leases;
pub mod reading;
pub mod slots;
