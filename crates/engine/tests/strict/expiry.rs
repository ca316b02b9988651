//! `validUntil`: what is not bound in time never is, and what is bound goes on or is withdrawn, as its sender asked.

use std::time::Duration;

use gapless_core::event::EventKind;
use gapless_core::intent::OnExpiry;
use gapless_core::ports::clock::Clock;
use gapless_core::record::MinedAs;
use gapless_core::state::{SubState, TxState};
use gapless_engine::handle::Request;
use gapless_store::clock::SystemClock;
use gapless_testkit::wait::eventually;
use serde_json::json;

use crate::contest::{Contest, Door, LONG, commands_told, soon_settled};
use crate::support::{count, effects, entry, mine, pooled, unmined};

/// Request number `n`, good for so long.
fn valid_for(n: u64, time: Duration, on_expiry: OnExpiry) -> Request {
    let mut request = entry(n);
    request.intent.options.valid_until = Some(SystemClock.now().plus(time));
    request.intent.options.on_expiry = on_expiry;
    request
}

/// Bound and in the pool, and its time over.
async fn bound(on_expiry: OnExpiry, time: Duration, confirmations: u64) -> Contest {
    let requests = vec![valid_for(0, time, on_expiry), entry(1)];
    let contest = Contest::over(unmined().await, soon_settled(confirmations), requests, Door::Open).await;
    pooled(&contest.anvil, 1).await;
    contest
}

#[tokio::test(flavor = "multi_thread")]
async fn before_binding_it_ends_at_its_time_and_the_next_one_goes_on() {
    let time = Duration::from_secs(2);
    let requests = vec![entry(0), valid_for(1, time, OnExpiry::Keep), entry(2)];
    let contest = Contest::over(unmined().await, soon_settled(1), requests, Door::Open).await;
    pooled(&contest.anvil, 1).await;
    let view = contest.leads.handle.tx(contest.ids[1]).await.unwrap();
    assert_eq!(view.state, TxState::Queued);
    // It ends at its time, not only when its turn comes.
    let view = contest.leads.until(contest.ids[1], "its time", |view| view.state.is_terminal()).await;
    assert_eq!((view.state, view.tx_hash), (TxState::Expired, None));
    assert_eq!(contest.leads.told(contest.ids[1]).await, [EventKind::TxAccepted, EventKind::TxExpired]);
    contest.to_the_end().await;
    for id in [contest.ids[0], contest.ids[2]] {
        contest.leads.confirmed(id).await;
    }
    assert_eq!(count(&contest.anvil).await, 2, "it took no nonce");
    contest.kept().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_binding_it_goes_on_unless_it_asked_otherwise() {
    let time = Duration::from_millis(1_500);
    let contest = bound(OnExpiry::Keep, time, 1).await;
    tokio::time::sleep(time + Duration::from_millis(700)).await;
    assert_eq!(contest.stored(0, 1).await.len(), 1, "nothing competes");
    contest.to_the_end().await;
    for id in &contest.ids {
        contest.leads.confirmed(*id).await;
    }
    contest.kept().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_binding_a_placeholder_competes_and_wins() {
    let contest = bound(OnExpiry::Cancel, Duration::from_millis(1_500), 1).await;
    let bytes = contest.stored(0, 2).await;
    contest.held(&bytes[1]).await;
    let view = contest.mined(0).await;
    assert_eq!((view.mined_as, view.state), (Some(MinedAs::Placeholder), TxState::Tracking), "patience");
    contest.to_the_end().await;
    let view = contest.leads.handle.tx(contest.ids[0]).await.unwrap();
    assert_eq!(view.state, TxState::Expired);
    assert!(contest.leads.told(contest.ids[0]).await.contains(&EventKind::TxExpired));
    contest.leads.confirmed(contest.ids[1]).await;
    contest.kept().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_binding_a_payload_that_wins_is_confirmed() {
    let contest = bound(OnExpiry::Cancel, Duration::from_millis(1_500), 1).await;
    contest.shut();
    contest.stored(0, 2).await;
    let view = contest.mined(0).await;
    assert_eq!(view.mined_as, Some(MinedAs::Payload));
    contest.open();
    contest.to_the_end().await;
    for id in &contest.ids {
        contest.leads.confirmed(*id).await;
    }
    assert!(!contest.leads.told(contest.ids[0]).await.contains(&EventKind::TxExpired));
    contest.kept().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_had_been_mined_is_not_withdrawn_when_its_block_vanishes_after_its_time() {
    for late in [false, true] {
        let contest = bound(OnExpiry::Cancel, Duration::from_millis(1_500), 4).await;
        if late {
            // The placeholder exists and does not arrive.
            contest.shut();
            contest.stored(0, 2).await;
        }
        contest.mined(0).await;
        tokio::time::sleep(Duration::from_millis(1_600)).await;
        contest.anvil.rpc("anvil_reorg", json!([1, []])).await.unwrap();
        assert_eq!(effects(&contest.anvil, 0).await, 0);
        eventually(LONG, "the retraction", || async {
            contest.leads.told(contest.ids[0]).await.contains(&EventKind::TxReorged).then_some(())
        })
        .await
        .unwrap();
        contest.open();
        let bytes = contest.stored(0, 1).await;
        contest.held(&bytes[0]).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        let view = contest.leads.handle.tx(contest.ids[0]).await.unwrap();
        assert_eq!(view.sub_state, Some(SubState::InPool), "it is sent again, whatever was intended since");
        mine(&contest.anvil, 1).await;
        contest.to_the_end().await;
        assert_eq!(contest.leads.confirmed(contest.ids[0]).await.mined_as, Some(MinedAs::Payload));
        assert_eq!(contest.stored(0, 1).await.len(), bytes.len(), "nothing else was bid");
        assert!(commands_told(&contest.leads, contest.ids[0]).await.is_empty(), "nobody commanded anything");
        contest.kept().await;
    }
}
