//! Counting now and then, for the metrics: submitters by condition, queues and open slots, by chain.
//!
//! Read from the store, so every node of a cluster tells the same figures: take the maximum over nodes, not the sum. A
//! submitter that stands still is counted too, which no lane would do for it.

use std::collections::BTreeMap;
use std::time::Duration;

use gapless_core::condition::Condition;
use gapless_core::limits::MAX_PAGE;
use gapless_core::ports::store::{Store, StoreResult};
use gapless_core::submitter::{ChainId, SubmitterId};
use tokio_util::sync::CancellationToken;

use crate::handle::Handle;
use crate::names;

/// The figures of one chain.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Figures {
    conditions: BTreeMap<Condition, u64>,
    queued: u64,
    open: u64,
}

/// Counting many submitters takes many statements; so many seconds each, at least, pass until the next count.
const PACE: Duration = Duration::from_millis(1_250);

/// Counts every `every` until cancelled, or more rarely where there is much to count. A store that does not answer leaves the
/// figures as they were.
pub async fn run(handle: Handle, every: Duration, stop: CancellationToken) {
    let chains: Vec<ChainId> = handle.registry().chains().into_iter().map(|(id, _)| id).collect();
    tell(chains.iter().map(|id| (id.clone(), Figures::default())));
    loop {
        let mut statements = 0;
        match count(handle.store().as_ref(), &chains, &mut statements).await {
            Ok(figures) => tell(figures),
            Err(error) => tracing::debug!(%error, "submitters cannot be counted now"),
        }
        let pause = every.max(PACE * statements);
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

async fn count(
    store: &dyn Store,
    chains: &[ChainId],
    statements: &mut u32,
) -> StoreResult<BTreeMap<ChainId, Figures>> {
    let mut figures: BTreeMap<ChainId, Figures> =
        chains.iter().map(|id| (id.clone(), Figures::default())).collect();
    let mut after: Option<SubmitterId> = None;
    loop {
        *statements += 2;
        let page = store.submitters(after.as_ref(), MAX_PAGE).await?;
        let names: Vec<SubmitterId> = page.iter().map(|info| info.submitter.clone()).collect();
        let depths = store.queue_depths(&names).await?;
        for (info, queued) in page.iter().zip(depths) {
            let of_chain = figures.entry(info.submitter.chain()).or_default();
            let cursor = &info.cursor.cursor;
            *of_chain.conditions.entry(cursor.conditions.gravest()).or_default() += 1;
            of_chain.queued += queued;
            of_chain.open += cursor.run.map_or(0, |run| run.open());
        }
        after = names.last().cloned();
        if names.len() < MAX_PAGE {
            return Ok(figures);
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "gauges are floating point; a figure beyond 2^53 is no figure"
)]
fn tell(figures: impl IntoIterator<Item = (ChainId, Figures)>) {
    for (chain, Figures { conditions, queued, open }) in figures {
        let chain = chain.to_string();
        metrics::gauge!(names::QUEUE_DEPTH, "chain" => chain.clone()).set(queued as f64);
        metrics::gauge!(names::IN_FLIGHT, "chain" => chain.clone()).set(open as f64);
        for condition in Condition::ALL {
            let count = conditions.get(condition).copied().unwrap_or_default();
            metrics::gauge!(names::SUBMITTERS, "chain" => chain.clone(), "condition" => condition.name())
                .set(count as f64);
        }
    }
}
