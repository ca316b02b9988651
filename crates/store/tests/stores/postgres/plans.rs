//! Plans that were good once must be good later: they are kept by sessions, while tables grow by orders of magnitude.

use std::time::Duration;

use gapless_core::change::Verdict;
use gapless_core::ports::store::Store;
use gapless_core::record::{NewTx, TxRecord};
use gapless_store::postgres::{PostgresOptions, PostgresStore};
use gapless_testkit::fixtures::{Lane, request};
use gapless_testkit::postgres::run_at;
use uuid::Uuid;

use super::{raw, stocked, take, terms};
use crate::world::database;

/// Entries of the queue's indexes that were looked at so far.
async fn queue_entries_read(url: &str) -> i64 {
    let sql = "SELECT coalesce(sum(pg_stat_get_tuples_returned(indexrelid)), 0)::bigint
               FROM pg_stat_user_indexes WHERE relname = 'tx_queue'";
    let mut connection = raw(url).await;
    sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap()
}

async fn bind(store: &dyn Store, lane: &mut Lane, txs: &[TxRecord]) {
    let change = lane.change(|draft| lane.bind(draft, txs));
    let verdicts = store.commit(std::slice::from_ref(&change)).await.unwrap();
    assert!(matches!(verdicts[..], [Verdict::Applied { .. }]), "{verdicts:?}");
    lane.follow(&change, &verdicts[0]);
}

#[tokio::test]
async fn binding_does_not_walk_a_long_queue_although_it_was_planned_on_a_short_one() {
    let db = database().await;
    let lease = Duration::from_secs(60);
    // One session, so that it is the one whose plan is kept.
    let options = PostgresOptions { lease, pool: 1, ..PostgresOptions::new(&db.url) };
    let store = PostgresStore::open(&options).await.unwrap();
    let (submitter, queue) = stocked(&store, 1, 2).await;
    // What an autovacuum leaves behind: statistics of a queue of one.
    run_at(&db.url, "DELETE FROM tx_queue WHERE ord = (SELECT max(ord) FROM tx_queue)").await.unwrap();
    run_at(&db.url, "VACUUM ANALYZE tx_queue").await.unwrap();
    let mut lane = take(&store, "node", 1, &submitter, &terms(lease)).await;
    bind(&store, &mut lane, &queue[..1]).await;

    let many = 10_000_u64;
    for from in (0..many).step_by(1_000) {
        let items: Vec<NewTx> = (from..from + 1_000)
            .map(|i| request(&submitter, &format!("later {i}"), Uuid::now_v7(), i))
            .collect();
        store.accept(&items).await.unwrap();
    }
    let queue = store.peek_queue(&submitter, 100).await.unwrap();
    let before = queue_entries_read(&db.url).await;
    bind(&store, &mut lane, &queue).await;
    drop(store);
    // Sessions tell what they did when they end.
    let mut read = 0;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        read = queue_entries_read(&db.url).await - before;
        if read > 0 {
            break;
        }
    }
    assert!(read > 0, "the session's figures did not arrive");
    assert!(read < 2_000, "{read} entries of the queue were read to take 100 out of {many}");
}
