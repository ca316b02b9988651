//! Another process for the store's tests: it accepts, freezes inside a fenced write, or streams, on demand.
//! It ends when its standard input does, so it cannot outlive the test that started it.

#![expect(clippy::unwrap_used, reason = "part of the tests: it should say where it stopped")]

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use gapless_core::ids::TxId;
use gapless_core::lease::LeaseTerms;
use gapless_core::ports::store::Store;
use gapless_core::record::{Accepted, NewTx};
use gapless_store::clock::SystemClock;
use gapless_store::postgres::{PostgresOptions, PostgresStore, hooks};
use gapless_store::sqlite::SqliteStore;
use gapless_testkit::fixtures::{Lane, owner, request, submitter};
use sqlx::Connection;
use uuid::Uuid;

/// No actor does more than this.
const MOST: u64 = 1_000_000;

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let args: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    match args[..] {
        ["accept-same", url, times, connections] => {
            accept_same(url, times.parse().unwrap(), connections.parse().unwrap()).await;
        }
        ["freeze", url, lease_ms] => freeze(url, Duration::from_millis(lease_ms.parse().unwrap())).await,
        ["stream-sqlite", path] => stream_sqlite(path).await,
        _ => panic!("unknown role {args:?}"),
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

/// Blocks until told; ends the process if nobody is there any more.
fn wait_for_go() {
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line).unwrap() == 0 {
        std::process::exit(0);
    }
}

/// Ends the process when the test does.
fn end_with_the_test() {
    std::thread::spawn(|| {
        wait_for_go();
        std::process::exit(0);
    });
}

/// The id under which a request is accepted, now or before.
async fn accept_one(store: &dyn Store, item: NewTx) -> TxId {
    match store.accept(std::slice::from_ref(&item)).await.unwrap().remove(0) {
        Accepted::New { .. } => item.tx_id,
        Accepted::Known(known) => known.tx_id(),
        other => panic!("{other:?}"),
    }
}

/// Accepts one request many times at once and prints the id each caller got.
async fn accept_same(url: &str, times: u32, connections: u32) {
    let store = PostgresStore::open(&PostgresOptions { pool: connections, ..PostgresOptions::new(url) })
        .await
        .unwrap();
    store.now().await.unwrap();
    say("ready");
    wait_for_go();
    let tasks: Vec<_> = (0..times)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                accept_one(&store, request(&submitter(1), "the-one", Uuid::now_v7(), 1)).await
            })
        })
        .collect();
    for task in tasks {
        say(&task.await.unwrap().to_string());
    }
}

/// Passes the fence inside a transaction, says so, and holds still.
async fn freeze(url: &str, lease: Duration) {
    let options = PostgresOptions { lease, ..PostgresOptions::new(url) };
    let terms = LeaseTerms::new(lease, lease / 10).unwrap();
    let store = PostgresStore::open(&options).await.unwrap();
    let lane =
        Lane::take(&store, &owner("frozen", 1).unwrap(), &submitter(1), &terms).await.unwrap().unwrap();
    let queue = store.peek_queue(&submitter(1), 1).await.unwrap();
    let change = lane.change(|draft| lane.bind(draft, &queue));
    let mut session = hooks::session(&options).await.unwrap();
    let mut transaction = session.begin().await.unwrap();
    let verdicts = hooks::execute_fenced(&mut transaction, &[&change]).await.unwrap();
    say(&format!("{verdicts:?}"));
    wait_for_go();
    say(if transaction.commit().await.is_ok() { "committed" } else { "lost" });
}

/// Accepts one request after another and prints each id once it is acknowledged.
async fn stream_sqlite(path: &str) {
    end_with_the_test();
    let store = SqliteStore::open(path.as_ref(), Arc::new(SystemClock)).await.unwrap();
    store.register(&[(submitter(1), "{}".to_owned())]).await.unwrap();
    for n in 0..MOST {
        let item = request(&submitter(1), &format!("r{n}"), Uuid::now_v7(), n);
        say(&accept_one(&store, item).await.to_string());
    }
}
