//! The load: a process of its own posts the requests and waits for the last one to be CONFIRMED.
//!
//! It asks the node for its counters, never for single transactions, so that watching costs the same however many there
//! are. All times of a measurement are taken here, by one clock.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::poster::Poster;
use super::proof::{GAS, SINK, mark};
use super::scrape::Scrape;

/// How often the node is asked for its counters.
const LOOK: Duration = Duration::from_millis(100);
/// How often a submitter is asked for, at the end.
const SHORTLY: Duration = Duration::from_millis(10);
const CONFIRMED: &str = "gapless_finality_total{result=\"confirmed\"}";

/// What to post, and how.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) url: String,
    /// Requests are dealt out to these in turn.
    pub(super) submitters: Vec<String>,
    /// The first request's number.
    pub(super) first: u64,
    pub(super) count: u64,
    /// Requests in one call of the batch endpoint; none for a call each.
    pub(super) batch: Option<u64>,
    pub(super) connections: usize,
    /// The longest it may take.
    pub(super) seconds: u64,
    /// Whether to wait until everything is CONFIRMED.
    pub(super) to_the_end: bool,
}

/// How it went.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Loaded {
    /// From the first POST to the last answer.
    pub(super) accept_seconds: f64,
    /// From the first POST until the last transaction was CONFIRMED.
    pub(super) confirm_seconds: f64,
    /// Milliseconds from a POST to its answer.
    pub(super) post_p50_ms: f64,
    pub(super) post_p99_ms: f64,
}

/// What the process says as it goes, a line each.
#[derive(Debug, Serialize, Deserialize)]
enum Said {
    Reached(u64),
    Done(Loaded),
}

#[derive(Deserialize)]
struct BatchAnswer {
    items: Vec<ItemAnswer>,
}

#[derive(Deserialize)]
struct ItemAnswer {
    status: u16,
    #[serde(default)]
    detail: Option<String>,
}

/// Runs a plan in a process of its own.
pub(super) async fn drive(plan: &Plan, bar: &ProgressBar) -> anyhow::Result<Loaded> {
    let mut child = tokio::process::Command::new(std::env::current_exe()?)
        .arg("bench-load")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("starting the load")?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let mut stdin = stdin.context("the load has no input")?;
    stdin.write_all(&serde_json::to_vec(plan)?).await?;
    drop(stdin);
    let mut lines = BufReader::new(stdout.context("the load has no output")?).lines();
    let mut done = None;
    while let Some(line) = lines.next_line().await? {
        match serde_json::from_str(&line).with_context(|| format!("the load said `{line}`"))? {
            Said::Reached(count) => bar.set_position(count),
            Said::Done(loaded) => done = Some(loaded),
        }
    }
    let mut words = String::new();
    stderr.context("the load has no messages")?.read_to_string(&mut words).await?;
    child.wait().await?;
    done.with_context(|| format!("the load failed: {}", words.trim()))
}

/// The process: reads its plan, carries it out, says how it went.
pub(crate) async fn run() -> anyhow::Result<()> {
    let text = std::io::read_to_string(std::io::stdin())?;
    let plan: Plan = serde_json::from_str(&text).context("reading the plan")?;
    let loaded = carry_out(plan).await?;
    say(&Said::Done(loaded))
}

fn say(said: &Said) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(said)?);
    Ok(())
}

async fn carry_out(plan: Plan) -> anyhow::Result<Loaded> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let before = Scrape::of(&http, &plan.url).await?.at(CONFIRMED);
    let bodies = Arc::new(bodies(&plan)?);
    let (next, accepted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let began = Instant::now();
    let deadline = began + Duration::from_secs(plan.seconds);
    let mut posting = JoinSet::new();
    for _ in 0..plan.connections {
        let single = plan.batch.is_none();
        let path = if single { "/api/v1/tx" } else { "/api/v1/tx/batch" };
        let mut poster = Poster::connect(&plan.url, path).await?;
        let (bodies, next, accepted) = (bodies.clone(), next.clone(), accepted.clone());
        posting.spawn(async move {
            let mut took = Vec::new();
            while let Some(body) = bodies.get(next.fetch_add(1, Ordering::Relaxed)) {
                let asked = Instant::now();
                let count = post(&mut poster, body, single).await?;
                took.push(asked.elapsed());
                accepted.fetch_add(count, Ordering::Relaxed);
            }
            anyhow::Ok((took, began.elapsed()))
        });
    }
    let watching = async {
        loop {
            tokio::time::sleep(LOOK).await;
            let accepted = accepted.load(Ordering::Relaxed);
            let reached = if plan.to_the_end {
                (Scrape::of(&http, &plan.url).await?.at(CONFIRMED) - before) as u64
            } else {
                accepted
            };
            say(&Said::Reached(reached))?;
            if reached >= plan.count {
                let at = began.elapsed();
                return if plan.to_the_end {
                    stored(&http, &plan, began, deadline).await.map(|late| late.unwrap_or(at))
                } else {
                    anyhow::Ok(at)
                };
            }
            if Instant::now() >= deadline {
                let (all, doing) = (plan.count, if plan.to_the_end { "CONFIRMED" } else { "accepted" });
                bail!("after {} s {accepted} of {all} are accepted, {reached} {doing}", plan.seconds);
            }
        }
    };
    let posts = async {
        let (mut took, mut last) = (Vec::new(), Duration::ZERO);
        while let Some(done) = posting.join_next().await {
            let (some, end) = done??;
            took.extend(some);
            last = last.max(end);
        }
        anyhow::Ok((took, last))
    };
    let ((mut took, last), confirmed) = tokio::try_join!(posts, watching)?;
    took.sort();
    let ms = |share: f64| share_of(&took, share).as_secs_f64() * 1e3;
    Ok(Loaded {
        accept_seconds: last.as_secs_f64(),
        confirm_seconds: confirmed.as_secs_f64(),
        post_p50_ms: ms(0.5),
        post_p99_ms: ms(0.99),
    })
}

/// Counters move a moment before the write they tell of. Waits until every submitter's slots are resolved in the store;
/// when that was, unless it was so at the first look.
async fn stored(
    http: &reqwest::Client,
    plan: &Plan,
    began: Instant,
    deadline: Instant,
) -> anyhow::Result<Option<Duration>> {
    let mut late = None;
    for (at, submitter) in plan.submitters.iter().enumerate() {
        let expected = (at as u64..plan.count).step_by(plan.submitters.len()).count() as u64;
        let url = format!("{}/api/v1/submitters/{submitter}", plan.url);
        loop {
            let view: Value = http.get(&url).send().await?.error_for_status()?.json().await?;
            let resolved = view["resolved"].as_u64().unwrap_or_default();
            if resolved >= expected {
                break;
            }
            ensure!(Instant::now() < deadline, "{resolved} of {expected} slots of {submitter} are resolved");
            tokio::time::sleep(SHORTLY).await;
            late = Some(began.elapsed());
        }
    }
    Ok(late)
}

/// The time within which a share of the sorted times lies.
fn share_of(sorted: &[Duration], share: f64) -> Duration {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or_default()
}

/// Everything is made before the clock starts.
fn bodies(plan: &Plan) -> anyhow::Result<Vec<Vec<u8>>> {
    let item = |request: u64| {
        json!({
            "submitter": plan.submitters[request as usize % plan.submitters.len()],
            "requestId": format!("bench-{request}"),
            "payload": { "to": SINK, "data": mark(request), "gasLimit": GAS.to_string() },
        })
    };
    ensure!(!plan.submitters.is_empty() && plan.batch != Some(0), "no submitters, or empty batches");
    let end = plan.first + plan.count;
    let Some(batch) = plan.batch else {
        return (plan.first..end).map(|request| Ok(serde_json::to_vec(&item(request))?)).collect();
    };
    let body = |start: u64| {
        let items: Vec<_> = (start..(start + batch).min(end)).map(item).collect();
        Ok(serde_json::to_vec(&json!({ "items": items }))?)
    };
    (plan.first..end).step_by(usize::try_from(batch)?).map(body).collect()
}

/// Posts one request or a batch; how many were accepted, which must be all.
async fn post(poster: &mut Poster, body: &[u8], single: bool) -> anyhow::Result<u64> {
    let (status, bytes) = poster.post(body).await?;
    let expected = if single { 202 } else { 200 };
    ensure!(status == expected, "HTTP {status}: {}", String::from_utf8_lossy(bytes));
    if single {
        return Ok(1);
    }
    let answer: BatchAnswer = serde_json::from_slice(bytes).context("reading the answer to a batch")?;
    match answer.items.iter().find(|item| item.status != 202) {
        Some(item) => bail!("a request got {}: {}", item.status, item.detail.as_deref().unwrap_or_default()),
        None => Ok(answer.items.len() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_the_smallest_time_that_covers_it() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(share_of(&times, 0.5), Duration::from_millis(50));
        assert_eq!(share_of(&times, 0.99), Duration::from_millis(99));
        assert_eq!(share_of(&times[..1], 0.99), Duration::from_millis(1));
        assert_eq!(share_of(&[], 0.5), Duration::ZERO);
    }
}
