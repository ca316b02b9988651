//! `gapless-sim`: runs seeds side by side, says how far it is, and which seed broke what.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use clap::Parser;
use gapless_sim::{Options, Outcome, Sabotage, run};

/// Runs the engine in seeded worlds and checks what it promises.
#[derive(Debug, Parser)]
struct Args {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run this seed alone.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Print all that happens.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// How many to run at once; as many as there are cores by default.
    #[arg(long)]
    jobs: Option<NonZero<usize>>,
    /// Break a promise on purpose.
    #[cfg(feature = "sabotage")]
    #[arg(long = "break", value_enum)]
    sabotage: Option<Broken>,
}

#[cfg(feature = "sabotage")]
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Broken {
    Fence,
    StoreBeforeSend,
}

impl Args {
    #[cfg(feature = "sabotage")]
    fn sabotage(&self) -> Option<Sabotage> {
        self.sabotage.map(|broken| match broken {
            Broken::Fence => Sabotage::NoFence,
            Broken::StoreBeforeSend => Sabotage::SendBeforeStore,
        })
    }

    #[cfg(not(feature = "sabotage"))]
    const fn sabotage(&self) -> Option<Sabotage> {
        None
    }
}

/// Failures shown in full.
const SHOWN: u64 = 3;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.seed {
        Some(seed) => one(seed, &args),
        None => many(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("sim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn one(seed: u64, args: &Args) -> std::io::Result<bool> {
    let outcome = run(seed, Options { trace: args.trace, sabotage: args.sabotage() })?;
    if args.trace {
        outcome.trace.iter().for_each(|line| println!("{line}"));
    }
    match &outcome.violation {
        None => println!("sim: seed {seed} passes, {}", told(&outcome.tally)),
        Some(violation) if args.trace => println!("sim: seed {seed} breaks {violation}"),
        Some(_) => show(&outcome),
    }
    Ok(outcome.violation.is_none())
}

fn show(outcome: &Outcome) {
    let Some(violation) = &outcome.violation else { return };
    println!("sim: seed {} breaks {violation}", outcome.seed);
    outcome.trace.iter().for_each(|line| println!("    {line}"));
    println!("    again: cargo run -p gapless-sim -- --seed {} --trace", outcome.seed);
}

fn told(tally: &BTreeMap<&'static str, u64>) -> String {
    let words: Vec<String> = tally.iter().map(|(what, times)| format!("{times} {what}")).collect();
    words.join(", ")
}

#[derive(Default)]
struct Sum {
    done: u64,
    failures: u64,
    tally: BTreeMap<&'static str, u64>,
}

fn many(args: &Args) -> std::io::Result<bool> {
    let cores = std::thread::available_parallelism()?;
    let jobs = args.jobs.unwrap_or(cores).get();
    let next = AtomicU64::new(args.from);
    let end = args.from.saturating_add(args.seeds);
    let sum: Mutex<Sum> = Mutex::default();
    let options = Options { trace: false, sabotage: args.sabotage() };
    let work = || -> std::io::Result<()> {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return Ok(());
            }
            let outcome = run(seed, options)?;
            let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
            sum.done += 1;
            for (what, times) in &outcome.tally {
                *sum.tally.entry(what).or_insert(0) += times;
            }
            if let Some(violation) = &outcome.violation {
                sum.failures += 1;
                if sum.failures <= SHOWN {
                    show(&outcome);
                } else {
                    println!("sim: seed {seed} breaks {violation}");
                }
            }
            if sum.done.is_multiple_of(100) {
                println!("sim: {} of {} seeds, {} failures", sum.done, args.seeds, sum.failures);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().unwrap_or_else(|_| Err(std::io::Error::other("a worker panicked")))
        })
    })?;
    let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("sim: {}", told(&sum.tally));
    println!("sim: {} seeds, {} failures", sum.done, sum.failures);
    Ok(sum.failures == 0)
}
