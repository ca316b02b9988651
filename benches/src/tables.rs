//! A report as Markdown tables, for the terminal and for docs/benchmarks-store.md alike.

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};

use crate::history::{HistoryCost, OpCost};
use crate::report::Report;
use crate::throughput::Phase;

/// The whole report.
#[must_use]
pub fn render(report: &Report) -> String {
    let quick = if report.quick { "\n**Quick run: a smoke test, not a measurement.**\n" } else { "" };
    format!(
        "{}{quick}\n### Targets\n\n{}\n\n### Throughput and cost\n\n{}\n\n{}\n\n### With a history\n\n{}\n",
        machine(report),
        targets(report),
        throughput(report),
        yardstick(report),
        history(&report.history),
    )
}

fn table(header: &[&str], numbers_from: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header(header);
    for column in table.column_iter_mut().skip(numbers_from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn machine(report: &Report) -> String {
    let machine = &report.machine;
    let settings: Vec<String> =
        machine.settings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    format!(
        "{} cores ({}), {} MB, Linux {}, PostgreSQL {} ({}); fdatasync of 8 kB: {:.0} µs.\n",
        machine.cores,
        machine.cpu,
        machine.memory_mb,
        machine.kernel,
        machine.postgres,
        settings.join(", "),
        machine.fdatasync_us
    )
}

fn targets(report: &Report) -> Table {
    let mut table = table(&["target", "limit", "measured", "verdict", "how"], 1);
    for target in &report.targets {
        let verdict = if target.kept { "pass" } else { "FAIL" };
        table.add_row([
            target.promise.clone(),
            format!("{:.1}", target.limit),
            format!("{:.2}", target.measured),
            verdict.to_owned(),
            target.note.clone(),
        ]);
    }
    table
}

fn throughput(report: &Report) -> Table {
    let header = [
        "store",
        "batch",
        "phase",
        "under way",
        "tx",
        "tx/s",
        "call µs",
        "PG CPU µs/tx (sessions)",
        "PG CPU µs/tx (all)",
        "WAL bytes/tx",
    ];
    let mut table = table(&header, 1);
    for phase in &report.phases {
        table.add_row(row(phase));
    }
    table
}

fn row(phase: &Phase) -> Vec<String> {
    let mut row = vec![
        phase.store.clone(),
        phase.batch.to_string(),
        phase.phase.clone(),
        phase.tasks.to_string(),
        phase.transactions.to_string(),
        format!("{:.0}", phase.tx_per_second),
        format!("{:.0}", phase.call_us),
    ];
    row.extend(match phase.cost {
        Some(cost) => [
            format!("{:.1}", cost.cpu_backends_us),
            format!("{:.1}", cost.cpu_all_us),
            format!("{:.0}", cost.wal_bytes),
        ],
        None => ["–".to_owned(), "–".to_owned(), "–".to_owned()],
    });
    row
}

fn yardstick(report: &Report) -> String {
    let plain = &report.pgbench;
    let runs: Vec<String> = plain.runs.iter().map(|rate| format!("{rate:.0}")).collect();
    let hot = &report.hot_updates;
    format!(
        "pgbench, single-row inserts with {} clients: {:.0} tx/s (runs: {}), {:.1} µs of PostgreSQL CPU (all) and \
         {:.0} bytes of WAL each.\nHOT updates of tx_facts: {} of {} ({:.1} %).",
        plain.clients,
        plain.tx_per_second,
        runs.join(", "),
        plain.cpu_all_us,
        plain.wal_bytes,
        hot.hot,
        hot.updated,
        100.0 * hot.hot as f64 / hot.updated.max(1) as f64,
    )
}

/// Operations downwards, lengths across: the median, and how many times the empty side's of the same turns.
fn history(lengths: &[HistoryCost]) -> Table {
    let mut header = vec!["operation (median µs)".to_owned(), "lane".to_owned()];
    for length in lengths {
        let state = if length.analysed { " analysed" } else { "" };
        header.push(format!("{}{state}", length.finished));
        header.push("× empty".to_owned());
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = table(&header, 1);
    let names: Vec<&OpCost> = lengths.first().map_or_else(Vec::new, |first| first.ops.iter().collect());
    for (i, op) in names.iter().enumerate() {
        let mut row = vec![op.op.clone(), if op.of_lane { "yes" } else { "" }.to_owned()];
        for cost in lengths.iter().filter_map(|length| length.ops.get(i)) {
            row.extend(pair(cost.grown_us, cost.empty_us));
        }
        table.add_row(row);
    }
    let mut sums = vec!["all lane operations".to_owned(), "yes".to_owned()];
    for length in lengths {
        let of_lane = || length.ops.iter().filter(|op| op.of_lane);
        let (grown, empty) = (of_lane().map(|op| op.grown_us).sum(), of_lane().map(|op| op.empty_us).sum());
        sums.extend(pair(grown, empty));
    }
    table.add_row(sums);
    table
}

fn pair(grown: f64, empty: f64) -> [String; 2] {
    [format!("{grown:.0}"), format!("{:.2}", grown / empty)]
}
