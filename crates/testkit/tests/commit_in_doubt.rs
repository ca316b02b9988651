//! The traps before a real PostgreSQL server: the client's error is the same, the truth is not.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::net::SocketAddr;

use gapless_testkit::{
    postgres::PgCluster,
    tcp_proxy::{TcpProxy, Trap, TrapHandle},
};
use sqlx::{Connection, PgConnection};

/// Inserts a row through the proxy and commits into the trap.
async fn commit_into(trap: Trap) -> (TrapHandle, TcpProxy, PgConnection) {
    let cluster = PgCluster::shared().await.unwrap();
    let db = cluster.empty_db().await.unwrap();
    let mut direct = PgConnection::connect(&db.url).await.unwrap();
    sqlx::raw_sql("CREATE TABLE t (id int)").execute(&mut direct).await.unwrap();

    let proxy = TcpProxy::start(SocketAddr::from(([127, 0, 0, 1], cluster.port()))).unwrap();
    let url = format!("postgres://postgres@{}/{}?sslmode=disable", proxy.addr(), db.name);
    let mut client = PgConnection::connect(&url).await.unwrap();
    let mut handle = proxy.arm(trap);
    let mut transaction = client.begin().await.unwrap();
    sqlx::query("INSERT INTO t VALUES (1)").execute(&mut *transaction).await.unwrap();
    assert!(transaction.commit().await.is_err());
    handle.fired().await.unwrap();
    (handle, proxy, direct)
}

async fn rows(connection: &mut PgConnection) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM t").fetch_one(connection).await.unwrap()
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_a_commit() {
    let (mut trap, _proxy, mut direct) = commit_into(Trap::forward("COMMIT")).await;
    let answer = trap.server_answered().await.unwrap();
    assert!(answer.windows(6).any(|word| word == b"COMMIT"));
    assert_eq!(rows(&mut direct).await, 1);
}

#[tokio::test]
async fn a_commit_held_on_the_wire_comes_true_later() {
    let (mut trap, _proxy, mut direct) = commit_into(Trap::hold("COMMIT")).await;
    assert_eq!(rows(&mut direct).await, 0);
    trap.release().await.unwrap();
    trap.server_answered().await.unwrap();
    assert_eq!(rows(&mut direct).await, 1);
}
