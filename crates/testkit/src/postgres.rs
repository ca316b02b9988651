//! Real PostgreSQL clusters in throw-away folders.
//!
//! [`PgCluster`] starts, kills, freezes and restarts a server of its own; [`TestDb`] is one migrated database
//! in it, cloned from a template so that each test has its own in a few milliseconds. Most tests take
//! [`PgCluster::shared`]; those that break the server start one for themselves.

mod admin;
mod binaries;
mod cluster;
mod counted;
mod history;
mod options;
mod pgbench;
mod template;

pub use admin::run_at;
pub use cluster::PgCluster;
pub use options::PgOptions;
pub use pgbench::Inserts;
pub use template::TestDb;
