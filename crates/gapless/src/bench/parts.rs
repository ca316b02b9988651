//! What a measurement runs on: a fresh node, and a database of its own on the run's server.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use gapless_store::postgres::{PostgresOptions, PostgresStore};
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::cpu::{self, CpuSample};
use gapless_testkit::postgres::{PgCluster, PgOptions, run_at};

use super::options::{BenchOptions, StoreKind};

/// A block of the size the node's speed asks for: its own limit would be what is measured.
const BLOCK_GAS: &str = "100000000000";

/// The node a measurement talks to.
pub(super) enum Chain {
    /// Started for it.
    Fresh(Box<Anvil>),
    /// Somebody else's.
    Given(String),
}

impl Chain {
    pub(super) async fn start(options: &BenchOptions) -> anyhow::Result<Self> {
        if let Some(url) = &options.rpc {
            return Ok(Self::Given(url.clone()));
        }
        let anvil = AnvilOptions {
            block_time: Some(Duration::from_secs(options.block_time)),
            accounts: 1,
            extra_args: vec!["--gas-limit".to_owned(), BLOCK_GAS.to_owned()],
            ..AnvilOptions::default()
        };
        let anvil = Anvil::start(anvil).await.context("starting a local chain (anvil)")?;
        Ok(Self::Fresh(Box::new(anvil)))
    }

    pub(super) fn url(&self) -> String {
        match self {
            Self::Fresh(anvil) => anvil.url(),
            Self::Given(url) => url.clone(),
        }
    }

    /// Processor time it has used so far; none of a node that may be on another machine.
    pub(super) fn cpu(&self) -> anyhow::Result<Option<Duration>> {
        match self {
            Self::Fresh(anvil) => Ok(Some(cpu::of_process(anvil.pid()?)?)),
            Self::Given(_) => Ok(None),
        }
    }
}

/// The run's PostgreSQL server.
pub(super) struct Server {
    place: Place,
    databases: u32,
}

enum Place {
    /// Started for the run.
    Fresh(Box<PgCluster>),
    /// A database of somebody's server, in which every measurement gets a schema of its own.
    Given { url: String, word: String },
}

/// Where one measurement's transactions are stored.
pub(super) struct Database<'a> {
    pub(super) url: String,
    pub(super) schema: String,
    server: Option<(&'a PgCluster, String)>,
}

/// What the server had done at a moment.
pub(super) struct ServerSample {
    cpu: CpuSample,
    statements: Option<u64>,
}

impl Server {
    /// A new cluster with fsync on that counts statements, with room for WAL so that no checkpoint hits one
    /// measurement and spares another; or the given one.
    pub(super) async fn start(given: Option<&str>, word: &str) -> anyhow::Result<Self> {
        if let Some(url) = given {
            let word = word.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
            return Ok(Self { place: Place::Given { url: url.to_owned(), word }, databases: 0 });
        }
        let options = PgOptions { fsync: true, ..PgOptions::default() };
        let options =
            options.set("shared_buffers", "256MB").set("max_wal_size", "4GB").counting_statements()?;
        let cluster = PgCluster::start(options).await.context("starting PostgreSQL")?;
        Ok(Self { place: Place::Fresh(Box::new(cluster)), databases: 0 })
    }

    /// A new migrated database, or schema.
    async fn database(&mut self) -> anyhow::Result<Database<'_>> {
        let number = self.databases;
        self.databases += 1;
        let database = match &self.place {
            Place::Fresh(cluster) => {
                let name = format!("bench_{number}");
                cluster.admin(&[format!("CREATE DATABASE {name}"), "CHECKPOINT".to_owned()]).await?;
                let url = cluster.url(&name);
                Database { url, schema: "public".to_owned(), server: Some((cluster, name)) }
            }
            Place::Given { url, word } => {
                let schema = schema(word, number);
                run_at(url, &format!("CREATE SCHEMA {schema}")).await?;
                Database { url: url.clone(), schema, server: None }
            }
        };
        let options =
            PostgresOptions { schema: database.schema.clone(), ..PostgresOptions::new(&database.url) };
        PostgresStore::migrate(&options).await.context("migrating the database")?;
        Ok(database)
    }

    /// Takes back what was made on somebody's server.
    pub(super) async fn tidy(&self) -> anyhow::Result<()> {
        let Place::Given { url, word } = &self.place else { return Ok(()) };
        for number in 0..self.databases {
            run_at(url, &format!("DROP SCHEMA IF EXISTS {} CASCADE", schema(word, number))).await?;
        }
        Ok(())
    }
}

fn schema(word: &str, number: u32) -> String {
    format!("gapless_bench_{word}_{number}")
}

impl<'a> Database<'a> {
    /// A database of its own on the server, or a file in a folder.
    pub(super) async fn make(
        store: StoreKind,
        server: Option<&'a mut Server>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        match (store, server) {
            (StoreKind::Postgres, Some(server)) => server.database().await,
            (StoreKind::Postgres, None) => bail!("there is no PostgreSQL server"),
            (StoreKind::Sqlite, _) => {
                let url = format!("sqlite://{}", folder.join("gapless.db").display());
                Ok(Self { url, schema: "public".to_owned(), server: None })
            }
        }
    }

    /// Reads the meters; none without a server of our own.
    pub(super) async fn sample(&self) -> anyhow::Result<Option<ServerSample>> {
        let Some((cluster, name)) = &self.server else { return Ok(None) };
        let statements = cluster.statements(name).await?;
        Ok(Some(ServerSample { cpu: CpuSample::take(cluster.pid()?, &[])?, statements }))
    }

    /// Pours in a past of so many finished transactions of these submitters, and lets the server come to rest.
    pub(super) async fn pour(&self, owners: &[String], count: u64) -> anyhow::Result<()> {
        let (cluster, name) =
            self.server.as_ref().context("a history needs PostgreSQL started for the run")?;
        cluster.pour_history(name, owners, 0..count).await?;
        cluster.run_in(name, "VACUUM (ANALYZE)").await?;
        cluster.run_in(name, "CHECKPOINT").await?;
        Ok(())
    }

    /// Single-row inserts per second by pgbench, beside our tables; none without a server of our own.
    pub(super) async fn pgbench(&self, clients: u32, seconds: u64) -> anyhow::Result<Option<f64>> {
        let Some((cluster, name)) = &self.server else { return Ok(None) };
        Ok(Some(cluster.pgbench_inserts(name, clients, seconds).await?.per_second))
    }
}

impl ServerSample {
    /// Processor time of the whole server since another sample.
    pub(super) fn cpu_since(&self, before: &Self) -> Duration {
        self.cpu.since(&before.cpu).all
    }

    /// Statements since another sample, if somebody counts.
    pub(super) fn statements_since(&self, before: &Self) -> Option<u64> {
        Some(self.statements?.saturating_sub(before.statements?))
    }
}
