//! Commit in doubt: the connection is cut at the write. The same owner goes on, and no ghost of its own may
//! appear after it has read its lane again.

use std::time::Duration;

use gapless_core::change::{LaneChange, Verdict};
use gapless_core::ports::store::{Acquired, Store, StoreError};
use gapless_core::record::TxRecord;
use gapless_core::state::TxState;
use gapless_core::submitter::SubmitterId;
use gapless_store::postgres::PostgresStore;
use gapless_testkit::fixtures::Lane;
use gapless_testkit::postgres::PgCluster;
use gapless_testkit::tcp_proxy::{Mode, TcpProxy, Trap};

use super::{open, stocked, take, terms};
use crate::world::database;

const LEASE: Duration = Duration::from_secs(20);

struct Scene {
    /// Straight to the server.
    direct: PostgresStore,
    /// Through the proxy.
    proxied: PostgresStore,
    proxy: TcpProxy,
    submitter: SubmitterId,
    tx: TxRecord,
    lane: Lane,
    change: LaneChange,
}

async fn scene() -> Scene {
    let db = database().await;
    let cluster = PgCluster::shared().await.unwrap();
    let direct = open(&db.url, LEASE).await;
    let (submitter, queue) = stocked(&direct, 1, 1).await;
    let lane = take(&direct, "a", 1, &submitter, &terms(LEASE)).await;
    let change = lane.change(|draft| lane.bind(draft, &queue));
    let proxy = TcpProxy::start(([127, 0, 0, 1], cluster.port()).into()).unwrap();
    let url = format!("postgres://postgres@{}/{}", proxy.addr(), db.name);
    let proxied = open(&url, LEASE).await;
    proxied.now().await.unwrap();
    Scene { direct, proxied, proxy, submitter, tx: queue[0].clone(), lane, change }
}

impl Scene {
    async fn state(&self) -> TxState {
        self.direct.tx(self.tx.tx_id()).await.unwrap().unwrap().facts.state
    }

    /// The bytes that stand only in the write itself.
    fn pattern(&self) -> Vec<u8> {
        self.change.writes().attempts[0].raw.to_vec()
    }
}

fn in_doubt(result: Result<Vec<Verdict>, StoreError>) {
    assert!(matches!(result, Err(StoreError::OutcomeUnknown(_))), "{result:?}");
}

#[tokio::test]
async fn a_write_that_arrives_after_the_token_was_raised_is_fenced() {
    let s = scene().await;
    let mut trap = s.proxy.arm(Trap::hold(s.pattern()));
    in_doubt(s.proxied.commit(std::slice::from_ref(&s.change)).await);
    trap.fired().await.unwrap();

    let raised = s.direct.raise_token(&s.lane.grant, &terms(LEASE)).await.unwrap();
    let Acquired::Held { grant, .. } = raised else { panic!("{raised:?}") };
    let reloaded = s.direct.load_lane(&s.submitter).await.unwrap().unwrap();
    assert!(reloaded.attempts.is_empty());

    trap.release().await.unwrap();
    trap.server_answered().await.unwrap();
    assert_eq!(s.state().await, TxState::Queued, "the ghost was fenced");
    let mut lane = s.lane.clone();
    (lane.grant, lane.cursor) = (grant, reloaded.cursor);
    let writer = lane.clone();
    let verdict =
        lane.commit(&s.direct, |draft| writer.bind(draft, std::slice::from_ref(&s.tx))).await.unwrap();
    assert!(matches!(verdict, Verdict::Applied { .. }), "the owner goes on: {verdict:?}");
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_is_seen_by_the_reload() {
    let s = scene().await;
    let mut trap = s.proxy.arm(Trap::forward(s.pattern()));
    in_doubt(s.proxied.commit(std::slice::from_ref(&s.change)).await);
    trap.fired().await.unwrap();
    // Raising waits for the write that is still under way, if it is.
    let raised = s.direct.raise_token(&s.lane.grant, &terms(LEASE)).await.unwrap();
    assert!(matches!(raised, Acquired::Held { .. }), "{raised:?}");
    let reloaded = s.direct.load_lane(&s.submitter).await.unwrap().unwrap();
    trap.server_answered().await.unwrap();
    let later = s.direct.load_lane(&s.submitter).await.unwrap().unwrap();
    assert_eq!(reloaded, later, "whatever the reload saw, nothing appeared after it");
}

/// The hazard itself, so that the tests above are known to have teeth: without raising the token a ghost
/// does appear after the reload.
#[tokio::test]
async fn without_raising_the_token_the_ghost_appears_after_the_reload() {
    let s = scene().await;
    let mut trap = s.proxy.arm(Trap::hold(s.pattern()));
    in_doubt(s.proxied.commit(std::slice::from_ref(&s.change)).await);
    trap.fired().await.unwrap();
    assert!(s.direct.load_lane(&s.submitter).await.unwrap().unwrap().attempts.is_empty());
    trap.release().await.unwrap();
    trap.server_answered().await.unwrap();
    assert_eq!(s.state().await, TxState::Tracking, "the ghost came back");
}

#[tokio::test]
async fn an_accept_in_doubt_is_settled_by_repeating_it() {
    let s = scene().await;
    let item = gapless_testkit::fixtures::request(&s.submitter, "doubtful", uuid::Uuid::now_v7(), 9);
    let mut trap = s.proxy.arm(Trap::forward("doubtful"));
    let first = s.proxied.accept(std::slice::from_ref(&item)).await;
    assert!(matches!(first, Err(StoreError::OutcomeUnknown(_))), "{first:?}");
    trap.server_answered().await.unwrap();
    let repeat = gapless_testkit::fixtures::request(&s.submitter, "doubtful", uuid::Uuid::now_v7(), 9);
    let answer = s.proxied.accept(&[repeat]).await.unwrap().remove(0);
    assert!(
        matches!(&answer, gapless_core::record::Accepted::Known(known) if known.tx_id() == item.tx_id),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_server_that_is_simply_gone_is_in_doubt_before_the_lease_ends() {
    let s = scene().await;
    // The pool takes its connection back in the background; only one that is open can carry the write into the hole.
    tokio::time::sleep(Duration::from_millis(200)).await;
    s.proxy.set_mode(Mode::BlackHole).await.unwrap();
    let asked = tokio::time::Instant::now();
    in_doubt(s.proxied.commit(std::slice::from_ref(&s.change)).await);
    assert!(asked.elapsed() < LEASE / 2, "took {:?}", asked.elapsed());
}
