//! What `gapless bench` can be asked.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::Serialize;

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// The node by itself: signed transactions fired at it in batches
    Raw,
    /// Many transactions in flight per submitter, beside the node by itself
    Pipelined,
    /// One transaction in flight per submitter
    Strict,
    /// HTTP only, 64 connections, beside pgbench
    Accept,
    /// All of them
    All,
}

/// Where transactions are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreKind {
    /// A PostgreSQL server
    Postgres,
    /// A SQLite file
    Sqlite,
}

impl StoreKind {
    /// As it is written.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Sqlite => "sqlite",
        }
    }
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct BenchOptions {
    /// What to measure
    #[arg(value_enum, default_value = "all", value_name = "SCENARIO")]
    pub(super) scenarios: Vec<Scenario>,

    /// Where transactions are stored
    #[arg(long, value_enum, value_delimiter = ',', default_value = "postgres,sqlite")]
    pub(super) store: Vec<StoreKind>,

    /// Transactions of each measurement
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) count: u64,

    /// Submitters, one measurement after another (default: 1,10,100 pipelined, 200 strict)
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(super) submitters: Vec<u16>,

    /// Transactions of each submitter in strict mode
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(2..=1_000))]
    pub(super) each: u16,

    /// Transactions in flight per submitter in pipelined mode
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) window: u64,

    /// Blocks above a transaction's before it is CONFIRMED
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(super) confirmations: u64,

    /// The longest that one measurement may take
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(super) seconds: u64,

    /// Seconds between blocks of a node that is started for a measurement
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60), value_name = "SECONDS")]
    pub(super) block_time: u64,

    /// A development node of yours (it must know anvil_setBalance), instead of a fresh one for each measurement
    #[arg(long, value_name = "URL")]
    pub(super) rpc: Option<String>,

    /// A PostgreSQL database of yours, instead of a server for the run: schemas named gapless_bench_… come and go
    #[arg(long, env = "GAPLESS_BENCH_DATABASE", hide_env_values = true, value_name = "URL")]
    pub(super) database: Option<String>,

    /// Register so many submitters that do nothing
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100_000), value_name = "N")]
    pub(super) idle_submitters: u64,

    /// Begin with so many finished transactions in the database (PostgreSQL started for the run only)
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=10_000_000), value_name = "N")]
    pub(super) history: u64,

    /// Write the figures as JSON to a file as well
    #[arg(long, value_name = "FILE")]
    pub(super) json_file: Option<PathBuf>,

    /// Draw the figures
    #[arg(long, value_name = "FILE.svg")]
    pub(super) plot: Option<PathBuf>,
}

impl BenchOptions {
    /// Whether a scenario was asked for.
    pub(super) fn wants(&self, scenario: Scenario) -> bool {
        self.scenarios.iter().any(|wanted| *wanted == scenario || *wanted == Scenario::All)
    }

    /// The numbers of submitters to measure with.
    pub(super) fn submitters_or(&self, usual: &[u16]) -> Vec<u16> {
        if self.submitters.is_empty() { usual.to_vec() } else { self.submitters.clone() }
    }
}
