//! What a submitter looks like from outside.

use std::collections::BTreeSet;

use gapless_testkit::fixtures::{self, Lane};
use serde_json::{Value, json};

use crate::support::{ACCOUNT, Make, Node, transfer};

/// As the contract lists them.
const FIELDS: [&str; 18] = [
    "submitter",
    "mode",
    "condition",
    "reason",
    "ownerNode",
    "nextNonce",
    "consumed",
    "resolved",
    "queued",
    "open",
    "recyclable",
    "balance",
    "balanceFetchedAt",
    "lastMovementAt",
    "lastConfirmationAt",
    "resets",
    "protect",
    "window",
];

fn fields(view: &Value) -> BTreeSet<&str> {
    view.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn every_field_of_the_contract_is_there_known_or_not() {
    let node = Node::made(Make { chain: true, ..Make::default() }).await;
    let one = node.get(&format!("/api/v1/submitters/{ACCOUNT}")).await;
    assert_eq!(fields(&one.body), BTreeSet::from(FIELDS));
    assert_eq!((&one.body["balance"], &one.body["resets"]), (&Value::Null, &json!([])), "the chain is down");
    let list = node.get("/api/v1/submitters").await;
    assert_eq!(fields(&list.body["items"][0]), BTreeSet::from(FIELDS));
}

#[tokio::test]
async fn figures_and_reasons_are_told() {
    let node = Node::start().await;
    for name in ["a", "b", "c"] {
        node.post("/api/v1/tx", transfer(name)).await;
    }
    let store = node.handle.store().as_ref();
    let (id, owner) = (ACCOUNT.parse().unwrap(), fixtures::owner("lane", 7).unwrap());
    let mut lane = Lane::take(store, &owner, &id, &fixtures::terms().unwrap()).await.unwrap().unwrap();
    let queue = store.peek_queue(&id, 1).await.unwrap();
    let writer = lane.clone();
    lane.commit(store, |draft| writer.bind(draft, &queue)).await.unwrap();
    lane.commit(store, |draft| draft.cursor.conditions.paused = true).await.unwrap();
    let view = node.get(&format!("/api/v1/submitters/{ACCOUNT}")).await.body;
    let told = |name: &str| view[name].clone();
    assert_eq!((told("queued"), told("open"), told("recyclable")), (json!(2), json!(1), json!(0)), "{view}");
    assert_eq!((told("nextNonce"), told("consumed"), told("resolved")), (json!(1), json!(0), json!(0)));
    assert_eq!((told("condition"), told("ownerNode")), (json!("paused"), json!("lane")));
    let reason = view["reason"].as_str().unwrap();
    assert!(reason.contains("paused") && !reason.contains(['{', '"']), "{reason}");
}
