//! The stream of events while transactions commit out of order.

use std::time::Duration;

use gapless_core::event::EventCursor;
use gapless_core::ports::store::Store;
use gapless_store::postgres::{PostgresOptions, hooks};
use gapless_testkit::fixtures::request;
use gapless_testkit::wait::eventually;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::{open, raw, stocked};
use crate::world::database;

/// What a reader of `id > last` would see.
async fn naive_after(db: &mut PgConnection, last: i64) -> Vec<i64> {
    let sql = "SELECT id FROM outbox_event WHERE id > $1 ORDER BY id";
    sqlx::query_scalar(sql).bind(last).fetch_all(db).await.unwrap()
}

#[tokio::test]
async fn the_reader_misses_nothing_when_a_lower_number_commits_later() {
    let lease = Duration::from_secs(20);
    let db = database().await;
    let store = open(&db.url, lease).await;
    let (submitter, _) = stocked(&store, 1, 0).await;
    let item = |id: &str| request(&submitter, id, Uuid::now_v7(), 1);
    let (slow, fast) = (item("slow"), item("fast"));

    let options = PostgresOptions { lease, ..PostgresOptions::new(&db.url) };
    let mut session = hooks::session(&options).await.unwrap();
    let mut writer = session.begin().await.unwrap();
    hooks::accept(&mut writer, std::slice::from_ref(&slow)).await.unwrap();
    store.accept(std::slice::from_ref(&fast)).await.unwrap();

    // The fast one is committed, and a naive reader already has it.
    let mut naive = raw(&db.url).await;
    let seen = naive_after(&mut naive, 0).await;
    assert_eq!(seen.len(), 1);
    let page = store.events_after(None, 10).await.unwrap();
    assert!(page.events.is_empty(), "ours waits for whoever might still come before it");
    writer.commit().await.unwrap();
    assert!(
        naive_after(&mut naive, seen[0]).await.is_empty(),
        "the naive reader has lost the slow one for good"
    );

    let ids = |n: &gapless_core::record::NewTx| format!("{}:1", n.tx_id);
    let page = eventually(Duration::from_secs(20), "both events", || async {
        let page = store.events_after(Some(page.next), 10).await.unwrap();
        (page.events.len() == 2).then_some(page)
    })
    .await
    .unwrap();
    let told: Vec<_> = page.events.iter().map(|event| event.id.clone()).collect();
    assert_eq!(told, [ids(&slow), ids(&fast)]);
    assert!(store.events_after(Some(page.next), 10).await.unwrap().events.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_beside_a_storm_of_writers_sees_every_event_once() {
    let db = database().await;
    let store = open(&db.url, Duration::from_secs(10)).await;
    let (submitter, _) = stocked(&store, 1, 0).await;
    const WRITERS: u64 = 8;
    const EACH: u64 = 60;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (store, submitter) = (store.clone(), submitter.clone());
            tokio::spawn(async move {
                for n in 0..EACH {
                    let item = request(&submitter, &format!("{writer}-{n}"), Uuid::now_v7(), n);
                    store.accept(&[item]).await.unwrap();
                }
            })
        })
        .collect();
    let (mut cursor, mut seen): (Option<EventCursor>, Vec<String>) = (None, Vec::new());
    let everything = usize::try_from(WRITERS * EACH).unwrap();
    for _ in 0..20_000 {
        let page = store.events_after(cursor, 7).await.unwrap();
        seen.extend(page.events.iter().map(|event| event.id.clone()));
        cursor = Some(page.next);
        if seen.len() >= everything {
            break;
        }
        if page.events.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let unique: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!((seen.len(), unique.len()), (everything, everything));
}
