//! A chain, a store and some nodes on them, and the questions that every acceptance test asks at its end.

use std::time::Duration;

use futures::future::join_all;
use gapless_store::postgres::{PostgresOptions, PostgresStore};
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::postgres::{PgCluster, TestDb};
use gapless_testkit::process::{Signal, send};
use gapless_testkit::rpc_proxy::RpcProxy;
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};
use tokio::process::Child;

use crate::counter;
use crate::support::{ADDRESS, PATIENCE, Setup, ended};

pub(crate) const NAMES: [&str; 3] = ["node-a", "node-b", "node-c"];

/// Short, so that a takeover is a matter of seconds.
const LEASE: [(&str, &str); 4] = [
    ("GAPLESS__LEASE__DURATION", "2s"),
    ("GAPLESS__LEASE__RENEW_INTERVAL", "400ms"),
    ("GAPLESS__LEASE__CLOCK_SKEW_ALLOWANCE", "200ms"),
    ("GAPLESS__CONFIRMATIONS__REQUIRED", "1"),
];

/// How a chain makes blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocks {
    /// For each transaction at once, and then none.
    AtOnce,
    /// All the time.
    Ticking,
}

pub(crate) struct World {
    pub(crate) anvil: Anvil,
    /// What the nodes talk to on a ticking chain; it forwards everything unless told otherwise.
    pub(crate) proxy: RpcProxy,
    /// None: each node has a file of its own.
    pub(crate) db: Option<TestDb>,
    pub(crate) setups: Vec<Setup>,
    nodes: Vec<Option<Child>>,
}

impl World {
    /// Three nodes that could be started, on one PostgreSQL database.
    pub(crate) async fn on_postgres(blocks: Blocks) -> Self {
        Self::on(Some(database().await), blocks).await
    }

    /// The same on this chain, which they reach through these endpoints.
    pub(crate) async fn reaching(anvil: Anvil, endpoints: &[String]) -> Self {
        let db = Some(database().await);
        let proxy = RpcProxy::start(anvil.url()).unwrap();
        let setups = NAMES.map(|_| Setup::through(endpoints)).into();
        Self { anvil, proxy, db, setups, nodes: vec![None, None, None] }
    }

    /// Nodes with an SQLite file each; tests use the first.
    pub(crate) async fn on_sqlite(blocks: Blocks) -> Self {
        Self::on(None, blocks).await
    }

    async fn on(db: Option<TestDb>, blocks: Blocks) -> Self {
        let block_time = (blocks == Blocks::Ticking).then_some(Duration::from_millis(400));
        let anvil = Anvil::start(AnvilOptions { block_time, ..AnvilOptions::default() }).await.unwrap();
        counter::deploy(&anvil).await;
        let proxy = RpcProxy::start(anvil.url()).unwrap();
        // Where every millisecond counts a thousand times, nothing stands between.
        let rpc = if blocks == Blocks::AtOnce { anvil.url() } else { proxy.url() };
        let setups = NAMES.map(|_| Setup::new(&rpc)).into();
        Self { anvil, proxy, db, setups, nodes: vec![None, None, None] }
    }

    /// Starts a node and waits until it answers.
    pub(crate) async fn serve(&mut self, n: usize, more: &[(&str, &str)]) {
        self.spawn(n, more);
        self.setups[n].answers().await;
    }

    /// Starts a node, whatever becomes of it.
    pub(crate) fn spawn(&mut self, n: usize, more: &[(&str, &str)]) {
        let mut env = vec![("GAPLESS__NODE__ID", NAMES[n])];
        env.extend(LEASE);
        env.extend(self.db.iter().map(|db| ("GAPLESS__STORE__URL", db.url.as_str())));
        env.extend(more);
        self.nodes[n] = Some(self.setups[n].spawn(&format!("{}.log", NAMES[n]), &env));
    }

    /// Sends a signal to a node.
    pub(crate) fn signal(&self, n: usize, signal: Signal) {
        let pid = self.nodes[n].as_ref().and_then(Child::id).unwrap();
        send(i32::try_from(pid).unwrap(), signal).unwrap();
    }

    /// Waits until a node has ended by itself.
    pub(crate) async fn gone(&mut self, n: usize) -> std::process::ExitStatus {
        let mut child = self.nodes[n].take().unwrap();
        let waited = tokio::time::timeout(PATIENCE, child.wait()).await;
        waited.unwrap_or_else(|_| panic!("{} does not end", NAMES[n])).unwrap()
    }

    /// Posts a request; none if the node did not answer.
    pub(crate) async fn try_post(&self, n: usize, request_id: &str) -> Option<(u16, Value)> {
        let payload = counter::payload(request_id);
        let body = json!({ "submitter": ADDRESS, "requestId": request_id, "payload": payload });
        self.setups[n].try_post("/api/v1/tx", &body).await.ok()
    }

    /// Posts a request that is accepted, now or before; its txId.
    pub(crate) async fn post(&self, n: usize, request_id: &str) -> String {
        let (status, made) = self.try_post(n, request_id).await.unwrap();
        assert!(matches!(status, 200 | 202), "{status} {made}");
        made["txId"].as_str().unwrap().to_owned()
    }

    /// A command to the one submitter.
    pub(crate) async fn command(&self, n: usize, verb: &str) {
        let path = format!("/api/v1/submitters/{ADDRESS}/{verb}");
        // The answer may be lost with the node.
        let _ = self.setups[n].try_post(&path, &json!({})).await;
    }

    /// What a node shows of the one submitter.
    pub(crate) async fn submitter(&self, asked: usize) -> Option<Value> {
        let (_, page) = self.setups[asked].get("/api/v1/submitters").await?;
        Some(page["items"][0].clone())
    }

    /// Waits until a node runs the lane, as another (or itself) sees it.
    pub(crate) async fn runs_the_lane(&self, asked: usize, n: usize) {
        let runs = || async { (self.submitter(asked).await?["ownerNode"] == NAMES[n]).then_some(()) };
        eventually(PATIENCE, &format!("{} to run the lane", NAMES[n]), runs).await.unwrap();
    }

    /// Waits until the one submitter is in a condition.
    pub(crate) async fn is_in(&self, asked: usize, condition: &str) {
        let is = || async { (self.submitter(asked).await?["condition"] == condition).then_some(()) };
        eventually(PATIENCE, condition, is).await.unwrap();
    }

    /// Everything ends CONFIRMED, and the chain shows each effect once and a run of nonces without a hole.
    pub(crate) async fn assert_all_happened_once(&self, asked: usize, request_ids: &[String]) {
        for some in request_ids.chunks(20) {
            join_all(some.iter().map(|id| self.assert_confirmed(asked, id))).await;
        }
        counter::assert_once_each(&self.anvil, request_ids).await;
        self.assert_no_violation(asked).await;
    }

    /// What is stored breaks no invariant, and no lane of this node has counted a violation.
    async fn assert_no_violation(&self, asked: usize) {
        self.assert_sound(asked, ADDRESS).await;
        self.assert_none_counted(asked).await;
    }

    /// What is stored of a submitter breaks no invariant.
    pub(crate) async fn assert_sound(&self, asked: usize, address: &str) {
        let path = format!("/api/v1/submitters/{address}/report");
        let (status, report) = self.setups[asked].get(&path).await.unwrap();
        assert_eq!((status, &report["violations"]), (200, &json!([])), "{report}");
    }

    /// No lane of this node has counted a violation.
    pub(crate) async fn assert_none_counted(&self, asked: usize) {
        let metrics = self.setups[asked].text("/metrics").await.unwrap();
        let kinds: Vec<&str> =
            metrics.lines().filter(|line| line.starts_with("gapless_invariant_violation_total{")).collect();
        assert!(kinds.len() >= 7 && kinds.iter().all(|line| line.ends_with(" 0")), "{kinds:#?}");
    }

    async fn assert_confirmed(&self, asked: usize, request_id: &str) {
        let tx_id = self.post(asked, request_id).await;
        let view = ended(&self.setups[asked], &tx_id).await;
        assert_eq!(view["state"], "CONFIRMED", "{view}");
    }

    /// Waits until the chain counts this many transactions of the submitter.
    pub(crate) async fn assert_mined(&self, count: usize) {
        let mined = || async {
            let found = self.anvil.rpc("eth_getTransactionCount", json!([ADDRESS, "latest"])).await.unwrap();
            (found == format!("{count:#x}")).then_some(())
        };
        eventually(PATIENCE * 5, &format!("{count} transactions in blocks"), mined).await.unwrap();
    }

    /// A node's log so far.
    pub(crate) fn log(&self, n: usize) -> String {
        self.setups[n].log(&format!("{}.log", NAMES[n]))
    }
}

/// A migrated database of its own.
async fn database() -> TestDb {
    let cluster = PgCluster::shared().await.unwrap();
    let migrate = |url: String| async move { PostgresStore::migrate(&PostgresOptions::new(&url)).await };
    cluster.template("program", migrate).await.unwrap();
    cluster.clone_template("program").await.unwrap()
}

/// Names for requests.
pub(crate) fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}-{i}")).collect()
}
