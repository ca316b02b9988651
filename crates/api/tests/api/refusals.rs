//! What is refused, each with its code.

use std::collections::BTreeSet;
use std::sync::Arc;

use alloy_primitives::{B256, U256};
use axum::body::Body;
use axum::http::Request;
use gapless_api::auth::{ApiKey, KeyScope, Keys};
use gapless_core::allocation::Exhibit;
use gapless_core::change::Verdict;
use gapless_core::condition::{Conditions, Protect};
use gapless_core::fees::Wei;
use gapless_core::ids::{Nonce, RequestId, Scope, TxId};
use gapless_core::intent::{Intent, Payload};
use gapless_core::ports::clock::Clock;
use gapless_core::record::NewTx;
use gapless_core::time::Timestamp;
use gapless_store::clock::SystemClock;
use gapless_store::memory::MemoryStore;
use gapless_testkit::fixtures::{self, Lane};
use serde_json::{Value, json};

use crate::support::{ACCOUNT, ADDRESS, Node, TO, transfer};

/// A transfer with one thing changed.
fn with(path: &str, value: Value) -> Value {
    let mut body = transfer("order-1");
    let (parent, name) = path.rsplit_once('/').unwrap();
    body.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(name.to_owned(), value);
    body
}

#[tokio::test]
async fn what_cannot_be_read_is_400_and_says_where() {
    let node = Node::start().await;
    for (body, says) in [
        (with("/payload/value", json!(1)), "payload.value"),
        (with("/payload/gasLimit", json!(21000)), "payload.gasLimit"),
        (with("/fees", json!({ "maxFeePerGas": 5 })), "fees.maxFeePerGas"),
        (with("/payload/to", json!("0x12")), "payload.to"),
        (with("/payload/to", json!(TO.replace("0x7099797", "0x70997970").replace('C', "c"))), "payload.to"),
        (with("/payload/to", json!(TO.replace("C51812dc", "c51812dc"))), TO),
        (with("/payload/data", json!("abcd")), "payload.data"),
        (with("/payload/data", json!("0xabc")), "payload.data"),
        (with("/payload/accessList", json!([{ "address": TO, "storageKeys": ["0x01"] }])), "32 bytes"),
        (with("/submitter", json!("nobody")), "submitter"),
        (with("/submitter", json!("eip155:31337:0x12")), "submitter"),
        (with("/submitter", json!(ACCOUNT.replace("0xf39F", "0xF39F"))), ACCOUNT.rsplit(':').next().unwrap()),
        (with("/requestId", json!("")), "requestId"),
        (with("/requestId", json!("a\u{0}b")), "U+0000"),
        (with("/requestId", json!("x".repeat(201))), "200"),
        (with("/requestId", Value::Null), "requestId"),
        (with("/validUntil", json!("tomorrow")), "validUntil"),
        (with("/speed", json!("fsat")), "did you mean `fast`"),
        (with("/request_id", json!("a")), "did you mean `requestId`"),
        (with("/payload/gas", json!("0x1")), "did you mean `gasLimit`"),
        (with("/payload", json!({})), "neither"),
        (with("/fees", json!({ "gasPrice": "1", "maxFeePerGas": "1" })), "gasPrice"),
        (json!([]), "invalid"),
        (json!({ "requestId": "a" }), "submitter"),
    ] {
        let answer = node.post("/api/v1/tx", body.clone()).await;
        let detail = answer.is_problem(400, "invalid-request");
        assert!(detail.contains(says), "{body}: {detail}");
    }
    for text in ["", "{", "nonsense", "{} {}", "\u{feff}{}", "[[[[[["] {
        node.post_text("/api/v1/tx", text).await.is_problem(400, "invalid-request");
    }
    node.post_text("/api/v1/tx", vec![0xff, 0xfe]).await.is_problem(400, "invalid-request");
    let deep = format!("{{\"metadata\":{}", "[".repeat(100_000));
    node.post_text("/api/v1/tx", deep).await.is_problem(400, "invalid-request");
}

#[tokio::test]
async fn questions_that_make_no_sense_are_400() {
    let node = Node::start().await;
    for path in [
        "/api/v1/tx/17",
        "/api/v1/tx/by-hash/0x12",
        "/api/v1/tx?limit=0",
        "/api/v1/tx?limit=1001",
        "/api/v1/tx?state=CONFIRMD",
        "/api/v1/tx?cursor=zz",
        "/api/v1/tx?submiter=x",
        "/api/v1/tx?limit=1&limit=2",
        "/api/v1/tx/by-request?requestId=a",
        "/api/v1/events?after=yesterday",
        "/api/v1/submitters?cursor=x",
        "/api/v1/submitters/nobody",
    ] {
        node.get(path).await.is_problem(400, "invalid-request");
    }
    let made = node.post("/api/v1/tx", transfer("a")).await;
    let tx = format!("/api/v1/tx/{}", made.body["txId"].as_str().unwrap());
    for query in ["wait=10", "wait=soon", "wait=1s&after=x", "wiat=1s"] {
        node.get(&format!("{tx}?{query}")).await.is_problem(400, "invalid-request");
    }
    let many: Vec<Value> = (0..1_001).map(|n| transfer(&n.to_string())).collect();
    let many = node.post("/api/v1/tx/batch", json!({ "items": many })).await;
    assert!(many.is_problem(400, "invalid-request").contains("1000"));
}

#[tokio::test]
async fn the_unknown_is_404() {
    let node = Node::start().await;
    let stranger = format!("eip155:31337:{TO}");
    node.post("/api/v1/tx", with("/submitter", json!(stranger))).await.is_problem(404, "unknown-submitter");
    node.get(&format!("/api/v1/submitters/{stranger}")).await.is_problem(404, "unknown-submitter");
    node.post(&format!("/api/v1/submitters/{stranger}/pause"), json!({}))
        .await
        .is_problem(404, "unknown-submitter");
    let nobody = "/api/v1/tx/01900000-0000-7000-8000-000000000000";
    node.get(nobody).await.is_problem(404, "unknown-transaction");
    node.get(&format!("{nobody}?wait=1s")).await.is_problem(404, "unknown-transaction");
    node.get(&format!("{nobody}/events")).await.is_problem(404, "unknown-transaction");
    node.get(&format!("/api/v1/tx/by-hash/0x{}", "1".repeat(64)))
        .await
        .is_problem(404, "unknown-transaction");
    let by = format!("/api/v1/tx/by-request?submitter={ADDRESS}&requestId=a");
    node.get(&by).await.is_problem(404, "unknown-transaction");
    node.get("/api/v2/tx").await.is_problem(404, "not-found");
    node.post("/livez", json!({})).await.is_problem(405, "method-not-allowed");
}

#[tokio::test]
async fn another_request_under_a_taken_id_is_422_and_names_the_first() {
    let node = Node::start().await;
    let first = node.post("/api/v1/tx", transfer("order-1")).await;
    let answer = node.post("/api/v1/tx", with("/payload/value", json!("2"))).await;
    answer.is_problem(422, "request-mismatch");
    assert_eq!(answer.body["txId"], first.body["txId"]);
}

#[tokio::test]
async fn what_is_too_long_is_413() {
    let node = Node::start().await;
    let long = with("/metadata", json!("x".repeat(300_000)));
    assert!(
        node.post("/api/v1/tx", long.clone()).await.is_problem(413, "payload-too-large").contains("262144")
    );
    let in_batch = node.post("/api/v1/tx/batch", json!({ "items": [long] })).await;
    assert_eq!(in_batch.body["items"][0]["status"], 413);
    node.post("/api/v1/tx", with("/metadata", json!("x".repeat(20_000))))
        .await
        .is_problem(413, "payload-too-large");
    let batch = format!("{{\"items\":[\"{}\"]}}", "x".repeat(16_777_216));
    node.post_text("/api/v1/tx/batch", batch).await.is_problem(413, "payload-too-large");
}

#[tokio::test]
async fn only_json_is_read() {
    let node = Node::start().await;
    for kind in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let request = Request::post("/api/v1/tx").header("content-type", kind);
        let answer = node.call(request.body(Body::from(transfer("a").to_string())).unwrap()).await;
        answer.is_problem(415, "unsupported-media-type");
    }
    let request = Request::post("/api/v1/tx").header("content-type", "application/json; charset=utf-8");
    assert_eq!(node.call(request.body(Body::from(transfer("a").to_string())).unwrap()).await.status, 202);
}

#[tokio::test]
async fn unprotect_needs_something_to_acknowledge() {
    let node = Node::start().await;
    let path = format!("/api/v1/submitters/{ACCOUNT}/unprotect");
    node.post(&path, json!({ "acknowledgedNonce": 7 })).await.is_problem(409, "not-protected");
    node.post(&path, json!({})).await.is_problem(400, "invalid-request");
    let unknown = node.post(&path, json!({ "nonce": 7 })).await;
    assert!(unknown.is_problem(400, "invalid-request").contains("acknowledgedNonce"));
}

#[tokio::test]
async fn keys_are_asked_for_and_their_scopes_kept() {
    let key = |name: &str, scopes: &[KeyScope]| ApiKey {
        name: name.to_owned(),
        hash: sha256(name),
        scopes: scopes.iter().copied().collect(),
        submitters: None,
        expires_at: None,
    };
    let mut other = key("other", &[KeyScope::Read, KeyScope::Submit]);
    other.submitters = Some(BTreeSet::from([format!("eip155:1:{TO}").parse().unwrap()]));
    let mut old = key("old", &[KeyScope::Read]);
    old.expires_at = Some(Timestamp::from_micros(1));
    let keys = Keys(vec![key("shop", &[KeyScope::Submit]), key("root", &[KeyScope::Admin]), other, old]);
    let node = Node::with(Arc::new(MemoryStore::new(Arc::new(SystemClock))), keys).await;
    let call = async |key: &str, method: &str, path: &str, body: Value| {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.header("authorization", format!("Bearer {key}"));
        node.call(request.body(Body::from(body.to_string())).unwrap()).await
    };
    node.post("/api/v1/tx", transfer("a")).await.is_problem(401, "unauthorized");
    call("wrong", "GET", "/api/v1/tx", json!(null)).await.is_problem(401, "unauthorized");
    call("old", "GET", "/api/v1/tx", json!(null)).await.is_problem(401, "unauthorized");
    let made = call("shop", "POST", "/api/v1/tx", transfer("a")).await;
    assert_eq!(made.status, 202, "{}", made.text);
    let tx = format!("/api/v1/tx/{}", made.body["txId"].as_str().unwrap());
    call("shop", "GET", &tx, json!(null)).await.is_problem(403, "forbidden");
    assert_eq!(call("root", "GET", &tx, json!(null)).await.status, 200);
    call("other", "GET", &tx, json!(null)).await.is_problem(404, "unknown-transaction");
    call("other", "GET", &format!("{tx}/events"), json!(null)).await.is_problem(404, "unknown-transaction");
    call("other", "GET", "/api/v1/tx", json!(null)).await.is_problem(403, "forbidden");
    call("other", "POST", "/api/v1/tx", transfer("b")).await.is_problem(403, "forbidden");
    assert_eq!(call("other", "GET", "/api/v1/events", json!(null)).await.body["items"], json!([]));
    assert_eq!(node.get("/livez").await.status, 200);
}

pub(crate) fn sha256(text: &str) -> [u8; 32] {
    use sha2::Digest;
    sha2::Sha256::digest(text.as_bytes()).into()
}

/// Sets flags as a lane would.
async fn flag(node: &Node, set: impl FnOnce(&mut Conditions)) {
    let store = node.handle.store().as_ref();
    let owner = fixtures::owner("lane", 7).unwrap();
    let terms = fixtures::terms().unwrap();
    let id = ACCOUNT.parse().unwrap();
    let mut lane = Lane::take(store, &owner, &id, &terms).await.unwrap().unwrap();
    let verdict = lane.commit(store, |draft| set(&mut draft.cursor.conditions)).await.unwrap();
    assert!(matches!(verdict, Verdict::Applied { .. }), "{verdict:?}");
}

#[tokio::test]
async fn a_paused_submitter_takes_nothing_new_but_knows_what_it_has() {
    // No engine: it would hold the lane that this test writes to.
    let node = Node::stopped().await;
    let payload = Payload { to: TO.parse().ok(), value: Wei(U256::from(1)), ..Payload::default() };
    let (id, intent) = (ACCOUNT.parse().unwrap(), Intent { payload, ..Intent::default() });
    let (scope, request_id) = (Scope::from(&id), RequestId::parse("before").unwrap());
    let before = NewTx::new(TxId(SystemClock.draw()), scope, id, request_id, intent, None).unwrap();
    node.handle.store().accept(&[before]).await.unwrap();
    flag(&node, |conditions| conditions.paused = true).await;
    node.post("/api/v1/tx", transfer("after")).await.is_problem(409, "submitter-paused");
    assert_eq!(node.post("/api/v1/tx", transfer("before")).await.status, 200);
    let items = json!({ "items": [transfer("after"), transfer("before")] });
    let batch = node.post("/api/v1/tx/batch", items).await;
    assert_eq!(
        (&batch.body["items"][0]["code"], &batch.body["items"][1]["status"]),
        (&json!("submitter-paused"), &json!(200))
    );
}

#[tokio::test]
async fn a_protected_submitter_wants_the_very_nonce_acknowledged() {
    let node = Node::start().await;
    let exhibit = Exhibit { hash: None, block_number: 9, block_hash: B256::repeat_byte(9) };
    flag(&node, |conditions| conditions.protect = Some(Protect { nonce: Nonce(5), exhibit: Some(exhibit) }))
        .await;
    node.post("/api/v1/tx", transfer("after")).await.is_problem(409, "submitter-protected");
    let path = format!("/api/v1/submitters/{ACCOUNT}/unprotect");
    let wrong = node.post(&path, json!({ "acknowledgedNonce": 4 })).await;
    wrong.is_problem(409, "nonce-mismatch");
    assert_eq!(wrong.body["expected"], 5);
    assert_eq!(node.post(&path, json!({ "acknowledgedNonce": "0x5" })).await.status, 202);
}

#[tokio::test]
async fn a_write_without_an_answer_is_503_and_says_what_to_do() {
    let node = Node::stopped().await;
    let answer = node.post("/api/v1/tx", transfer("a")).await;
    assert!(answer.is_problem(503, "store-unavailable").contains("same requestId"));
    assert_eq!(
        (&answer.headers["retry-after"], &answer.body["retryable"]),
        (&"1".parse().unwrap(), &json!(true))
    );
    let batch = node.post("/api/v1/tx/batch", json!({ "items": [transfer("a"), transfer("b")] })).await;
    for item in batch.body["items"].as_array().unwrap() {
        assert_eq!((&item["status"], &item["code"]), (&json!(503), &json!("store-unavailable")));
        assert!(item["detail"].as_str().unwrap().contains("same requestId"), "{item}");
    }
    assert!(node.get("/readyz").await.is_problem(503, "not-ready").contains("stopping"));
}
