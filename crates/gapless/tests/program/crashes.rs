//! A node that dies at a named point, and the one that is started after it.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{ADDRESS, PATIENCE, SINK, Setup, end, ended, program};

/// Points that one transfer passes.
const POINTS: [&str; 8] = [
    "after-accept-commit",
    "after-prepare",
    "after-bind-commit",
    "after-send",
    "after-receipt",
    "after-receipt-stored",
    "at-confirm",
    "during-takeover",
];

async fn survives(point: &'static str) {
    let block_time = Some(Duration::from_secs(1));
    let anvil = Anvil::start(AnvilOptions { block_time, ..AnvilOptions::default() }).await.unwrap();
    let setup = Setup::new(&anvil.url());
    let body = json!({ "submitter": ADDRESS, "requestId": point, "payload": { "to": SINK, "value": "7" } });
    let mut first = setup.serve_with("first.log", &[("GAPLESS_CRASH_AT", point)]).await;
    // The answer may be lost with the node.
    let _ = setup.try_post("/api/v1/tx", &body).await;
    let status = tokio::time::timeout(PATIENCE, first.wait()).await.unwrap().unwrap();
    assert_eq!(status.signal(), Some(Signal::SIGABRT as i32), "{point}: {status}");

    let second = setup.serve("second.log").await;
    let (status, again) = setup.post("/api/v1/tx", &body).await;
    assert_eq!(status, 200, "{point}: what was accepted is known: {again}");
    let view: Value = ended(&setup, again["txId"].as_str().unwrap()).await;
    assert_eq!(view["state"], "CONFIRMED", "{point}: {view}");
    assert_eq!(anvil.rpc("eth_getBalance", json!([SINK, "latest"])).await.unwrap(), "0x7", "{point}");
    let count = anvil.rpc("eth_getTransactionCount", json!([ADDRESS, "pending"])).await.unwrap();
    assert_eq!(count, "0x1", "{point}");
    assert!(end(second, Signal::SIGTERM).await.success(), "{point}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_at_any_point_sends_once_all_the_same() {
    let mut running = JoinSet::new();
    for point in POINTS {
        running.spawn(survives(point));
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
}

#[tokio::test]
async fn a_point_that_is_not_there_is_named_with_those_that_are() {
    let setup = Setup::new("http://127.0.0.1:1");
    let run =
        program().args(["serve", "--config"]).arg(setup.config()).env("GAPLESS_CRASH_AT", "nowhere").output();
    let output = tokio::time::timeout(PATIENCE, run).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("after-bind-commit"), "{said}");
}
