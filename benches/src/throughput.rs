//! How fast each store takes transactions through their life, and what that costs PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use gapless_core::ids::Nonce;
use gapless_core::ports::store::Store;
use gapless_core::record::NewTx;
use gapless_store::clock::SystemClock;
use gapless_store::sqlite::SqliteStore;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::server::{HotUpdates, Server, Used};
use crate::stats::{Stopwatch, median, micros};
use crate::workload::{Step, Tracked, Workload};

/// Batches under way at once in the concurrent variant of accepting: as if so many nodes did.
pub const TASKS: usize = 4;

/// How one phase went.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Phase {
    /// Which store.
    pub store: String,
    /// Transactions per call.
    pub batch: usize,
    /// accept, bind, mined or final.
    pub phase: String,
    /// Calls under way at once.
    pub tasks: usize,
    /// Transactions in all.
    pub transactions: usize,
    /// Transactions per second of time inside the store's calls.
    pub tx_per_second: f64,
    /// Median time of one call.
    pub call_us: f64,
    /// What PostgreSQL spent.
    pub cost: Option<Cost>,
}

/// What PostgreSQL spent on one transaction.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Cost {
    /// Processor time of the store's sessions.
    pub cpu_backends_us: f64,
    /// Processor time of the whole server, background processes included.
    pub cpu_all_us: f64,
    /// WAL.
    pub wal_bytes: f64,
}

impl Cost {
    fn of(used: Used, transactions: usize) -> Self {
        let each = transactions.max(1) as f64;
        Self {
            cpu_backends_us: micros(used.cpu.backends) / each,
            cpu_all_us: micros(used.cpu.all) / each,
            wal_bytes: used.wal_bytes as f64 / each,
        }
    }
}

/// How much of what.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Transactions per call.
    pub batch: usize,
    /// Transactions in all.
    pub transactions: usize,
}

/// All four phases on one store, after a warm-up that prepares the statements.
async fn life(store: &dyn Store, name: &str, size: Size, server: Option<&Server>) -> Result<Vec<Phase>> {
    let mut load = Workload::open(store, Nonce(0)).await?;
    warm_up(store, &mut load, size.batch).await?;
    let items = load.requests(size.transactions)?;
    let mut txs: Vec<Tracked> = Vec::with_capacity(items.len());
    let mut phases = Vec::new();

    let meter = Meter::start(server).await?;
    let mut calls = Vec::new();
    for batch in items.chunks(size.batch) {
        let (taken, accepted) = load.accept(store, batch).await?;
        calls.push(taken);
        txs.extend(accepted);
    }
    phases.push(meter.stop(name, "accept", size, &calls).await?);

    for step in Step::ALL {
        let meter = Meter::start(server).await?;
        let mut calls = Vec::new();
        for batch in txs.chunks_mut(size.batch) {
            calls.push(load.commit(store, step, batch).await?);
        }
        phases.push(meter.stop(name, step.name(), size, &calls).await?);
    }
    Ok(phases)
}

async fn warm_up(store: &dyn Store, load: &mut Workload, batch: usize) -> Result<()> {
    for _ in 0..4 {
        let items = load.requests(batch)?;
        let (_, mut txs) = load.accept(store, &items).await?;
        for step in Step::ALL {
            load.commit(store, step, &mut txs).await?;
        }
    }
    Ok(())
}

/// Reads PostgreSQL's meters around a phase, where there is a PostgreSQL.
struct Meter<'a> {
    server: Option<(&'a Server, crate::server::Sample)>,
}

impl<'a> Meter<'a> {
    async fn start(server: Option<&'a Server>) -> Result<Self> {
        Ok(Self {
            server: match server {
                Some(server) => Some((server, server.sample().await?)),
                None => None,
            },
        })
    }

    async fn cost(&self, transactions: usize) -> Result<Option<Cost>> {
        Ok(match &self.server {
            Some((server, before)) => Some(Cost::of(server.used_since(before).await?, transactions)),
            None => None,
        })
    }

    async fn stop(self, store: &str, phase: &str, size: Size, calls: &[Duration]) -> Result<Phase> {
        let inside: Duration = calls.iter().sum();
        Ok(Phase {
            store: store.to_owned(),
            batch: size.batch,
            phase: phase.to_owned(),
            tasks: 1,
            transactions: size.transactions,
            tx_per_second: size.transactions as f64 / inside.as_secs_f64(),
            call_us: median(calls.iter().copied().map(micros)),
            cost: self.cost(size.transactions).await?,
        })
    }
}

/// A life on a new PostgreSQL database.
pub async fn postgres(server: &Server, size: Size) -> Result<(Vec<Phase>, HotUpdates)> {
    let database = server.store("life", None).await?;
    let phases = life(&database.store, "PostgreSQL", size, Some(server)).await?;
    Ok((phases, server.close(database).await?))
}

/// A life on a new SQLite file.
pub async fn sqlite(size: Size) -> Result<Vec<Phase>> {
    let folder = tempfile::tempdir().context("making a folder for SQLite")?;
    let store = SqliteStore::open(&folder.path().join("bench.db"), Arc::new(SystemClock)).await?;
    life(&store, "SQLite", size, None).await
}

/// Accepting with several batches under way at once, on a new PostgreSQL database.
pub async fn postgres_accept_concurrently(server: &Server, size: Size) -> Result<Phase> {
    let database = server.store("accept", None).await?;
    let mut load = Workload::open(&database.store, Nonce(0)).await?;
    // Every session that will work must have its statements prepared.
    for _ in 0..2 {
        let items = load.requests(size.batch * TASKS)?;
        accept_all(&database.store, items, size.batch).await?;
    }
    let items = load.requests(size.transactions)?;
    let before = server.sample().await?;
    let watch = Stopwatch::start();
    let calls = accept_all(&database.store, items, size.batch).await?;
    let taken = watch.elapsed();
    let used = server.used_since(&before).await?;
    server.close(database).await?;
    Ok(Phase {
        store: "PostgreSQL".to_owned(),
        batch: size.batch,
        phase: "accept".to_owned(),
        tasks: TASKS,
        transactions: size.transactions,
        tx_per_second: size.transactions as f64 / taken.as_secs_f64(),
        call_us: median(calls.into_iter().map(micros)),
        cost: Some(Cost::of(used, size.transactions)),
    })
}

async fn accept_all<S>(store: &S, items: Vec<NewTx>, batch: usize) -> Result<Vec<Duration>>
where
    S: Store + Clone + 'static,
{
    let batches: Vec<Vec<NewTx>> = items.chunks(batch).map(<[NewTx]>::to_vec).collect();
    let mut shares: Vec<Vec<Vec<NewTx>>> = vec![Vec::new(); TASKS];
    for (i, batch) in batches.into_iter().enumerate() {
        shares[i % TASKS].push(batch);
    }
    let mut tasks = JoinSet::new();
    for share in shares {
        let store = store.clone();
        tasks.spawn(async move {
            let mut calls = Vec::with_capacity(share.len());
            for batch in share {
                let watch = Stopwatch::start();
                store.accept(&batch).await?;
                calls.push(watch.elapsed());
            }
            anyhow::Ok(calls)
        });
    }
    let mut calls = Vec::new();
    while let Some(done) = tasks.join_next().await {
        calls.extend(done??);
    }
    Ok(calls)
}

/// The middle of several rounds of the same phase, figure by figure.
#[must_use]
pub fn middle(rounds: &[Phase]) -> Option<Phase> {
    let first = rounds.first()?.clone();
    let costs: Vec<Cost> = rounds.iter().filter_map(|phase| phase.cost).collect();
    let cost = (!costs.is_empty()).then(|| Cost {
        cpu_backends_us: median(costs.iter().map(|cost| cost.cpu_backends_us)),
        cpu_all_us: median(costs.iter().map(|cost| cost.cpu_all_us)),
        wal_bytes: median(costs.iter().map(|cost| cost.wal_bytes)),
    });
    Some(Phase {
        tx_per_second: median(rounds.iter().map(|phase| phase.tx_per_second)),
        call_us: median(rounds.iter().map(|phase| phase.call_us)),
        cost,
        ..first
    })
}
