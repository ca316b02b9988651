//! The yardstick that PostgreSQL brings along: pgbench inserting single rows with prepared statements.

use std::{fs, path::PathBuf};

use tokio::process::Command;

use super::PgCluster;
use crate::{Error, Result};

/// What one run of pgbench counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inserts {
    /// Rows inserted, a transaction each.
    pub transactions: f64,
    /// The same per second, without the time it took to connect.
    pub per_second: f64,
}

impl PgCluster {
    /// The folder of the programs that belong to this very server.
    pub fn programs(&self) -> Result<PathBuf> {
        let link = format!("/proc/{}/exe", self.pid()?);
        let program = fs::read_link(&link).map_err(Error::io("finding the server's program"))?;
        let folder = program.parent().map(PathBuf::from);
        folder.ok_or_else(|| Error::Misuse("the server's program lies in no folder".into()))
    }

    /// Inserts rows of 200 bytes into a table of its own in a database, which it makes unless it is there.
    pub async fn pgbench_inserts(&self, database: &str, clients: u32, seconds: u64) -> Result<Inserts> {
        let doing = || "running pgbench".to_owned();
        let script = self.dir().join("pgbench.sql");
        fs::write(&script, format!("INSERT INTO plain (payload) VALUES ('{}');\n", "p".repeat(200)))
            .map_err(Error::io(doing()))?;
        let table = "CREATE TABLE IF NOT EXISTS plain (id bigserial PRIMARY KEY, payload text NOT NULL)";
        self.run_in(database, table).await?;
        let output = Command::new(self.programs()?.join("pgbench"))
            .args(["--no-vacuum", "--protocol", "prepared", "--host", "127.0.0.1", "--username", "postgres"])
            .args(["--port", &self.port().to_string(), "--client", &clients.to_string(), "--jobs", "2"])
            .args(["--time", &seconds.to_string()])
            .arg("--file")
            .arg(&script)
            .arg(database)
            .kill_on_drop(true)
            .output()
            .await
            .map_err(Error::io(doing()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let failed = || {
            let words = String::from_utf8_lossy(&output.stderr);
            Error::Misuse(format!("pgbench failed, and said: {said}{words}"))
        };
        parse(&said).filter(|_| output.status.success()).ok_or_else(failed)
    }
}

fn parse(said: &str) -> Option<Inserts> {
    let after = |start: &str| {
        let rest = said.lines().find_map(|line| line.strip_prefix(start))?;
        rest.split([' ', '/']).next()?.parse::<f64>().ok()
    };
    let transactions = after("number of transactions actually processed: ")?;
    Some(Inserts { transactions, per_second: after("tps = ")? })
}

#[cfg(test)]
mod tests {
    use super::{Inserts, parse};

    #[test]
    fn the_rate_is_read_from_what_pgbench_says() {
        let said = "number of transactions actually processed: 81234\nlatency average = 1.2 ms\n\
                    tps = 10123.456789 (without initial connection time)\n";
        assert_eq!(parse(said), Some(Inserts { transactions: 81234.0, per_second: 10123.456789 }));
        let with_goal = "number of transactions actually processed: 5/5\ntps = 2.5 (x)\n";
        assert_eq!(parse(with_goal), Some(Inserts { transactions: 5.0, per_second: 2.5 }));
    }
}
