//! Real parts for tests: a PostgreSQL cluster, an Ethereum node, and proxies that misbehave on demand.
//!
//! A test double agrees with whoever wrote it. The failures Gapless exists for (a commit whose answer was lost,
//! a node that took a transaction and then went silent, a database that died between two statements) live in
//! the parts themselves, so the tests run against those parts and break them from outside.
//!
//! Three habits hold for everything here. Servers listen on loopback only. Nothing outlives the test process,
//! even one ended by `SIGKILL` (see [`process`]). Nothing is tied to a tokio runtime longer than one call, or
//! else says so, because every `#[tokio::test]` brings its own.

pub mod anvil;
mod background;
pub mod cpu;
pub mod error;
pub mod fixtures;
pub mod geth;
pub mod json_rpc;
pub mod node;
pub mod postgres;
pub mod process;
pub mod rpc_proxy;
pub mod tcp_proxy;
pub mod wait;

pub use error::{Error, Result};
