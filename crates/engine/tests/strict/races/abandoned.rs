//! Cancel and replace of what every endpoint called invalid: its slot goes to whoever comes next, and its end is told as the
//! command asked.

use std::time::Duration;

use gapless_core::command::{CommandOutcome, Verb};
use gapless_core::record::MinedAs;
use gapless_core::state::{SubState, TxState};
use gapless_engine::LaneSettings;
use gapless_testkit::rpc_proxy::Fault;
use serde_json::json;

use crate::contest::{Contest, commands_told, soon_settled};
use crate::support::{entry, mine, unmined};

/// One request that was refused as invalid over several heads, and nobody behind it.
async fn abandoned() -> Contest {
    let settings = LaneSettings { recycle_hold: Duration::from_secs(3_600), ..soon_settled(1) };
    let invalid = Fault::ErrorWithoutForward { code: -32000, message: "intrinsic gas too low".into() };
    let contest = Contest::refusing(unmined().await, settings, vec![entry(0)], invalid).await;
    let id = contest.ids[0];
    let given_up = gapless_testkit::wait::eventually(crate::contest::LONG, "the end of trying", || async {
        mine(&contest.anvil, 1).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
        let view = contest.leads.handle.tx(id).await.unwrap();
        (view.sub_state == Some(SubState::Abandoned)).then_some(())
    });
    given_up.await.unwrap();
    contest
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_one_is_cancelled_when_somebody_else_has_its_nonce() {
    let mut contest = abandoned().await;
    let end = contest.withdraw(0, Verb::Cancel).await;
    assert_eq!((end.outcome, end.code), (CommandOutcome::Done, None));
    contest.open();
    contest.ids.push(contest.leads.submit(entry(1)).await);
    contest.to_the_end().await;
    let view = contest.leads.handle.tx(contest.ids[0]).await.unwrap();
    assert_eq!((view.state, view.mined_as), (TxState::Cancelled, Some(MinedAs::Other)));
    let told = json!({"command": "cancel", "outcome": "done"});
    assert_eq!(commands_told(&contest.leads, contest.ids[0]).await, [told]);
    contest.leads.confirmed(contest.ids[1]).await;
    contest.kept().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_mined_after_all_is_confirmed_though_it_was_cancelled() {
    let mut contest = abandoned().await;
    assert_eq!(contest.withdraw(0, Verb::Cancel).await.outcome, CommandOutcome::Done);
    let bytes = contest.stored(0, 1).await;
    contest.smuggle(&bytes[0]).await;
    contest.mined(0).await;
    contest.open();
    contest.ids.push(contest.leads.submit(entry(1)).await);
    contest.to_the_end().await;
    let told = json!({"command": "cancel", "outcome": "lost", "code": "mined-before"});
    assert_eq!(commands_told(&contest.leads, contest.ids[0]).await, [told]);
    for id in &contest.ids {
        assert_eq!(contest.leads.confirmed(*id).await.mined_as, Some(MinedAs::Payload));
    }
    contest.kept().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_one_does_under_another_nonce_what_it_was_replaced_by() {
    let mut contest = abandoned().await;
    assert_eq!(contest.withdraw(0, Verb::Replace).await.outcome, CommandOutcome::Done);
    contest.open();
    contest.ids.push(contest.leads.submit(entry(1)).await);
    contest.to_the_end().await;
    assert_eq!(contest.leads.confirmed(contest.ids[0]).await.mined_as, Some(MinedAs::Replacement));
    contest.leads.confirmed(contest.ids[1]).await;
    let told = json!({"command": "replace", "outcome": "done"});
    assert_eq!(commands_told(&contest.leads, contest.ids[0]).await, [told]);
    contest.kept().await;
}
