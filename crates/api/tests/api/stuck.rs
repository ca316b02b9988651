//! The plan for the stuck: what would happen, told without its happening.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use gapless_api::auth::{ApiKey, KeyScope, Keys};
use gapless_core::change::{TxWrite, Verdict};
use gapless_core::ports::clock::Clock;
use gapless_core::ports::policy::{Decision, Diagnosis, StuckAction, StuckContext, StuckPolicy};
use gapless_core::record::TxFacts;
use gapless_core::state::TxEvent;
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use gapless_engine::Policies;
use gapless_store::clock::SystemClock;
use gapless_testkit::fixtures::{self, Lane};
use serde_json::{Value, json};

use crate::refusals::sha256;
use crate::support::{ACCOUNT, Answer, Make, Node, TO};

const PLAN: &str = "/api/v1/stuck/plan";

fn account() -> SubmitterId {
    ACCOUNT.parse().unwrap()
}

/// Accepts a request, binds it and rewrites its facts.
async fn bound(node: &Node, lane: &mut Lane, name: &str, edit: impl FnOnce(&mut TxFacts)) {
    let store = node.handle.store().as_ref();
    let request = fixtures::request(&account(), name, SystemClock.draw(), 1);
    store.accept(&[request]).await.unwrap();
    let queue = store.peek_queue(&account(), 1).await.unwrap();
    let writer = lane.clone();
    lane.commit(store, |draft| writer.bind(draft, &queue)).await.unwrap();
    let tx = store.tx(queue[0].tx_id()).await.unwrap().unwrap();
    let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::Rebroadcast], Vec::new(), edit).unwrap();
    let written = lane.commit(store, |draft| draft.writes.txs.push(write)).await.unwrap();
    assert!(matches!(written, Verdict::Applied { .. }), "{written:?}");
}

/// A node that only answers, with one transaction bound this long ago.
async fn with_one_bound(make: Make, ago: Duration) -> (Node, Lane, Timestamp) {
    let node = Node::answering(make, Policies::default()).await;
    let owner = fixtures::owner("lane", 7).unwrap();
    let store = node.handle.store().as_ref();
    let mut lane = Lane::take(store, &owner, &account(), &fixtures::terms().unwrap()).await.unwrap().unwrap();
    let at = store.now().await.unwrap().minus(ago);
    bound(&node, &mut lane, "old", |facts| facts.bound_at = Some(at)).await;
    (node, lane, at)
}

fn with_chain() -> Make {
    Make { chain: true, ..Make::default() }
}

#[tokio::test]
async fn with_nothing_stuck_the_plan_is_empty() {
    let node = Node::answering(with_chain(), Policies::default()).await;
    assert_eq!(node.get(PLAN).await.body, json!({ "items": [], "more": false }));
    // What was bound a moment ago is nobody's concern.
    let (node, ..) = with_one_bound(with_chain(), Duration::from_secs(5)).await;
    assert_eq!(node.get(PLAN).await.body["items"], json!([]));
}

#[tokio::test]
async fn the_plan_says_what_would_happen_and_changes_nothing() {
    let (node, mut lane, at) = with_one_bound(with_chain(), Duration::from_secs(600)).await;
    bound(&node, &mut lane, "older", |facts| {
        facts.bound_at = Some(at.minus(Duration::from_secs(7_200)));
        facts.amend().diagnosis = Some(Diagnosis::Lost);
    })
    .await;
    let stored = async || node.handle.store().load_lane(&account()).await.unwrap().unwrap();
    let before = stored().await;
    let plan = node.get(&format!("{PLAN}?submitter={ACCOUNT}")).await;
    assert_eq!(plan.status, 200, "{}", plan.text);
    assert_eq!(plan.body["items"], node.get(PLAN).await.body["items"], "one submitter is all there is");
    let [young, old] = plan.body["items"].as_array().unwrap().as_slice() else { panic!("{}", plan.text) };
    assert_eq!((&young["requestId"], &young["state"]), (&json!("old"), &json!("TRACKING")));
    assert_eq!(
        (&young["action"], &young["step"], &young["attempts"]),
        (&json!("keepTrying"), &Value::Null, &json!(1))
    );
    let hour = at.plus(Duration::from_secs(3_600)).to_string();
    assert_eq!(young["next"], json!({ "action": "escalate", "step": null, "at": hour }));
    assert!(young["ageSeconds"].as_u64().unwrap() >= 600, "{young}");
    assert_eq!((&old["action"], &old["next"]), (&json!("escalate"), &Value::Null), "{old}");
    assert_eq!(old["diagnosis"], json!({ "diagnosis": "lost" }));
    assert_eq!(stored().await, before);
}

#[tokio::test]
async fn a_policy_of_the_program_is_asked_for_its_plan() {
    struct Always;
    impl StuckPolicy for Always {
        fn decide(&self, _context: &StuckContext<'_>) -> Decision {
            StuckAction::Protect.into()
        }
    }
    let make = with_chain();
    let store = make.store.clone();
    let (_first, ..) = with_one_bound(make, Duration::from_secs(600)).await;
    let policies = Policies { stuck: Some(Arc::new(Always)), ..Policies::default() };
    let node = Node::answering(Make { store, ..with_chain() }, policies).await;
    assert_eq!(node.get(PLAN).await.body["items"][0]["action"], "protect");
}

#[tokio::test]
async fn only_operators_see_it_and_only_what_is_theirs() {
    let key = |name: &str, scope: KeyScope| ApiKey {
        name: name.to_owned(),
        hash: sha256(name),
        scopes: BTreeSet::from([scope]),
        submitters: None,
        expires_at: None,
    };
    let other: SubmitterId = format!("eip155:31337:{TO}").parse().unwrap();
    let elsewhere =
        ApiKey { submitters: Some(BTreeSet::from([other])), ..key("elsewhere", KeyScope::Operate) };
    let here = ApiKey { submitters: Some(BTreeSet::from([account()])), ..key("here", KeyScope::Operate) };
    let (open, ..) = with_one_bound(with_chain(), Duration::from_secs(600)).await;
    let keys = Keys(vec![key("reader", KeyScope::Read), key("all", KeyScope::Operate), elsewhere, here]);
    let store = open.handle.store().clone();
    let node = Node::answering(Make { store, keys, ..with_chain() }, Policies::default()).await;
    let ask = async |name: &str, query: &str| -> Answer {
        let request =
            Request::get(format!("{PLAN}{query}")).header("authorization", format!("Bearer {name}"));
        node.call(request.body(Body::empty()).unwrap()).await
    };
    node.get(PLAN).await.is_problem(401, "unauthorized");
    ask("reader", "").await.is_problem(403, "forbidden");
    ask("elsewhere", &format!("?submitter={ACCOUNT}")).await.is_problem(403, "forbidden");
    assert_eq!(ask("elsewhere", "").await.body["items"], json!([]));
    for name in ["all", "here"] {
        assert_eq!(ask(name, "").await.body["items"].as_array().unwrap().len(), 1, "{name}");
    }
    ask("all", "?submiter=x").await.is_problem(400, "invalid-request");
    ask("all", "?submitter=nobody").await.is_problem(400, "invalid-request");
    ask("all", &format!("?submitter=eip155:31337:{TO}")).await.is_problem(404, "unknown-submitter");
}
