//! Batches, repeats and full queues.

use std::time::Duration;

use gapless_core::ports::store::TxFilter;
use gapless_engine::AcceptRules;
use gapless_testkit::fixtures::{self, Lane};
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::support::{ACCOUNT, Answer, Make, Node, TO, transfer};

const PATIENCE: Duration = Duration::from_secs(30);

fn statuses(answer: &Answer) -> Vec<u64> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let items = answer.body["items"].as_array().unwrap();
    items.iter().map(|item| item["status"].as_u64().unwrap()).collect()
}

async fn batch(node: &Node, items: impl IntoIterator<Item = Value>) -> Answer {
    let items: Vec<Value> = items.into_iter().collect();
    node.post("/api/v1/tx/batch", json!({ "items": items })).await
}

async fn small_queue(limit: u64) -> Node {
    let rules = AcceptRules { queued_per_submitter: limit, ..AcceptRules::default() };
    Node::made(Make { rules, ..Make::default() }).await
}

#[tokio::test]
async fn a_batch_of_a_thousand_is_one_commit_and_keeps_its_order() {
    let node = Node::start().await;
    let names: Vec<String> = (0..1_000).map(|n| format!("n-{n}")).collect();
    let answer = batch(&node, names.iter().map(|name| transfer(name))).await;
    assert_eq!(statuses(&answer), [202; 1_000]);
    let answered = answer.body["items"].as_array().unwrap();
    assert!(answered.iter().zip(&names).all(|(item, name)| item["requestId"] == **name));
    let all = TxFilter { limit: 1_000, ..TxFilter::default() };
    let stored = node.handle.store().list(&all).await.unwrap();
    assert!(stored.iter().map(|tx| tx.request.request_id.as_str()).eq(names.iter().map(String::as_str)));
    for (item, tx) in answered.iter().zip(&stored) {
        assert_eq!(item["createdAt"], json!(tx.created_at), "the view is what is stored");
    }
    let commit = async |limit| node.handle.events(None, limit).await.unwrap().next.commit;
    assert_eq!(commit(1).await, commit(1_000).await, "the first and the last were told in one commit");
}

#[tokio::test]
async fn a_request_twice_in_one_batch_is_one_transaction() {
    let node = Node::start().await;
    let answer = batch(&node, [transfer("a"), transfer("b"), transfer("a")]).await;
    assert_eq!(statuses(&answer), [202, 202, 200]);
    assert_eq!(answer.body["items"][0]["txId"], answer.body["items"][2]["txId"]);
}

#[tokio::test]
async fn items_of_several_submitters_are_judged_by_their_own() {
    let node = Node::start().await;
    let other = format!("eip155:1:{TO}");
    node.post("/api/v1/submitters", json!({ "submitter": other })).await;
    let of = |submitter: &str, name: &str| {
        let mut body = transfer(name);
        body["submitter"] = json!(submitter);
        body
    };
    let stranger = format!("eip155:5:{TO}");
    let items = [of(&other, "a"), of(&stranger, "a"), of(ACCOUNT, "a"), of(&other, "b")];
    let answer = batch(&node, items).await;
    assert_eq!(statuses(&answer), [202, 404, 202, 202]);
    assert_eq!(answer.body["items"][1]["code"], "unknown-submitter");
}

#[tokio::test]
async fn a_full_queue_refuses_what_is_new_and_answers_repeats() {
    let node = small_queue(3).await;
    assert_eq!(
        statuses(&batch(&node, ["a", "b", "c", "d", "e"].map(transfer)).await),
        [202, 202, 202, 429, 429]
    );
    let refused = node.post("/api/v1/tx", transfer("d")).await;
    assert!(refused.is_problem(429, "queue-full").contains('3'));
    assert_eq!(
        (&refused.headers["retry-after"], &refused.body["retryable"]),
        (&"1".parse().unwrap(), &json!(true))
    );
    assert_eq!(node.post("/api/v1/tx", transfer("b")).await.status, 200, "a repeat is no burden");
    assert_eq!(statuses(&batch(&node, ["a", "d"].map(transfer)).await), [200, 429]);
    let mut other = transfer("a");
    other["payload"]["value"] = json!("2");
    node.post("/api/v1/tx", other).await.is_problem(422, "request-mismatch");

    // Another node binds two of them: there is room again, as soon as the count is made again.
    let store = node.handle.store().as_ref();
    let (id, owner) = (ACCOUNT.parse().unwrap(), fixtures::owner("lane", 7).unwrap());
    let mut lane = Lane::take(store, &owner, &id, &fixtures::terms().unwrap()).await.unwrap().unwrap();
    let queue = store.peek_queue(&id, 2).await.unwrap();
    let writer = lane.clone();
    lane.commit(store, |draft| writer.bind(draft, &queue)).await.unwrap();
    let accepted = || async { (node.post("/api/v1/tx", transfer("d")).await.status == 202).then_some(()) };
    eventually(PATIENCE, "room in the queue", accepted).await.unwrap();
    assert_eq!(node.post("/api/v1/tx", transfer("e")).await.status, 202);
    node.post("/api/v1/tx", transfer("f")).await.is_problem(429, "queue-full");
}

#[tokio::test]
async fn what_is_refused_or_known_takes_no_room() {
    let node = small_queue(2).await;
    assert_eq!(node.post("/api/v1/tx", transfer("a")).await.status, 202);
    for _ in 0..5 {
        assert_eq!(node.post("/api/v1/tx", transfer("a")).await.status, 200);
    }
    assert_eq!(node.post("/api/v1/tx", transfer("b")).await.status, 202);
}

#[tokio::test]
async fn a_hundred_callers_at_once_make_one_transaction() {
    let node = Node::start().await;
    let calls = (0..100).map(|_| node.post("/api/v1/tx", transfer("same")));
    let answers = futures::future::join_all(calls).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 202).count(), 1);
    assert!(answers.iter().all(|answer| answer.body["txId"] == answers[0].body["txId"]));
}
