//! What the store promises, judged by what was measured.

use serde::{Deserialize, Serialize};

use crate::history::{HistoryCost, OpCost};
use crate::pgbench::PlainInserts;
use crate::throughput::Phase;

/// The batch size the promises are about.
pub const BATCH: usize = 256;

/// A promise and what came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Target {
    /// The promise.
    pub promise: String,
    /// The limit.
    pub limit: f64,
    /// The figure.
    pub measured: f64,
    /// How the figure came about.
    pub note: String,
    /// Whether it was kept.
    pub kept: bool,
}

/// Judges all of them.
#[must_use]
pub fn judge(pgbench: &PlainInserts, phases: &[Phase], history: &[HistoryCost]) -> Vec<Target> {
    let accepts = accept_rate(pgbench, phases);
    [accepts, processor_time(phases), long_history(history)].into_iter().flatten().collect()
}

fn of_postgres(phases: &[Phase]) -> impl Iterator<Item = &Phase> {
    phases.iter().filter(|phase| phase.cost.is_some() && phase.batch == BATCH)
}

fn accept_rate(pgbench: &PlainInserts, phases: &[Phase]) -> Option<Target> {
    let best = of_postgres(phases)
        .filter(|phase| phase.phase == "accept")
        .max_by(|a, b| a.tx_per_second.total_cmp(&b.tx_per_second))?;
    let measured = best.tx_per_second / pgbench.tx_per_second;
    Some(Target {
        promise: format!("PostgreSQL accepts, {BATCH} per batch: at least 2 × pgbench's single-row inserts"),
        limit: 2.0,
        measured,
        note: format!(
            "{:.0} tx/s with {} batch(es) under way, pgbench {:.0} tx/s with {} clients",
            best.tx_per_second, best.tasks, pgbench.tx_per_second, pgbench.clients
        ),
        kept: measured >= 2.0,
    })
}

fn processor_time(phases: &[Phase]) -> Option<Target> {
    let life: Vec<_> =
        of_postgres(phases).filter(|phase| phase.tasks == 1).filter_map(|phase| phase.cost).collect();
    if life.is_empty() {
        return None;
    }
    let measured = life.iter().map(|cost| cost.cpu_backends_us).sum();
    let all: f64 = life.iter().map(|cost| cost.cpu_all_us).sum();
    Some(Target {
        promise: format!("accept + bind + mined + final, {BATCH} per batch: at most 60 µs of PostgreSQL CPU"),
        limit: 60.0,
        measured,
        note: format!("the store's sessions; {all:.1} µs with PostgreSQL's background processes"),
        kept: measured <= 60.0,
    })
}

fn long_history(history: &[HistoryCost]) -> Option<Target> {
    let longest = history.iter().map(|cost| cost.finished).max()?;
    let worst = history
        .iter()
        .filter(|cost| cost.finished == longest)
        .flat_map(|cost| cost.ops.iter().map(move |op| (cost.analysed, op)))
        .filter(|(_, op)| op.of_lane)
        .max_by(|(_, a), (_, b)| a.ratio().total_cmp(&b.ratio()))?;
    let (analysed, op) = worst;
    // With both sides empty the ratio should be 1: what it is instead is this machine's noise.
    let noise = history.iter().find(|cost| cost.finished == 0);
    let noise =
        noise.and_then(|cost| cost.ops.iter().find(|same| same.op == op.op)).map_or(1.0, OpCost::ratio);
    Some(Target {
        promise: format!(
            "every lane operation with {longest} finished rows: within 1.3 × of an empty history"
        ),
        limit: 1.3,
        measured: op.ratio(),
        note: format!(
            "the worst is {}: {:.0} µs instead of {:.0} µs, {} VACUUM ANALYZE, planned at {} transactions; with both \
             sides empty {noise:.2}",
            op.op,
            op.grown_us,
            op.empty_us,
            if analysed { "after" } else { "before" },
            op.planned_at
        ),
        kept: op.ratio() <= 1.3,
    })
}
