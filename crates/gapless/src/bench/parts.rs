//! What a measurement runs on: a fresh node, and a database of its own on the run's server.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use gapless_store::postgres::{PostgresOptions, PostgresStore};
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::cpu::{self, CpuSample};
use gapless_testkit::postgres::{PgCluster, PgOptions};

use super::options::{BenchOptions, StoreKind};

/// A block of the size the node's speed asks for: its own limit would be what is measured.
const BLOCK_GAS: &str = "100000000000";

/// The node a measurement talks to.
pub(super) enum Chain {
    /// Started for it.
    Fresh(Anvil),
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
        Ok(Self::Fresh(Anvil::start(anvil).await.context("starting a local chain (anvil)")?))
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
    cluster: PgCluster,
    databases: u32,
}

/// Where one measurement's transactions are stored.
pub(super) struct Database<'a> {
    pub(super) kind: StoreKind,
    pub(super) url: String,
    server: Option<(&'a PgCluster, String)>,
}

/// What the server had done at a moment.
pub(super) struct ServerSample {
    cpu: CpuSample,
    statements: Option<u64>,
}

impl Server {
    /// A new cluster with fsync on that counts statements, with room for WAL so that no checkpoint hits one
    /// measurement and spares another.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let options = PgOptions { fsync: true, ..PgOptions::default() };
        let options =
            options.set("shared_buffers", "256MB").set("max_wal_size", "4GB").counting_statements()?;
        let cluster = PgCluster::start(options).await.context("starting PostgreSQL")?;
        Ok(Self { cluster, databases: 0 })
    }

    /// A new migrated database.
    pub(super) async fn database(&mut self) -> anyhow::Result<Database<'_>> {
        let name = format!("bench_{}", self.databases);
        self.databases += 1;
        self.cluster.admin(&[format!("CREATE DATABASE {name}"), "CHECKPOINT".to_owned()]).await?;
        let url = self.cluster.url(&name);
        PostgresStore::migrate(&PostgresOptions::new(&url)).await.context("migrating the database")?;
        Ok(Database { kind: StoreKind::Postgres, url, server: Some((&self.cluster, name)) })
    }
}

impl Database<'_> {
    /// A file in a folder.
    pub(super) fn file(folder: &Path) -> Self {
        let url = format!("sqlite://{}", folder.join("gapless.db").display());
        Self { kind: StoreKind::Sqlite, url, server: None }
    }

    /// Reads the meters; none without a server of our own.
    pub(super) async fn sample(&self) -> anyhow::Result<Option<ServerSample>> {
        let Some((cluster, name)) = &self.server else { return Ok(None) };
        let statements = cluster.statements(name).await?;
        Ok(Some(ServerSample { cpu: CpuSample::take(cluster.pid()?, &[])?, statements }))
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
