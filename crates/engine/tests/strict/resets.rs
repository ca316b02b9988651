//! reset-nonce: carried out where nothing can be mined any more, refused where something can, and forced only so that
//! nothing takes effect twice and no hole is left.

use std::time::Duration;

use gapless_core::command::{CommandEnd, CommandOutcome, Verb};
use gapless_core::condition::{RESETS_KEPT, Reset};
use gapless_core::ids::Nonce;
use gapless_core::plan::{Mode, NonceRules};
use gapless_core::record::MinedAs;
use gapless_core::state::TxState;
use gapless_engine::LaneSettings;
use serde_json::json;

use crate::contest::{Contest, Door, soon_settled};
use crate::support::{count, entry, pooled, submitter, unmined};

/// Nobody but a transaction takes a free slot here.
fn settings() -> LaneSettings {
    LaneSettings { recycle_hold: Duration::from_secs(3_600), ..soon_settled(1) }
}

async fn reset(contest: &Contest, force: bool) -> CommandEnd {
    contest.ask(None, Verb::ResetNonce, json!({"force": force})).await
}

async fn resets(contest: &Contest) -> Vec<Reset> {
    let info = contest.other.handle.store().submitter(&submitter()).await.unwrap().unwrap();
    info.cursor.cursor.conditions.resets
}

async fn state(contest: &Contest, n: usize) -> TxState {
    contest.other.handle.tx(contest.ids[n]).await.unwrap().state
}

#[tokio::test(flavor = "multi_thread")]
async fn with_nothing_open_it_is_done_and_the_last_five_are_kept() {
    let mut contest = Contest::of(unmined().await, settings(), 1, Door::Open).await;
    contest.to_the_end().await;
    for _ in 0..RESETS_KEPT + 2 {
        let end = reset(&contest, false).await;
        assert_eq!(end.outcome, CommandOutcome::Done);
        assert_eq!(end.result, Some(json!({"nextNonce": Nonce(1), "unbound": 0, "recycled": 0})));
    }
    let kept = resets(&contest).await;
    assert_eq!(kept.len(), RESETS_KEPT);
    assert!(kept.windows(2).all(|pair| pair[0].at <= pair[1].at));
    let last = kept.last().unwrap();
    assert_eq!((last.actor.as_str(), last.forced, last.from, last.to), ("test", false, Nonce(1), Nonce(1)));
    contest.ids.push(contest.leads.submit(entry(1)).await);
    contest.to_the_end().await;
    contest.leads.confirmed(contest.ids[1]).await;
    contest.kept().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_refused_while_stored_bytes_could_be_mined() {
    for door in [Door::Open, Door::Shut] {
        let contest = Contest::of(unmined().await, settings(), 2, door).await;
        contest.stored(0, 1).await;
        let end = reset(&contest, false).await;
        assert_eq!(
            (end.outcome, end.code.unwrap().as_str()),
            (CommandOutcome::Refused, "attempts-outstanding")
        );
        assert_eq!(end.result, Some(json!({"nonces": [Nonce(0)]})));
        assert!(resets(&contest).await.is_empty());
        contest.open();
        contest.to_the_end().await;
        for id in &contest.ids {
            contest.leads.confirmed(*id).await;
        }
        contest.kept().await;
    }
}

/// Request 0 was bound and then set aside by force; request 1 has its nonce and outbids its bytes.
async fn forced() -> Contest {
    let mut contest = Contest::of(unmined().await, settings(), 1, Door::Open).await;
    pooled(&contest.anvil, 1).await;
    let end = reset(&contest, true).await;
    assert_eq!(end.outcome, CommandOutcome::Done);
    assert_eq!(end.result, Some(json!({"nextNonce": Nonce(1), "unbound": 0, "recycled": 1})));
    assert!(resets(&contest).await[0].forced);
    assert_eq!(state(&contest, 0).await, TxState::Stuck);
    contest.shut();
    contest.ids.push(contest.leads.submit(entry(1)).await);
    let bytes = contest.stored(0, 2).await;
    assert_eq!(bytes[1].tx_id, Some(contest.ids[1]));
    assert!(bytes[1].fees.ceiling().0 * 10 >= bytes[0].fees.ceiling().0 * 11);
    assert!(bytes[1].fees.tip().0 * 10 >= bytes[0].fees.tip().0 * 11);
    contest
}

#[tokio::test(flavor = "multi_thread")]
async fn forced_the_next_one_outbids_the_old_bytes_and_who_lost_comes_later() {
    let contest = forced().await;
    let bytes = contest.stored(0, 2).await;
    contest.open();
    contest.held(&bytes[1]).await;
    let view = contest.mined(0).await;
    assert_eq!((view.mined_as, view.state), (Some(MinedAs::Other), TxState::Stuck), "not before it is deep");
    contest.to_the_end().await;
    for id in &contest.ids {
        assert_eq!(contest.leads.confirmed(*id).await.mined_as, Some(MinedAs::Payload));
    }
    assert_eq!(count(&contest.anvil).await, 2);
    contest.kept().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forced_the_old_bytes_may_still_win_and_then_the_next_one_comes_later() {
    let contest = forced().await;
    let view = contest.mined(0).await;
    assert_eq!((view.mined_as, view.state), (Some(MinedAs::Payload), TxState::Stuck));
    contest.open();
    contest.to_the_end().await;
    for id in &contest.ids {
        assert_eq!(contest.leads.confirmed(*id).await.mined_as, Some(MinedAs::Payload));
    }
    assert_eq!(count(&contest.anvil).await, 2);
    contest.kept().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forced_with_nobody_behind_a_placeholder_fills_the_slot() {
    let settings = LaneSettings { recycle_hold: Duration::from_millis(100), ..soon_settled(1) };
    let contest = Contest::of(unmined().await, settings, 1, Door::Open).await;
    pooled(&contest.anvil, 1).await;
    assert_eq!(reset(&contest, true).await.outcome, CommandOutcome::Done);
    let bytes = contest.stored(0, 2).await;
    assert_eq!(bytes[1].tx_id, None);
    contest.held(&bytes[1]).await;
    contest.to_the_end().await;
    contest.leads.confirmed(contest.ids[0]).await;
    assert_eq!(count(&contest.anvil).await, 2);
    contest.kept().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forced_with_several_in_flight_each_takes_effect_once() {
    let rules = NonceRules { mode: Mode::Pipelined, max_in_flight: 4, ..LaneSettings::default().rules };
    let settings = LaneSettings { rules, recycle_hold: Duration::from_millis(300), ..soon_settled(1) };
    let contest = Contest::of(unmined().await, settings, 7, Door::Open).await;
    pooled(&contest.anvil, 4).await;
    let end = reset(&contest, true).await;
    assert_eq!(end.result, Some(json!({"nextNonce": Nonce(4), "unbound": 0, "recycled": 4})));
    contest.to_the_end().await;
    for id in &contest.ids {
        contest.leads.confirmed(*id).await;
    }
    contest.kept().await;
}
