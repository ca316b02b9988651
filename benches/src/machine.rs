//! What the figures were measured on. Without this they mean nothing.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::stats::{Stopwatch, median, micros};

/// The machine and the server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Processors this process may use.
    pub cores: usize,
    /// Their name.
    pub cpu: String,
    /// Main memory.
    pub memory_mb: u64,
    /// The kernel's version.
    pub kernel: String,
    /// PostgreSQL's version.
    pub postgres: String,
    /// Settings of the server that differ from its defaults.
    pub settings: Vec<(String, String)>,
    /// Median time of one 8 kB write with fdatasync, on the disk the databases are on.
    pub fdatasync_us: f64,
}

impl Machine {
    /// Looks around. `folder` lies on the disk to probe.
    pub fn look(postgres: String, settings: Vec<(String, String)>, folder: &Path) -> Result<Self> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Ok(Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: after_colon(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".to_owned()),
            memory_mb: after_colon(&read("/proc/meminfo"), "MemTotal")
                .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
                .map_or(0, |kb| kb / 1024),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            postgres,
            settings,
            fdatasync_us: probe_disk(folder)?,
        })
    }
}

fn after_colon(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn probe_disk(folder: &Path) -> Result<f64> {
    let mut file: File = tempfile::tempfile_in(folder).context("making a file to probe the disk with")?;
    let page = [7_u8; 8192];
    let mut taken = Vec::new();
    for _ in 0..300 {
        let watch = Stopwatch::start();
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&page)?;
        file.sync_data()?;
        taken.push(micros(watch.elapsed()));
    }
    Ok(median(taken))
}
