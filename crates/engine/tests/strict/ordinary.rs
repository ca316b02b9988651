//! Fair weather: from acceptance to CONFIRMED, in order, on each embedded store.

use std::sync::Arc;
use std::time::Duration;

use gapless_store::clock::SystemClock;
use gapless_store::sqlite::SqliteStore;

use crate::support::{Node, instant, quick, ticking};

#[tokio::test(flavor = "multi_thread")]
async fn requests_reach_confirmed_in_order_on_memory_with_instant_mining() {
    let anvil = instant().await;
    let node = Node::start(&anvil.url(), quick(0)).await;
    let ids = node.submit_all(0, 20).await;
    node.each_took_effect_once(&anvil, &ids).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_reach_confirmed_in_order_on_sqlite_with_blocks() {
    let anvil = ticking(Duration::from_secs(1)).await;
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("gapless.db"), Arc::new(SystemClock)).await.unwrap();
    let node = Node::on(Arc::new(store), &[anvil.url()], quick(2)).await;
    let ids = node.submit_all(0, 5).await;
    node.each_took_effect_once(&anvil, &ids).await;
    node.stopped().await;
}
