//! How many statements a server was given, counted by the server itself.

use sqlx::{AssertSqlSafe, Connection};

use super::{PgCluster, PgOptions, binaries};
use crate::{Error, Result};

/// Comes with the server where its contributed modules are installed.
const MODULE: &str = "pg_stat_statements";

impl PgOptions {
    /// Lets the server count statements, where its module for that is installed; [`PgCluster::statements`] reads it.
    pub fn counting_statements(self) -> Result<Self> {
        let bin = binaries::find()?;
        Ok(if binaries::has_module(&bin, MODULE) {
            self.set("shared_preload_libraries", MODULE)
        } else {
            self
        })
    }
}

impl PgCluster {
    /// Statements that sessions have sent to a database so far, `BEGIN` and `COMMIT` included. None if nobody counts.
    pub async fn statements(&self, database: &str) -> Result<Option<u64>> {
        let mut connection = self.admin_connection().await?;
        let preloaded: String = sqlx::query_scalar("SELECT current_setting('shared_preload_libraries')")
            .fetch_one(&mut connection)
            .await
            .map_err(Error::sql("asking for preloaded modules"))?;
        let counted = if preloaded.contains(MODULE) {
            let sql = format!("CREATE EXTENSION IF NOT EXISTS {MODULE}");
            super::admin::run(&mut connection, &sql).await?;
            let sql = format!(
                "SELECT coalesce(sum(calls), 0)::bigint FROM {MODULE} s JOIN pg_database d ON d.oid = s.dbid
                 WHERE d.datname = $1"
            );
            let calls: i64 = sqlx::query_scalar(AssertSqlSafe(sql))
                .bind(database)
                .fetch_one(&mut connection)
                .await
                .map_err(Error::sql("reading how many statements were sent"))?;
            Some(calls.unsigned_abs())
        } else {
            None
        };
        connection.close().await.map_err(Error::sql("closing the administrative connection"))?;
        Ok(counted)
    }
}
