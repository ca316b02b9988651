//! Commands, up to the row that the lane executes, and the lane's word as it is passed on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::B256;
use axum::body::Body;
use axum::http::Request;
use gapless_api::auth::{ApiKey, KeyScope, Keys};
use gapless_core::allocation::Exhibit;
use gapless_core::command::{Command, CommandOutcome, Verb};
use gapless_core::condition::Protect;
use gapless_core::fees::FeeWishes;
use gapless_core::ids::Nonce;
use gapless_core::intent::Payload;
use gapless_store::clock::SystemClock;
use gapless_store::memory::MemoryStore;
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};
use sha2::Digest;

use crate::hand::{Hand, accepted, waiting};
use crate::support::{ACCOUNT, Answer, Node, TO};

const PATIENCE: Duration = Duration::from_secs(30);
const NOBODY: &str = "01900000-0000-7000-8000-000000000000";

fn submitter(call: &str) -> String {
    format!("/api/v1/submitters/{ACCOUNT}/{call}")
}

#[tokio::test]
async fn a_command_about_a_transaction_is_a_row_for_its_lane() {
    let node = Node::start().await;
    let tx = &accepted(&node, &["order-1"]).await[0];
    let replace = json!({ "payload": { "to": TO, "value": "2" }, "fees": { "maxFeePerGas": "0x10" } });
    for (call, body) in
        [("cancel", json!({})), ("replace", replace), ("resolve", json!({ "action": "bump" }))]
    {
        let answer = node.post(&format!("/api/v1/tx/{tx}/{call}"), body).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
        assert_eq!((&answer.body["txId"], &answer.body["command"]), (&json!(tx), &json!(call)));
        let rows = waiting(&node).await;
        assert_eq!(json!(rows.last().unwrap().command.id), answer.body["commandId"]);
    }
    let bare = Request::post(format!("/api/v1/tx/{tx}/cancel")).body(Body::empty()).unwrap();
    assert_eq!(node.call(bare).await.status, 202, "no body is no question");
    let rows: Vec<_> = waiting(&node).await.into_iter().map(|row| row.command).collect();
    assert!(rows.iter().all(|row| row.tx_id.is_some_and(|id| id.to_string() == *tx)));
    assert!(rows.iter().all(|row| row.actor.as_str() == "local"));
    let verbs: Vec<Verb> = rows.iter().map(|row| row.verb).collect();
    assert_eq!(verbs, [Verb::Cancel, Verb::Replace, Verb::Resolve, Verb::Cancel]);
    assert_eq!((&rows[0].args, &rows[2].args), (&json!({}), &json!({ "action": "bump" })));
    let payload: Payload = serde_json::from_value(rows[1].args["payload"].clone()).unwrap();
    let fees: FeeWishes = serde_json::from_value(rows[1].args["fees"].clone()).unwrap();
    assert_eq!((payload.to, payload.value.0.to::<u64>()), (TO.parse().ok(), 2));
    assert_eq!(fees.max_fee_per_gas.map(|price| price.0), Some(16));
}

#[tokio::test]
async fn what_was_not_given_is_not_in_the_row() {
    let node = Node::start().await;
    let tx = &accepted(&node, &["order-1"]).await[0];
    node.post(&format!("/api/v1/tx/{tx}/replace"), json!({ "fees": { "maxFeePerGas": "5" } })).await;
    assert_eq!(waiting(&node).await[0].command.args, json!({ "fees": { "maxFeePerGas": "0x5" } }));
}

#[tokio::test]
async fn a_command_that_makes_no_sense_is_refused_and_leaves_no_row() {
    let node = Node::start().await;
    let tx = &accepted(&node, &["order-1"]).await[0];
    for (call, body, says) in [
        ("resolve", json!({ "action": "explode" }), "`retry`, `bump`, `placeholder`, `protect`"),
        ("resolve", json!({ "action": "retyr" }), "did you mean `retry`"),
        ("resolve", json!({}), "action"),
        ("replace", json!({}), "`payload`, `fees` or both"),
        ("replace", json!({ "fees": {} }), "`payload`, `fees` or both"),
        ("replace", json!({ "payload": { "to": TO, "value": 1 } }), "payload.value"),
        ("replace", json!({ "fees": { "maxFeePerGas": 5 } }), "fees.maxFeePerGas"),
        ("replace", json!({ "fee": {} }), "did you mean `fees`"),
        ("replace", json!({ "payload": {} }), "neither"),
        ("replace", json!({ "fees": { "gasPrice": "1", "maxFeePerGas": "1" } }), "gasPrice"),
        ("replace", json!({ "fees": { "maxFeePerGas": "1", "maxPriorityFeePerGas": "2" } }), "above"),
        ("cancel", json!({ "now": true }), "now"),
    ] {
        let answer = node.post(&format!("/api/v1/tx/{tx}/{call}"), body.clone()).await;
        let detail = answer.is_problem(400, "invalid-request");
        assert!(detail.contains(says), "{call} {body}: {detail}");
    }
    for (call, body) in [("cancel", json!({})), ("resolve", json!({ "action": "retry" }))] {
        node.post(&format!("/api/v1/tx/{NOBODY}/{call}"), body.clone())
            .await
            .is_problem(404, "unknown-transaction");
        node.post(&format!("/api/v1/tx/17/{call}"), body).await.is_problem(400, "invalid-request");
    }
    node.get("/api/v1/commands/17").await.is_problem(400, "invalid-request");
    node.post(&submitter("drain?wait=soon"), json!({})).await.is_problem(400, "invalid-request");
    node.post(&submitter("drain"), json!({ "all": true })).await.is_problem(400, "invalid-request");
    node.post(&submitter("reset-nonce"), json!({ "force": "yes" })).await.is_problem(400, "invalid-request");
    node.post(&format!("/api/v1/submitters/eip155:31337:{TO}/drain"), json!({}))
        .await
        .is_problem(404, "unknown-submitter");
    assert_eq!(waiting(&node).await, []);
}

#[tokio::test]
async fn a_final_transaction_takes_no_command() {
    let node = Node::start().await;
    let ids = accepted(&node, &["order-1"]).await;
    let mut lane = Hand::on(&node).await;
    lane.bind(1).await;
    lane.mine(&ids, 5).await;
    lane.confirm(&ids).await;
    let fees = json!({ "fees": { "maxFeePerGas": "1" } });
    for (call, body) in
        [("cancel", json!({})), ("replace", fees), ("resolve", json!({ "action": "placeholder" }))]
    {
        let answer = node.post(&format!("/api/v1/tx/{}/{call}", ids[0]), body).await;
        answer.is_problem(409, "already-final");
        assert_eq!(answer.body["state"], "CONFIRMED");
    }
    assert_eq!(waiting(&node).await, []);
}

#[tokio::test]
async fn a_replacement_must_outbid_what_was_sent() {
    let node = Node::start().await;
    let tx = accepted(&node, &["order-1"]).await.remove(0);
    let replace =
        async |fees: Value| node.post(&format!("/api/v1/tx/{tx}/replace"), json!({ "fees": fees })).await;
    assert_eq!(replace(json!({ "maxFeePerGas": "1" })).await.status, 202, "nothing was sent yet");
    // The fixture offers 2 gwei in all and a tip of 1 gwei.
    Hand::on(&node).await.bind(1).await;
    for low in [
        json!({ "maxFeePerGas": "2199999999" }),
        json!({ "maxPriorityFeePerGas": "1099999999" }),
        json!({ "maxFeePerGas": "9000000000", "maxPriorityFeePerGas": "1000000000" }),
        json!({ "gasPrice": "2199999999" }),
    ] {
        let answer = replace(low.clone()).await;
        answer.is_problem(422, "fee-too-low");
        let needed = json!({ "maxFeePerGas": "0x83215600", "maxPriorityFeePerGas": "0x4190ab00" });
        assert_eq!(answer.body["needed"], needed, "{low}");
    }
    assert_eq!(waiting(&node).await.len(), 1);
    for enough in [
        json!({ "maxFeePerGas": "2200000000" }),
        json!({ "maxPriorityFeePerGas": "1100000000" }),
        json!({ "maxFeePerGas": "2200000000", "maxPriorityFeePerGas": "1100000000" }),
        json!({ "gasPrice": "2200000000" }),
    ] {
        let answer = replace(enough.clone()).await;
        assert_eq!(answer.status, 202, "{enough}: {}", answer.text);
    }
}

/// The first command that waits, once there is one.
async fn inserted(node: &Node) -> Command {
    let first = || async { waiting(node).await.into_iter().next() };
    eventually(PATIENCE, "a command", first).await.unwrap()
}

/// Calls, and ends the command as a lane would while the call waits.
async fn answered_by(
    node: &Node,
    path: &str,
    body: Value,
    (outcome, code, result): (CommandOutcome, Option<&str>, Option<Value>),
) -> (Answer, Command) {
    let lane = async {
        let command = inserted(node).await;
        Hand::on(node).await.end(command.command.id, outcome, code, result).await;
        command
    };
    tokio::join!(node.post(path, body), lane)
}

#[tokio::test]
async fn drain_answers_with_what_the_lane_did() {
    let node = Node::start().await;
    let result = json!({ "cancelled": [NOBODY], "cancelling": [], "failed": [] });
    let done = (CommandOutcome::Done, None, Some(result.clone()));
    let (answer, command) = answered_by(&node, &submitter("drain"), json!({}), done).await;
    assert_eq!((answer.status.as_u16(), &answer.body), (200, &result), "{}", answer.text);
    assert_eq!((command.command.verb, command.command.args), (Verb::Drain, json!({})));
    assert_eq!(command.command.tx_id, None);
}

#[tokio::test]
async fn a_lane_that_does_not_speak_in_time_is_asked_for_later() {
    let node = Node::start().await;
    let late = node.post(&submitter("drain?wait=100ms"), json!({})).await;
    assert_eq!(late.status, 202, "{}", late.text);
    let path = format!("/api/v1/commands/{}", late.body["commandId"].as_str().unwrap());
    let pending = node.get(&path).await;
    assert_eq!((&pending.body["outcome"], &pending.body["result"]), (&json!("pending"), &Value::Null));
    let command = inserted(&node).await;
    let result = json!({ "cancelled": [], "cancelling": [NOBODY], "failed": [] });
    let mut lane = Hand::on(&node).await;
    lane.end(command.command.id, CommandOutcome::Done, None, Some(result.clone())).await;
    let done = node.get(&path).await;
    assert_eq!((&done.body["outcome"], &done.body["result"]), (&json!("done"), &result));
    assert_eq!(done.body["commandId"], late.body["commandId"]);
}

#[tokio::test]
async fn reset_nonce_passes_the_lanes_refusal_on() {
    let node = Node::start().await;
    let path = submitter("reset-nonce");
    let refused = (CommandOutcome::Refused, Some("attempts-outstanding"), Some(json!({ "open": 2 })));
    let (answer, command) = answered_by(&node, &path, json!({}), refused).await;
    answer.is_problem(409, "attempts-outstanding");
    assert_eq!((&answer.body["result"], &answer.body["retryable"]), (&json!({ "open": 2 }), &json!(true)));
    assert_eq!((command.command.verb, command.command.args), (Verb::ResetNonce, json!({ "force": false })));

    let odd = (CommandOutcome::Lost, Some("something-new"), None);
    let (answer, _) = answered_by(&node, &path, json!({}), odd).await;
    answer.is_problem(409, "command-refused");
    assert_eq!((&answer.body["reason"], &answer.body["outcome"]), (&json!("something-new"), &json!("lost")));

    let result = json!({ "from": 5, "to": 3 });
    let done = (CommandOutcome::Done, None, Some(result.clone()));
    let (answer, command) = answered_by(&node, &path, json!({ "force": true }), done).await;
    assert_eq!((answer.status.as_u16(), answer.body), (200, result));
    assert_eq!(command.command.args, json!({ "force": true }));
}

#[tokio::test]
async fn whoever_waits_for_unprotect_hears_what_the_lane_found() {
    let node = Node::start().await;
    let exhibit = Exhibit { hash: None, block_number: 9, block_hash: B256::repeat_byte(9) };
    let protect = Protect { nonce: Nonce(5), exhibit: Some(exhibit) };
    Hand::on(&node).await.write(|draft| draft.cursor.conditions.protect = Some(protect)).await;
    let body = json!({ "acknowledgedNonce": 5 });
    let refused = (CommandOutcome::Refused, Some("nonce-mismatch"), None);
    let (answer, _) = answered_by(&node, &submitter("unprotect?wait=30s"), body.clone(), refused).await;
    answer.is_problem(409, "nonce-mismatch");
    let done = (CommandOutcome::Done, None, None);
    let (answer, _) = answered_by(&node, &submitter("unprotect?wait=30s"), body, done).await;
    assert_eq!((answer.status.as_u16(), &answer.body["command"]), (200, &json!("unprotect")));
}

#[tokio::test]
async fn scopes_say_who_may_command() {
    let key = |name: &str, scopes: &[KeyScope]| ApiKey {
        name: name.to_owned(),
        hash: sha2::Sha256::digest(name.as_bytes()).into(),
        scopes: scopes.iter().copied().collect(),
        submitters: None,
        expires_at: None,
    };
    let mut other = key("other", &[KeyScope::Submit, KeyScope::Operate, KeyScope::Read]);
    other.submitters = Some(BTreeSet::from([format!("eip155:1:{TO}").parse().unwrap()]));
    let keys = vec![
        key("shop", &[KeyScope::Submit]),
        key("desk", &[KeyScope::Operate]),
        key("eye", &[KeyScope::Read]),
        other,
    ];
    let node = Node::with(Arc::new(MemoryStore::new(Arc::new(SystemClock))), Keys(keys)).await;
    let call = async |key: &str, method: &str, path: &str, body: Value| {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.header("authorization", format!("Bearer {key}"));
        node.call(request.body(Body::from(body.to_string())).unwrap()).await
    };
    let made = call("shop", "POST", "/api/v1/tx", crate::support::transfer("a")).await;
    let tx = format!("/api/v1/tx/{}", made.body["txId"].as_str().unwrap());
    let cancel = format!("{tx}/cancel");
    assert_eq!(call("shop", "POST", &cancel, json!({})).await.status, 202);
    assert_eq!(call("desk", "POST", &cancel, json!({})).await.status, 202);
    let eye = call("eye", "POST", &cancel, json!({})).await;
    assert!(eye.is_problem(403, "forbidden").contains("`submit` or `operate`"));
    call("other", "POST", &cancel, json!({})).await.is_problem(404, "unknown-transaction");
    assert_eq!(waiting(&node).await[1].command.actor.as_str(), "desk");

    for path in ["drain?wait=1ms", "reset-nonce?wait=1ms"].map(submitter) {
        for low in ["shop", "eye"] {
            call(low, "POST", &path, json!({})).await.is_problem(403, "forbidden");
        }
        call("other", "POST", &path, json!({})).await.is_problem(403, "forbidden");
        assert_eq!(call("desk", "POST", &path, json!({})).await.status, 202);
    }
    let command = format!("/api/v1/commands/{NOBODY}");
    call("shop", "GET", &command, json!(null)).await.is_problem(403, "forbidden");
    assert_eq!(call("desk", "GET", &command, json!(null)).await.body["outcome"], "pending");
    let nonces = submitter("nonces");
    call("eye", "GET", &nonces, json!(null)).await.is_problem(403, "forbidden");
    assert_eq!(call("desk", "GET", &nonces, json!(null)).await.status, 200);
    // The nonce and the machinery are for operators.
    call("eye", "GET", &format!("{tx}?view=operator"), json!(null)).await.is_problem(403, "forbidden");
    call("desk", "GET", &tx, json!(null)).await.is_problem(403, "forbidden");
    assert_eq!(call("desk", "GET", &format!("{tx}?view=operator"), json!(null)).await.status, 200);
    for path in ["attempts", "explain"].map(|name| format!("{tx}/{name}")) {
        assert_eq!(call("eye", "GET", &path, json!(null)).await.status, 200);
        call("shop", "GET", &path, json!(null)).await.is_problem(403, "forbidden");
        call("other", "GET", &path, json!(null)).await.is_problem(404, "unknown-transaction");
    }
}
