//! What only real files and real processes can show of the embedded store.

use std::collections::BTreeSet;
use std::sync::Arc;

use gapless_core::ids::TxId;
use gapless_core::ports::store::Store;
use gapless_store::OpenError;
use gapless_store::clock::SystemClock;
use gapless_store::sqlite::SqliteStore;

use crate::actor::Actor;

#[tokio::test]
async fn every_acknowledged_accept_survives_kill_nine_of_the_process_and_none_is_doubled() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gapless.db");
    let mut acknowledged = BTreeSet::new();
    // Each round goes on with the file the last one left behind, and repeats its requests first.
    for round in 1..=3 {
        let mut actor = Actor::start(&["stream-sqlite", path.to_str().unwrap()]);
        for _ in 0..100 * round {
            acknowledged.insert(actor.line().unwrap());
        }
        acknowledged.extend(actor.kill9());
        let store = SqliteStore::open(&path, Arc::new(SystemClock)).await.unwrap();
        for tx_id in &acknowledged {
            let found = store.tx(TxId(tx_id.parse().unwrap())).await.unwrap();
            assert!(found.is_some(), "acknowledged {tx_id} is gone");
        }
    }
    let connection = rusqlite::Connection::open(&path).unwrap();
    let count = |what: &str| -> i64 {
        let sql = format!("SELECT count({what}) FROM managed_tx");
        connection.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(count("*"), count("DISTINCT request_id"), "a request is there twice");
    let unacknowledged = count("*") - i64::try_from(acknowledged.len()).unwrap();
    assert!(unacknowledged <= 3, "at most the one in hand at each kill: {unacknowledged}");
    let verdict: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}

#[tokio::test]
async fn a_second_process_cannot_open_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gapless.db");
    let mut actor = Actor::start(&["stream-sqlite", path.to_str().unwrap()]);
    actor.line().unwrap();
    let error = SqliteStore::open(&path, Arc::new(SystemClock)).await.err().unwrap();
    assert!(matches!(error, OpenError::Locked(_)), "{error}");
    assert_eq!(error.code(), "store-locked");
    actor.kill9();
    SqliteStore::open(&path, Arc::new(SystemClock)).await.unwrap();
}

#[tokio::test]
async fn a_schema_that_needs_a_newer_binary_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gapless.db");
    drop(SqliteStore::open(&path, Arc::new(SystemClock)).await.unwrap());
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute("UPDATE gapless_meta SET min_binary = 1000000", []).unwrap();
    drop(connection);
    let error = SqliteStore::open(&path, Arc::new(SystemClock)).await.err().unwrap();
    assert_eq!(error.code(), "schema-too-new");
}

#[tokio::test]
async fn writes_are_durable_by_setting() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gapless.db");
    let store = SqliteStore::open(&path, Arc::new(SystemClock)).await.unwrap();
    assert_eq!(store.durability().await.unwrap(), ("wal".to_owned(), 2), "WAL, synchronous = FULL");
}

#[tokio::test]
async fn a_file_that_cannot_be_is_a_clear_error() {
    let error =
        SqliteStore::open("/nowhere/at/all/gapless.db".as_ref(), Arc::new(SystemClock)).await.err().unwrap();
    assert_eq!(error.code(), "store-unavailable");
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
}
