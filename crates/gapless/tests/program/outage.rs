//! A database that is away, or whose answer is lost: the caller hears that the outcome is unknown, repeats, and has one
//! transaction.

use gapless_store::postgres::{PostgresOptions, PostgresStore};
use gapless_testkit::postgres::PgCluster;
use gapless_testkit::process::Signal;
use gapless_testkit::tcp_proxy::{Mode, TcpProxy, Trap};
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::support::{ADDRESS, PATIENCE, SINK, Setup, end};

fn transfer(name: &str) -> Value {
    json!({ "submitter": ADDRESS, "requestId": name, "payload": { "to": SINK, "value": "7" } })
}

async fn refused(setup: &Setup, name: &str) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client.post(format!("{}/api/v1/tx", setup.url)).json(&transfer(name)).send().await.unwrap();
    let (status, retry) = (answer.status().as_u16(), answer.headers().get("retry-after").cloned());
    let problem: Value = answer.json().await.unwrap();
    assert_eq!((status, &problem["code"]), (503, &json!("store-unavailable")), "{problem}");
    assert!(retry.is_some(), "503 says when to come back");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("outcome is unknown") && detail.contains("same requestId"), "{detail}");
}

#[tokio::test]
async fn a_lost_answer_is_503_and_the_repeat_makes_one_transaction() {
    let cluster = PgCluster::shared().await.unwrap();
    let db = cluster.empty_db().await.unwrap();
    PostgresStore::migrate(&PostgresOptions::new(&db.url)).await.unwrap();
    let proxy = TcpProxy::start(([127, 0, 0, 1], cluster.port()).into()).unwrap();
    let url = format!("postgres://postgres@{}/{}", proxy.addr(), db.name);
    let setup = Setup::new("http://127.0.0.1:1");
    let node = setup.serve_with("node.log", &[("GAPLESS__STORE__URL", &url)]).await;
    assert_eq!(setup.post("/api/v1/tx", &transfer("first")).await.0, 202);

    // The server takes the request and its answer never arrives.
    let mut trap = proxy.arm(Trap::forward("lost-answer"));
    refused(&setup, "lost-answer").await;
    trap.fired().await.unwrap();
    let known =
        || async { (setup.post("/api/v1/tx", &transfer("lost-answer")).await.0 == 200).then_some(()) };
    eventually(PATIENCE, "the repeat to be known", known).await.unwrap();

    // The server is gone altogether.
    proxy.set_mode(Mode::Refuse).await.unwrap();
    proxy.cut_all().await;
    refused(&setup, "while-away").await;
    let (status, page) = setup.get("/api/v1/tx").await.unwrap();
    assert_eq!((status, &page["code"]), (503, &json!("store-unavailable")), "{page}");
    let (status, ready) = setup.get("/readyz").await.unwrap();
    assert!(status == 503 && ready["detail"].as_str().unwrap().contains("the store"), "{ready}");

    proxy.set_mode(Mode::Pass).await.unwrap();
    let accepted =
        || async { (setup.post("/api/v1/tx", &transfer("while-away")).await.0 < 300).then_some(()) };
    eventually(PATIENCE, "the repeat to be accepted", accepted).await.unwrap();
    let (_, page) = setup.get("/api/v1/tx").await.unwrap();
    let names: Vec<&Value> = page["items"].as_array().unwrap().iter().map(|tx| &tx["requestId"]).collect();
    assert_eq!(names, ["first", "lost-answer", "while-away"]);
    assert!(end(node, Signal::SIGTERM).await.success());
}
