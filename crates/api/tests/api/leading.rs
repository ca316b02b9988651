//! `api.accept = "leader"`: two engines on one store; only the one that leads accepts.

use std::sync::Arc;
use std::time::Duration;

use gapless_engine::{AcceptMode, AcceptRules};
use gapless_store::clock::SystemClock;
use gapless_store::memory::MemoryStore;
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::support::{ACCOUNT, Make, Node, transfer};

const PATIENCE: Duration = Duration::from_secs(30);

async fn pair(mode: AcceptMode) -> [Node; 2] {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let rules = AcceptRules { mode, ..AcceptRules::default() };
    let make = |name| Make { name, store: store.clone(), rules, chain: true, ..Make::default() };
    [Node::made(make("a")).await, Node::made(make("b")).await]
}

async fn owner(node: &Node) -> Value {
    node.get("/api/v1/submitters").await.body["items"][0]["ownerNode"].clone()
}

#[tokio::test]
async fn whoever_leads_accepts_and_the_other_names_it() {
    let [a, b] = pair(AcceptMode::Leader).await;
    assert_eq!(owner(&a).await, Value::Null, "nobody leads an idle submitter");
    let first = a.post("/api/v1/tx", transfer("one")).await;
    assert_eq!(first.status, 202, "a free lane is taken: {}", first.text);
    assert_eq!(owner(&b).await, "a");

    let refused = b.post("/api/v1/tx", transfer("two")).await;
    assert!(refused.is_problem(409, "not-leader").contains("node a"));
    assert_eq!((&refused.body["ownerNode"], &refused.body["retryable"]), (&json!("a"), &json!(true)));
    let known = b.post("/api/v1/tx", transfer("one")).await;
    assert_eq!(
        (known.status.as_u16(), &known.body["txId"]),
        (200, &first.body["txId"]),
        "a repeat is answered"
    );
    let items = json!({ "items": [transfer("one"), transfer("two")] });
    let batch = b.post("/api/v1/tx/batch", items).await;
    assert_eq!(
        (&batch.body["items"][0]["status"], &batch.body["items"][1]["code"]),
        (&json!(200), &json!("not-leader"))
    );
    assert_eq!(a.post("/api/v1/tx", transfer("two")).await.status, 202);

    // It keeps the lease it took: the lane that the keeper seated on it renews it past its first end.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(owner(&b).await, "a");
    b.post("/api/v1/tx", transfer("three")).await.is_problem(409, "not-leader");

    // The leader leaves: the other one leads, and accepts.
    drop(a);
    let taken = || async { (b.post("/api/v1/tx", transfer("three")).await.status == 202).then_some(()) };
    eventually(PATIENCE, "the other node to lead", taken).await.unwrap();
    assert_eq!(owner(&b).await, "b");
}

#[tokio::test]
async fn a_node_that_cannot_run_a_lane_does_not_take_it() {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let rules = AcceptRules { mode: AcceptMode::Leader, ..AcceptRules::default() };
    let node = Node::made(Make { store, rules, ..Make::default() }).await;
    let refused = node.post("/api/v1/tx", transfer("one")).await;
    refused.is_problem(409, "not-leader");
    assert_eq!(refused.body["ownerNode"], Value::Null);
    let submitter = node.handle.store().submitter(&ACCOUNT.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(submitter.lease, None);
}

#[tokio::test]
async fn by_default_every_node_accepts() {
    let [a, b] = pair(AcceptMode::Any).await;
    assert_eq!(a.post("/api/v1/tx", transfer("one")).await.status, 202);
    assert_eq!(b.post("/api/v1/tx", transfer("two")).await.status, 202);
}
