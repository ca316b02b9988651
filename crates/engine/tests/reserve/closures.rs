//! Closures that do as they should, fail, panic, never return, or are dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gapless_core::event::EventKind;
use gapless_core::ids::Nonce;
use gapless_core::intent::Payload;
use gapless_core::state::TxState;
use gapless_engine::{NonceContext, NonceTx, WithNonceError};
use gapless_testkit::anvil::AnvilOptions;

use crate::support::{
    Node, chain, count, database, effect, effects, fees, gas, instant, named, nonce_of, pipelined, postgres,
    quick, sqlite, submitter, within,
};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_closure_makes_happens_once_however_often_it_is_asked_for() {
    let (folder, anvil) = (tempfile::tempdir().unwrap(), instant().await);
    let node = Node::start(sqlite(folder.path()).await, &anvil, quick()).await;
    let runs = AtomicU64::new(0);
    let unsigned = |context: NonceContext| {
        runs.fetch_add(1, Ordering::Relaxed);
        assert_eq!(*context.submitter(), submitter());
        async move { Ok::<Payload, String>(effect(1)) }
    };
    let signed = |context: NonceContext| {
        runs.fetch_add(1, Ordering::Relaxed);
        async move { context.sign(effect(2), gas(), fees()).await }
    };
    let first = node.handle.with_nonce(named("unsigned"), unsigned).await.unwrap();
    let second = node.handle.with_nonce(named("signed"), signed).await.unwrap();
    assert!(first.new && second.new);
    for (submitted, n) in [(&first, 1), (&second, 2)] {
        let view = node.confirmed(submitted.view.tx_id).await;
        assert_eq!(view.mined_as.map(|mined| mined.name()), Some("payload"));
        assert_eq!(nonce_of(&anvil, view.tx_hash.unwrap()).await, n - 1);
        let told = node.told(view.tx_id).await;
        use EventKind as K;
        let ordinary = [K::TxAccepted, K::TxAllocated, K::TxSubmitted, K::TxReceiptUpdated, K::TxConfirmed];
        assert_eq!(told, ordinary);
    }
    for (again, before) in [
        (node.handle.with_nonce(named("unsigned"), unsigned).await.unwrap(), &first),
        (node.handle.with_nonce(named("signed"), signed).await.unwrap(), &second),
    ] {
        assert!(!again.new);
        assert_eq!(again.view.tx_id, before.view.tx_id);
    }
    assert_eq!(runs.load(Ordering::Relaxed), 2, "a repeat runs nothing");
    assert_eq!((effects(&anvil, 1).await, effects(&anvil, 2).await), (1, 1));
    node.run_has_no_hole(&anvil, 2).await;
    node.stopped().await;
}

fn ended(error: WithNonceError) -> (TxState, String, gapless_core::ids::TxId) {
    match error {
        WithNonceError::Ended(view) => {
            let failure = view.failure.as_ref().map(|failure| failure.code.as_str().to_owned());
            (view.state, failure.unwrap_or_default(), view.tx_id)
        }
        WithNonceError::Refused(refusal) => panic!("{refusal}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nonce_of_a_closure_that_fails_goes_to_the_next_request() {
    let (folder, anvil) = (tempfile::tempdir().unwrap(), instant().await);
    // So long that only a request can take it.
    let mut settings = quick();
    settings.recycle_hold = Duration::from_secs(600);
    let node = Node::start(sqlite(folder.path()).await, &anvil, settings).await;
    let fails = |context: NonceContext| async move {
        assert_eq!(context.nonce(), Nonce(0));
        Err::<Payload, _>("out of stock")
    };
    let error = node.handle.with_nonce(named("fails"), fails).await.unwrap_err();
    assert_eq!(error.code(), "closure-failed");
    assert!(error.to_string().contains("out of stock"), "{error}");
    let (state, _, tx_id) = ended(error);
    assert_eq!(state, TxState::Rejected);
    use EventKind as K;
    assert_eq!(node.told(tx_id).await, [K::TxAccepted, K::TxAllocated, K::TxRejected]);
    assert_eq!(node.slot(0).await.unwrap().note, Some("recyclable"));

    let next = node.submit(1).await;
    let view = node.confirmed(next).await;
    assert_eq!(nonce_of(&anvil, view.tx_hash.unwrap()).await, 0);
    // And a closure gets what a closure gave back.
    node.handle.with_nonce(named("fails too"), fails_with_nonce_one).await.unwrap_err();
    let made = |context: NonceContext| async move {
        assert_eq!(context.nonce(), Nonce(1));
        Ok::<Payload, String>(effect(2))
    };
    let made = node.handle.with_nonce(named("works"), made).await.unwrap();
    node.confirmed(made.view.tx_id).await;
    node.run_has_no_hole(&anvil, 2).await;
    assert_eq!((effects(&anvil, 1).await, effects(&anvil, 2).await), (1, 1));
    node.stopped().await;
}

async fn fails_with_nonce_one(context: NonceContext) -> Result<Payload, String> {
    assert_eq!(context.nonce(), Nonce(1));
    Err("no".to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closure_that_panics_leaves_no_hole() {
    let (folder, anvil) = (tempfile::tempdir().unwrap(), instant().await);
    let node = Node::start(sqlite(folder.path()).await, &anvil, quick()).await;
    let panics = |_: NonceContext| async move {
        let amounts: Vec<u64> = Vec::new();
        Ok::<Payload, String>(effect(amounts[0]))
    };
    let (state, code, _) = ended(node.handle.with_nonce(named("panics"), panics).await.unwrap_err());
    assert_eq!((state, code.as_str()), (TxState::Rejected, "closure-panicked"));
    // Nobody comes: a placeholder takes it.
    node.run_has_no_hole(&anvil, 1).await;
    let slot = node.slot(0).await.unwrap();
    assert_eq!(slot.attempts.iter().map(|attempt| attempt.kind.name()).collect::<Vec<_>>(), ["placeholder"]);
    let next = node.submit(1).await;
    node.confirmed(next).await;
    node.run_has_no_hole(&anvil, 2).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closure_that_never_returns_loses_its_nonce_when_its_time_is_over() {
    let (database, anvil) = (database().await, instant().await);
    let settings = within(pipelined(), Duration::from_secs(2));
    let node = Node::start(postgres(&database).await, &anvil, settings).await;
    let handle = node.handle.clone();
    let never = tokio::spawn(async move {
        let closure = |_: NonceContext| std::future::pending::<Result<Payload, String>>();
        handle.with_nonce(named("never"), closure).await
    });
    node.until_slot(0, "a reservation", |slot| slot.note == Some("reserved") && slot.tx_id.is_some()).await;
    let held = node.handle.by_request(&submitter(), &named("never").request_id).await.unwrap();
    assert_eq!(held.state, TxState::Allocated);
    let record = node.handle.record(held.tx_id).await.unwrap();
    assert_eq!(node.handle.explain(&record).await.unwrap().reason, "Allocated");
    // What is bound above it is sent, and waits for it.
    let above = node.submit(1).await;
    node.until(above, "bytes above the reserved nonce", |view| view.tx_hash.is_some()).await;
    assert_eq!(count(&anvil).await, 0);
    let (state, code, _) = ended(never.await.unwrap().unwrap_err());
    assert_eq!((state, code.as_str()), (TxState::Rejected, "reservation-expired"));
    node.confirmed(above).await;
    node.run_has_no_hole(&anvil, 2).await;
    assert_eq!(effects(&anvil, 1).await, 1);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_dropped_gives_its_nonce_back_at_once() {
    let (folder, anvil) = (tempfile::tempdir().unwrap(), instant().await);
    let node = Node::start(sqlite(folder.path()).await, &anvil, quick()).await;
    let handle = node.handle.clone();
    let dropped = tokio::spawn(async move {
        let closure = |_: NonceContext| std::future::pending::<Result<Payload, String>>();
        handle.with_nonce(named("dropped"), closure).await
    });
    node.until_slot(0, "a reservation", |slot| slot.note == Some("reserved")).await;
    dropped.abort();
    let tx_id = node.handle.by_request(&submitter(), &named("dropped").request_id).await.unwrap().tx_id;
    let view = node.until(tx_id, "the end", |view| view.state.is_terminal()).await;
    assert_eq!(view.failure.unwrap().code.as_str(), "closure-dropped");
    node.run_has_no_hole(&anvil, 1).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_request_throws_away_what_its_closure_makes() {
    let (folder, anvil) = (tempfile::tempdir().unwrap(), instant().await);
    let node = Node::start(sqlite(folder.path()).await, &anvil, quick()).await;
    let go = std::sync::Arc::new(tokio::sync::Notify::new());
    let (handle, waits) = (node.handle.clone(), go.clone());
    let late = tokio::spawn(async move {
        let closure = |_: NonceContext| {
            let waits = waits.clone();
            async move {
                waits.notified().await;
                Ok::<Payload, String>(effect(1))
            }
        };
        handle.with_nonce(named("late"), closure).await
    });
    node.until_slot(0, "a reservation", |slot| slot.note == Some("reserved")).await;
    let tx_id = node.handle.by_request(&submitter(), &named("late").request_id).await.unwrap().tx_id;
    let tx = node.handle.record(tx_id).await.unwrap();
    node.handle.cancel(&tx, "test").await.unwrap();
    node.until(tx_id, "the withdrawal", |view| view.state == TxState::Cancelled).await;
    go.notify_one();
    let (state, _, _) = ended(late.await.unwrap().unwrap_err());
    assert_eq!(state, TxState::Cancelled);
    node.run_has_no_hole(&anvil, 1).await;
    assert_eq!(effects(&anvil, 1).await, 0);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closures_and_requests_share_one_unbroken_run() {
    let database = database().await;
    let ticking = AnvilOptions { block_time: Some(Duration::from_secs(1)), ..AnvilOptions::default() };
    let anvil = chain(ticking).await;
    let node = Node::start(postgres(&database).await, &anvil, pipelined()).await;
    let with_nonce = |n: u64| {
        let handle = node.handle.clone();
        tokio::spawn(async move {
            let closure = |context: NonceContext| async move {
                tokio::time::sleep(Duration::from_millis(20 * (n % 4))).await;
                match n % 3 {
                    0 => Err(format!("number {n} is not wanted")),
                    1 => Ok(NonceTx::from(effect(n))),
                    _ => context
                        .sign(effect(n), gas(), fees())
                        .await
                        .map(NonceTx::from)
                        .map_err(|e| e.to_string()),
                }
            };
            handle.with_nonce(named(&format!("closure-{n}")), closure).await
        })
    };
    let mut closures = Vec::new();
    let mut ids = Vec::new();
    for n in 0..12 {
        closures.push((n, with_nonce(n)));
        closures.push((n + 100, with_nonce(n + 100)));
        ids.push((n + 1_000, node.submit(n + 1_000).await));
    }
    let mut failed = Vec::new();
    for (n, closure) in closures {
        match closure.await.unwrap() {
            Ok(submitted) => ids.push((n, submitted.view.tx_id)),
            Err(error) => {
                assert_eq!((n % 3, error.code()), (0, "closure-failed"), "{error}");
                failed.push(n);
            }
        }
    }
    assert_eq!(failed.len(), 8);
    let mut nonces = Vec::new();
    for (n, id) in &ids {
        let view = node.confirmed(*id).await;
        nonces.push(nonce_of(&anvil, view.tx_hash.unwrap()).await);
        assert_eq!(effects(&anvil, *n).await, 1, "effects of number {n}");
        node.told(*id).await;
    }
    nonces.sort_unstable();
    nonces.dedup();
    assert_eq!(nonces.len(), ids.len());
    for n in failed {
        assert_eq!(effects(&anvil, n).await, 0);
    }
    let used = node.handle.submitter(&submitter()).await.unwrap().next_nonce.unwrap();
    node.run_has_no_hole(&anvil, used.0).await;
    node.stopped().await;
}
