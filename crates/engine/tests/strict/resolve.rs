//! Resolve: what an operator decides about a transaction that does not move.

use std::sync::Arc;
use std::time::Duration;

use gapless_core::command::{CommandEnd, CommandOutcome, Verb};
use gapless_core::condition::Condition;
use gapless_core::event::EventKind;
use gapless_core::govern::StuckRules;
use gapless_core::record::MinedAs;
use gapless_core::state::TxState;
use gapless_engine::LaneSettings;
use gapless_engine::handle::Refusal;
use gapless_testkit::wait::eventually;
use serde_json::json;

use crate::contest::{Contest, Door, LONG, commands_told, soon_settled};
use crate::support::{entry, number, pooled, unmined};

/// Bound and in the pool, one more behind it, and nothing is sent again or bumped by itself.
async fn bound() -> Contest {
    let settings = LaneSettings { resubmit: None, ..soon_settled(1) };
    let contest = Contest::of(unmined().await, settings, 2, Door::Open).await;
    pooled(&contest.anvil, 1).await;
    contest
}

async fn resolve(contest: &Contest, n: usize, action: &str) -> CommandEnd {
    contest.ask(Some(contest.ids[n]), Verb::Resolve, json!({"action": action})).await
}

async fn done(contest: &Contest, action: &str) {
    let end = resolve(contest, 0, action).await;
    assert_eq!((end.outcome, end.code), (CommandOutcome::Done, None));
    let told = json!({"command": "resolve", "outcome": "done"});
    assert_eq!(commands_told(&contest.leads, contest.ids[0]).await, [told]);
}

async fn refused(contest: &Contest, n: usize, action: &str, code: &str) {
    let end = resolve(contest, n, action).await;
    assert_eq!((end.outcome, end.code.unwrap().as_str()), (CommandOutcome::Refused, code));
}

async fn all_confirmed(contest: Contest) {
    contest.to_the_end().await;
    for id in &contest.ids {
        contest.leads.confirmed(*id).await;
    }
    contest.kept().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_sends_the_same_bytes_again() {
    let contest = bound().await;
    let bytes = contest.stored(0, 1).await;
    contest.anvil.rpc("anvil_dropTransaction", json!([bytes[0].hash])).await.unwrap();
    tokio::time::sleep(Duration::from_millis(800)).await;
    let pool = contest.anvil.rpc("txpool_status", json!([])).await.unwrap();
    assert_eq!(number(&pool["pending"]), 0, "nothing is sent again by itself");
    done(&contest, "retry").await;
    contest.held(&bytes[0]).await;
    assert_eq!(contest.stored(0, 1).await.len(), 1);
    all_confirmed(contest).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bump_makes_a_dearer_attempt_although_nothing_is_bumped_by_itself() {
    let contest = bound().await;
    done(&contest, "bump").await;
    let bytes = contest.stored(0, 2).await;
    assert!(bytes[1].fees.ceiling().0 * 10 >= bytes[0].fees.ceiling().0 * 11);
    assert!(bytes[1].fees.tip().0 * 10 >= bytes[0].fees.tip().0 * 11);
    contest.held(&bytes[1]).await;
    assert!(contest.leads.told(contest.ids[0]).await.contains(&EventKind::TxReplaced));
    let view = contest.mined(0).await;
    assert_eq!((view.mined_as, view.tx_hash), (Some(MinedAs::Payload), Some(bytes[1].hash)));
    assert_eq!(contest.stored(0, 2).await.len(), 2, "once");
    all_confirmed(contest).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn placeholder_cancels() {
    let contest = bound().await;
    done(&contest, "placeholder").await;
    let bytes = contest.stored(0, 2).await;
    contest.held(&bytes[1]).await;
    assert_eq!(contest.mined(0).await.mined_as, Some(MinedAs::Placeholder));
    contest.to_the_end().await;
    let view = contest.leads.handle.tx(contest.ids[0]).await.unwrap();
    assert_eq!(view.state, TxState::Cancelled);
    contest.leads.confirmed(contest.ids[1]).await;
    contest.kept().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_for_what_is_mined_is_too_late() {
    let contest = bound().await;
    contest.mined(0).await;
    let end = resolve(&contest, 0, "placeholder").await;
    assert_eq!((end.outcome, end.code.unwrap().as_str()), (CommandOutcome::Lost, "already-mined"));
    contest.to_the_end().await;
    refused(&contest, 0, "retry", "already-final").await;
    all_confirmed(contest).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn protect_takes_nothing_new_until_a_human_has_looked() {
    let contest = bound().await;
    done(&contest, "protect").await;
    assert_eq!(contest.other.submitter().await.condition, Condition::Protect);
    for node in [&contest.leads, &contest.other] {
        let refusal = node.handle.submit(entry(9)).await.unwrap_err();
        assert_eq!(refusal, Refusal::Protected);
    }
    assert!(contest.leads.ever_told(EventKind::SubmitterProtected).await);
    // What is bound goes on, what is queued waits.
    contest.mined(0).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(contest.leads.handle.tx(contest.ids[1]).await.unwrap().state, TxState::Queued);
    let end = contest.ask(None, Verb::Unprotect, json!({"acknowledgedNonce": 1})).await;
    assert_eq!(end.code.unwrap().as_str(), "nonce-mismatch");
    let end = contest.ask(None, Verb::Unprotect, json!({"acknowledgedNonce": 0})).await;
    assert_eq!(end.outcome, CommandOutcome::Done);
    assert_eq!(contest.other.submitter().await.condition, Condition::Ok);
    all_confirmed(contest).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_refused_with_its_code() {
    let contest = bound().await;
    refused(&contest, 0, "explode", "invalid-request").await;
    refused(&contest, 1, "retry", "not-bound").await;
    let end = contest.ask(Some(contest.ids[0]), Verb::Resolve, json!({})).await;
    assert_eq!(end.code.unwrap().as_str(), "invalid-request");
    assert!(commands_told(&contest.leads, contest.ids[0]).await.is_empty());
    all_confirmed(contest).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_stuck_is_not_after_an_operator_took_it_up() {
    let stall_after = Duration::from_millis(50);
    let stuck = StuckRules { stall_after, max_age: stall_after, ..StuckRules::default() };
    let settings = LaneSettings { resubmit: None, stuck: Arc::new(stuck), ..soon_settled(1) };
    let contest = Contest::of(unmined().await, settings, 2, Door::Open).await;
    let id = contest.ids[0];
    contest.leads.until(id, "the governor", |view| view.state == TxState::Stuck).await;
    assert_eq!(resolve(&contest, 0, "bump").await.outcome, CommandOutcome::Done);
    eventually(LONG, "the word of it", || async {
        contest.leads.told(id).await.contains(&EventKind::TxUnstuck).then_some(())
    })
    .await
    .unwrap();
    contest.stored(0, 2).await;
    all_confirmed(contest).await;
}
