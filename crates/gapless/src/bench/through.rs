//! Transactions through Gapless, from the first POST to the last CONFIRMED, and what every process spent on them.

use std::time::Duration;

use alloy_primitives::Address;
use anyhow::{Context, ensure};
use gapless_testkit::process::ScratchDir;
use indicatif::ProgressBar;
use serde::Serialize;

use super::accounts;
use super::ledger::Ledger;
use super::load::{self, Plan};
use super::options::{BenchOptions, StoreKind};
use super::parts::{Chain, Database, Server};
use super::proof::{self, Asked};
use super::scrape::Scrape;
use super::served::{Served, Setup};

/// Requests in one POST, and connections that carry them.
const BATCH: u64 = 1_000;
const CONNECTIONS: usize = 4;
/// Submitters that a history belongs to.
const HISTORY_OWNERS: u64 = 1_000;

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) mode: &'static str,
    pub(super) store: StoreKind,
    pub(super) submitters: u64,
    pub(super) count: u64,
}

/// Milliseconds of processor time per transaction.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Cpu {
    pub(super) gapless: f64,
    /// None without a server of our own.
    pub(super) postgres: Option<f64>,
    /// None of a node that is not ours to look at.
    pub(super) node: Option<f64>,
}

/// How it went.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outcome {
    pub(super) mode: &'static str,
    pub(super) store: StoreKind,
    pub(super) submitters: u64,
    pub(super) transactions: u64,
    /// In flight per submitter.
    pub(super) window: u64,
    pub(super) confirmations: u64,
    /// From the first POST to the last CONFIRMED.
    pub(super) seconds: f64,
    pub(super) accepted_per_second: f64,
    pub(super) confirmed_per_second: f64,
    /// Against the best raw try of the run.
    pub(super) ratio_to_raw: Option<f64>,
    /// From a POST of up to a thousand requests to its answer.
    pub(super) post_p50_ms: f64,
    pub(super) post_p99_ms: f64,
    /// From acceptance to the first broadcast; upper bounds of histogram buckets.
    pub(super) accepted_to_sent_p50_s: Option<f64>,
    pub(super) accepted_to_sent_p99_s: Option<f64>,
    pub(super) cpu_ms_per_tx: Cpu,
    pub(super) peak_memory_mb: f64,
    /// None where nobody counts them.
    pub(super) sql_per_tx: Option<f64>,
    pub(super) node_requests_per_tx: f64,
    pub(super) node_calls_per_tx: f64,
    pub(super) store_commits_per_tx: f64,
    /// Transactions of a submitter per block, from its first block to its last.
    pub(super) per_block_mean: f64,
    pub(super) per_block_least: f64,
}

/// Measures one case on a fresh node and a database of its own.
pub(super) async fn measure(
    options: &BenchOptions,
    case: Case,
    word: &str,
    server: Option<&mut Server>,
    bar: &ProgressBar,
) -> anyhow::Result<Outcome> {
    let Case { mode, store, submitters, count } = case;
    let chain = Chain::start(options).await?;
    let (rpc, ledger) = (chain.url(), Ledger::new(chain.url())?);
    let id = ledger.chain().await?;
    let mut accounts = accounts::make(word, submitters, &ledger).await?;
    let addresses: Vec<Address> = accounts.iter().map(|account| account.address).collect();
    // An account of its own: what went before must not be among the nonces that are looked at.
    let past = accounts::draw(&format!("{word} past"), u64::from(options.history > 0))?;
    let past = past.into_iter().next();
    let past_name = past.as_ref().map(|account| format!("{id}:{}", account.address));
    accounts::fund(past.as_slice(), &ledger).await?;
    accounts.extend(past);
    let folder = ScratchDir::new("gapless-bench-", None)?;
    let database = Database::make(store, server, folder.path()).await?;
    let setup = Setup {
        chain: &id,
        rpc: &rpc,
        database: &database,
        accounts: &accounts,
        mode,
        window: options.window,
        confirmations: options.confirmations,
        queue: count.max(100_000),
    };
    let node = Served::start(folder, &setup).await?;
    node.register(&id, &format!("{word} idle"), options.idle_submitters).await?;
    if let Some(past) = past_name {
        let first = Plan { submitters: vec![past], count: 1, ..plan(&node, options) };
        load::drive(&first, &ProgressBar::hidden())
            .await
            .context("the transaction that the history copies")?;
        let owners = node.register(&id, &format!("{word} history"), HISTORY_OWNERS).await?;
        database.pour(&owners, options.history).await.context("pouring a history")?;
    }
    let names = addresses.iter().map(|address| format!("{id}:{address}")).collect();
    let plan = Plan { submitters: names, count, ..plan(&node, options) };

    let before = Sample::take(&node, &database, &chain).await?;
    let height = ledger.height().await?;
    let loaded = load::drive(&plan, bar).await;
    let loaded = loaded.with_context(|| format!("the node's log ends with:\n{}", node.log()))?;
    let after = Sample::take(&node, &database, &chain).await?;

    let rates = proof::check(&Asked { accounts: &addresses, count }, &ledger.mined_above(height).await?)?;
    let grown = |name: &str| after.scrape.since(&before.scrape, name);
    // A write that had to be repeated was counted twice, so CONFIRMED is told by the resolved slots, less these.
    for result in ["failed", "withdrawn"] {
        let found = grown(&format!("gapless_finality_total{{result=\"{result}\"}}"));
        ensure!(found == 0.0, "{found} transactions ended as {result}");
    }
    let each = |figure: f64| figure / count as f64;
    let per_tx = |used: Duration| each(used.as_secs_f64() * 1e3);
    let sent = |share| after.scrape.quantile("gapless_accepted_to_sent_seconds", share);
    let servers = before.server.as_ref().zip(after.server.as_ref());
    Ok(Outcome {
        mode,
        store,
        submitters,
        transactions: count,
        window: if mode == "strict" { 1 } else { options.window },
        confirmations: options.confirmations,
        seconds: loaded.confirm_seconds,
        accepted_per_second: count as f64 / loaded.accept_seconds,
        confirmed_per_second: count as f64 / loaded.confirm_seconds,
        ratio_to_raw: None,
        post_p50_ms: loaded.post_p50_ms,
        post_p99_ms: loaded.post_p99_ms,
        accepted_to_sent_p50_s: sent(0.5),
        accepted_to_sent_p99_s: sent(0.99),
        cpu_ms_per_tx: Cpu {
            gapless: per_tx(after.gapless.saturating_sub(before.gapless)),
            postgres: servers.map(|(before, after)| per_tx(after.cpu_since(before))),
            node: before.node.zip(after.node).map(|(before, after)| per_tx(after.saturating_sub(before))),
        },
        peak_memory_mb: node.peak_memory()? as f64 / f64::from(1 << 20),
        sql_per_tx: servers.and_then(|(before, after)| Some(each(after.statements_since(before)? as f64))),
        node_requests_per_tx: each(grown("gapless_rpc_requests_total")),
        node_calls_per_tx: each(grown("gapless_rpc_calls_total")),
        store_commits_per_tx: each(grown("gapless_store_commit_seconds_count")),
        per_block_mean: rates.mean,
        per_block_least: rates.least,
    })
}

/// The load's manner; who sends how many is still to be said.
fn plan(node: &Served, options: &BenchOptions) -> Plan {
    Plan {
        url: node.url().to_owned(),
        submitters: Vec::new(),
        first: 0,
        count: 0,
        batch: Some(BATCH),
        connections: CONNECTIONS,
        seconds: options.seconds,
        to_the_end: true,
    }
}

/// All meters at a moment.
struct Sample {
    gapless: Duration,
    node: Option<Duration>,
    server: Option<super::parts::ServerSample>,
    scrape: Scrape,
}

impl Sample {
    async fn take(node: &Served, database: &Database<'_>, chain: &Chain) -> anyhow::Result<Self> {
        Ok(Self {
            scrape: node.scrape().await?,
            gapless: node.cpu()?,
            node: chain.cpu()?,
            server: database.sample().await?,
        })
    }
}
