//! Measures the stores: `make bench-store`. What each figure means: docs/benchmarks-store.md.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use gapless_benches::history::{self, Plan};
use gapless_benches::machine::Machine;
use gapless_benches::pgbench::Pgbench;
use gapless_benches::report::Report;
use gapless_benches::server::{HotUpdates, Server};
use gapless_benches::stats::Stopwatch;
use gapless_benches::throughput::{self, Phase, Size, middle};
use gapless_benches::{tables, targets};

/// Measure the stores: throughput, PostgreSQL's cost per transaction, and the weight of a long history.
#[derive(Debug, Parser)]
#[command(name = "bench-store")]
struct Flags {
    /// Where to write the figures
    #[arg(long, value_name = "FILE", default_value = "bench-out/store.json")]
    out: PathBuf,
    /// Run everything at about a tenth: a smoke test
    #[arg(long)]
    quick: bool,
    /// Measure nothing; print the tables of a run that was written before
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "out"])]
    show: Option<PathBuf>,
}

/// How much of everything.
struct Extent {
    sizes: [Size; 3],
    rounds: usize,
    pgbench_seconds: u32,
    history: Plan,
}

impl Extent {
    fn of(quick: bool) -> Self {
        let cut = if quick { 10 } else { 1 };
        let size = |batch, transactions| Size { batch, transactions: transactions / cut };
        Self {
            sizes: [size(1, 2_560), size(16, 12_800), size(256, 51_200)],
            rounds: 3,
            pgbench_seconds: if quick { 1 } else { 8 },
            history: Plan { lengths: vec![0, 100_000 / cut, 1_000_000 / cut], turns: 360 / cut.min(3) },
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let flags = Flags::parse();
    if let Some(path) = &flags.show {
        println!("{}", tables::render(&Report::read(path)?));
        return Ok(());
    }
    let watch = Stopwatch::start();
    let tell = |line: &str| eprintln!("[{:>5.1} s] {line}", watch.elapsed().as_secs_f64());
    let report = run(&flags, &tell).await?;
    report.write(&flags.out)?;
    println!("{}", tables::render(&report));
    tell(&format!("done; figures in {}", flags.out.display()));
    Ok(())
}

async fn run(flags: &Flags, tell: &dyn Fn(&str)) -> Result<Report> {
    let extent = Extent::of(flags.quick);
    tell("starting PostgreSQL with fsync on");
    let server = Server::start().await?;
    let machine = Machine::look(server.version().await?, Server::settings(), &server.folder())?;
    let mut pgbench = Pgbench::prepare(&server, extent.pgbench_seconds).await?;
    let mut phases = Vec::new();
    let [one, some, many] = extent.sizes;
    for size in [one, some] {
        tell(&format!("PostgreSQL, batches of {}", size.batch));
        phases.extend(throughput::postgres(&server, size).await?.0);
    }
    let (of_many, hot_updates) = in_turns(&server, &mut pgbench, many, extent.rounds, tell).await?;
    phases.extend(of_many);
    for size in extent.sizes {
        tell(&format!("SQLite, batches of {}", size.batch));
        phases.extend(throughput::sqlite(size).await?);
    }
    let history = history::measure(&server, &extent.history, tell).await?;
    let pgbench = pgbench.result();
    let targets = targets::judge(&pgbench, &phases, &history);
    Ok(Report { quick: flags.quick, machine, pgbench, phases, hot_updates, history, targets })
}

/// What is compared with pgbench takes turns with it; the middle of all rounds counts.
async fn in_turns(
    server: &Server,
    pgbench: &mut Pgbench,
    size: Size,
    rounds: usize,
    tell: &dyn Fn(&str),
) -> Result<(Vec<Phase>, HotUpdates)> {
    let mut lives: Vec<Vec<Phase>> = Vec::new();
    let mut hot = HotUpdates { updated: 0, hot: 0 };
    for round in 1..=rounds {
        tell(&format!("round {round} of {rounds}: pgbench"));
        let rate = pgbench.run(server).await?;
        tell(&format!(
            "round {round} of {rounds}: {rate:.0} inserts/s; PostgreSQL, batches of {}",
            size.batch
        ));
        let (mut life, updates) = throughput::postgres(server, size).await?;
        life.insert(1, throughput::postgres_accept_concurrently(server, size).await?);
        hot = HotUpdates { updated: hot.updated + updates.updated, hot: hot.hot + updates.hot };
        lives.push(life);
    }
    let phases = lives.first().map_or(0, Vec::len);
    let nth = |i: usize| lives.iter().filter_map(|life| life.get(i).cloned()).collect::<Vec<_>>();
    Ok(((0..phases).filter_map(|i| middle(&nth(i))).collect(), hot))
}
