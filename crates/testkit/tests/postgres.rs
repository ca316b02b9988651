//! A real PostgreSQL cluster: it survives being killed, and does not survive its test process.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use gapless_testkit::{
    error::BoxError,
    postgres::{PgCluster, PgOptions},
    process,
    wait::eventually,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

const SOON: Duration = Duration::from_secs(20);

async fn run(url: &str, statement: &str) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await?;
    connection.close().await
}

async fn count(url: &str, table: &str) -> i64 {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let count = sqlx::query_scalar(AssertSqlSafe(format!("SELECT count(*) FROM {table}")));
    let count = count.fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    count
}

#[tokio::test]
async fn a_committed_row_survives_kill9_and_restart() {
    let cluster = PgCluster::start(PgOptions::default()).await.unwrap();
    let url = cluster.url("postgres");
    run(&url, "CREATE TABLE kept (id int); INSERT INTO kept VALUES (1)").await.unwrap();
    // An idle session, so that there is a backend to be orphaned.
    let mut idle = PgConnection::connect(&url).await.unwrap();

    let before = cluster.pid().unwrap();
    cluster.kill9().await.unwrap();
    assert!(!process::is_alive(before));
    assert!(cluster.pid().is_err());
    assert!(idle.ping().await.is_err());

    cluster.restart().await.unwrap();
    assert_ne!(cluster.pid().unwrap(), before);
    assert_eq!(count(&url, "kept").await, 1);

    cluster.restart().await.unwrap();
    assert_eq!(count(&url, "kept").await, 1);
}

#[tokio::test]
async fn a_frozen_cluster_answers_nothing_until_it_thaws() {
    let cluster = PgCluster::start(PgOptions::default()).await.unwrap();
    let mut connection = PgConnection::connect(&cluster.url("postgres")).await.unwrap();

    cluster.freeze().await.unwrap();
    let mut ping = Box::pin(connection.ping());
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut ping).await.is_err());

    cluster.thaw().unwrap();
    tokio::time::timeout(SOON, ping).await.unwrap().unwrap();
}

#[tokio::test]
async fn settings_reach_the_server() {
    let options = PgOptions { fsync: true, max_connections: 17, ..PgOptions::default() };
    let cluster = PgCluster::start(options.set("idle_in_transaction_session_timeout", "1234")).await.unwrap();
    let mut connection = PgConnection::connect(&cluster.url("postgres")).await.unwrap();
    for (name, wanted) in
        [("fsync", "on"), ("max_connections", "17"), ("idle_in_transaction_session_timeout", "1234ms")]
    {
        let shown = sqlx::query_scalar("SELECT current_setting($1)").bind(name);
        let shown: String = shown.fetch_one(&mut connection).await.unwrap();
        assert_eq!(shown, wanted, "{name}");
    }
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let error = PgCluster::start(PgOptions::default().set("no_such_setting", "1")).await.unwrap_err();
    assert!(error.to_string().contains("no_such_setting"), "{error}");
}

#[tokio::test]
async fn a_dropped_cluster_leaves_neither_process_nor_folder() {
    let cluster = PgCluster::start(PgOptions::default()).await.unwrap();
    let (pid, dir) = (cluster.pid().unwrap(), cluster.dir().to_owned());
    assert!(process::is_alive(pid) && dir.exists());
    drop(cluster);
    wait_vanished(pid, &dir).await;
}

#[tokio::test]
async fn a_cluster_dies_with_its_killed_process() {
    let mut holder = Command::new(env!("CARGO_BIN_EXE_hold-postgres"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let pid: i32 = lines.next().unwrap().unwrap().parse().unwrap();
    let dir = lines.next().unwrap().unwrap();
    assert!(process::is_alive(pid) && Path::new(&dir).exists());

    holder.kill().unwrap();
    holder.wait().unwrap();
    wait_vanished(pid, Path::new(&dir)).await;
}

async fn wait_vanished(pid: i32, dir: &Path) {
    eventually(SOON, "the server to end", || async { (!process::is_alive(pid)).then_some(()) })
        .await
        .unwrap();
    eventually(SOON, "its folder to vanish", || async { (!dir.exists()).then_some(()) }).await.unwrap();
}

static PREPARED: AtomicU32 = AtomicU32::new(0);

async fn prepare(url: String) -> Result<(), BoxError> {
    PREPARED.fetch_add(1, Ordering::Relaxed);
    run(&url, "CREATE TABLE things (id int); INSERT INTO things VALUES (1), (2)").await?;
    Ok(())
}

/// Run by two tests at once, as every test's set-up will be: each with a runtime of its own.
async fn clones_are_independent_of_each_other() {
    let cluster = PgCluster::shared().await.unwrap();
    cluster.template("things", prepare).await.unwrap();
    let (one, two) = tokio::try_join!(cluster.clone_template("things"), cluster.clone_template("things"))
        .expect("both clones");
    run(&one.url, "INSERT INTO things VALUES (3)").await.unwrap();
    assert_eq!(count(&one.url, "things").await, 3);
    assert_eq!(count(&two.url, "things").await, 2);
    assert_eq!(PREPARED.load(Ordering::Relaxed), 1, "the template is prepared once per process");
}

#[tokio::test]
async fn clones_of_a_template_are_independent() {
    clones_are_independent_of_each_other().await;
}

#[tokio::test]
async fn a_template_is_prepared_once_for_all_runtimes() {
    clones_are_independent_of_each_other().await;
}

#[tokio::test]
async fn a_template_that_failed_is_tried_again() {
    let cluster = PgCluster::shared().await.unwrap();
    let failure = cluster.template("shaky", |_| async { Err("no") }).await.unwrap_err();
    assert!(failure.to_string().contains("shaky"), "{failure}");
    cluster.template("shaky", |url| async move { run(&url, "CREATE TABLE t ()").await }).await.unwrap();
    let db = cluster.clone_template("shaky").await.unwrap();
    assert_eq!(count(&db.url, "t").await, 0);
}
