//! What can be wrong at the start: each has a word of its own, and none is a panic.

use std::time::Duration;

use gapless_store::postgres::{PostgresOptions, PostgresStore};
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::postgres::PgCluster;
use gapless_testkit::process::Signal;
use gapless_testkit::tcp_proxy::{Mode, TcpProxy};
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::support::{ADDRESS, PATIENCE, SINK, Setup, end, ended, program};

const NOBODY: &str = "http://127.0.0.1:1";

/// Runs `serve` to its end: the exit code and what it said.
async fn refused(setup: &Setup, env: &[(&str, &str)]) -> (Option<i32>, String) {
    let run = program().args(["serve", "--config"]).arg(setup.config()).envs(env.iter().copied()).output();
    let output = tokio::time::timeout(PATIENCE, run).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("panicked"), "{said}");
    (output.status.code(), said)
}

fn rewrite(setup: &Setup, from: &str, to: &str) {
    let text = std::fs::read_to_string(setup.config()).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(setup.config(), text.replace(from, to)).unwrap();
}

/// What `/readyz` says of an endpoint, when it says what is expected.
async fn endpoint(setup: &Setup, place: usize, says: &str) -> (u16, Value) {
    let look = || async {
        let (status, ready) = setup.get("/readyz").await?;
        let endpoint = ready["chains"][0]["endpoints"][place].clone();
        endpoint["detail"].as_str()?.contains(says).then_some((status, endpoint))
    };
    eventually(PATIENCE, says, look).await.unwrap()
}

#[tokio::test]
async fn an_rpc_that_cannot_be_reached_is_named_by_readyz_and_the_node_starts() {
    let setup = Setup::new(NOBODY);
    let node = setup.serve("node.log").await;
    let (status, endpoint) = endpoint(&setup, 0, "connect").await;
    assert_eq!((status, &endpoint["ready"]), (503, &json!(false)), "{endpoint}");
    assert!(endpoint["name"].as_str().unwrap().contains("127.0.0.1:1"), "{endpoint}");
    assert!(end(node, Signal::SIGTERM).await.success());
    assert!(!setup.log("node.log").contains("panicked"));
}

#[tokio::test]
async fn an_endpoint_of_another_chain_is_quarantined_and_named() {
    let other = Anvil::start(AnvilOptions { chain_id: 5, ..AnvilOptions::default() }).await.unwrap();
    let right = Anvil::start(AnvilOptions::default()).await.unwrap();
    let setup = Setup::new(&other.url());
    let node = setup.serve("node.log").await;
    let quarantined = "quarantined: it serves chain 5, not 31337";
    let (status, named) = endpoint(&setup, 0, quarantined).await;
    assert_eq!((status, &named["ready"]), (503, &json!(false)), "{named}");
    assert!(other.url().contains(named["name"].as_str().unwrap()), "{named}");
    assert!(end(node, Signal::SIGTERM).await.success());

    // Beside a good one it is left out, and work goes on.
    let both = format!("[\"{}\", \"{}\"]", other.url(), right.url());
    let node = setup.serve_with("node.log", &[("GAPLESS__CHAINS__0__RPC", &both)]).await;
    endpoint(&setup, 0, quarantined).await;
    endpoint(&setup, 1, "head").await;
    let ready = || async { (setup.get("/readyz").await?.0 == 200).then_some(()) };
    eventually(PATIENCE, "readiness", ready).await.unwrap();
    let body = json!({ "submitter": ADDRESS, "requestId": "r", "payload": { "to": SINK, "value": "1" } });
    let (_, made) = setup.post("/api/v1/tx", &body).await;
    let mined = || async {
        (right.rpc("eth_getBalance", json!([SINK, "latest"])).await.unwrap() == "0x1").then_some(())
    };
    eventually(PATIENCE, "the transfer", mined).await.unwrap();
    right.rpc("anvil_mine", json!(["0x2"])).await.unwrap();
    assert_eq!(ended(&setup, made["txId"].as_str().unwrap()).await["state"], "CONFIRMED");
    let count = other.rpc("eth_getTransactionCount", json!([ADDRESS, "pending"])).await.unwrap();
    assert_eq!(count, "0x0", "nothing went to the other chain");
    assert!(end(node, Signal::SIGTERM).await.success());
    assert!(!setup.log("node.log").contains("panicked"));
}

#[tokio::test]
async fn a_database_that_cannot_be_reached_is_waited_for() {
    let cluster = PgCluster::shared().await.unwrap();
    let db = cluster.empty_db().await.unwrap();
    PostgresStore::migrate(&PostgresOptions::new(&db.url)).await.unwrap();
    let proxy = TcpProxy::start(([127, 0, 0, 1], cluster.port()).into()).unwrap();
    proxy.set_mode(Mode::Refuse).await.unwrap();
    let url = format!("postgres://postgres@{}/{}", proxy.addr(), db.name);
    let env = [("GAPLESS__STORE__URL", url.as_str())];
    let setup = Setup::new(NOBODY);
    let waits = async |times: usize| {
        let said = || async {
            let log = setup.log("node.log");
            let lines = log.lines().filter(|line| line.contains("\"code\":\"store-unavailable\""));
            (lines.count() >= times).then_some(())
        };
        eventually(PATIENCE, "a word about the database", said).await.unwrap();
    };

    // Whoever waits can be told to stop.
    let node = setup.spawn("node.log", &env);
    waits(1).await;
    assert!(end(node, Signal::SIGTERM).await.success());

    let mut node = setup.spawn("node.log", &env);
    waits(4).await;
    assert!(node.try_wait().unwrap().is_none(), "it waits");
    proxy.set_mode(Mode::Pass).await.unwrap();
    setup.answers().await;
    let body = json!({ "submitter": ADDRESS, "requestId": "r", "payload": { "to": SINK, "value": "1" } });
    assert_eq!(setup.post("/api/v1/tx", &body).await.0, 202);
    assert!(end(node, Signal::SIGTERM).await.success());
    assert!(!setup.log("node.log").contains("panicked"));
}

#[tokio::test]
async fn a_database_that_refuses_us_is_not_waited_for() {
    let cluster = PgCluster::shared().await.unwrap();
    let setup = Setup::new(NOBODY);
    for url in [cluster.url("not_there"), "postgres://127.0.0.1:port/db".to_owned()] {
        let began = tokio::time::Instant::now();
        let (code, said) = refused(&setup, &[("GAPLESS__STORE__URL", &url)]).await;
        assert!(code == Some(1) && said.contains("store.url"), "{url}: {said}");
        assert!(began.elapsed() < Duration::from_secs(20), "{said}");
    }
}

#[tokio::test]
async fn an_unknown_key_in_the_file_names_the_nearest() {
    let setup = Setup::new(NOBODY);
    rewrite(&setup, "drain_timeout", "drain_timeuot");
    let (code, said) = refused(&setup, &[]).await;
    assert!(code == Some(1) && said.contains("did you mean `drain_timeout`"), "{said}");
    assert!(said.contains("node.drain_timeuot"), "{said}");
}

#[tokio::test]
async fn a_governor_that_cannot_come_to_an_end_does_not_start() {
    let setup = Setup::new(NOBODY);
    let endless = [("GAPLESS__STUCK__STEPS", "[{ after = \"5m\", action = \"bump\" }]")];
    let (code, said) = refused(&setup, &endless).await;
    assert!(code == Some(1) && said.contains("policy-cannot-terminate"), "{said}");
    assert!(said.contains("steps[0] (bump) has no max"), "{said}");
    let undone = "[{ after = \"1m\", action = \"protect\" }, { after = \"5m\", action = \"placeholder\" }]";
    let (code, said) = refused(&setup, &[("GAPLESS__STUCK__STEPS", undone)]).await;
    assert!(code == Some(1) && said.contains("policy-invalid"), "{said}");
}

#[tokio::test]
async fn a_malformed_keystore_is_named_and_its_content_is_not_shown() {
    let setup = Setup::new(NOBODY);
    let at = |name: &str| setup.folder.path().join(name).display().to_string();
    std::fs::write(at("password"), "hunter2").unwrap();
    let (store, password) = (at("store.json"), at("password"));
    let signer = format!("{{ keystore = \"{store}\", password_file = \"{password}\" }}");
    rewrite(&setup, &format!("{{ private_key_file = \"{}\" }}", at("key")), &signer);
    for content in ["", "not json", "{}", r#"{"version":3,"crypto":{"cipher":"none"}}"#, r#"{"version":3,"#] {
        std::fs::write(&store, content).unwrap();
        let (code, said) = refused(&setup, &[]).await;
        assert_eq!(code, Some(1), "{content}: {said}");
        assert!(said.contains(&store) && said.contains(ADDRESS), "{content}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}
