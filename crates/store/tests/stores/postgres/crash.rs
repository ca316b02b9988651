//! kill -9 of PostgreSQL during a stream of accepts: what was acknowledged is there, once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gapless_core::ports::store::{Store, StoreError};
use gapless_core::record::{Accepted, NewTx};
use gapless_store::postgres::{PostgresOptions, PostgresStore};
use gapless_testkit::fixtures::request;
use gapless_testkit::postgres::{PgCluster, PgOptions};
use uuid::Uuid;

use super::{open, raw, stocked};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_acknowledged_accept_survives_kill_nine_of_the_server_and_none_is_doubled() {
    let cluster = PgCluster::start(PgOptions { fsync: true, ..PgOptions::default() }).await.unwrap();
    let url = cluster.url("postgres");
    PostgresStore::migrate(&PostgresOptions::new(&url)).await.unwrap();
    let store = open(&url, Duration::from_secs(10)).await;
    let (submitter, _) = stocked(&store, 1, 0).await;

    let acknowledged: Arc<Mutex<Vec<NewTx>>> = Arc::default();
    let unknown: Arc<Mutex<Vec<NewTx>>> = Arc::default();
    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut clients = Vec::new();
    for client in 0..8 {
        let (store, submitter) = (store.clone(), submitter.clone());
        let (acknowledged, unknown) = (acknowledged.clone(), unknown.clone());
        let (stop, sent) = (stop.clone(), sent.clone());
        clients.push(tokio::spawn(async move {
            for n in 0..100_000 {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let item = request(&submitter, &format!("{client}-{n}"), Uuid::now_v7(), n);
                sent.fetch_add(1, Ordering::SeqCst);
                match store.accept(std::slice::from_ref(&item)).await {
                    Ok(outcome) => {
                        assert!(matches!(outcome[0], Accepted::New { .. }));
                        acknowledged.lock().unwrap().push(item);
                    }
                    Err(StoreError::OutcomeUnknown(_) | StoreError::Unavailable(_)) => {
                        unknown.lock().unwrap().push(item);
                        break;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }));
    }
    while sent.load(Ordering::SeqCst) < 800 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    cluster.kill9().await.unwrap();
    stop.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.unwrap();
    }
    cluster.restart().await.unwrap();

    let store = open(&url, Duration::from_secs(10)).await;
    let (acknowledged, unknown) = (acknowledged.lock().unwrap().clone(), unknown.lock().unwrap().clone());
    assert!(acknowledged.len() > 100, "the stream was under way");
    for item in &acknowledged {
        let found = store.tx(item.tx_id).await.unwrap();
        assert_eq!(found.map(|tx| tx.request), Some(item.clone()), "an acknowledged accept is gone");
    }
    for item in &unknown {
        let again = NewTx { tx_id: gapless_core::ids::TxId(Uuid::now_v7()), ..item.clone() };
        let outcome = store.accept(&[again]).await.unwrap().remove(0);
        assert!(matches!(outcome, Accepted::New { .. } | Accepted::Known(_)), "{outcome:?}");
    }
    let counts: (i64, i64) =
        sqlx::query_as("SELECT count(*), count(DISTINCT (scope, request_id)) FROM managed_tx")
            .fetch_one(&mut raw(&url).await)
            .await
            .unwrap();
    let expected = i64::try_from(acknowledged.len() + unknown.len()).unwrap();
    assert_eq!(counts, (expected, expected));
    cluster.stop().await.unwrap();
}
