//! One seed from its beginning to its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gapless_core::ports::store::{Store, TxFilter};
use gapless_core::state::TxState;

use crate::check::{Invariant, Violation};
use crate::client;
use crate::node::Node;
use crate::trouble;
use crate::world::World;

/// A promise broken on purpose, to see that somebody notices. Without the feature `sabotage` there is none to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// The store ignores owner, token, expiry and version.
    #[cfg(feature = "sabotage")]
    NoFence,
    /// Lanes hand signed bytes to the chain before they are stored.
    #[cfg(feature = "sabotage")]
    SendBeforeStore,
}

/// How to run a seed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Keep the whole trace, not only its tail.
    pub trace: bool,
    /// What to break.
    pub sabotage: Option<Sabotage>,
}

/// What came of a seed.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Which.
    pub seed: u64,
    /// What was broken first, if anything.
    pub violation: Option<Violation>,
    /// What happened, or the tail of it.
    pub trace: Vec<String>,
    /// How often what went wrong.
    pub tally: BTreeMap<&'static str, u64>,
}

/// How long a node may take to drain.
const DRAIN: Duration = Duration::from_secs(20);

/// Runs one seed on a runtime of its own.
pub fn run(seed: u64, options: Options) -> std::io::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(async {
        let world = World::new(seed, &options);
        tokio::select! {
            biased;
            () = world.broken() => {}
            () = live(world.clone()) => {}
        }
        Outcome { seed, violation: world.violation(), trace: world.trace.take(), tally: world.tally.take() }
    }))
}

async fn live(world: Arc<World>) {
    let scenario = &world.scenario;
    world.trace.line("world", &format!("{scenario:?}"));
    tokio::spawn(world.clone().make_blocks());
    let nodes: Arc<[Arc<Node>]> = (0..scenario.nodes).map(|n| Node::new(&world, n)).collect();
    for node in nodes.iter() {
        tokio::spawn(node.clone().supervise());
    }
    tokio::spawn(trouble::befall(world.clone(), nodes.clone()));
    let clients: Vec<_> = (0..scenario.requests)
        .map(|n| tokio::spawn(client::request(world.clone(), nodes.clone(), n)))
        .collect();
    tokio::time::sleep(scenario.troubled).await;
    world.end_trouble();
    nodes.iter().for_each(|node| node.running().gate.disarm());
    let bound = scenario.patience();
    let all = async {
        for client in clients {
            if client.await.is_err() {
                world.breaks(Violation::world("a client died"));
            }
        }
        while let Some(waiting) = unended(&world).await {
            world.waits_for(waiting);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    if tokio::time::timeout(bound, all).await.is_err() {
        let what = format!("{bound:?} after the last fault, still not over: {}", world.waiting());
        return world.breaks(Violation::new(Invariant::Progress, what));
    }
    drain(&world, &nodes).await;
    world.look().await;
    finally(&world).await;
}

/// What has not ended yet, in words.
async fn unended(world: &World) -> Option<String> {
    let filter = TxFilter { limit: 1_000, ..TxFilter::default() };
    let txs = world.store.list(&filter).await.unwrap_or_default();
    let waiting: Vec<String> = txs
        .iter()
        .filter(|tx| !tx.facts.state.is_terminal())
        .map(|tx| format!("{} {} {:?}", tx.request.request_id.as_str(), tx.facts.state, tx.facts.wait))
        .collect();
    (!waiting.is_empty()).then(|| waiting.join("; "))
}

/// Every node stops when asked, and gives its leases back.
async fn drain(world: &World, nodes: &[Arc<Node>]) {
    let stopped = async {
        for node in nodes {
            // One that crashed last may still be on its way back.
            while node.running().handle.is_none() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            node.stop();
        }
        for node in nodes {
            node.stopped().await;
        }
    };
    if tokio::time::timeout(DRAIN, stopped).await.is_err() {
        let what = format!("a node did not drain within {DRAIN:?}");
        world.breaks(Violation::new(Invariant::Progress, what));
    }
}

/// Each request stands on the chain as often as its end says: once, in one form, or not at all.
async fn finally(world: &World) {
    let mut marks = BTreeMap::new();
    for placed in world.chain().canonical().filter(|placed| !placed.tx.mark.is_empty()) {
        *marks.entry(placed.tx.mark.to_vec()).or_insert(0_u32) += 1;
    }
    for n in 0..world.scenario.requests {
        let request = world.scenario.request(n);
        let Some(request) = request else { return world.breaks(Violation::world("no such request")) };
        let scope = gapless_core::ids::Scope::from(&request.submitter);
        let Ok(Some(tx)) = world.store.tx_by_request(&scope, &request.request_id).await else {
            return world.breaks(Violation::new(Invariant::Once, format!("request-{n} is gone")));
        };
        let thoughts = world.thoughts(n);
        let first = marks.remove(format!("request-{n}").as_bytes()).unwrap_or(0);
        let second = marks.remove(format!("replaced-{n}").as_bytes()).unwrap_or(0);
        let right = match tx.facts.state {
            TxState::Confirmed => {
                (first, second) == (1, 0) || ((first, second) == (0, 1) && thoughts.replaced)
            }
            TxState::Cancelled => (first, second) == (0, 0) && thoughts.cancelled,
            TxState::FailedFinal => (first, second) == (0, 0) && world.has_lied(),
            _ => false,
        };
        if !right {
            let what = format!(
                "request-{n} ended as {}, took effect {first} and {second} times, {thoughts:?}",
                tx.facts.state
            );
            return world.breaks(Violation::new(Invariant::Once, what));
        }
        world.tally.add(match tx.facts.state {
            TxState::Confirmed => "confirmed",
            TxState::Cancelled => "cancelled",
            _ => "given up",
        });
    }
    if !marks.is_empty() {
        world.breaks(Violation::new(Invariant::Once, format!("effects nobody asked for: {marks:?}")));
    }
}
