//! The yardstick: pgbench inserting single rows with 64 clients, on the same server in the same run.

use anyhow::Result;
use gapless_testkit::postgres::Inserts;
use serde::{Deserialize, Serialize};

use crate::server::Server;
use crate::stats::{median, micros};

/// As many as a service that inserts row by row might have connections.
const CLIENTS: u32 = 64;

/// What pgbench measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlainInserts {
    /// Concurrent clients.
    pub clients: u32,
    /// Transactions per second of each run.
    pub runs: Vec<f64>,
    /// The middle one.
    pub tx_per_second: f64,
    /// Processor time of the whole server per transaction.
    pub cpu_all_us: f64,
    /// WAL per transaction.
    pub wal_bytes: f64,
}

/// A database to insert into, and what was found.
#[derive(Debug)]
pub struct Pgbench {
    database: String,
    seconds: u32,
    runs: Vec<(f64, f64, f64)>,
}

impl Pgbench {
    /// Makes the database.
    pub async fn prepare(server: &Server, seconds: u32) -> Result<Self> {
        Ok(Self { database: server.create("plain").await?, seconds, runs: Vec::new() })
    }

    /// Runs it once more; transactions per second.
    pub async fn run(&mut self, server: &Server) -> Result<f64> {
        let before = server.sample().await?;
        let Inserts { transactions, per_second } =
            server.cluster().pgbench_inserts(&self.database, CLIENTS, self.seconds.into()).await?;
        let used = server.used_since(&before).await?;
        self.runs.push((
            per_second,
            micros(used.cpu.all) / transactions,
            used.wal_bytes as f64 / transactions,
        ));
        Ok(per_second)
    }

    /// The middle of all runs.
    #[must_use]
    pub fn result(&self) -> PlainInserts {
        PlainInserts {
            clients: CLIENTS,
            runs: self.runs.iter().map(|run| run.0).collect(),
            tx_per_second: median(self.runs.iter().map(|run| run.0)),
            cpu_all_us: median(self.runs.iter().map(|run| run.1)),
            wal_bytes: median(self.runs.iter().map(|run| run.2)),
        }
    }
}
