//! A window that costs more than the account holds: as much of it as can be paid is in flight and not one more, since nodes
//! count what they hold against the balance; the next says what is missing, and goes on by itself when it is there.

use std::time::Duration;

use alloy_primitives::U256;
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::counter;
use crate::support::{ADDRESS, PATIENCE, ended};
use crate::world::{Blocks, World, names};

const WINDOW: usize = 10;
const GAS: u64 = 100_000;
/// Ten gwei.
const FEE: u64 = 10_000_000_000;
const PIPELINED: [(&str, &str); 3] = [
    ("GAPLESS__NONCE__MODE", "pipelined"),
    ("GAPLESS__NONCE__MAX_IN_FLIGHT", "10"),
    ("GAPLESS__NONCE__RECONCILE_INTERVAL", "500ms"),
];

/// What so many of the requests may cost at most.
fn cost(many: usize) -> String {
    format!("{:#x}", U256::from(GAS * FEE) * U256::from(many))
}

async fn holds(world: &World, balance: &str) {
    world.anvil.rpc("anvil_setBalance", json!([ADDRESS, balance])).await.unwrap();
}

/// Waits until so many are in flight, and the pool has them.
async fn in_flight(world: &World, many: usize) {
    let are = || async {
        let pool = world.anvil.rpc("txpool_status", json!([])).await.unwrap();
        let open = world.submitter(0).await?["open"].clone();
        (open == many && pool["pending"] == format!("{many:#x}")).then_some(())
    };
    eventually(PATIENCE, &format!("{many} in flight"), are).await.unwrap();
}

#[tokio::test]
async fn funds_for_half_of_a_window_put_that_half_in_flight_and_the_rest_waits_with_the_figures() {
    let mut world = World::on_postgres(Blocks::Ticking).await;
    // Nothing is mined, so that nothing makes room or gives change.
    world.anvil.rpc("evm_setIntervalMining", json!([0])).await.unwrap();
    holds(&world, &cost(WINDOW / 2)).await;
    world.serve(0, &PIPELINED).await;
    let ids = names("order", WINDOW);
    let mut txs: Vec<String> = Vec::new();
    for id in &ids {
        let mut payload = counter::payload(id);
        payload["gasLimit"] = json!(GAS.to_string());
        let fees = json!({ "maxFeePerGas": FEE.to_string(), "maxPriorityFeePerGas": "1" });
        let body = json!({ "submitter": ADDRESS, "requestId": id, "payload": payload, "fees": fees });
        let (status, made) = world.setups[0].post("/api/v1/tx", &body).await;
        assert_eq!(status, 202, "{made}");
        txs.push(made["txId"].as_str().unwrap().to_owned());
    }
    let view = async |n: usize| world.setups[0].get(&format!("/api/v1/tx/{}", txs[n])).await.unwrap().1;

    let half = WINDOW / 2;
    in_flight(&world, half).await;
    let figures = json!({ "code": "OutOfFunds", "balance": cost(half), "needed": cost(half + 1) });
    let waits = || async { (view(half).await["waitReason"] == figures).then_some(()) };
    eventually(PATIENCE, &format!("the first of the queue to say {figures}"), waits).await.unwrap();
    world.is_in(0, "out_of_funds").await;
    // Looked at again and again, it stays so.
    tokio::time::sleep(Duration::from_secs(2)).await;
    in_flight(&world, half).await;
    let submitter: Value = world.submitter(0).await.unwrap();
    assert_eq!((&submitter["condition"], &submitter["queued"]), (&json!("out_of_funds"), &json!(half)));
    for n in 0..WINDOW {
        let view = view(n).await;
        assert_eq!(view["state"], if n < half { "TRACKING" } else { "QUEUED" }, "{view}");
    }

    // Enough for one more, then for all.
    for many in [half + 1, WINDOW] {
        holds(&world, &cost(many)).await;
        in_flight(&world, many).await;
    }
    world.is_in(0, "ok").await;
    world.anvil.rpc("evm_setIntervalMining", json!([1])).await.unwrap();
    for tx_id in &txs {
        assert_eq!(ended(&world.setups[0], tx_id).await["state"], "CONFIRMED");
    }
    counter::assert_once_each(&world.anvil, &ids).await;
    world.assert_sound(0, ADDRESS).await;
    world.assert_none_counted(0).await;
}
