//! Why a transaction is where it is, what operators see of it, and what became of each nonce.

use std::collections::BTreeSet;
use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::allocation::{AllocationWrite, Exhibit};
use gapless_core::attempt::Refusal;
use gapless_core::change::RefusalNote;
use gapless_core::condition::{HoldCause, Reset};
use gapless_core::ids::Nonce;
use gapless_core::text::NodeText;
use gapless_core::time::Timestamp;
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::hand::{Hand, accepted, record};
use crate::support::{ACCOUNT, Make, Node};

async fn reason(node: &Node, tx_id: &str) -> Value {
    let view = node.get(&format!("/api/v1/tx/{tx_id}")).await.body;
    let told = node.get(&format!("/api/v1/tx/{tx_id}/explain")).await;
    assert_eq!(told.status, 200, "{}", told.text);
    let fields: BTreeSet<&str> = told.body.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, BTreeSet::from(["reason", "summary", "evidence", "next"]));
    let wait = &view["waitReason"];
    if !wait.is_null() {
        assert_eq!(told.body["reason"], wait["code"], "the view and the explanation agree");
    }
    told.body["reason"].clone()
}

#[tokio::test]
async fn the_reason_follows_a_transaction_to_its_end() {
    let node = Node::start().await;
    let ids = accepted(&node, &["a", "b"]).await;
    assert_eq!(reason(&node, &ids[0]).await, "Queued");
    let mut lane = Hand::on(&node).await;
    lane.bind(1).await;
    assert_eq!(reason(&node, &ids[0]).await, "InPool");
    let behind = node.get(&format!("/api/v1/tx/{}", ids[1])).await;
    assert_eq!(behind.body["waitReason"], json!({ "code": "SlotBusy", "nonce": 0 }));
    assert_eq!(reason(&node, &ids[1]).await, "SlotBusy");

    lane.write(|draft| draft.cursor.conditions.paused = true).await;
    assert_eq!(reason(&node, &ids[1]).await, "Paused");
    lane.write(|draft| draft.cursor.conditions.paused = false).await;
    let words = NodeText::new("the chain counts 3");
    lane.write(|draft| drop(draft.cursor.conditions.holds.insert(HoldCause::Counts, words))).await;
    assert_eq!(reason(&node, &ids[1]).await, "Held");
    lane.write(|draft| draft.cursor.conditions.holds.clear()).await;

    lane.mine(&ids[..1], 5).await;
    assert_eq!(reason(&node, &ids[0]).await, "Confirming");
    let confirming = json!({ "code": "Confirming", "count": 0, "required": 20 });
    let hash = record(&node, &ids[0]).await.facts.tx_hash.unwrap();
    for path in [
        format!("/api/v1/tx/{}", ids[0]),
        format!("/api/v1/tx/{}?wait=1ms", ids[0]),
        format!("/api/v1/tx/by-hash/{hash}"),
        format!("/api/v1/tx/by-request?submitter={ACCOUNT}&requestId=a"),
    ] {
        assert_eq!(node.get(&path).await.body["waitReason"], confirming, "{path}");
    }
    assert_eq!(node.get("/api/v1/tx").await.body["items"][0]["waitReason"], confirming);
    lane.confirm(&ids[..1]).await;
    assert_eq!(reason(&node, &ids[0]).await, "Confirmed");
    let ended = node.get(&format!("/api/v1/tx/{}", ids[0])).await;
    assert_eq!(ended.body["waitReason"], Value::Null);
    assert_eq!(reason(&node, &ids[1]).await, "Queued", "its turn has come");
}

#[tokio::test]
async fn a_chain_that_does_not_answer_is_the_reason() {
    let node = Node::made(Make { chain: true, ..Make::default() }).await;
    let ids = accepted(&node, &["a"]).await;
    let down = || async {
        let view = node.get(&format!("/api/v1/tx/{}?wait=1ms", ids[0])).await;
        (view.body["waitReason"]["code"] == "NodeDown").then_some(())
    };
    eventually(Duration::from_secs(30), "the reason", down).await.unwrap();
    let told = node.get(&format!("/api/v1/tx/{}/explain", ids[0])).await.body;
    let endpoint = told["evidence"].as_array().unwrap().iter().find(|fact| fact["what"] == "endpoint");
    assert!(endpoint.unwrap()["value"].as_str().unwrap().contains("127.0.0.1:1"), "{told}");
}

#[tokio::test]
async fn operators_see_the_machinery_and_others_do_not() {
    let node = Node::start().await;
    let ids = accepted(&node, &["a"]).await;
    let path = format!("/api/v1/tx/{}", ids[0]);
    assert_eq!(node.get(&format!("{path}/attempts")).await.body, json!([]), "nothing was signed yet");
    let mut lane = Hand::on(&node).await;
    lane.bind(1).await;
    let refusal = Refusal { code: NodeText::new("pool-full"), text: NodeText::new("txpool is full") };
    let note = RefusalNote { nonce: Nonce(0), n: 0, refusal };
    lane.write(|draft| draft.writes.refusals = vec![note]).await;

    let plain = node.get(&path).await.body;
    assert!(plain.get("nonce").is_none() && plain.get("attempts").is_none(), "{plain}");
    let seen = node.get(&format!("{path}?view=operator")).await.body;
    let machinery = [
        "nonce",
        "attempts",
        "replacedByHash",
        "submitAttempts",
        "lastSubmitAt",
        "nextResubmitAt",
        "lastError",
        "lastGasParams",
        "lastMempoolDiag",
        "ownerNode",
        "fencingToken",
    ];
    for name in machinery {
        assert!(seen.get(name).is_some(), "{name} is missing in {seen}");
    }
    assert_eq!((&seen["txId"], &seen["nonce"]), (&json!(ids[0]), &json!(0)));
    assert_eq!((&seen["ownerNode"], &seen["fencingToken"]), (&json!("lane"), &json!(1)));
    assert_eq!((&seen["submitAttempts"], &seen["lastError"]["code"]), (&json!(1), &json!("pool-full")));
    assert_eq!(seen["lastGasParams"]["maxFeePerGas"], "0x77359400");
    assert!(seen["nextResubmitAt"].is_string() && seen["lastSubmitAt"].is_string());
    assert_eq!(seen["replacedByHash"], Value::Null);

    let attempts = node.get(&format!("{path}/attempts")).await.body;
    assert_eq!(attempts, seen["attempts"]);
    let one = &attempts.as_array().unwrap()[0];
    let fields: BTreeSet<&str> = one.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, BTreeSet::from(["hash", "kind", "txId", "route", "fees", "at", "outcome"]));
    assert_eq!(
        (&one["kind"], &one["route"], &one["txId"]),
        (&json!("payload"), &json!("public"), &json!(ids[0]))
    );
    assert_eq!(one["outcome"], json!({ "code": "pool-full", "text": "txpool is full" }));
    lane.mine(&ids, 5).await;
    let mined = node.get(&format!("{path}/attempts")).await.body;
    assert_eq!(mined[0]["outcome"], json!({ "code": "mined", "text": null }));
    let seen = node.get(&format!("{path}?view=operator")).await.body;
    assert_eq!(seen["nextResubmitAt"], Value::Null, "what is mined is not sent again");
    node.get(&format!("{path}?view=everything")).await.is_problem(400, "invalid-request");
}

#[tokio::test]
async fn every_nonce_has_its_story() {
    let node = Node::start().await;
    let empty = node.get(&format!("/api/v1/submitters/{ACCOUNT}/nonces")).await;
    assert_eq!((empty.status.as_u16(), &empty.body["items"]), (200, &json!([])), "{}", empty.text);
    let ids = accepted(&node, &["a", "b", "c", "d", "e"]).await;
    let mut lane = Hand::on(&node).await;
    lane.bind(5).await;
    lane.mine(&ids[..2], 5).await;
    lane.confirm(&ids[..1]).await;
    let stranger = B256::repeat_byte(9);
    let exhibit = Exhibit { hash: Some(stranger), block_number: 6, block_hash: B256::repeat_byte(6) };
    lane.write(|draft| {
        draft.cursor.run.as_mut().unwrap().consumed = Nonce(3);
        draft.writes.allocations = vec![
            AllocationWrite::Foreign { nonce: Nonce(2), exhibit },
            AllocationWrite::Recycle { nonce: Nonce(4) },
        ];
    })
    .await;
    let page = node.get(&format!("/api/v1/submitters/{ACCOUNT}/nonces")).await;
    assert_eq!(page.status, 200, "{}", page.text);
    let items = page.body["items"].as_array().unwrap();
    let told = |name: &str| items.iter().map(|item| item[name].clone()).collect::<Vec<_>>();
    assert_eq!(told("nonce"), [0, 1, 2, 3, 4]);
    assert_eq!(told("status"), ["resolved", "consumed", "foreign", "open", "open"]);
    let none = Value::Null;
    assert_eq!(told("note"), [&none, &none, &none, &none, &json!("recyclable")].map(Clone::clone));
    assert_eq!(told("txId"), ids);
    assert_eq!(told("blockNumber"), [json!("0x5"), json!("0x5"), json!("0x6"), json!(null), json!(null)]);
    let first = &items[0];
    assert_eq!(first["minedHash"], first["attempts"][0]["hash"]);
    assert_eq!(first["attempts"][0]["outcome"]["code"], "mined");
    assert_eq!(items[2]["minedHash"], json!(stranger));
    assert_eq!((&items[3]["minedHash"], items[3]["attempts"].as_array().unwrap().len()), (&none, 1));

    let part = async |query: &str| {
        let page = node.get(&format!("/api/v1/submitters/{ACCOUNT}/nonces?{query}")).await;
        assert_eq!(page.status, 200, "{}", page.text);
        page.body["items"].as_array().unwrap().iter().map(|item| item["nonce"].as_u64().unwrap()).collect()
    };
    let whole: Vec<u64> = part("from=1&to=3").await;
    assert_eq!(whole, [1, 2], "`to` is the first that is not shown");
    let rest: Vec<u64> = part("from=0x3").await;
    assert_eq!(rest, [3, 4]);
    let start: Vec<u64> = part("to=2").await;
    assert_eq!(start, [0, 1]);
    for wrong in ["from=x", "from=3&to=2", "from=0&to=201", "form=1"] {
        let path = format!("/api/v1/submitters/{ACCOUNT}/nonces?{wrong}");
        node.get(&path).await.is_problem(400, "invalid-request");
    }
}

#[tokio::test]
async fn a_submitter_tells_when_it_last_moved_and_was_reset() {
    let node = Node::start().await;
    let show = async || node.get(&format!("/api/v1/submitters/{ACCOUNT}")).await.body;
    assert_eq!((&show().await["lastMovementAt"], &show().await["resets"]), (&Value::Null, &json!([])));
    let ids = accepted(&node, &["a", "b"]).await;
    let mut lane = Hand::on(&node).await;
    lane.bind(1).await;
    let bound = show().await;
    let attempts = node.get(&format!("/api/v1/tx/{}/attempts", ids[0])).await.body;
    assert_eq!((&bound["lastMovementAt"], &bound["lastConfirmationAt"]), (&attempts[0]["at"], &Value::Null));
    lane.mine(&ids[..1], 5).await;
    lane.confirm(&ids[..1]).await;
    let ended = record(&node, &ids[0]).await.facts.ended_at;
    let confirmed = show().await;
    assert_eq!(confirmed["lastConfirmationAt"], json!(ended));
    // The fixture's receipt is older than the attempt: the later of the two counts.
    assert_eq!(confirmed["lastMovementAt"], attempts[0]["at"]);
    let reset = Reset {
        at: Timestamp::from_micros(1_700_000_000_000_000),
        actor: NodeText::new("desk"),
        forced: true,
        from: Nonce(3),
        to: Nonce(1),
    };
    lane.write(|draft| draft.cursor.conditions.resets.push(reset)).await;
    let at = "2023-11-14T22:13:20Z";
    let expected = json!([{ "at": at, "actor": "desk", "forced": true, "from": 3, "to": 1 }]);
    assert_eq!(show().await["resets"], expected);
}
