//! A database that is not the one we wrote to (restore, failover that lost commits).

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use gapless_core::change::Verdict;
use gapless_core::condition::{Condition, HoldCause};
use gapless_core::event::EventCursor;
use gapless_core::ports::store::{Acquired, Store, StoreError};
use gapless_store::postgres::{PostgresOptions, PostgresStore};
use gapless_testkit::fixtures::owner;
use gapless_testkit::postgres::{PgCluster, PgOptions};

use super::{open, raw, stocked, take, terms};
use crate::world::database;

#[tokio::test]
async fn another_timeline_begins_a_new_epoch_fences_everybody_and_holds_every_submitter() {
    let lease = Duration::from_secs(10);
    let db = database().await;
    let before = open(&db.url, lease).await;
    let (started, queue) = stocked(&before, 1, 1).await;
    let (fresh, _) = stocked(&before, 2, 0).await;
    let mut lane = take(&before, "a", 1, &started, &terms(lease)).await;
    let writer = lane.clone();
    lane.commit(&before, |draft| writer.bind(draft, &queue)).await.unwrap();
    let epoch = before.epoch().await.unwrap();
    before.close().await;

    sqlx::raw_sql("UPDATE gapless_meta SET timeline = timeline + 1")
        .execute(&mut raw(&db.url).await)
        .await
        .unwrap();
    let after = open(&db.url, lease).await;
    let new_epoch = after.epoch().await.unwrap();
    assert_ne!(new_epoch, epoch);
    assert_eq!(after.events_after(Some(EventCursor::start(epoch)), 1).await, Err(StoreError::CursorExpired));

    let old = lane.change(|_| {});
    assert_eq!(after.commit(&[old]).await.unwrap(), [Verdict::Fenced]);
    let held =
        after.acquire(&owner("b", 2).unwrap(), std::slice::from_ref(&started), &terms(lease)).await.unwrap();
    let Acquired::Held { grant, .. } = &held[0] else { panic!("{held:?}") };
    assert!(grant.token().0 > 1 << 32, "beyond any token ever handed out: {}", grant.token());
    let conditions = after.load_lane(&started).await.unwrap().unwrap().cursor.cursor.conditions;
    assert_eq!(conditions.gravest(), Condition::Hold);
    assert!(conditions.holds.contains_key(&HoldCause::Epoch));
    let idle = after.load_lane(&fresh).await.unwrap().unwrap().cursor.cursor.conditions;
    assert_eq!(idle.gravest(), Condition::Hold, "what was lost may have been its first commit");

    let again = open(&db.url, lease).await;
    assert_eq!(again.epoch().await.unwrap(), new_epoch, "noticed once");
}

/// A real new timeline: the server recovers from its own log as after a restore, and writes on from there.
#[tokio::test]
async fn a_recovered_server_is_noticed_on_the_first_connection() {
    let lease = Duration::from_secs(10);
    let cluster = PgCluster::start(PgOptions::default()).await.unwrap();
    let url = cluster.url("postgres");
    PostgresStore::migrate(&PostgresOptions::new(&url)).await.unwrap();
    let before = open(&url, lease).await;
    stocked(&before, 1, 1).await;
    let epoch = before.epoch().await.unwrap();
    before.close().await;

    cluster.stop().await.unwrap();
    let data = cluster.data_dir();
    let owner = std::fs::metadata(data).unwrap();
    std::fs::write(data.join("recovery.signal"), "").unwrap();
    std::os::unix::fs::chown(data.join("recovery.signal"), Some(owner.uid()), Some(owner.gid())).unwrap();
    let settings = data.join("postgresql.auto.conf");
    let text = std::fs::read_to_string(&settings).unwrap();
    std::fs::write(&settings, text + "restore_command = '/bin/false'\n").unwrap();
    cluster.restart().await.unwrap();

    let after = open(&url, lease).await;
    assert_ne!(after.epoch().await.unwrap(), epoch, "noticed before anything else was done");
    let info = after.submitter(&gapless_testkit::fixtures::submitter(1)).await.unwrap().unwrap();
    assert!(info.cursor.cursor.conditions.holds.contains_key(&HoldCause::Epoch));
    cluster.stop().await.unwrap();
}
