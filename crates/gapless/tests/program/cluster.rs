//! Two nodes on one PostgreSQL: one dies or freezes, the other goes on, and each effect happens once.

use std::time::Duration;

use gapless_store::postgres::{PostgresOptions, PostgresStore};
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::postgres::{PgCluster, TestDb};
use gapless_testkit::process::{Signal, send};
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};
use tokio::process::Child;

use crate::support::{ADDRESS, PATIENCE, SINK, Setup, end, ended};

struct Cluster {
    anvil: Anvil,
    db: TestDb,
    setups: [Setup; 2],
    nodes: [Option<Child>; 2],
}

const NAMES: [&str; 2] = ["node-a", "node-b"];

impl Cluster {
    async fn start() -> Self {
        let db = PgCluster::shared().await.unwrap().empty_db().await.unwrap();
        PostgresStore::migrate(&PostgresOptions::new(&db.url)).await.unwrap();
        let block_time = Some(Duration::from_secs(1));
        let anvil = Anvil::start(AnvilOptions { block_time, ..AnvilOptions::default() }).await.unwrap();
        let setups = [Setup::new(&anvil.url()), Setup::new(&anvil.url())];
        let mut cluster = Self { anvil, db, setups, nodes: [None, None] };
        cluster.serve(0).await;
        cluster.serve(1).await;
        cluster
    }

    async fn serve(&mut self, n: usize) {
        let env = [
            ("GAPLESS__STORE__URL", self.db.url.as_str()),
            ("GAPLESS__NODE__ID", NAMES[n]),
            ("GAPLESS__LEASE__DURATION", "3s"),
            ("GAPLESS__LEASE__RENEW_INTERVAL", "1s"),
            ("GAPLESS__LEASE__CLOCK_SKEW_ALLOWANCE", "300ms"),
        ];
        self.nodes[n] = Some(self.setups[n].serve_with("node.log", &env).await);
    }

    /// Posts `count` transfers of 1 wei, to both nodes in turn; their ids.
    async fn post(&self, count: usize) -> Vec<String> {
        let mut ids = Vec::new();
        for i in 0..count {
            let body = json!({"submitter": ADDRESS, "requestId": format!("r{i}"), "payload": {"to": SINK, "value": "1"}});
            let (status, made) = self.setups[i % 2].post("/api/v1/tx", &body).await;
            assert_eq!(status, 202, "{made}");
            ids.push(made["txId"].as_str().unwrap().to_owned());
        }
        ids
    }

    /// Which node runs the lane.
    async fn owner(&self, asked: usize) -> Option<usize> {
        let (_, view) = self.setups[asked].get("/api/v1/submitters").await?;
        let owner = view["items"][0]["ownerNode"].as_str()?.to_owned();
        NAMES.iter().position(|name| *name == owner)
    }

    async fn all_happened_once(&self, asked: usize, ids: &[String]) {
        for tx_id in ids {
            let view = ended(&self.setups[asked], tx_id).await;
            assert_eq!(view["state"], "CONFIRMED", "{view}");
        }
        let count = format!("{:#x}", ids.len());
        let read = async |method: &str, params: Value| self.anvil.rpc(method, params).await.unwrap();
        assert_eq!(read("eth_getBalance", json!([SINK, "latest"])).await, count, "each effect happened once");
        assert_eq!(
            read("eth_getTransactionCount", json!([ADDRESS, "latest"])).await,
            count,
            "no nonce is missing"
        );
    }
}

#[tokio::test]
async fn the_other_node_takes_over_from_a_killed_one_and_loses_and_doubles_nothing() {
    let mut cluster = Cluster::start().await;
    let ids = cluster.post(6).await;
    let owner = || async { cluster.owner(0).await };
    let owner = eventually(PATIENCE, "somebody to run the lane", owner).await.unwrap();
    ended(&cluster.setups[owner], &ids[0]).await;
    end(cluster.nodes[owner].take().unwrap(), Signal::SIGKILL).await;
    cluster.all_happened_once(1 - owner, &ids).await;
    assert_eq!(cluster.owner(1 - owner).await, Some(1 - owner));
}

#[tokio::test]
async fn a_node_frozen_past_its_lease_wakes_up_and_changes_nothing() {
    let mut cluster = Cluster::start().await;
    let ids = cluster.post(5).await;
    let owner = || async { cluster.owner(0).await };
    let owner = eventually(PATIENCE, "somebody to run the lane", owner).await.unwrap();
    let pid = i32::try_from(cluster.nodes[owner].as_ref().unwrap().id().unwrap()).unwrap();
    send(pid, Signal::SIGSTOP).unwrap();
    let other = 1 - owner;
    let taken = || async { (cluster.owner(other).await == Some(other)).then_some(()) };
    eventually(PATIENCE, "the takeover", taken).await.unwrap();
    send(pid, Signal::SIGCONT).unwrap();
    cluster.all_happened_once(other, &ids).await;
    assert_eq!(cluster.owner(owner).await, Some(other), "the woken node did not take it back");
    let (_, events) = cluster.setups[other].get("/api/v1/events?limit=1000").await.unwrap();
    let confirmed =
        events["items"].as_array().unwrap().iter().filter(|e| e["type"] == "tx.confirmed").count();
    assert_eq!(confirmed, ids.len(), "each end was told once");
    assert!(end(cluster.nodes[other].take().unwrap(), Signal::SIGTERM).await.success());
}
