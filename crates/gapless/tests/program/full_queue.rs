//! A queue at its limit: what is new is turned away with the time to come back, what is known is answered as ever, and as
//! soon as there is room the same request is accepted. Nothing that was turned away happens by itself.

use gapless_testkit::rpc_proxy::Fault;
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::counter;
use crate::support::{ADDRESS, PATIENCE};
use crate::world::{Blocks, World, names};

const LIMIT: usize = 3;
const LIMITED: [(&str, &str); 2] =
    [("GAPLESS__NONCE__MODE", "pipelined"), ("GAPLESS__LIMITS__QUEUED_PER_SUBMITTER", "3")];

#[tokio::test]
async fn a_full_queue_answers_429_with_the_time_to_come_back_and_repeats_with_200() {
    let mut world = World::on_postgres(Blocks::Ticking).await;
    // Nothing is bound while no node answers, and all that is accepted stays queued.
    let silence = Fault::ErrorWithoutForward { code: -32_603, message: "internal error".into() };
    world.proxy.rule("*", silence);
    world.serve(0, &LIMITED).await;
    let ids = names("order", LIMIT + 1);
    for id in &ids[..LIMIT] {
        assert_eq!(world.try_post(0, id).await.unwrap().0, 202);
    }
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let body =
        json!({ "submitter": ADDRESS, "requestId": ids[LIMIT], "payload": counter::payload(&ids[LIMIT]) });
    let url = format!("{}/api/v1/tx", world.setups[0].url);
    for _ in 0..3 {
        let refused = client.post(&url).json(&body).send().await.unwrap();
        assert_eq!(refused.status().as_u16(), 429);
        let seconds: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!(seconds > 0);
        let problem: Value = refused.json().await.unwrap();
        let told = (&problem["code"], &problem["limit"], &problem["retryable"]);
        assert_eq!(told, (&json!("queue-full"), &json!(LIMIT), &json!(true)), "{problem}");
    }
    for id in &ids[..LIMIT] {
        let (status, view) = world.try_post(0, id).await.unwrap();
        assert_eq!((status, &view["state"]), (200, &json!("QUEUED")), "a repeat is no burden: {view}");
    }
    let metrics = world.setups[0].text("/metrics").await.unwrap();
    assert!(
        metrics.lines().any(|line| line == "gapless_tx_create_total{result=\"queue_full\"} 3"),
        "{metrics}"
    );

    world.proxy.clear();
    let accepted = || async { (world.try_post(0, &ids[LIMIT]).await?.0 == 202).then_some(()) };
    eventually(PATIENCE, "room in the queue", accepted).await.unwrap();
    world.assert_all_happened_once(0, &ids).await;
}
