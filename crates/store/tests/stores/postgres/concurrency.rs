//! Acceptance under concurrency, from several processes.

use std::collections::HashSet;
use std::time::Duration;

use gapless_core::ports::store::Store;
use gapless_core::record::Accepted;
use gapless_testkit::fixtures::request;
use uuid::Uuid;

use super::{open, raw, stocked};
use crate::actor::Actor;
use crate::world::database;

const LEASE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_hundred_concurrent_accepts_of_one_request_from_two_processes_are_one_row() {
    let db = database().await;
    let store = open(&db.url, LEASE).await;
    stocked(&store, 1, 0).await;
    let mut actors = [0, 1].map(|_| Actor::start(&["accept-same", &db.url, "50", "4"]));
    for actor in &mut actors {
        assert_eq!(actor.line().as_deref(), Some("ready"));
    }
    actors.iter_mut().for_each(Actor::go);
    let mut answers = Vec::new();
    for actor in &mut actors {
        answers.extend(std::iter::from_fn(|| actor.line()));
    }
    assert_eq!(answers.len(), 100);
    assert_eq!(answers.iter().collect::<HashSet<_>>().len(), 1, "all callers got the same id");
    let count = "SELECT count(*) FROM managed_tx WHERE request_id = 'the-one' AND tx_id = $1::uuid";
    let rows: i64 =
        sqlx::query_scalar(count).bind(&answers[0]).fetch_one(&mut raw(&db.url).await).await.unwrap();
    assert_eq!(rows, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_concurrent_accepts_for_one_submitter_are_a_thousand_rows() {
    let db = database().await;
    let store = open(&db.url, LEASE).await;
    let (submitter, _) = stocked(&store, 1, 0).await;
    let tasks: Vec<_> = (0..1_000)
        .map(|n| {
            let store = store.clone();
            let item = request(&submitter, &format!("r{n}"), Uuid::now_v7(), n);
            tokio::spawn(async move { store.accept(&[item]).await.unwrap().remove(0) })
        })
        .collect();
    let mut orders = HashSet::new();
    for task in tasks {
        let Accepted::New { order, .. } = task.await.unwrap() else { panic!("every request was new") };
        orders.insert(order);
    }
    assert_eq!(orders.len(), 1_000);
    assert_eq!(store.peek_queue(&submitter, 1_000).await.unwrap().len(), 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_request_posted_after_another_was_acknowledged_is_later_in_the_order() {
    let db = database().await;
    let nodes = [open(&db.url, LEASE).await, open(&db.url, LEASE).await];
    let (submitter, _) = stocked(&nodes[0], 1, 0).await;
    // Noise on both nodes, while one client posts to them in turn.
    let noise: Vec<_> = (0..4)
        .map(|task| {
            let (store, submitter) = (nodes[task % 2].clone(), submitter.clone());
            tokio::spawn(async move {
                for n in 0..50 {
                    let items: Vec<_> = (0..5)
                        .map(|i| request(&submitter, &format!("noise-{task}-{n}-{i}"), Uuid::now_v7(), n))
                        .collect();
                    store.accept(&items).await.unwrap();
                }
            })
        })
        .collect();
    let mut last = None;
    for n in 0..200_usize {
        let item = request(&submitter, &format!("turn-{n}"), Uuid::now_v7(), 1);
        let Accepted::New { order, .. } = nodes[n % 2].accept(&[item]).await.unwrap().remove(0) else {
            panic!()
        };
        assert!(last < Some(order), "acknowledged earlier, ordered later");
        last = Some(order);
    }
    for task in noise {
        task.await.unwrap();
    }
}
