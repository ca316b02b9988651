//! The yardstick: pgbench inserting single rows with 64 clients, on the same server in the same run.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use sqlx::Connection;
use tokio::process::Command;

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

/// A table to insert into, and the script that does.
#[derive(Debug)]
pub struct Pgbench {
    program: PathBuf,
    database: String,
    script: tempfile::NamedTempFile,
    seconds: u32,
    runs: Vec<(f64, f64, f64)>,
}

impl Pgbench {
    /// Makes the table.
    pub async fn prepare(server: &Server, seconds: u32) -> Result<Self> {
        let program = server.programs()?.join("pgbench");
        ensure!(program.is_file(), "no pgbench beside the server: {} is missing", program.display());
        let database = server.create("plain").await?;
        let mut connection = server.connect(&database).await?;
        let table = "CREATE TABLE plain (id bigserial PRIMARY KEY, payload text NOT NULL)";
        sqlx::query(table).execute(&mut connection).await?;
        connection.close().await?;
        let script = tempfile::NamedTempFile::new()?;
        fs::write(&script, format!("INSERT INTO plain (payload) VALUES ('{}');\n", "p".repeat(200)))?;
        Ok(Self { program, database, script, seconds, runs: Vec::new() })
    }

    /// Runs it once more; transactions per second.
    pub async fn run(&mut self, server: &Server) -> Result<f64> {
        let before = server.sample().await?;
        let output = Command::new(&self.program)
            .args(["--no-vacuum", "--protocol", "prepared", "--host", "127.0.0.1", "--username", "postgres"])
            .args(["--port", &server.port().to_string(), "--client", &CLIENTS.to_string(), "--jobs", "2"])
            .args(["--time", &self.seconds.to_string()])
            .arg("--file")
            .arg(self.script.path())
            .arg(&self.database)
            .kill_on_drop(true)
            .output()
            .await
            .context("starting pgbench")?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "pgbench failed: {}", String::from_utf8_lossy(&output.stderr));
        let used = server.used_since(&before).await?;
        let (transactions, rate) = parse(&said).with_context(|| format!("pgbench said: {said}"))?;
        self.runs.push((rate, micros(used.cpu.all) / transactions, used.wal_bytes as f64 / transactions));
        Ok(rate)
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

/// Transactions processed, and their rate without the time it took to connect.
fn parse(said: &str) -> Option<(f64, f64)> {
    let after = |start: &str| {
        let rest = said.lines().find_map(|line| line.strip_prefix(start))?;
        rest.split([' ', '/']).next()?.parse::<f64>().ok()
    };
    Some((after("number of transactions actually processed: ")?, after("tps = ")?))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_rate_is_read_from_what_pgbench_says() {
        let said = "number of transactions actually processed: 81234\nlatency average = 1.2 ms\n\
                    tps = 10123.456789 (without initial connection time)\n";
        assert_eq!(parse(said), Some((81234.0, 10123.456789)));
        let with_goal = "number of transactions actually processed: 5/5\ntps = 2.5 (x)\n";
        assert_eq!(parse(with_goal), Some((5.0, 2.5)));
    }
}
