//! The figures of a run, for people and for programs.

use serde::Serialize;

use super::accept::Accepted;
use super::raw::RawTry;
use super::through::Outcome;

/// A measurement without a figure: it failed, or the chain did not agree.
#[derive(Debug, Serialize)]
pub(super) struct Failed {
    pub(super) what: String,
    pub(super) why: String,
}

/// Everything a run found.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) cores: usize,
    pub(super) block_seconds: u64,
    /// The best of the raw tries.
    pub(super) raw_per_second: Option<f64>,
    pub(super) raw: Vec<RawTry>,
    pub(super) runs: Vec<Outcome>,
    pub(super) accept: Vec<Accepted>,
    pub(super) failed: Vec<Failed>,
}

impl Report {
    /// Holds every pipelined run against the best raw try.
    pub(super) fn compare(&mut self) {
        self.raw_per_second = self.raw.iter().map(|raw| raw.mined_per_second).reduce(f64::max);
        for run in self.runs.iter_mut().filter(|run| run.mode == "pipelined") {
            run.ratio_to_raw = self.raw_per_second.map(|raw| run.confirmed_per_second / raw);
        }
    }

    /// The tables.
    pub(super) fn text(&self) -> String {
        let raw = table(&RAW_HEAD, self.raw.iter().map(raw_row).collect());
        let runs = table(&HEAD, self.runs.iter().map(run_row).collect());
        let accept = table(&ACCEPT_HEAD, self.accept.iter().map(accept_row).collect());
        let tables: Vec<String> = [raw, runs, accept].into_iter().flatten().collect();
        tables.join("\n")
    }
}

const RAW_HEAD: [&str; 4] = ["raw: senders", "transactions", "mined/s", "node CPU ms/tx"];
const ACCEPT_HEAD: [&str; 9] = [
    "accept",
    "per POST",
    "connections",
    "requests",
    "accepted/s",
    "of pgbench",
    "POST ms p50/p99",
    "CPU ms/request: gapless",
    "postgres",
];
const HEAD: [&str; 17] = [
    "mode",
    "store",
    "submitters",
    "transactions",
    "accepted/s",
    "confirmed/s",
    "of raw",
    "POST ms p50/p99",
    "sent s p50/p99",
    "CPU ms/tx: gapless",
    "postgres",
    "node",
    "MB",
    "SQL/tx",
    "node requests/tx",
    "calls/tx",
    "per block mean/least",
];

fn raw_row(raw: &RawTry) -> Vec<String> {
    vec![
        raw.senders.to_string(),
        raw.transactions.to_string(),
        format!("{:.0}", raw.mined_per_second),
        figure(raw.node_cpu_ms_per_tx, 3),
    ]
}

fn run_row(run: &Outcome) -> Vec<String> {
    let cpu = run.cpu_ms_per_tx;
    vec![
        run.mode.to_owned(),
        run.store.name().to_owned(),
        run.submitters.to_string(),
        run.transactions.to_string(),
        format!("{:.0}", run.accepted_per_second),
        format!("{:.0}", run.confirmed_per_second),
        figure(run.ratio_to_raw, 3),
        format!("{:.0}/{:.0}", run.post_p50_ms, run.post_p99_ms),
        format!("{}/{}", bound(run.accepted_to_sent_p50_s), bound(run.accepted_to_sent_p99_s)),
        format!("{:.3}", cpu.gapless),
        figure(cpu.postgres, 3),
        figure(cpu.node, 3),
        format!("{:.0}", run.peak_memory_mb),
        figure(run.sql_per_tx, 2),
        format!("{:.3}", run.node_requests_per_tx),
        format!("{:.2}", run.node_calls_per_tx),
        format!("{:.2}/{:.2}", run.per_block_mean, run.per_block_least),
    ]
}

fn accept_row(accepted: &Accepted) -> Vec<String> {
    vec![
        accepted.store.name().to_owned(),
        accepted.per_post.to_string(),
        accepted.connections.to_string(),
        accepted.requests.to_string(),
        format!("{:.0}", accepted.accepted_per_second),
        figure(accepted.ratio_to_pgbench, 2),
        format!("{:.1}/{:.1}", accepted.post_p50_ms, accepted.post_p99_ms),
        format!("{:.3}", accepted.gapless_cpu_ms_per_request),
        figure(accepted.postgres_cpu_ms_per_request, 3),
    ]
}

fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

fn bound(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("≤{value}"))
}

/// Columns as wide as their widest cell; none without rows.
fn table(head: &[&str], rows: Vec<Vec<String>>) -> Option<String> {
    if rows.is_empty() {
        return None;
    }
    let mut lines = vec![head.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()];
    lines.extend(rows);
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let cell = |(cell, width): (&String, &usize)| format!("{cell:>width$}");
    let line = |line: &Vec<String>| line.iter().zip(&widths).map(cell).collect::<Vec<_>>().join("  ") + "\n";
    Some(lines.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![vec!["1".to_owned(), "≤0.1".to_owned()], vec!["100".to_owned(), "x".to_owned()]];
        assert_eq!(table(&["a", "b"], rows).unwrap(), "  a     b\n  1  ≤0.1\n100     x\n");
        assert_eq!(table(&["a"], vec![]), None);
    }
}
