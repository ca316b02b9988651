//! Everything a run found, as written to JSON.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::history::HistoryCost;
use crate::machine::Machine;
use crate::pgbench::PlainInserts;
use crate::server::HotUpdates;
use crate::targets::Target;
use crate::throughput::Phase;

/// A run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// A smoke run: too short for its figures to be quoted.
    pub quick: bool,
    /// What it ran on.
    pub machine: Machine,
    /// The yardstick.
    pub pgbench: PlainInserts,
    /// Both stores, phase by phase.
    pub phases: Vec<Phase>,
    /// Of the largest batches; at best two of the three updates in a transaction's life.
    pub hot_updates: HotUpdates,
    /// With a history behind them.
    pub history: Vec<HistoryCost>,
    /// What was promised, and what came of it.
    pub targets: Vec<Target>,
}

impl Report {
    /// Writes it.
    pub fn write(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        let text = serde_json::to_string_pretty(self)?;
        fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
    }

    /// Reads one that was written before.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no report", path.display()))
    }
}
