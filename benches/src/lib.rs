//! Benchmarks of Gapless. The store's is the binary `bench-store`; docs/benchmarks-store.md explains its figures.
//!
//! Two habits. What is compared runs in the same process run, on the same server, in turns: machines are noisy,
//! and a figure from yesterday proves nothing. And nothing here knows the store's SQL: it is driven through the
//! port, so that the figures are those an engine would see.

pub mod history;
pub mod machine;
pub mod pgbench;
pub mod report;
pub mod server;
pub mod stats;
pub mod tables;
pub mod targets;
pub mod throughput;
pub mod workload;
