//! Somebody who wants something to happen: asks any node, and asks again under the same request id until one says yes.

use std::sync::Arc;
use std::time::Duration;

use gapless_core::command::Verb;
use gapless_core::ids::TxId;
use gapless_engine::handle::Request;
use gapless_engine::{Handle, Refusal};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::check::{Invariant, Violation};
use crate::node::Node;
use crate::world::{Thoughts, World};

/// How long a client waits for one answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Submits request `n`, sometimes again after it was accepted.
pub(crate) async fn request(world: Arc<World>, nodes: Arc<[Arc<Node>]>, n: usize) {
    let Some(request) = world.scenario.request(n) else {
        return world.breaks(Violation::world("a request that cannot be made"));
    };
    let most = u64::try_from(world.scenario.troubled.as_millis()).unwrap_or(u64::MAX);
    tokio::time::sleep(world.dice.millis(0..=most * 2 / 3)).await;
    let first = accepted(&world, &nodes, &request).await;
    if world.dice.chance(world.scenario.rates.second_thoughts) {
        think_again(&world, &nodes, n, &request, first).await;
    }
    if world.dice.chance(300) {
        tokio::time::sleep(world.dice.millis(0..=10_000)).await;
        let again = accepted(&world, &nodes, &request).await;
        if first != again {
            let what = format!("request-{n} was accepted as {first} and as {again}");
            world.breaks(Violation::new(Invariant::Once, what));
        }
    }
}

/// Cancels it, replaces it, or both.
async fn think_again(world: &World, nodes: &[Arc<Node>], n: usize, request: &Request, tx_id: TxId) {
    let replaced = world.dice.chance(500);
    let cancelled = !replaced || world.dice.chance(300);
    world.thinks(n, Thoughts { cancelled, replaced });
    let payload = world.scenario.replacement(n);
    let asked =
        [(replaced, Verb::Replace, json!({"payload": payload})), (cancelled, Verb::Cancel, json!({}))];
    for (_, verb, args) in asked.into_iter().filter(|(asked, ..)| *asked) {
        tokio::time::sleep(world.dice.millis(0..=8_000)).await;
        world.tally.add(verb.name());
        world.trace.line("client", &format!("{verb} request-{n}"));
        while !commanded(world, nodes, request, tx_id, verb, &args).await {
            tokio::time::sleep(world.dice.millis(50..=600)).await;
        }
    }
}

async fn commanded(
    world: &World,
    nodes: &[Arc<Node>],
    request: &Request,
    tx_id: TxId,
    verb: Verb,
    args: &Value,
) -> bool {
    let running = nodes[world.dice.index(nodes.len())].running();
    let Some(handle) = running.handle else { return false };
    let (reply, answer) = oneshot::channel();
    let (submitter, args) = (request.submitter.clone(), args.clone());
    running.gate.spawn(async move {
        let _ = reply.send(handle.command(&submitter, Some(tx_id), verb, args, "client").await);
    });
    matches!(tokio::time::timeout(PATIENCE, answer).await, Ok(Ok(Ok(_))))
}

async fn accepted(world: &World, nodes: &[Arc<Node>], request: &Request) -> TxId {
    loop {
        let node = &nodes[world.dice.index(nodes.len())];
        let running = node.running();
        if let Some(handle) = running.handle {
            let (reply, answer) = oneshot::channel();
            let asked = request.clone();
            running.gate.spawn(async move {
                let _ = reply.send(submit(&handle, asked).await);
            });
            match tokio::time::timeout(PATIENCE, answer).await {
                Ok(Ok(Ok(tx_id))) => return tx_id,
                Ok(Ok(Err(refusal))) if !matches!(refusal, Refusal::Store(_)) => {
                    let what = format!("{} was refused: {refusal}", request.request_id.as_str());
                    world.breaks(Violation::new(Invariant::Progress, what));
                }
                // The store, the node or the answer was not to be had.
                _ => {}
            }
        }
        tokio::time::sleep(world.dice.millis(50..=600)).await;
    }
}

async fn submit(handle: &Handle, request: Request) -> Result<TxId, Refusal> {
    handle.submit(request).await.map(|submitted| submitted.view.tx_id)
}
