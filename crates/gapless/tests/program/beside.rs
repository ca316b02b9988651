//! A node of a chain that does not answer: the lanes of other chains go on as fast as ever, although they share the process,
//! its database connections and its writer with one whose every call hangs.

use std::time::Duration;

use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::counter::{self, number};
use crate::support::{ADDRESS, PATIENCE};
use crate::world::World;

const OTHER: u64 = 1337;
const BLOCKS: Duration = Duration::from_millis(200);
/// Rates of which the middle one counts.
const ROUNDS: u64 = 3;
/// Requests to the chain that answers, for one rate.
const MANY: u64 = 150;
/// Requests to the chain that hangs.
const FEW: u64 = 10;
const PIPELINED: [(&str, &str); 2] =
    [("GAPLESS__NONCE__MODE", "pipelined"), ("GAPLESS__LEASE__DURATION", "10s")];

/// With blocks at a distance: a node that mines each transaction as it comes forgets some of a window.
async fn chain(chain_id: u64) -> Anvil {
    let options = AnvilOptions { chain_id, block_time: Some(BLOCKS), ..AnvilOptions::default() };
    let anvil = Anvil::start(options).await.unwrap();
    counter::deploy(&anvil).await;
    anvil
}

/// Posts requests of a chain's submitter.
async fn post(world: &World, chain_id: u64, numbers: std::ops::Range<u64>) {
    let item = |n: u64| {
        let mut payload = counter::payload(&name(chain_id, n));
        payload["gasLimit"] = json!("100000");
        json!({ "submitter": format!("eip155:{chain_id}:{ADDRESS}"), "requestId": n.to_string(), "payload": payload })
    };
    let body = json!({ "items": numbers.map(item).collect::<Vec<Value>>() });
    let (status, answer) = world.setups[0].post("/api/v1/tx/batch", &body).await;
    let all_new = answer["items"].as_array().unwrap().iter().all(|made| made["status"] == 202);
    assert!(status == 200 && all_new, "{answer}");
}

fn name(chain_id: u64, n: u64) -> String {
    format!("{chain_id}-{n}")
}

async fn mined(anvil: &Anvil) -> u64 {
    number(&anvil.rpc("eth_getTransactionCount", json!([ADDRESS, "latest"])).await.unwrap())
}

/// Waits until the chain counts so many.
async fn reaches(anvil: &Anvil, count: u64) {
    let there = || async { (mined(anvil).await == count).then_some(()) };
    eventually(PATIENCE, &format!("{count} in blocks"), there).await.unwrap();
}

/// The next requests of the chain that answers, from POST to the last in a block; how many a second.
async fn rate(world: &World, bright: &Anvil) -> f64 {
    let from = mined(bright).await;
    let began = Instant::now();
    post(world, OTHER, from..from + MANY).await;
    reaches(bright, from + MANY).await;
    MANY as f64 / began.elapsed().as_secs_f64()
}

fn middle(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_whose_node_hangs_does_not_slow_the_others() {
    let (dark, bright) = (chain(31337).await, chain(OTHER).await);
    let proxy = RpcProxy::start(dark.url()).unwrap();
    let mut world = World::reaching(dark, &[proxy.url()]).await;
    world.setups[0].add_chain(OTHER, &bright.url());
    world.serve(0, &PIPELINED).await;
    // Both lanes have begun.
    post(&world, 31337, 0..1).await;
    reaches(&world.anvil, 1).await;
    rate(&world, &bright).await;

    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.push(rate(&world, &bright).await);
    }
    let hole = proxy.rule("*", Fault::Hang);
    post(&world, 31337, 1..1 + FEW).await;
    let hangs = || async { (proxy.fired(hole) > 1).then_some(()) };
    eventually(PATIENCE, "calls that hang", hangs).await.unwrap();
    for _ in 0..ROUNDS {
        beside.push(rate(&world, &bright).await);
    }
    assert_eq!(mined(&world.anvil).await, 1, "its chain got nothing meanwhile");
    proxy.remove(hole);
    reaches(&world.anvil, 1 + FEW).await;
    println!("mined per second: {alone:.0?} alone, {beside:.0?} beside a chain that hangs");
    let ratio = middle(beside) / middle(alone);
    assert!(ratio > 0.5, "{ratio:.2} of the speed without it");

    for (anvil, chain_id) in [(&world.anvil, 31337), (&bright, OTHER)] {
        let names: Vec<String> = (0..mined(anvil).await).map(|n| name(chain_id, n)).collect();
        counter::assert_once_each(anvil, &names).await;
    }
    world.assert_none_counted(0).await;
}
