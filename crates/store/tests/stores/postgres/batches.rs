//! Many lanes in one batch: no deadlock reaches a caller, and one poisoned lane or item costs only itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gapless_core::attempt::Refusal;
use gapless_core::change::{RefusalNote, Verdict};
use gapless_core::cursor::Run;
use gapless_core::ids::Nonce;
use gapless_core::ports::store::{Acquired, Store};
use gapless_core::record::Accepted;
use gapless_core::submitter::SubmitterId;
use gapless_core::text::NodeText;
use gapless_testkit::fixtures::{Lane, attempt, owner, request};
use tokio::time::Instant;
use uuid::Uuid;

use super::{open, raw, stocked, take, terms};
use crate::world::database;

const LANES: u64 = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_nodes_with_overlapping_batches_and_takeovers_never_meet_a_deadlock() {
    // Leases so short that they are lost all the time, lanes that both nodes want.
    let lease = Duration::from_millis(300);
    let db = database().await;
    let applied: Arc<Mutex<HashMap<SubmitterId, u64>>> = Arc::default();
    let setup = open(&db.url, Duration::from_secs(10)).await;
    let mut submitters = Vec::new();
    for n in 1..=LANES {
        submitters.push(stocked(&setup, n, 0).await.0);
    }
    let until = Instant::now() + Duration::from_secs(4);
    let mut nodes = Vec::new();
    for process in 1..=3_u128 {
        let (url, submitters, applied) = (db.url.clone(), submitters.clone(), applied.clone());
        nodes.push(tokio::spawn(async move {
            let store = open(&url, Duration::from_secs(10)).await;
            let me = owner("node", process).unwrap();
            let mut takeovers = 0;
            // Each node walks the lanes in another order and keeps stale memories of lost ones.
            let mut lanes: HashMap<SubmitterId, Lane> = HashMap::new();
            while Instant::now() < until {
                let mut wanted = submitters.clone();
                wanted.rotate_left(usize::try_from(process).unwrap() * 4);
                for (submitter, acquired) in
                    wanted.iter().zip(store.acquire(&me, &wanted, &terms(lease)).await.unwrap())
                {
                    let Acquired::Held { grant, .. } = acquired else { continue };
                    takeovers += 1;
                    let cursor = store.load_lane(submitter).await.unwrap().unwrap().cursor;
                    match lanes.get_mut(submitter) {
                        Some(lane) => (lane.grant, lane.cursor) = (grant, cursor),
                        None => {
                            let lane = Lane::take(&store, &me, submitter, &terms(lease)).await.unwrap();
                            lanes.extend(lane.map(|lane| (submitter.clone(), lane)));
                        }
                    }
                }
                for _ in 0..20 {
                    let changes: Vec<_> = lanes.values().map(|lane| lane.change(|_| {})).collect();
                    let verdicts = store.commit(&changes).await.unwrap();
                    for (change, verdict) in changes.iter().zip(&verdicts) {
                        assert!(!matches!(verdict, Verdict::Refused { .. }), "{verdict:?}");
                        if let Verdict::Applied { .. } = verdict {
                            *applied.lock().unwrap().entry(change.submitter().clone()).or_default() += 1;
                        }
                        lanes.get_mut(change.submitter()).unwrap().follow(change, verdict);
                    }
                }
            }
            takeovers
        }));
    }
    let mut takeovers = 0;
    for node in nodes {
        takeovers += node.await.unwrap();
    }
    assert!(takeovers > 20, "the lanes changed hands {takeovers} times only");
    let applied = applied.lock().unwrap().clone();
    for submitter in &submitters {
        let version = setup.load_lane(submitter).await.unwrap().unwrap().cursor.version;
        assert_eq!(version.0, applied.get(submitter).copied().unwrap_or_default(), "{submitter}");
    }
}

#[tokio::test]
async fn a_violated_check_costs_only_its_own_lane() {
    let db = database().await;
    let store = open(&db.url, Duration::from_secs(10)).await;
    sqlx::raw_sql(
        "ALTER TABLE tx_attempt ADD CONSTRAINT test_poison CHECK (refusal_text IS DISTINCT FROM 'poison')",
    )
    .execute(&mut raw(&db.url).await)
    .await
    .unwrap();
    let mut lanes = Vec::new();
    for n in 1..=3 {
        let (submitter, _) = stocked(&store, n, 0).await;
        let mut lane = take(&store, "a", 1, &submitter, &terms(Duration::from_secs(10))).await;
        let bind = |draft: &mut gapless_core::change::Draft| {
            draft.cursor.run = Some(Run { next: Nonce(1), ..Run::starting_at(Nonce(0)) });
            draft.writes.attempts = vec![attempt(&submitter, Nonce(0), 0, None)];
        };
        lane.commit(&store, bind).await.unwrap();
        lanes.push(lane);
    }
    let note = |text: &str| RefusalNote {
        nonce: Nonce(0),
        n: 0,
        refusal: Refusal { code: NodeText::new("unknown"), text: NodeText::new(text) },
    };
    let texts = ["fine", "poison", "nul\0is stripped"];
    let changes: Vec<_> = lanes
        .iter()
        .zip(texts)
        .map(|(lane, text)| lane.change(|draft| draft.writes.refusals = vec![note(text)]))
        .collect();
    let verdicts = store.commit(&changes).await.unwrap();
    assert!(matches!(verdicts[0], Verdict::Applied { .. }), "{verdicts:?}");
    assert!(
        matches!(&verdicts[1], Verdict::Refused { reason } if reason.as_str().contains("test_poison")),
        "{verdicts:?}"
    );
    assert!(matches!(verdicts[2], Verdict::Applied { .. }), "{verdicts:?}");
}

#[tokio::test]
async fn a_violated_check_costs_only_its_own_item() {
    let db = database().await;
    let store = open(&db.url, Duration::from_secs(10)).await;
    let (submitter, _) = stocked(&store, 1, 0).await;
    sqlx::raw_sql("ALTER TABLE tx_request ADD CONSTRAINT test_poison CHECK (request_id <> 'poison')")
        .execute(&mut raw(&db.url).await)
        .await
        .unwrap();
    let items = ["a", "poison", "b"].map(|id| request(&submitter, id, Uuid::now_v7(), 1));
    let outcomes = store.accept(&items).await.unwrap();
    assert!(matches!(outcomes[0], Accepted::New { .. }), "{outcomes:?}");
    assert!(matches!(&outcomes[1], Accepted::Poison { reason } if reason.as_str().contains("test_poison")));
    assert!(matches!(outcomes[2], Accepted::New { .. }), "{outcomes:?}");
    assert_eq!(store.peek_queue(&submitter, 10).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn batches_of_the_same_requests_in_opposite_orders_never_meet_a_deadlock() {
    let db = database().await;
    let store = open(&db.url, Duration::from_secs(10)).await;
    let (submitter, _) = stocked(&store, 1, 0).await;
    for round in 0..30 {
        let mut tasks = Vec::new();
        for task in 0..6 {
            let (store, submitter) = (store.clone(), submitter.clone());
            tasks.push(tokio::spawn(async move {
                let mut items: Vec<_> = (0..40)
                    .map(|n| request(&submitter, &format!("{round}-{n}"), Uuid::now_v7(), n))
                    .collect();
                if task % 2 == 1 {
                    items.reverse();
                }
                let outcomes = store.accept(&items).await.unwrap();
                outcomes.iter().filter(|outcome| matches!(outcome, Accepted::New { .. })).count()
            }));
        }
        let mut new = 0;
        for task in tasks {
            new += task.await.unwrap();
        }
        assert_eq!(new, 40, "each request is new exactly once");
    }
}
