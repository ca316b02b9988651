//! Cancel and replace: whichever hash is mined decides, the end is told as it happened, and nothing takes effect twice.

use std::time::Duration;

use alloy_primitives::U256;
use gapless_core::attempt::AttemptKind;
use gapless_core::command::{CommandEnd, CommandOutcome, Verb};
use gapless_core::event::{Event, EventKind};
use gapless_core::ids::TxId;
use gapless_core::record::MinedAs;
use gapless_core::state::{SubState, TxState};
use gapless_engine::LaneSettings;
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::support::{
    LEDGER, Node, attempts, call, count, effects, entry, mine, pooled, quick, submitter, unmined,
};

const LONG: Duration = Duration::from_secs(60);

/// Settings under which a lost slot is settled soon.
fn soon_settled(confirmations: u64) -> LaneSettings {
    LaneSettings { finality_depth: Some(2), ..quick(confirmations) }
}

/// Asks the lane, and waits for its word.
async fn ask(node: &Node, tx_id: Option<TxId>, verb: Verb, args: Value) -> CommandEnd {
    let id = node.handle.command(&submitter(), tx_id, verb, args, "test").await.unwrap();
    let end = || async { node.handle.store().command_end(id).await.unwrap() };
    eventually(LONG, "the command's end", end).await.unwrap()
}

async fn commands_told(node: &Node, id: TxId) -> Vec<Value> {
    let events: Vec<Event> = node.handle.tx_events(id).await.unwrap();
    events.into_iter().filter(|event| event.kind == EventKind::TxCommand).map(|event| event.data).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_queued_is_cancelled_at_once_and_takes_no_nonce() {
    let anvil = unmined().await;
    let node = Node::start(&anvil.url(), soon_settled(1)).await;
    let ids = node.submit_all(0, 3).await;
    pooled(&anvil, 1).await;
    let end = ask(&node, Some(ids[1]), Verb::Cancel, json!({})).await;
    assert_eq!(end.outcome, CommandOutcome::Done);
    let view = node.handle.tx(ids[1]).await.unwrap();
    assert_eq!(view.state, TxState::Cancelled);
    assert_eq!(commands_told(&node, ids[1]).await, [json!({"command": "cancel", "outcome": "done"})]);
    mine(&anvil, 1).await;
    pooled(&anvil, 1).await;
    mine(&anvil, 3).await;
    for id in [ids[0], ids[2]] {
        node.confirmed(id).await;
    }
    assert_eq!((count(&anvil).await, effects(&anvil, 1).await), (2, 0));
    let again = ask(&node, Some(ids[1]), Verb::Cancel, json!({})).await;
    assert_eq!(again.code.unwrap().as_str(), "already-final");
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_that_wins_cancels_and_its_nonce_is_no_hole() {
    let anvil = unmined().await;
    let node = Node::start(&anvil.url(), soon_settled(1)).await;
    let ids = node.submit_all(0, 2).await;
    pooled(&anvil, 1).await;
    let end = ask(&node, Some(ids[0]), Verb::Cancel, json!({})).await;
    assert_eq!(end.outcome, CommandOutcome::Done);
    node.until(ids[0], "the placeholder", |view| view.sub_state == Some(SubState::Cancelling)).await;
    eventually(LONG, "its bytes", || async { (attempts(&node, 0).await.len() == 2).then_some(()) })
        .await
        .unwrap();
    let stored = attempts(&node, 0).await;
    assert_eq!(stored[1].kind, AttemptKind::Placeholder);
    eventually(LONG, "the placeholder in the pool", || async {
        let found = anvil.rpc("eth_getTransactionByHash", json!([stored[1].hash])).await.unwrap();
        (!found.is_null()).then_some(())
    })
    .await
    .unwrap();
    mine(&anvil, 1).await;
    let view = node.until(ids[0], "the block", |view| view.mined_as.is_some()).await;
    assert_eq!(
        (view.mined_as, view.state),
        (Some(MinedAs::Placeholder), TxState::Tracking),
        "not yet deep enough"
    );
    pooled(&anvil, 1).await;
    mine(&anvil, 3).await;
    let view = node.until(ids[0], "the end", |view| view.state.is_terminal()).await;
    assert_eq!(view.state, TxState::Cancelled);
    assert_eq!(commands_told(&node, ids[0]).await, [json!({"command": "cancel", "outcome": "done"})]);
    node.confirmed(ids[1]).await;
    assert_eq!((effects(&anvil, 0).await, effects(&anvil, 1).await, count(&anvil).await), (0, 1, 2));
    node.told(ids[0]).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_wins_is_confirmed_and_the_lost_race_is_told() {
    let anvil = unmined().await;
    let node = Node::start(&anvil.url(), soon_settled(2)).await;
    let id = node.submit(entry(0)).await;
    pooled(&anvil, 1).await;
    mine(&anvil, 1).await;
    node.until(id, "the block", |view| view.sub_state == Some(SubState::Mined)).await;
    let end = ask(&node, Some(id), Verb::Cancel, json!({})).await;
    assert_eq!((end.outcome, end.code.unwrap().as_str()), (CommandOutcome::Lost, "already-mined"));
    mine(&anvil, 3).await;
    node.each_took_effect_once(&anvil, &[id]).await;
    let told = commands_told(&node, id).await;
    assert_eq!(told, [json!({"command": "cancel", "outcome": "lost", "code": "already-mined"})]);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_that_wins_takes_effect_instead() {
    let anvil = unmined().await;
    let node = Node::start(&anvil.url(), soon_settled(1)).await;
    let id = node.submit(entry(0)).await;
    pooled(&anvil, 1).await;
    let other = call(LEDGER, U256::from(7).to_be_bytes::<32>());
    let end = ask(&node, Some(id), Verb::Replace, json!({"payload": other})).await;
    assert_eq!(end.outcome, CommandOutcome::Done);
    eventually(LONG, "its bytes", || async { (attempts(&node, 0).await.len() == 2).then_some(()) })
        .await
        .unwrap();
    let hash = attempts(&node, 0).await[1].hash;
    eventually(LONG, "the replacement in the pool", || async {
        let found = anvil.rpc("eth_getTransactionByHash", json!([hash])).await.unwrap();
        (!found.is_null()).then_some(())
    })
    .await
    .unwrap();
    mine(&anvil, 3).await;
    let view = node.confirmed(id).await;
    assert_eq!(view.mined_as, Some(MinedAs::Replacement));
    assert_eq!(commands_told(&node, id).await, [json!({"command": "replace", "outcome": "done"})]);
    assert_eq!((effects(&anvil, 0).await, effects(&anvil, 7).await, count(&anvil).await), (0, 1, 1));
    node.stopped().await;
}
