//! Dearer attempts where the node has a rule of its own: whoever wants a place in the pool offers a tenth more of each fee.

use std::sync::Arc;
use std::time::Duration;

use gapless_core::attempt::{AttemptKind, StoredAttempt};
use gapless_core::bump::BumpRules;
use gapless_core::command::{CommandOutcome, Verb};
use gapless_core::event::EventKind;
use gapless_core::govern::{Step, StuckRules};
use gapless_core::ids::TxId;
use gapless_core::ports::policy::StuckAction;
use gapless_core::record::MinedAs;
use gapless_core::state::TxState;
use gapless_engine::LaneSettings;
use gapless_testkit::geth::{Geth, Mining};
use gapless_testkit::wait::eventually;
use serde_json::json;

use super::{geth, mined, until_pooled};
use crate::contest::{ask, held, soon_settled};
use crate::support::{Node, attempts, count, effects, entry};

const SOON: Duration = Duration::from_secs(60);

async fn stored(node: &Node, many: usize) -> Vec<StoredAttempt> {
    eventually(SOON, "the stored bytes", || async {
        Some(attempts(node, 0).await).filter(|found| found.len() >= many)
    })
    .await
    .unwrap()
}

/// The last attempt took the place of the others, and the node refused none of them.
async fn replaced(geth: &Geth, stored: &[StoredAttempt]) {
    let (last, others) = stored.split_last().unwrap();
    held(geth, last).await;
    for old in others {
        let found = geth.rpc("eth_getTransactionByHash", json!([old.hash])).await.unwrap();
        assert!(found.is_null(), "its place is taken");
    }
    assert!(stored.iter().all(|attempt| attempt.refusal.is_none()), "{stored:#?}");
}

async fn confirmed(geth: &Geth, node: &Node, id: TxId) {
    eventually(SOON, "the end", || async {
        geth.mine(1).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        node.handle.tx(id).await.unwrap().state.is_terminal().then_some(())
    })
    .await
    .unwrap();
    node.confirmed(id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bump_after_a_surge_is_taken_by_the_nodes_own_rule() {
    let geth = geth(Mining::WhenTold).await;
    let min_interval = Duration::from_millis(200);
    // The surge comes block by block, and it is bid for at each.
    let bump = BumpRules { enabled: true, min_interval, max_attempts: 100, ..BumpRules::default() };
    let node = Node::start(&geth.url(), LaneSettings { bump, ..soon_settled(1) }).await;
    let id = node.submit(entry(0)).await;
    until_pooled(&geth).await;
    let before = geth.base_fee().await.unwrap();
    let offered = attempts(&node, 0).await[0].fees.ceiling();
    geth.raise_base_fee(before * 10).await.unwrap();
    eventually(SOON, "an offer above the surge", || async {
        let stored = attempts(&node, 0).await;
        let last = stored.last().unwrap();
        (last.fees.ceiling().0 > u128::from(before) * 10).then_some(())
    })
    .await
    .unwrap();
    assert!(offered.0 < u128::from(before) * 10);
    confirmed(&geth, &node, id).await;
    let stored = attempts(&node, 0).await;
    assert!(stored.len() > 1 && stored.iter().all(|attempt| attempt.refusal.is_none()), "{stored:#?}");
    let view = node.confirmed(id).await;
    assert!(view.tx_hash.is_some_and(|hash| hash != stored[0].hash));
    let told = node.told(id).await;
    let replaced = told.iter().filter(|kind| **kind == EventKind::TxReplaced).count();
    assert_eq!(replaced, stored.len() - 1);
    node.each_took_effect_once(&geth, &[id]).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancels_placeholder_takes_the_payloads_place() {
    let geth = geth(Mining::WhenTold).await;
    let node = Node::start(&geth.url(), soon_settled(1)).await;
    let ids = node.submit_all(0, 2).await;
    until_pooled(&geth).await;
    let end = ask(&node, Some(ids[0]), Verb::Cancel, json!({})).await;
    assert_eq!(end.outcome, CommandOutcome::Done);
    let bytes = stored(&node, 2).await;
    assert_eq!(bytes[1].kind, AttemptKind::Placeholder);
    replaced(&geth, &bytes).await;
    geth.mine(1).await.unwrap();
    let view = node.until(ids[0], "the block", |view| view.mined_as.is_some()).await;
    assert_eq!(view.mined_as, Some(MinedAs::Placeholder));
    mined(&node, &geth, ids[1]).await;
    confirmed(&geth, &node, ids[1]).await;
    geth.mine(2).await.unwrap();
    let view = node.until(ids[0], "the end", |view| view.state.is_terminal()).await;
    assert_eq!(view.state, TxState::Cancelled);
    assert_eq!((effects(&geth, 0).await, effects(&geth, 1).await, count(&geth).await), (0, 1, 2));
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_governors_bump_takes_the_place_of_what_is_stuck() {
    let geth = geth(Mining::WhenTold).await;
    let stall_after = Duration::from_millis(300);
    let bump = Step { after: stall_after, action: StuckAction::Bump, max: 2, when: None };
    let escalate = Step { after: stall_after, action: StuckAction::Escalate, max: 1, when: None };
    let stuck = StuckRules { stall_after, steps: vec![bump, escalate], ..StuckRules::default() };
    stuck.check().unwrap();
    let node = Node::start(&geth.url(), LaneSettings { stuck: Arc::new(stuck), ..soon_settled(1) }).await;
    let id = node.submit(entry(0)).await;
    until_pooled(&geth).await;
    node.until(id, "the last step", |view| view.state == TxState::Stuck).await;
    let bytes = stored(&node, 3).await;
    assert_eq!(bytes.len(), 3, "the budget was two");
    replaced(&geth, &bytes).await;
    confirmed(&geth, &node, id).await;
    assert_eq!(node.confirmed(id).await.tx_hash, Some(bytes[2].hash));
    node.each_took_effect_once(&geth, &[id]).await;
    node.stopped().await;
}
