//! The fence (invariant *fenced*): a write by anybody but the present owner changes nothing.

use std::time::Duration;

use gapless_core::change::Verdict;
use gapless_core::condition::HoldCause;
use gapless_core::ids::Version;
use gapless_core::lease::Grant;
use gapless_core::ports::store::LaneSnapshot;
use gapless_core::submitter::SubmitterId;
use gapless_core::text::NodeText;
use gapless_testkit::fixtures::{Lane, owner};

use crate::world::World;

async fn snapshot(w: &World, submitter: &SubmitterId) -> LaneSnapshot {
    w.store.load_lane(submitter).await.unwrap().unwrap()
}

/// Tries a full bind and checks that neither the lane nor the queue nor the stream moved.
async fn is_fenced(w: &World, zombie: &mut Lane) {
    let submitter = zombie.grant.submitter().clone();
    let queue = w.store.peek_queue(&submitter, 10).await.unwrap();
    let (before, told) = (snapshot(w, &submitter).await, w.stream().await);
    let bind = |lane: &Lane| {
        let lane = lane.clone();
        let queue = queue.clone();
        move |draft: &mut gapless_core::change::Draft| lane.bind(draft, &queue)
    };
    let write = bind(zombie);
    assert_eq!(zombie.commit(w.store.as_ref(), write).await.unwrap(), Verdict::Fenced);
    assert_eq!(snapshot(w, &submitter).await, before);
    assert_eq!(w.store.peek_queue(&submitter, 10).await.unwrap(), queue);
    assert_eq!(w.stream().await, told);
}

pub async fn a_live_lease_writes_and_the_version_rises(w: &World) {
    let submitter = w.submitter(1).await;
    let queue = w.accepted(&submitter, 3).await;
    let mut lane = w.lane("a", 1, &submitter).await;
    let writer = lane.clone();
    let verdict = lane.commit(w.store.as_ref(), |draft| writer.bind(draft, &queue)).await.unwrap();
    assert_eq!(verdict, Verdict::Applied { version: Version(1) });
    let after = snapshot(w, &submitter).await;
    assert_eq!(after.cursor, lane.cursor);
    assert_eq!((after.attempts.len(), after.txs.len()), (3, 3));
    assert!(after.txs.iter().all(|tx| tx.fencing_token == Some(lane.grant.token())));
    assert!(w.store.peek_queue(&submitter, 10).await.unwrap().is_empty());
    assert_eq!(
        lane.commit(w.store.as_ref(), |_| {}).await.unwrap(),
        Verdict::Applied { version: Version(2) }
    );
}

pub async fn a_stale_token_writes_nothing(w: &World) {
    let submitter = w.submitter(1).await;
    w.accepted(&submitter, 2).await;
    let mut zombie = w.lane("a", 1, &submitter).await;
    w.advance(Duration::from_secs(11)).await;
    w.lane("b", 2, &submitter).await;
    is_fenced(w, &mut zombie).await;
}

pub async fn a_stale_process_of_the_same_node_writes_nothing(w: &World) {
    let submitter = w.submitter(1).await;
    w.accepted(&submitter, 2).await;
    let mut lane = w.lane("a", 1, &submitter).await;
    // The same node id and even the same token, but another process.
    let twin = Grant::issued_by_store(
        submitter.clone(),
        owner("a", 2).unwrap(),
        lane.grant.token(),
        lane.grant.expires_at(),
    );
    lane.grant = twin;
    is_fenced(w, &mut lane).await;
}

pub async fn an_expired_lease_writes_nothing(w: &World) {
    let submitter = w.submitter(1).await;
    w.accepted(&submitter, 2).await;
    let mut lane = w.lane("a", 1, &submitter).await;
    w.advance(Duration::from_secs(10)).await;
    is_fenced(w, &mut lane).await;
}

pub async fn a_stale_version_writes_nothing(w: &World) {
    let submitter = w.submitter(1).await;
    w.accepted(&submitter, 2).await;
    let mut lane = w.lane("a", 1, &submitter).await;
    let mut forgetful = lane.clone();
    lane.commit(w.store.as_ref(), |draft| {
        draft.cursor.conditions.holds.insert(HoldCause::Counts, NodeText::new("look"));
    })
    .await
    .unwrap();
    is_fenced(w, &mut forgetful).await;
}

pub async fn one_fenced_lane_does_not_touch_the_others_of_its_batch(w: &World) {
    let (one, two, three) = (w.submitter(1).await, w.submitter(2).await, w.submitter(3).await);
    let mut lanes = Vec::new();
    for submitter in [&three, &one, &two] {
        w.accepted(submitter, 2).await;
        lanes.push(w.lane("a", 1, submitter).await);
    }
    w.store.raise_token(&lanes[1].grant, &w.terms()).await.unwrap();
    let mut changes = Vec::new();
    for lane in &lanes {
        let queue = w.store.peek_queue(lane.grant.submitter(), 10).await.unwrap();
        changes.push(lane.change(|draft| lane.bind(draft, &queue)));
    }
    let applied = Verdict::Applied { version: Version(1) };
    assert_eq!(w.store.commit(&changes).await.unwrap(), [applied.clone(), Verdict::Fenced, applied]);
    assert_eq!(snapshot(w, &one).await.attempts, []);
    assert_eq!(snapshot(w, &two).await.attempts.len(), 2);
    assert_eq!(snapshot(w, &three).await.attempts.len(), 2);
}

pub async fn a_lane_twice_in_one_batch_is_told_to_retry(w: &World) {
    let submitter = w.submitter(1).await;
    let lane = w.lane("a", 1, &submitter).await;
    let changes = [lane.change(|_| {}), lane.change(|_| {})];
    let verdicts = w.store.commit(&changes).await.unwrap();
    assert_eq!(verdicts, [Verdict::Applied { version: Version(1) }, Verdict::Retry]);
    assert_eq!(w.store.commit(&[]).await.unwrap(), []);
}

pub async fn a_change_that_finds_other_rows_than_planned_is_refused_whole(w: &World) {
    let (one, two) = (w.submitter(1).await, w.submitter(2).await);
    let queue = w.accepted(&one, 2).await;
    let good = w.accepted(&two, 1).await;
    let mut lane = w.lane("a", 1, &one).await;
    let bystander = w.lane("a", 1, &two).await;
    let writer = lane.clone();
    lane.commit(w.store.as_ref(), |draft| writer.bind(draft, &queue[..1])).await.unwrap();
    let before = snapshot(w, &one).await;
    // The plan still believes that the first transaction is queued.
    let bad = lane.change(|draft| lane.bind(draft, &queue));
    let fine = bystander.change(|draft| bystander.bind(draft, &good));
    let verdicts = w.store.commit(&[bad, fine]).await.unwrap();
    assert!(matches!(verdicts[0], Verdict::Refused { .. }), "{verdicts:?}");
    assert_eq!(verdicts[1], Verdict::Applied { version: Version(1) });
    assert_eq!(snapshot(w, &one).await, before);
}
