//! Cancel and replace of what is bound, at each stage, with either winner.

use std::sync::Arc;
use std::time::Duration;

use gapless_core::command::{CommandOutcome, Verb};
use gapless_core::govern::StuckRules;
use gapless_core::record::MinedAs;
use gapless_core::state::{SubState, TxState};
use gapless_core::wait::WaitReason;
use gapless_engine::LaneSettings;
use serde_json::json;

use crate::contest::{Contest, Door, commands_told, soon_settled};
use crate::support::{pooled, unmined};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// In the pool.
    Pooled,
    /// Bound, and no node has taken it.
    Untaken,
    /// In the pool for so long that a human was told.
    Stuck,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Winner {
    /// What was accepted.
    Payload,
    /// What the command put up against it.
    Challenger,
}

const BOTH: [Winner; 2] = [Winner::Payload, Winner::Challenger];

/// Settings under which everything is soon left to a human.
fn escalating() -> LaneSettings {
    let stall_after = Duration::from_millis(50);
    let stuck = StuckRules { stall_after, max_age: stall_after, ..StuckRules::default() };
    LaneSettings { stuck: Arc::new(stuck), ..soon_settled(1) }
}

async fn bound(stage: Stage) -> Contest {
    let settings = if stage == Stage::Stuck { escalating() } else { soon_settled(1) };
    let door = if stage == Stage::Untaken { Door::Shut } else { Door::Open };
    let contest = Contest::of(unmined().await, settings, 3, door).await;
    let id = contest.ids[0];
    match stage {
        Stage::Pooled => pooled(&contest.anvil, 1).await,
        Stage::Untaken => {
            let refused = |wait: &WaitReason| matches!(wait, WaitReason::NotInPool { .. });
            let untaken =
                |view: &gapless_engine::view::TxView| view.wait_reason.as_ref().is_some_and(refused);
            contest.leads.until(id, "a refusal", untaken).await;
        }
        Stage::Stuck => {
            pooled(&contest.anvil, 1).await;
            contest.leads.until(id, "the governor", |view| view.state == TxState::Stuck).await;
        }
    }
    contest
}

/// One race for nonce 0, decided by the test; two more requests wait behind it.
async fn race(stage: Stage, verb: Verb, winner: Winner) {
    let contest = bound(stage).await;
    if winner == Winner::Payload {
        contest.shut();
    }
    let end = contest.withdraw(0, verb).await;
    assert_eq!((end.outcome, end.code), (CommandOutcome::Done, None));
    let bytes = contest.stored(0, 2).await;
    match winner {
        Winner::Payload => contest.smuggle(&bytes[0]).await,
        Winner::Challenger => {
            contest.open();
            contest.held(&bytes[1]).await;
        }
    }
    let mined = contest.mined(0).await;
    let as_what = match (winner, verb) {
        (Winner::Payload, _) => MinedAs::Payload,
        (_, Verb::Replace) => MinedAs::Replacement,
        _ => MinedAs::Placeholder,
    };
    assert_eq!(mined.mined_as, Some(as_what));
    assert!(!mined.state.is_terminal(), "one block is not enough");
    contest.open();
    contest.to_the_end().await;
    let id = contest.ids[0];
    let state = if as_what == MinedAs::Placeholder { TxState::Cancelled } else { TxState::Confirmed };
    assert_eq!(contest.other.handle.tx(id).await.unwrap().state, state);
    let told = match winner {
        Winner::Payload => json!({"command": verb, "outcome": "lost", "code": "mined-before"}),
        Winner::Challenger => json!({"command": verb, "outcome": "done"}),
    };
    assert_eq!(commands_told(&contest.leads, id).await, [told]);
    for later in &contest.ids[1..] {
        contest.leads.confirmed(*later).await;
    }
    contest.kept().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_of_what_is_pooled_ends_as_it_was_mined() {
    for winner in BOTH {
        race(Stage::Pooled, Verb::Cancel, winner).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_of_what_is_pooled_ends_as_it_was_mined() {
    for winner in BOTH {
        race(Stage::Pooled, Verb::Replace, winner).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_of_what_no_node_took_ends_as_it_was_mined() {
    for winner in BOTH {
        race(Stage::Untaken, Verb::Cancel, winner).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_of_what_no_node_took_ends_as_it_was_mined() {
    for winner in BOTH {
        race(Stage::Untaken, Verb::Replace, winner).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_of_what_is_stuck_ends_as_it_was_mined() {
    for winner in BOTH {
        race(Stage::Stuck, Verb::Cancel, winner).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_of_what_is_stuck_ends_as_it_was_mined() {
    for winner in BOTH {
        race(Stage::Stuck, Verb::Replace, winner).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_mined_is_too_late_for_either_and_what_is_final_refuses_both() {
    for verb in [Verb::Cancel, Verb::Replace] {
        let contest = bound(Stage::Pooled).await;
        contest.mined(0).await;
        let end = contest.withdraw(0, verb).await;
        assert_eq!((end.outcome, end.code.unwrap().as_str()), (CommandOutcome::Lost, "already-mined"));
        contest.to_the_end().await;
        let end = contest.withdraw(0, verb).await;
        assert_eq!((end.outcome, end.code.unwrap().as_str()), (CommandOutcome::Refused, "already-final"));
        let told = json!({"command": verb, "outcome": "lost", "code": "already-mined"});
        assert_eq!(commands_told(&contest.leads, contest.ids[0]).await, [told]);
        assert_eq!(contest.leads.confirmed(contest.ids[0]).await.mined_as, Some(MinedAs::Payload));
        contest.kept().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_cancels_are_one_and_what_is_being_cancelled_is_not_replaced() {
    let contest = bound(Stage::Pooled).await;
    contest.shut();
    for _ in 0..2 {
        assert_eq!(contest.withdraw(0, Verb::Cancel).await.outcome, CommandOutcome::Done);
    }
    let bytes = contest.stored(0, 2).await;
    let end = contest.withdraw(0, Verb::Replace).await;
    assert_eq!((end.outcome, end.code.unwrap().as_str()), (CommandOutcome::Refused, "cancelling"));
    let view = contest.leads.handle.tx(contest.ids[0]).await.unwrap();
    assert_eq!(view.sub_state, Some(SubState::Cancelling));
    // The payload is mined while the placeholder is still out: a cancel that comes now is as late as the first.
    contest.smuggle(&bytes[0]).await;
    contest.mined(0).await;
    let end = contest.withdraw(0, Verb::Cancel).await;
    assert_eq!((end.outcome, end.code.unwrap().as_str()), (CommandOutcome::Lost, "already-mined"));
    contest.open();
    contest.to_the_end().await;
    assert_eq!(contest.leads.confirmed(contest.ids[0]).await.mined_as, Some(MinedAs::Payload));
    assert_eq!(contest.stored(0, 2).await.len(), 2);
    contest.kept().await;
}
