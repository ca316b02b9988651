//! Outcomes that need a server in trouble, for the coverage test. Each is also asserted on its own elsewhere.

use std::sync::Arc;
use std::time::Duration;

use gapless_core::ports::store::Store;
use gapless_testkit::fixtures::{owner, request};
use gapless_testkit::postgres::PgCluster;
use gapless_testkit::tcp_proxy::{Mode, TcpProxy, Trap};
use sqlx::Connection;
use uuid::Uuid;

use super::{open, raw, stocked, take, terms};
use crate::recording::{Recording, Seen};
use crate::world::database;

pub async fn all(seen: &Seen) {
    let db = database().await;
    let cluster = PgCluster::shared().await.unwrap();
    let lease = Duration::from_millis(900);
    let proxy = TcpProxy::start(([127, 0, 0, 1], cluster.port()).into()).unwrap();
    let url = format!("postgres://postgres@{}/{}", proxy.addr(), db.name);
    let store = Recording { inner: Arc::new(open(&url, lease).await), seen: seen.clone() };
    let (submitter, queue) = stocked(&store, 1, 1).await;
    let mut observer = raw(&db.url).await;

    // Poison: a check that only this database has.
    sqlx::raw_sql("ALTER TABLE tx_request ADD CONSTRAINT test_poison CHECK (request_id <> 'poison')")
        .execute(&mut observer)
        .await
        .unwrap();
    store.accept(&[request(&submitter, "poison", Uuid::now_v7(), 1)]).await.unwrap();

    // Busy: somebody sits on the lease row for longer than a statement may wait.
    let lane = take(&store, "a", 1, &submitter, &terms(lease)).await;
    let mut holding = observer.begin().await.unwrap();
    sqlx::query("SELECT FROM submitter_lease FOR UPDATE").execute(&mut *holding).await.unwrap();
    store.acquire(&owner("b", 2).unwrap(), std::slice::from_ref(&submitter), &terms(lease)).await.unwrap();
    holding.rollback().await.unwrap();

    // OutcomeUnknown: the answer to a write is lost.
    let change = lane.change(|draft| lane.bind(draft, &queue));
    let mut trap = proxy.arm(Trap::forward(&change.writes().attempts[0].raw));
    assert!(store.commit(&[change]).await.is_err());
    trap.server_answered().await.unwrap();

    // Corrupt: a row that no binary of ours has written.
    sqlx::raw_sql("UPDATE tx_request SET payload = '{\"unheard\": true}'")
        .execute(&mut observer)
        .await
        .unwrap();
    assert!(store.tx(queue[0].tx_id()).await.is_err());

    // Unavailable: nobody answers.
    proxy.set_mode(Mode::Refuse).await.unwrap();
    proxy.cut_all().await;
    assert!(store.tx(queue[0].tx_id()).await.is_err());
}
