//! How fast requests are accepted: HTTP only, with nobody to send anything to, beside pgbench's single-row inserts on the
//! same server.

use anyhow::ensure;
use gapless_testkit::process::ScratchDir;
use indicatif::ProgressBar;
use serde::Serialize;

use super::accounts;
use super::load::{self, Plan};
use super::options::{BenchOptions, StoreKind};
use super::parts::{Database, Server};
use super::served::{Served, Setup};

/// Connections that post, and clients of pgbench.
pub(super) const CONNECTIONS: u32 = 64;
/// Requests in one call of the batch endpoint.
const BATCH: u64 = 250;
/// Batches are so much faster that as many requests would be over in a blink.
const MORE_IN_BATCHES: u64 = 5;
const SUBMITTERS: u64 = 10;
/// Seconds that pgbench inserts, before and after.
const YARDSTICK: u64 = 5;
/// A chain whose node does not answer: what is accepted stays queued.
const CHAIN: &str = "eip155:31337";
const NOBODY: &str = "http://127.0.0.1:1";

/// How it went.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Accepted {
    pub(super) store: StoreKind,
    /// Requests in a POST: one, or a batch.
    pub(super) per_post: u64,
    pub(super) connections: u32,
    pub(super) requests: u64,
    pub(super) accepted_per_second: f64,
    pub(super) post_p50_ms: f64,
    pub(super) post_p99_ms: f64,
    pub(super) gapless_cpu_ms_per_request: f64,
    pub(super) postgres_cpu_ms_per_request: Option<f64>,
    /// The better of pgbench's runs before and after; none without a server of our own.
    pub(super) pgbench_per_second: Option<f64>,
    pub(super) ratio_to_pgbench: Option<f64>,
}

/// Measures the single and the batch endpoint on one database.
pub(super) async fn measure(
    options: &BenchOptions,
    store: StoreKind,
    word: &str,
    server: Option<&mut Server>,
    bar: &ProgressBar,
) -> anyhow::Result<Vec<Accepted>> {
    let folder = ScratchDir::new("gapless-bench-", None)?;
    let accounts = accounts::draw(&format!("{word} accept {store:?}"), SUBMITTERS)?;
    let database = Database::make(store, server, folder.path()).await?;
    let setup = Setup {
        chain: CHAIN,
        rpc: NOBODY,
        database: &database,
        accounts: &accounts,
        mode: "strict",
        window: 1,
        confirmations: options.confirmations,
        queue: options.count * (MORE_IN_BATCHES + 1) + 1,
    };
    let node = Served::start(folder, &setup).await?;
    let submitters: Vec<String> =
        accounts.iter().map(|account| format!("{CHAIN}:{}", account.address)).collect();
    let seconds = YARDSTICK.min(options.seconds);
    let mut pgbench = database.pgbench(CONNECTIONS, seconds).await?;
    let mut found = Vec::new();
    for (per_post, first, count) in
        [(1, 0, options.count), (BATCH, options.count, options.count * MORE_IN_BATCHES)]
    {
        let plan = Plan {
            url: node.url().to_owned(),
            submitters: submitters.clone(),
            first,
            count,
            batch: (per_post > 1).then_some(per_post),
            connections: CONNECTIONS as usize,
            seconds: options.seconds,
            to_the_end: false,
        };
        let (before, cpu, server) = (node.scrape().await?, node.cpu()?, database.sample().await?);
        let loaded = load::drive(&plan, bar).await?;
        let (after, server_after) = (node.scrape().await?, database.sample().await?);
        let new = after.since(&before, "gapless_tx_create_total{result=\"new\"}");
        ensure!(new == count as f64, "{new} requests were new to the node, {count} were posted");
        let per_request = |used: std::time::Duration| used.as_secs_f64() * 1e3 / count as f64;
        found.push(Accepted {
            store,
            per_post,
            connections: CONNECTIONS,
            requests: count,
            accepted_per_second: count as f64 / loaded.accept_seconds,
            post_p50_ms: loaded.post_p50_ms,
            post_p99_ms: loaded.post_p99_ms,
            gapless_cpu_ms_per_request: per_request(node.cpu()?.saturating_sub(cpu)),
            postgres_cpu_ms_per_request: server
                .zip(server_after)
                .map(|(before, after)| per_request(after.cpu_since(&before))),
            pgbench_per_second: None,
            ratio_to_pgbench: None,
        });
    }
    if let Some(again) = database.pgbench(CONNECTIONS, seconds).await? {
        pgbench = pgbench.map(|first| first.max(again));
    }
    for accepted in &mut found {
        accepted.pgbench_per_second = pgbench;
        accepted.ratio_to_pgbench = pgbench.map(|pgbench| accepted.accepted_per_second / pgbench);
    }
    Ok(found)
}
