//! Reads and limits.

use std::collections::BTreeSet;

use alloy_primitives::B256;
use gapless_core::ids::{Nonce, Order};
use gapless_core::limits::{MAX_ACCEPT_BATCH, MAX_COMMIT_LANES, MAX_PAGE};
use gapless_core::ports::store::{Registered, StoreError, TxFilter};
use gapless_core::state::TxState;
use gapless_testkit::fixtures::{self, TestClock, after, attempt, request};
use uuid::Uuid;

use crate::world::World;

pub async fn lists_page_in_order_and_filter_by_state(w: &World) {
    let (one, two) = (w.submitter(1).await, w.submitter(2).await);
    let queue = w.accepted(&one, 5).await;
    w.accepted(&two, 3).await;
    let mut lane = w.lane("a", 1, &one).await;
    let writer = lane.clone();
    lane.commit(w.store.as_ref(), |draft| writer.bind(draft, &queue[..2])).await.unwrap();

    let all = w.store.list(&TxFilter { limit: 100, ..Default::default() }).await.unwrap();
    assert_eq!(all.len(), 8);
    assert!(all.is_sorted_by_key(|tx| tx.order));
    let mine = TxFilter { submitter: Some(one.clone()), limit: 2, ..Default::default() };
    let (mut after, mut seen): (Option<Order>, usize) = (None, 0);
    loop {
        let page = w.store.list(&TxFilter { after, ..mine.clone() }).await.unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.iter().all(|tx| tx.request.submitter == one));
        (after, seen) = (Some(last.order), seen + page.len());
    }
    assert_eq!(seen, 5);
    let states = BTreeSet::from([TxState::Tracking, TxState::Confirmed]);
    let bound =
        w.store.list(&TxFilter { states: states.clone(), limit: 100, ..Default::default() }).await.unwrap();
    assert_eq!(bound.iter().map(|tx| tx.facts.nonce).collect::<Vec<_>>(), [Some(Nonce(0)), Some(Nonce(1))]);
    let none = TxFilter { states, submitter: Some(two), limit: 100, ..Default::default() };
    assert_eq!(w.store.list(&none).await.unwrap(), []);
}

pub async fn any_attempts_hash_finds_its_transaction(w: &World) {
    let submitter = w.submitter(1).await;
    let queue = w.accepted(&submitter, 1).await;
    let mut lane = w.lane("a", 1, &submitter).await;
    let bumped = attempt(&submitter, Nonce(0), 1, Some(queue[0].tx_id()));
    let writer = lane.clone();
    lane.commit(w.store.as_ref(), |draft| {
        writer.bind(draft, &queue);
        draft.writes.attempts.push(bumped.clone());
    })
    .await
    .unwrap();
    let first = attempt(&submitter, Nonce(0), 0, Some(queue[0].tx_id()));
    for hash in [first.hash, bumped.hash] {
        assert_eq!(w.store.tx_by_hash(hash).await.unwrap().unwrap().tx_id(), queue[0].tx_id());
    }
    assert_eq!(w.store.tx_by_hash(B256::repeat_byte(0xaa)).await.unwrap(), None);
    let stored = w.store.attempts(&submitter, Nonce(0), Nonce(1)).await.unwrap();
    assert_eq!(stored.iter().map(|a| (**a).clone()).collect::<Vec<_>>(), [first, bumped]);
    assert_eq!(stored[0].stored_at, TestClock::START);
}

pub async fn a_lane_loads_only_what_it_must_still_watch(w: &World) {
    let submitter = w.submitter(1).await;
    let queue = w.accepted(&submitter, 4).await;
    let mut lane = w.lane("a", 1, &submitter).await;
    let bind = lane.change(|draft| lane.bind(draft, &queue[..3]));
    lane.follow(&bind, &w.store.commit(std::slice::from_ref(&bind)).await.unwrap()[0]);
    let mine = lane.change(|draft| lane.mine(draft, &after(&bind)[..2], 3));
    lane.follow(&mine, &w.store.commit(std::slice::from_ref(&mine)).await.unwrap()[0]);
    let confirm = lane.change(|draft| lane.confirm(draft, &after(&mine)[..1]));
    w.store.commit(&[confirm]).await.unwrap();

    let snapshot = w.store.load_lane(&submitter).await.unwrap().unwrap();
    let nonces: Vec<u64> = snapshot.attempts.iter().map(|a| a.nonce.0).collect();
    assert_eq!(nonces, [1, 2], "mined but not resolved, and open");
    let ids: Vec<_> = snapshot.txs.iter().map(|tx| tx.tx_id()).collect();
    assert_eq!(ids, [queue[1].tx_id(), queue[2].tx_id()]);
    assert_eq!(w.store.load_lane(&fixtures::submitter(55)).await.unwrap(), None);
    assert_eq!(
        w.store.attempts(&submitter, Nonce(0), Nonce(9)).await.unwrap().len(),
        3,
        "history stays readable"
    );
}

pub async fn submitters_are_registered_once_and_listed_by_name(w: &World) {
    let names: Vec<_> = [3, 1, 2].map(fixtures::submitter).to_vec();
    let entries: Vec<_> = names.iter().map(|s| (s.clone(), r#"{"mode": "strict"}"#.to_owned())).collect();
    assert_eq!(w.store.register(&entries).await.unwrap(), [Registered::New; 3]);
    let again = [(names[0].clone(), "{}".to_owned())];
    assert_eq!(w.store.register(&again).await.unwrap(), [Registered::Known]);
    let first = w.store.submitters(None, 2).await.unwrap();
    assert_eq!(
        first.iter().map(|i| i.submitter.clone()).collect::<Vec<_>>(),
        [1, 2].map(fixtures::submitter)
    );
    let rest = w.store.submitters(Some(&first[1].submitter), 2).await.unwrap();
    assert_eq!(rest.len(), 1);
    assert_eq!((rest[0].settings.as_str(), rest[0].created_at), (r#"{"mode": "strict"}"#, TestClock::START));
    assert_eq!((rest[0].lease.as_ref(), rest[0].cursor.cursor.run), (None, None));
    assert_eq!(w.store.submitter(&fixtures::submitter(9)).await.unwrap(), None);
    // Many at once, as they were asked for.
    let asked = [2, 9, 1, 2].map(fixtures::submitter);
    let expected = [Some(first[1].clone()), None, Some(first[0].clone()), Some(first[1].clone())];
    assert_eq!(w.store.named_submitters(&asked).await.unwrap(), expected);
    assert_eq!(w.store.now().await.unwrap(), TestClock::START);
}

pub async fn queues_are_counted_until_they_are_bound(w: &World) {
    let (one, two) = (w.submitter(1).await, w.submitter(2).await);
    let stranger = fixtures::submitter(99);
    let queue = w.accepted(&one, 5).await;
    let depths = async || w.store.queue_depths(&[two.clone(), one.clone(), stranger.clone()]).await.unwrap();
    assert_eq!(depths().await, [0, 5, 0]);
    let mut lane = w.lane("a", 1, &one).await;
    let writer = lane.clone();
    lane.commit(w.store.as_ref(), |draft| writer.bind(draft, &queue[..2])).await.unwrap();
    assert_eq!(depths().await, [0, 3, 0]);
    assert_eq!(w.store.queue_depths(&[]).await.unwrap(), [0; 0]);
}

pub async fn limits_are_answers(w: &World) {
    let submitter = w.submitter(1).await;
    let too_many = |result: Result<(), StoreError>| {
        assert!(matches!(result, Err(StoreError::TooMany { .. })), "{result:?}");
    };
    let items: Vec<_> = (0..=MAX_ACCEPT_BATCH as u128)
        .map(|n| request(&submitter, &format!("r{n}"), Uuid::from_u128(n + 1), 1))
        .collect();
    too_many(w.store.accept(&items).await.map(drop));
    assert!(w.store.peek_queue(&submitter, 10).await.unwrap().is_empty(), "nothing was written");
    let lane = w.lane("a", 1, &submitter).await;
    let changes: Vec<_> = (0..=MAX_COMMIT_LANES).map(|_| lane.change(|_| {})).collect();
    too_many(w.store.commit(&changes).await.map(drop));
    too_many(w.store.peek_queue(&submitter, MAX_PAGE + 1).await.map(drop));
    too_many(w.store.queue_depths(&vec![submitter.clone(); MAX_PAGE + 1]).await.map(drop));
    too_many(w.store.take_commands(&submitter, MAX_PAGE + 1).await.map(drop));
    too_many(w.store.submitters(None, MAX_PAGE + 1).await.map(drop));
    too_many(w.store.events_after(None, MAX_PAGE + 1).await.map(drop));
    too_many(w.store.list(&TxFilter { limit: MAX_PAGE + 1, ..Default::default() }).await.map(drop));
    assert_eq!(w.store.accept(&items[..MAX_ACCEPT_BATCH]).await.unwrap().len(), MAX_ACCEPT_BATCH);
}
