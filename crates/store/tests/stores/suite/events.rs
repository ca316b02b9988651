//! Events (invariant *told*): contiguous per transaction, and a stream that skips nothing.

use gapless_core::change::Verdict;
use gapless_core::event::{EventCursor, EventKind, Told};
use gapless_core::ids::Epoch;
use gapless_core::ports::store::StoreError;
use gapless_testkit::fixtures::after;
use uuid::Uuid;

use crate::world::World;

pub async fn histories_are_numbered_without_a_hole(w: &World) {
    let submitter = w.submitter(1).await;
    let queue = w.accepted(&submitter, 2).await;
    let mut lane = w.lane("a", 1, &submitter).await;
    let bind = lane.change(|draft| lane.bind(draft, &queue));
    lane.follow(&bind, &w.store.commit(std::slice::from_ref(&bind)).await.unwrap()[0]);
    let mine = lane.change(|draft| lane.mine(draft, &after(&bind)[..1], 7));
    lane.follow(&mine, &w.store.commit(std::slice::from_ref(&mine)).await.unwrap()[0]);
    let confirm = lane.change(|draft| lane.confirm(draft, &after(&mine)));
    w.store.commit(&[confirm]).await.unwrap();

    let history = w.store.tx_events(queue[0].tx_id()).await.unwrap();
    let told: Vec<_> = history.iter().map(|e| (e.seq.0, e.kind)).collect();
    let expected = [
        (1, EventKind::TxAccepted),
        (2, EventKind::TxSubmitted),
        (3, EventKind::TxReceiptUpdated),
        (4, EventKind::TxConfirmed),
    ];
    assert_eq!(told, expected);
    let tx = w.store.tx(queue[0].tx_id()).await.unwrap().unwrap();
    assert_eq!(tx.facts.seq.0, 4);
    assert_eq!(w.store.tx_events(queue[1].tx_id()).await.unwrap().len(), 2);
    assert_eq!(w.store.tx_events(gapless_core::ids::TxId(Uuid::nil())).await.unwrap(), []);

    let stream = w.stream().await.events;
    let of_tx: Vec<_> = stream.into_iter().filter(|e| e.tx_id == Some(queue[0].tx_id())).collect();
    assert_eq!(of_tx, history, "the stream and the history tell the same");
}

pub async fn the_stream_shows_everything_once_in_pages_of_any_size(w: &World) {
    let mut expected = Vec::new();
    for n in 1..=3 {
        let submitter = w.submitter(n).await;
        let queue = w.accepted(&submitter, n + 1).await;
        expected.extend(queue.iter().map(|tx| format!("{}:1", tx.tx_id())));
        let mut lane = w.lane("a", 1, &submitter).await;
        let writer = lane.clone();
        lane.commit(w.store.as_ref(), |draft| {
            writer.bind(draft, &queue);
            draft.writes.told.push(Told::plain(EventKind::SubmitterHold));
        })
        .await
        .unwrap();
        expected.push(format!("{}:1.0", submitter.as_str()));
        expected.extend(queue.iter().map(|tx| format!("{}:2", tx.tx_id())));
    }
    w.stream().await;
    for limit in [1, 2, 5, 100] {
        let (mut cursor, mut seen) = (None, Vec::new());
        loop {
            let page = w.store.events_after(cursor, limit).await.unwrap();
            assert!(page.events.len() <= limit);
            if page.events.is_empty() {
                assert_eq!(cursor, Some(page.next));
                break;
            }
            seen.extend(page.events.into_iter().map(|e| e.id));
            let encoded = page.next.encode();
            cursor = EventCursor::decode(&encoded);
        }
        assert_eq!(seen, expected, "pages of {limit}");
    }
}

pub async fn a_cursor_of_another_epoch_is_expired(w: &World) {
    let epoch = w.store.epoch().await.unwrap();
    assert_ne!(epoch, Epoch(Uuid::max()));
    let foreign = EventCursor::start(Epoch(Uuid::max()));
    assert_eq!(w.store.events_after(Some(foreign), 10).await, Err(StoreError::CursorExpired));
    assert_eq!(w.store.events_after(Some(EventCursor::start(epoch)), 10).await.unwrap().events, []);
}

pub async fn a_refused_change_tells_nothing(w: &World) {
    let submitter = w.submitter(1).await;
    let queue = w.accepted(&submitter, 1).await;
    let mut lane = w.lane("a", 1, &submitter).await;
    let writer = lane.clone();
    lane.commit(w.store.as_ref(), |draft| writer.bind(draft, &queue)).await.unwrap();
    let told = w.stream().await;
    let writer = lane.clone();
    let verdict = lane.commit(w.store.as_ref(), |draft| writer.bind(draft, &queue)).await.unwrap();
    assert!(matches!(verdict, Verdict::Refused { .. }), "{verdict:?}");
    assert_eq!(w.stream().await, told);
}

pub async fn a_word_about_new_work_reaches_whoever_waits(w: &World) {
    let submitters = [w.submitter(1).await, w.submitter(2).await];
    let listener = w.store.clone();
    let heard = tokio::spawn(async move { listener.notified().await.unwrap() });
    // A word before anybody listens may be lost on PostgreSQL: speak until it is heard.
    while !heard.is_finished() {
        w.store.notify(&submitters).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(heard.await.unwrap(), submitters);
}
