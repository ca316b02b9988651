//! A race that seems decided, and whose block vanishes: what had been mined goes out again, and nothing else is intended
//! any more.

use gapless_core::command::{CommandOutcome, Verb};
use gapless_core::event::EventKind;
use gapless_core::record::MinedAs;
use gapless_core::state::TxState;
use gapless_testkit::wait::eventually;
use serde_json::json;

use crate::contest::{Contest, Door, LONG, commands_told, soon_settled};
use crate::support::{effects, pooled, unmined};

/// A block that is replaced by an empty one; the pool forgets what was in it.
async fn reorged(contest: &Contest) {
    contest.anvil.rpc("anvil_reorg", json!([1, []])).await.unwrap();
    eventually(LONG, "the retraction", || async {
        contest.leads.told(contest.ids[0]).await.contains(&EventKind::TxReorged).then_some(())
    })
    .await
    .unwrap();
}

/// Both bids for nonce 0 are stored, and this one was mined.
async fn decided(verb: Verb, by: usize) -> Contest {
    let contest = Contest::of(unmined().await, soon_settled(3), 2, Door::Open).await;
    pooled(&contest.anvil, 1).await;
    if by == 0 {
        contest.shut();
    }
    assert_eq!(contest.withdraw(0, verb).await.outcome, CommandOutcome::Done);
    let bytes = contest.stored(0, 2).await;
    contest.held(&bytes[by]).await;
    let view = contest.mined(0).await;
    assert_eq!(view.tx_hash, Some(bytes[by].hash));
    contest
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_had_won_goes_out_again_and_the_lost_race_is_told() {
    for verb in [Verb::Cancel, Verb::Replace] {
        let contest = decided(verb, 0).await;
        reorged(&contest).await;
        assert_eq!(effects(&contest.anvil, 0).await, 0);
        contest.open();
        let bytes = contest.stored(0, 2).await;
        contest.held(&bytes[0]).await;
        let view = contest.mined(0).await;
        assert_eq!((view.mined_as, view.state), (Some(MinedAs::Payload), TxState::Tracking));
        contest.to_the_end().await;
        assert_eq!(contest.leads.confirmed(contest.ids[0]).await.tx_hash, Some(bytes[0].hash));
        let told = json!({"command": verb, "outcome": "lost", "code": "mined-before"});
        assert_eq!(commands_told(&contest.leads, contest.ids[0]).await, [told]);
        assert_eq!(contest.stored(0, 2).await.len(), 2, "nothing else was bid");
        contest.leads.confirmed(contest.ids[1]).await;
        contest.kept().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_challenger_that_had_won_goes_out_again() {
    for verb in [Verb::Cancel, Verb::Replace] {
        let contest = decided(verb, 1).await;
        reorged(&contest).await;
        let bytes = contest.stored(0, 2).await;
        contest.held(&bytes[1]).await;
        contest.mined(0).await;
        contest.to_the_end().await;
        let state = if verb == Verb::Cancel { TxState::Cancelled } else { TxState::Confirmed };
        let view = contest.leads.handle.tx(contest.ids[0]).await.unwrap();
        assert_eq!((view.state, view.tx_hash), (state, Some(bytes[1].hash)));
        assert_eq!(
            commands_told(&contest.leads, contest.ids[0]).await,
            [json!({"command": verb, "outcome": "done"})]
        );
        assert_eq!(contest.stored(0, 2).await.len(), 2, "nothing else was bid");
        contest.leads.confirmed(contest.ids[1]).await;
        contest.kept().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_came_too_late_stays_too_late_when_the_block_vanishes() {
    let contest = Contest::of(unmined().await, soon_settled(3), 2, Door::Open).await;
    pooled(&contest.anvil, 1).await;
    contest.mined(0).await;
    let end = contest.withdraw(0, Verb::Cancel).await;
    assert_eq!(end.outcome, CommandOutcome::Lost);
    reorged(&contest).await;
    let bytes = contest.stored(0, 1).await;
    contest.held(&bytes[0]).await;
    contest.to_the_end().await;
    assert_eq!(contest.leads.confirmed(contest.ids[0]).await.mined_as, Some(MinedAs::Payload));
    assert_eq!(commands_told(&contest.leads, contest.ids[0]).await.len(), 1);
    contest.kept().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_after_the_block_vanished_is_a_new_race() {
    let contest = Contest::of(unmined().await, soon_settled(3), 2, Door::Open).await;
    pooled(&contest.anvil, 1).await;
    contest.mined(0).await;
    reorged(&contest).await;
    assert_eq!(contest.withdraw(0, Verb::Cancel).await.outcome, CommandOutcome::Done);
    let bytes = contest.stored(0, 2).await;
    contest.held(&bytes[1]).await;
    contest.mined(0).await;
    contest.to_the_end().await;
    let view = contest.leads.handle.tx(contest.ids[0]).await.unwrap();
    assert_eq!(view.state, TxState::Cancelled);
    contest.leads.confirmed(contest.ids[1]).await;
    contest.kept().await;
}
