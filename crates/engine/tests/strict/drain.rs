//! Drain: everything that was there when it was asked for is cancelled or competes with a placeholder, and the lane is free
//! for new work.

use gapless_core::attempt::AttemptKind;
use gapless_core::command::{CommandOutcome, Verb};
use gapless_core::ids::Nonce;
use gapless_core::plan::{Mode, NonceRules};
use gapless_core::record::MinedAs;
use gapless_core::state::TxState;
use gapless_engine::LaneSettings;
use gapless_testkit::wait::eventually;
use serde_json::json;

use crate::contest::{Contest, Door, LONG, soon_settled};
use crate::support::{Node, count, entry, mine, number, pooled, submitter, unmined};

fn pipelined(max_in_flight: u64, confirmations: u64) -> LaneSettings {
    let rules = NonceRules { mode: Mode::Pipelined, max_in_flight, ..LaneSettings::default().rules };
    LaneSettings { rules, ..soon_settled(confirmations) }
}

/// Waits until every open slot below `to` has its placeholder, at the node too.
async fn placeholders(contest: &Contest, from: u64, to: u64) {
    let last = eventually(LONG, "the placeholders", || async {
        let stored =
            contest.leads.handle.store().attempts(&submitter(), Nonce(from), Nonce(to)).await.unwrap();
        let placeholders = stored.iter().filter(|attempt| attempt.kind == AttemptKind::Placeholder);
        let mut placeholders: Vec<_> = placeholders.cloned().collect();
        placeholders.sort_by_key(|attempt| attempt.nonce);
        (placeholders.len() as u64 == to - from).then(|| placeholders.pop()).flatten()
    });
    let last = last.await.unwrap();
    contest.held(&last).await;
}

async fn states(node: &Node, ids: &[gapless_core::ids::TxId], state: TxState) {
    for id in ids {
        let view = node.handle.tx(*id).await.unwrap();
        assert_eq!(view.state, state, "{view:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_in_flight_and_twenty_queued() {
    let mut contest = Contest::of(unmined().await, pipelined(100, 1), 120, Door::Open).await;
    pooled(&contest.anvil, 100).await;
    let end = contest.ask(None, Verb::Drain, json!({})).await;
    assert_eq!(end.outcome, CommandOutcome::Done);
    assert_eq!(end.result, Some(json!({"cancelled": 20, "cancelling": 100, "failed": []})));
    states(&contest.other, &contest.ids[100..], TxState::Cancelled).await;
    states(&contest.other, &contest.ids[..100], TxState::Tracking).await;
    placeholders(&contest, 0, 100).await;
    let pool = contest.anvil.rpc("txpool_status", json!([])).await.unwrap();
    assert_eq!(number(&pool["pending"]), 100, "each took its payload's place");
    mine(&contest.anvil, 1).await;
    assert_eq!(count(&contest.anvil).await, 100, "an unbroken run");
    let last = contest.ids[99];
    let mined = contest.leads.until(last, "the block", |view| view.mined_as.is_some()).await;
    assert_eq!((mined.mined_as, mined.state), (Some(MinedAs::Placeholder), TxState::Tracking));
    contest.to_the_end().await;
    states(&contest.other, &contest.ids, TxState::Cancelled).await;
    // New work goes on where the placeholders ended.
    let fresh = contest.leads.submit(entry(120)).await;
    contest.ids.push(fresh);
    contest.to_the_end().await;
    contest.leads.confirmed(fresh).await;
    assert_eq!(count(&contest.anvil).await, 101);
    contest.kept().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_what_is_partly_mined_says_what_it_could_not_cancel() {
    let contest = Contest::of(unmined().await, pipelined(4, 3), 10, Door::Open).await;
    pooled(&contest.anvil, 4).await;
    mine(&contest.anvil, 1).await;
    contest.leads.until(contest.ids[3], "the block", |view| view.mined_as.is_some()).await;
    pooled(&contest.anvil, 4).await;
    let end = contest.ask(None, Verb::Drain, json!({})).await;
    let result = end.result.unwrap();
    assert_eq!((&result["cancelled"], &result["cancelling"]), (&json!(2), &json!(4)));
    let mut failed: Vec<_> = result["failed"].as_array().unwrap().clone();
    failed.sort_by_key(|failure| failure["txId"].to_string());
    let mut expected: Vec<_> =
        contest.ids[..4].iter().map(|id| json!({"txId": id, "code": "already-mined"})).collect();
    expected.sort_by_key(|failure| failure["txId"].to_string());
    assert_eq!(failed, expected);
    placeholders(&contest, 4, 8).await;
    contest.to_the_end().await;
    states(&contest.other, &contest.ids[..4], TxState::Confirmed).await;
    states(&contest.other, &contest.ids[4..], TxState::Cancelled).await;
    contest.kept().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_nothing_is_done_and_says_so() {
    let contest = Contest::of(unmined().await, pipelined(4, 1), 1, Door::Open).await;
    contest.to_the_end().await;
    let end = contest.ask(None, Verb::Drain, json!({})).await;
    assert_eq!(end.result, Some(json!({"cancelled": 0, "cancelling": 0, "failed": []})));
    contest.kept().await;
}
