//! The acceptance tests of the design, by their names there: idempotency and concurrency. The dual-active window has a
//! file of its own.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::json;
use sqlx::{Connection, PgConnection};

use crate::world::{Blocks, World, names};

/// Posts one request a hundred times at once, to the given nodes in turn. The one txId that all got.
async fn a_hundred_times(world: &World, nodes: &[usize], request_id: &str) -> String {
    let posts = (0..100).map(|i| world.try_post(nodes[i % nodes.len()], request_id));
    let answers: Vec<_> = join_all(posts).await.into_iter().map(Option::unwrap).collect();
    let new = answers.iter().filter(|(status, _)| *status == 202).count();
    let known = answers.iter().filter(|(status, _)| *status == 200).count();
    assert_eq!((new, known), (1, 99), "one is new, the others are told so");
    let ids: BTreeSet<_> =
        answers.iter().map(|(_, view)| view["txId"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    ids.into_iter().next().unwrap()
}

/// Posts many requests at once, to the given nodes in turn, and sees all of them to their end.
async fn all_at_once(world: &World, nodes: &[usize], count: usize) {
    let ids = names("order", count);
    let posts = ids.iter().enumerate().map(|(i, id)| world.try_post(nodes[i % nodes.len()], id));
    for answer in join_all(posts).await {
        let (status, made) = answer.unwrap();
        assert_eq!(status, 202, "{made}");
    }
    world.assert_mined(ids.len()).await;
    // Nothing else happens on this chain: the last one needs a block on top.
    world.anvil.rpc("anvil_mine", json!(["0x2"])).await.unwrap();
    world.assert_all_happened_once(nodes[0], &ids).await;
}

#[tokio::test]
async fn idempotency_a_hundred_concurrent_creates_at_two_nodes_make_one_managed_tx_and_one_effect() {
    let mut world = World::on_postgres(Blocks::Ticking).await;
    world.serve(0, &[]).await;
    world.serve(1, &[]).await;
    let tx_id = a_hundred_times(&world, &[0, 1], "order-1").await;
    world.assert_all_happened_once(0, &["order-1".to_owned()]).await;

    let mut db = PgConnection::connect(&world.db.as_ref().unwrap().url).await.unwrap();
    let rows: Vec<uuid::Uuid> =
        sqlx::query_scalar("SELECT tx_id FROM managed_tx").fetch_all(&mut db).await.unwrap();
    assert_eq!(rows.iter().map(uuid::Uuid::to_string).collect::<Vec<_>>(), [tx_id]);
}

#[tokio::test]
async fn idempotency_on_sqlite() {
    let mut world = World::on_sqlite(Blocks::Ticking).await;
    world.serve(0, &[]).await;
    a_hundred_times(&world, &[0], "order-1").await;
    world.assert_all_happened_once(0, &["order-1".to_owned()]).await;
    let (_, page) = world.setups[0].get("/api/v1/tx").await.unwrap();
    assert_eq!(page["items"].as_array().unwrap().len(), 1, "{page}");
}

#[tokio::test]
async fn concurrency_a_thousand_concurrent_creates_take_nonces_in_order_without_double_or_hole() {
    let mut world = World::on_postgres(Blocks::AtOnce).await;
    // How long a call may wait for a connection follows from the lease.
    let lease = [("GAPLESS__LEASE__DURATION", "10s")];
    world.serve(0, &lease).await;
    world.serve(1, &lease).await;
    all_at_once(&world, &[0, 1], 1_000).await;
}

#[tokio::test]
async fn concurrency_on_sqlite() {
    let mut world = World::on_sqlite(Blocks::AtOnce).await;
    world.serve(0, &[]).await;
    all_at_once(&world, &[0], 100).await;
}
