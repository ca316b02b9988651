//! `gapless serve`, and the commands that ask it.

use std::time::Duration;

use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::postgres::PgCluster;
use gapless_testkit::process::Signal;
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::support::{ADDRESS, PATIENCE, SINK, Setup, end, ended, lines_with, program};

fn transfer(name: &str) -> Value {
    json!({ "submitter": ADDRESS, "requestId": name, "payload": { "to": SINK, "value": "7" } })
}

async fn blocks() -> Anvil {
    let block_time = Some(Duration::from_secs(1));
    Anvil::start(AnvilOptions { block_time, ..AnvilOptions::default() }).await.unwrap()
}

#[tokio::test]
async fn a_killed_node_goes_on_where_it_was_and_sends_once() {
    let anvil = blocks().await;
    let setup = Setup::new(&anvil.url());
    let first = setup.serve("first.log").await;
    let (status, made) = setup.post("/api/v1/tx", &transfer("order-1")).await;
    assert_eq!(status, 202, "{made}");
    let tx_id = made["txId"].as_str().unwrap().to_owned();
    let (_, seen) = setup.get(&format!("/api/v1/tx/{tx_id}?wait=10s")).await.unwrap();
    assert_eq!(seen["txId"], made["txId"]);
    end(first, Signal::SIGKILL).await;

    let second = setup.serve("second.log").await;
    let (status, again) = setup.post("/api/v1/tx", &transfer("order-1")).await;
    assert_eq!((status, &again["txId"]), (200, &made["txId"]));
    let view = ended(&setup, &tx_id).await;
    assert_eq!(view["state"], "CONFIRMED", "{view}");
    let balance = anvil.rpc("eth_getBalance", json!([SINK, "latest"])).await.unwrap();
    assert_eq!(balance, "0x7", "the effect happened once");
    let count = anvil.rpc("eth_getTransactionCount", json!([ADDRESS, "latest"])).await.unwrap();
    assert_eq!(count, "0x1", "one nonce was used");

    assert!(end(second, Signal::SIGTERM).await.success());
    let written = lines_with(&setup.folder.path().join("second.log"), &tx_id);
    let full = written.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok()).any(|line| {
        ["submitter", "tx_id", "node_id", "fencing_token"].iter().all(|field| !line[*field].is_null())
    });
    assert!(full, "no line carries all fields: {written:#?}");
}

#[tokio::test]
async fn a_chain_that_is_down_is_no_reason_not_to_start() {
    let setup = Setup::new("http://127.0.0.1:1");
    let node = setup.serve("node.log").await;
    let (status, ready) = setup.get("/readyz").await.unwrap();
    assert_eq!((status, &ready["code"]), (503, &json!("not-ready")), "{ready}");
    assert!(ready["detail"].as_str().unwrap().contains("eip155:31337"), "{ready}");
    assert_eq!(setup.post("/api/v1/tx", &transfer("early")).await.0, 202);
    // Whoever waits is answered, and the node ends in time.
    let waiting = setup.get("/api/v1/submitters").await.unwrap();
    assert_eq!(waiting.1["items"][0]["condition"], "ok");
    assert!(end(node, Signal::SIGTERM).await.success());
}

#[tokio::test]
async fn the_client_commands_ask_a_running_node() {
    let anvil = blocks().await;
    let setup = Setup::new(&anvil.url());
    let node = setup.serve("node.log").await;
    let ask = async |args: &[&str]| {
        let output = program().args(args).env("GAPLESS_URL", &setup.url).output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), said)
    };
    let send = [
        "--json",
        "tx",
        "send",
        "--submitter",
        ADDRESS,
        "--request-id",
        "cli-1",
        "--to",
        SINK,
        "--value",
        "3",
        "--watch",
    ];
    let (code, told, said) = ask(&send).await;
    assert_eq!(code, Some(0), "{said}");
    let view: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(view["state"], "CONFIRMED");
    let hash = view["txHash"].as_str().unwrap();
    let (_, told, _) = ask(&["tx", "get", hash]).await;
    assert!(told.contains("cli-1") && told.contains("CONFIRMED"), "{told}");
    let (_, told, _) = ask(&["tx", "list", "--state", "CONFIRMED"]).await;
    assert_eq!(told.lines().count(), 1, "{told}");
    let (code, _, said) = ask(&["tx", "get", "01900000-0000-7000-8000-000000000000"]).await;
    assert!(code == Some(1) && said.contains("unknown-transaction"), "{said}");
    assert_eq!(ask(&["tx", "gett"]).await.0, Some(2));

    let submitter = format!("eip155:31337:{ADDRESS}");
    assert_eq!(ask(&["submitter", "pause", &submitter]).await.0, Some(0));
    let paused = || async { ask(&["submitter", "show", ADDRESS]).await.1.contains("paused").then_some(()) };
    eventually(PATIENCE, "the pause", paused).await.unwrap();
    let (code, _, said) =
        ask(&["tx", "send", "--submitter", ADDRESS, "--request-id", "cli-2", "--to", SINK]).await;
    assert!(code == Some(1) && said.contains("submitter-paused"), "{said}");
    assert_eq!(ask(&["submitter", "resume", &submitter]).await.0, Some(0));
    assert!(end(node, Signal::SIGTERM).await.success());

    let config = setup.config().display().to_string();
    let (code, told, said) = ask(&["doctor", "--config", &config]).await;
    assert_eq!(code, Some(0), "{told}{said}");
    let (code, told, _) = ask(&["migrate", "--config", &config, "--json"]).await;
    assert_eq!((code, told.trim()), (Some(0), r#"{"migrated":true,"store":"sqlite"}"#));
}

#[tokio::test]
async fn a_configuration_that_cannot_work_is_refused_with_a_hint() {
    let setup = Setup::new("http://127.0.0.1:1");
    for (variable, value, says) in [
        ("GAPLESS__LEASE__RENEW_INTERVAL", "5s", "half of lease.duration"),
        ("GAPLESS__LEASE__RENEW_INTERVALL", "1s", "did you mean `renew_interval`"),
        ("GAPLESS__HTTP__LISTEN", "0.0.0.0:0", "api_keys"),
    ] {
        let run = program().args(["serve", "--config"]).arg(setup.config()).env(variable, value).output();
        let output = tokio::time::timeout(PATIENCE, run).await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(says), "{variable}: {said}");
    }
}

#[tokio::test]
async fn a_cluster_database_is_migrated_on_purpose_and_then_served() {
    let database = PgCluster::shared().await.unwrap().empty_db().await.unwrap();
    let anvil = blocks().await;
    let setup = Setup::new(&anvil.url());
    let with_store = async |command: &str| {
        let mut run = program();
        run.args([command, "--config"]).arg(setup.config()).env("GAPLESS__STORE__URL", &database.url);
        let output = tokio::time::timeout(PATIENCE, run.output()).await.unwrap().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = with_store("serve").await;
    assert!(code == Some(1) && said.contains("gapless migrate"), "{said}");
    assert_eq!(with_store("migrate").await.0, Some(0));
    assert_eq!(with_store("doctor").await.0, Some(0));
    let node = setup.serve_with("node.log", &[("GAPLESS__STORE__URL", &database.url)]).await;
    let (status, made) = setup.post("/api/v1/tx", &transfer("order-1")).await;
    assert_eq!(status, 202, "{made}");
    assert_eq!(ended(&setup, made["txId"].as_str().unwrap()).await["state"], "CONFIRMED");
    assert!(end(node, Signal::SIGTERM).await.success());
}
