//! What works.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use crate::support::{ACCOUNT, ADDRESS, Node, TO, transfer};

#[tokio::test]
async fn a_new_request_is_202_with_its_place_and_a_repeat_is_200() {
    let node = Node::start().await;
    let first = node.post("/api/v1/tx", transfer("order-1")).await;
    assert_eq!(first.status, 202, "{}", first.text);
    let tx_id = first.body["txId"].as_str().unwrap();
    assert_eq!(first.headers["location"], format!("/api/v1/tx/{tx_id}"));
    assert_eq!((&first.body["state"], &first.body["submitter"]), (&json!("QUEUED"), &json!(ACCOUNT)));

    let again = node.post("/api/v1/tx", transfer("order-1")).await;
    assert_eq!((again.status.as_u16(), again.body["txId"].as_str()), (200, Some(tx_id)));
    assert!(!again.headers.contains_key("location"));
}

#[tokio::test]
async fn a_bare_address_in_any_case_is_the_same_submitter() {
    let node = Node::start().await;
    let first = node.post("/api/v1/tx", transfer("order-1")).await;
    for spelling in [ADDRESS.to_owned(), ADDRESS.to_lowercase(), ACCOUNT.to_lowercase()] {
        let mut again = transfer("order-1");
        again["submitter"] = json!(spelling);
        let again = node.post("/api/v1/tx", again).await;
        assert_eq!((again.status.as_u16(), &again.body["txId"]), (200, &first.body["txId"]), "{spelling}");
    }
}

#[tokio::test]
async fn idempotency_key_is_an_alias_of_request_id() {
    let node = Node::start().await;
    let body = json!({ "submitter": ACCOUNT, "payload": { "to": TO } });
    let request = |key: &str| {
        let request = Request::post("/api/v1/tx").header("content-type", "application/json");
        request.header("idempotency-key", key).body(Body::from(body.to_string())).unwrap()
    };
    let first = node.call(request("k-1")).await;
    assert_eq!((first.status.as_u16(), &first.body["requestId"]), (202, &json!("k-1")));
    assert_eq!(node.call(request("k-1")).await.status, 200);
    let other = transfer("other").to_string();
    let both = Request::post("/api/v1/tx")
        .header("content-type", "application/json")
        .header("idempotency-key", "k-2");
    node.call(both.body(Body::from(other)).unwrap()).await.is_problem(400, "invalid-request");
}

#[tokio::test]
async fn a_transaction_is_found_by_id_by_request_and_in_lists() {
    let node = Node::start().await;
    let mut with_notes = transfer("a b/ç");
    with_notes["metadata"] = json!({ "order": 7 });
    let made = node.post("/api/v1/tx", with_notes).await;
    let tx_id = made.body["txId"].as_str().unwrap().to_owned();
    let one = node.get(&format!("/api/v1/tx/{tx_id}")).await;
    assert_eq!((&one.body["requestId"], &one.body["metadata"]), (&json!("a b/ç"), &json!({ "order": 7 })));
    let by = format!("/api/v1/tx/by-request?submitter={ADDRESS}&requestId=a%20b%2F%C3%A7");
    assert_eq!(node.get(&by).await.body["txId"], json!(tx_id));

    for n in 0..4 {
        node.post("/api/v1/tx", transfer(&format!("n-{n}"))).await;
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = format!(
            "/api/v1/tx?submitter={ACCOUNT}&state=QUEUED,TRACKING&state=REJECTED&limit=2&cursor={cursor}"
        );
        let page = node.get(&page).await;
        assert_eq!(page.status, 200, "{}", page.text);
        seen.extend(page.body["items"].as_array().unwrap().iter().map(|tx| tx["requestId"].clone()));
        match page.body["nextCursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, ["a b/ç", "n-0", "n-1", "n-2", "n-3"]);
}

#[tokio::test]
async fn waiting_returns_when_the_time_is_over_or_the_event_has_passed() {
    let node = Node::start().await;
    let made = node.post("/api/v1/tx", transfer("order-1")).await;
    let tx_id = made.body["txId"].as_str().unwrap();
    let waited = node.get(&format!("/api/v1/tx/{tx_id}?wait=100ms")).await;
    assert_eq!(waited.body["txId"], made.body["txId"]);
    let passed = node.get(&format!("/api/v1/tx/{tx_id}?wait=30s&after=0")).await;
    assert_eq!(passed.body["txId"], made.body["txId"]);
}

#[tokio::test]
async fn a_batch_answers_each_item_in_its_place() {
    let node = Node::start().await;
    node.post("/api/v1/tx", transfer("known")).await;
    let mut other = transfer("known");
    other["payload"]["value"] = json!("2");
    let items = json!([transfer("new-1"), transfer("known"), other, { "nonsense": 1 }, transfer("new-2")]);
    let answer = node.post("/api/v1/tx/batch", json!({ "items": items })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let statuses: Vec<_> =
        answer.body["items"].as_array().unwrap().iter().map(|item| item["status"].clone()).collect();
    assert_eq!(statuses, [202, 200, 422, 400, 202]);
    assert_eq!(answer.body["items"][0]["requestId"], "new-1");
    assert_eq!(answer.body["items"][2]["code"], "request-mismatch");
    assert!(answer.body["items"][3]["detail"].as_str().unwrap().starts_with("items[3]"), "{}", answer.text);
}

#[tokio::test]
async fn events_are_told_per_transaction_and_as_a_stream() {
    let node = Node::start().await;
    let made = node.post("/api/v1/tx", transfer("order-1")).await;
    let tx_id = made.body["txId"].as_str().unwrap();
    let own = node.get(&format!("/api/v1/tx/{tx_id}/events")).await;
    assert_eq!(own.body["items"][0]["type"], "tx.accepted", "{}", own.text);
    let all = node.get("/api/v1/events?limit=10").await;
    assert_eq!(all.body["items"][0]["id"], own.body["items"][0]["id"]);
    let next = all.body["nextCursor"].as_str().unwrap();
    let rest = node.get(&format!("/api/v1/events?after={next}")).await;
    assert_eq!((&rest.body["items"], rest.body["nextCursor"].as_str()), (&json!([]), Some(next)));
}

#[tokio::test]
async fn submitters_are_registered_listed_and_commanded() {
    let node = Node::start().await;
    let body = json!({ "submitter": format!("eip155:1:{TO}") });
    let new = node.post("/api/v1/submitters", body.clone()).await;
    assert_eq!((new.status.as_u16(), &new.body["condition"]), (201, &json!("ok")), "{}", new.text);
    assert_eq!(node.post("/api/v1/submitters", body).await.status, 200);
    let listed = node.get("/api/v1/submitters").await;
    assert_eq!(listed.body["items"].as_array().unwrap().len(), 2);
    let first = node.get("/api/v1/submitters?limit=1").await;
    let rest =
        node.get(&format!("/api/v1/submitters?cursor={}", first.body["nextCursor"].as_str().unwrap())).await;
    assert_eq!(rest.body["items"][0], listed.body["items"][1]);
    assert_eq!(node.get(&format!("/api/v1/submitters/{ADDRESS}")).await.body["submitter"], json!(ACCOUNT));
    let paused = node
        .call(Request::post(format!("/api/v1/submitters/{ACCOUNT}/pause")).body(Body::empty()).unwrap())
        .await;
    assert_eq!((paused.status.as_u16(), &paused.body["command"]), (202, &json!("pause")), "{}", paused.text);
    assert_eq!(node.post(&format!("/api/v1/submitters/{ADDRESS}/resume"), json!({})).await.status, 202);
}

#[tokio::test]
async fn probes_and_metrics_answer() {
    let node = Node::start().await;
    assert_eq!(node.get("/livez").await.status, 200);
    let ready = node.get("/readyz").await;
    assert_eq!((ready.status.as_u16(), &ready.body["store"]["ready"]), (200, &json!(true)), "{}", ready.text);
    assert_eq!(node.get("/metrics").await.text, "gapless_up 1\n");
}
