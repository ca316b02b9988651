//! `api.accept = "leader"` with two processes on one PostgreSQL.

use std::time::Duration;

use gapless_store::postgres::{PostgresOptions, PostgresStore};
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::postgres::PgCluster;
use gapless_testkit::process::Signal;
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::support::{ADDRESS, PATIENCE, SINK, Setup, end, ended};

fn transfer(name: &str) -> Value {
    json!({ "submitter": ADDRESS, "requestId": name, "payload": { "to": SINK, "value": "1" } })
}

#[tokio::test]
async fn only_the_leader_accepts_and_another_leads_when_it_is_gone() {
    let db = PgCluster::shared().await.unwrap().empty_db().await.unwrap();
    PostgresStore::migrate(&PostgresOptions::new(&db.url)).await.unwrap();
    let block_time = Some(Duration::from_secs(1));
    let anvil = Anvil::start(AnvilOptions { block_time, ..AnvilOptions::default() }).await.unwrap();
    let setups = [Setup::new(&anvil.url()), Setup::new(&anvil.url())];
    let env = |id| {
        [
            ("GAPLESS__STORE__URL", db.url.as_str()),
            ("GAPLESS__NODE__ID", id),
            ("GAPLESS__API__ACCEPT", "leader"),
            ("GAPLESS__LEASE__DURATION", "3s"),
            ("GAPLESS__LEASE__RENEW_INTERVAL", "1s"),
            ("GAPLESS__LEASE__CLOCK_SKEW_ALLOWANCE", "300ms"),
        ]
    };
    let a = setups[0].serve_with("node.log", &env("node-a")).await;
    let b = setups[1].serve_with("node.log", &env("node-b")).await;
    let (status, first) = setups[0].post("/api/v1/tx", &transfer("one")).await;
    assert_eq!(status, 202, "a free lane is taken: {first}");
    let (status, refused) = setups[1].post("/api/v1/tx", &transfer("two")).await;
    assert_eq!((status, &refused["code"]), (409, &json!("not-leader")), "{refused}");
    assert_eq!(refused["ownerNode"], "node-a");
    let (status, known) = setups[1].post("/api/v1/tx", &transfer("one")).await;
    assert_eq!((status, &known["txId"]), (200, &first["txId"]), "a repeat is answered everywhere");
    assert_eq!(ended(&setups[1], first["txId"].as_str().unwrap()).await["state"], "CONFIRMED");

    end(a, Signal::SIGKILL).await;
    let taken = || async {
        let (status, made) = setups[1].post("/api/v1/tx", &transfer("two")).await;
        (status == 202).then_some(made)
    };
    let second = eventually(PATIENCE, "the other node to lead", taken).await.unwrap();
    assert_eq!(ended(&setups[1], second["txId"].as_str().unwrap()).await["state"], "CONFIRMED");
    assert_eq!(anvil.rpc("eth_getBalance", json!([SINK, "latest"])).await.unwrap(), "0x2");
    assert!(end(b, Signal::SIGTERM).await.success());
}
