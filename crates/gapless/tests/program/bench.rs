//! `gapless bench`: small runs on real parts, and what it says when the chain does not agree.

use std::process::Output;

use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::postgres::PgCluster;
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use serde_json::Value;
use sqlx::Connection;

use crate::support::program;

async fn bench(args: &[&str]) -> (Output, Value) {
    let output = program().args(["--json", "bench"]).args(args).output().await.unwrap();
    let told = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output, told)
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn a_small_run_has_every_figure_on_both_stores() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (json, plot) = (at("figures.json"), at("figures.svg"));
    let (output, told) = bench(&[
        "pipelined",
        "strict",
        "accept",
        "--count=200",
        "--submitters=2",
        "--each=2",
        "--seconds=240",
        "--idle-submitters=3",
        "--json-file",
        &json,
        "--plot",
        &plot,
    ])
    .await;
    assert!(output.status.success(), "{}", words(&output));
    assert_eq!(told["failed"], serde_json::json!([]));

    // A raw try with one sender and one with ten beside each of the two pipelined runs.
    assert_eq!(told["raw"].as_array().unwrap().len(), 4, "{told}");
    assert!(told["raw"][0]["nodeCpuMsPerTx"].as_f64().unwrap() > 0.0, "{told}");
    let runs = told["runs"].as_array().unwrap();
    let kinds: Vec<_> = runs.iter().map(|run| format!("{} {}", run["mode"], run["store"])).collect();
    assert_eq!(
        kinds,
        [
            "\"pipelined\" \"postgres\"",
            "\"strict\" \"postgres\"",
            "\"pipelined\" \"sqlite\"",
            "\"strict\" \"sqlite\""
        ]
    );
    for run in runs {
        let (strict, postgres) = (run["mode"] == "strict", run["store"] == "postgres");
        assert_eq!(run["transactions"], if strict { 4 } else { 200 }, "{run}");
        for figure in [
            "seconds",
            "acceptedPerSecond",
            "confirmedPerSecond",
            "postP50Ms",
            "postP99Ms",
            "peakMemoryMb",
            "nodeRequestsPerTx",
            "nodeCallsPerTx",
            "storeCommitsPerTx",
            "perBlockLeast",
        ] {
            assert!(run[figure].as_f64().unwrap() > 0.0, "{figure} in {run}");
        }
        assert!(run["cpuMsPerTx"]["gapless"].as_f64().unwrap() > 0.0, "{run}");
        assert_eq!(run["cpuMsPerTx"]["postgres"].is_null(), !postgres, "{run}");
        assert!(postgres || run["sqlPerTx"].is_null(), "{run}");
        assert_eq!(run["ratioToRaw"].is_null(), strict, "{run}");
    }
    assert!(runs.iter().all(|run| run["mode"] != "strict" || run["perBlockLeast"].as_f64().unwrap() <= 1.0));

    let accept = told["accept"].as_array().unwrap();
    assert_eq!(accept.len(), 4, "single and batch on either store: {told}");
    assert!(accept.iter().all(|found| found["acceptedPerSecond"].as_f64().unwrap() > 0.0), "{told}");
    assert!(accept[0]["ratioToPgbench"].as_f64().unwrap() > 0.0, "{told}");

    assert_eq!(std::fs::read_to_string(json).unwrap(), String::from_utf8(output.stdout).unwrap().trim());
    assert!(std::fs::read_to_string(plot).unwrap().starts_with("<svg "));
}

#[tokio::test]
async fn a_chain_that_shows_a_request_twice_fails_the_run() {
    let options =
        AnvilOptions { block_time: Some(std::time::Duration::from_secs(1)), ..AnvilOptions::default() };
    let anvil = Anvil::start(options).await.unwrap();
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let rpc = proxy.url();
    let args = ["raw", "--count=50", "--seconds=60", "--rpc", &rpc];
    let (output, told) = bench(&args).await;
    assert!(output.status.success(), "{}", words(&output));
    assert_eq!(told["raw"].as_array().unwrap().len(), 2, "{told}");
    assert!(told["raw"][0]["nodeCpuMsPerTx"].is_null(), "a node that is not ours is not looked into: {told}");

    // Hashes of transactions, which the tries of the node by itself are checked by.
    let twice = |change: fn(&mut Value, &Value)| {
        Fault::result(move |_, mut answer| {
            let transactions = answer["result"]["transactions"].as_array_mut();
            if let Some([first, second, ..]) = transactions.map(Vec::as_mut_slice) {
                change(second, first);
            }
            answer
        })
    };
    let rule = proxy.rule(
        "eth_getBlockByNumber",
        twice(|second, first| {
            if first.is_string() {
                *second = first.clone();
            }
        }),
    );
    let (output, told) = bench(&args).await;
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(proxy.fired(rule) > 0);
    assert_eq!(told["raw"], serde_json::json!([]), "a figure that the chain does not bear out is none");
    let why = told["failed"][0]["why"].as_str().unwrap();
    assert!(why.contains("does not show each of the 50 transactions once"), "{why}");
    proxy.clear();

    // Their contents, which everything else is checked by.
    proxy.rule(
        "eth_getBlockByNumber",
        twice(|second, first| {
            if first.is_object() {
                second["input"] = first["input"].clone();
            }
        }),
    );
    let args = ["pipelined", "--store=sqlite", "--submitters=1", "--count=50", "--seconds=60", "--rpc", &rpc];
    let (output, told) = bench(&args).await;
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert_eq!(told["runs"], serde_json::json!([]), "a figure that the chain does not bear out is none");
    let why = told["failed"][0]["why"].as_str().unwrap();
    assert!(why.contains("not each of its requests once"), "{why}");
}

#[tokio::test]
async fn a_run_that_takes_too_long_fails_and_says_how_far_it_came() {
    let args = ["strict", "--store=sqlite", "--submitters=1", "--each=100", "--seconds=4"];
    let (output, told) = bench(&args).await;
    assert_eq!(output.status.code(), Some(1), "{told}");
    let why = told["failed"][0]["why"].as_str().unwrap();
    assert!(why.contains("after 4 s 100 of 100 are accepted"), "{why}");
    assert!(words(&output).contains("1 of the measurements failed"), "{}", words(&output));
}

#[tokio::test]
async fn a_database_of_ones_own_is_left_as_it_was() {
    let database = PgCluster::shared().await.unwrap().empty_db().await.unwrap();
    let args =
        ["pipelined", "--store=postgres", "--count=40", "--submitters=2", "--seconds=120", "--database"];
    let (output, told) = bench(&[args.as_slice(), &[&database.url]].concat()).await;
    assert!(output.status.success(), "{}", words(&output));
    assert!(
        told["runs"][0]["cpuMsPerTx"]["postgres"].is_null(),
        "a server that is not ours is not looked into: {told}"
    );
    let mut connection = sqlx::PgConnection::connect(&database.url).await.unwrap();
    let left: Vec<String> = sqlx::query_scalar(
        "SELECT nspname::text FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(left, ["public"]);
    let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(tables, 0);
}
