//! Administrative statements, one short-lived connection each: a pool would belong to one test's runtime.

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, postgres::PgConnectOptions};

use super::PgCluster;
use crate::{Error, Result};

impl PgCluster {
    /// Options for a connection to the named database, for tests that want more than the URL says.
    pub fn connect_options(&self, database: &str) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(self.port())
            .username("postgres")
            .database(database)
            .ssl_mode(sqlx::postgres::PgSslMode::Disable)
            .disable_statement_logging()
    }

    /// Runs statements in the `postgres` database, each in its own transaction.
    pub async fn admin(&self, statements: &[String]) -> Result<()> {
        let mut connection = self.admin_connection().await?;
        for statement in statements {
            run(&mut connection, statement).await?;
        }
        connection.close().await.map_err(Error::sql("closing the administrative connection"))
    }

    /// Runs a statement in one of its databases.
    pub async fn run_in(&self, database: &str, statement: &str) -> Result<()> {
        run_at(&self.url(database), statement).await
    }

    pub(super) async fn admin_connection(&self) -> Result<PgConnection> {
        self.connect_options("postgres").connect().await.map_err(Error::sql("connecting to the test cluster"))
    }
}

/// Runs a statement in the database at a URL, of whatever server.
pub async fn run_at(url: &str, statement: &str) -> Result<()> {
    let connecting = PgConnection::connect(url).await;
    let mut connection = connecting.map_err(Error::sql("connecting to the database"))?;
    run(&mut connection, statement).await?;
    connection.close().await.map_err(Error::sql("closing the connection"))
}

pub(super) async fn run(connection: &mut PgConnection, statement: &str) -> Result<()> {
    let statement = statement.to_owned();
    let doing = format!("running `{statement}`");
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await.map_err(Error::sql(doing))?;
    Ok(())
}
