//! Only the node that runs a lane reserves its nonces; another one says who does, and takes over what is left behind.

use std::time::Duration;

use gapless_core::intent::Payload;
use gapless_core::state::TxState;
use gapless_engine::NonceContext;

use crate::support::{Node, database, effect, effects, instant, named, postgres, quick, submitter, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_lead_says_who_does() {
    let (database, anvil) = (database().await, instant().await);
    let settings = within(quick(), Duration::from_secs(3));
    let a = Node::named("a", postgres(&database).await, &anvil, settings.clone()).await;
    let first = a.submit(1).await;
    a.confirmed(first).await;
    let b = Node::named("b", postgres(&database).await, &anvil, settings).await;
    let closure = |_: NonceContext| async move { Ok::<Payload, String>(effect(2)) };
    let error = b.handle.with_nonce(named("closure"), closure).await.unwrap_err();
    assert_eq!(error.code(), "not-leader");
    assert!(error.to_string().contains("node a"), "{error}");

    // A repeat is answered anywhere.
    let made = a.handle.with_nonce(named("closure"), closure).await.unwrap();
    let again = b.handle.with_nonce(named("closure"), closure).await.unwrap();
    assert_eq!((again.new, again.view.tx_id), (false, made.view.tx_id));
    a.confirmed(made.view.tx_id).await;

    // What a node leaves behind in the middle of a closure is the next one's to clear up.
    let handle = a.handle.clone();
    let left = tokio::spawn(async move {
        let never = |_: NonceContext| std::future::pending::<Result<Payload, String>>();
        handle.with_nonce(named("left"), never).await
    });
    a.until_slot(2, "a reservation", |slot| slot.note == Some("reserved")).await;
    a.stopped().await;
    let tx_id = b.handle.by_request(&submitter(), &named("left").request_id).await.unwrap().tx_id;
    let view = b.until(tx_id, "the end", |view| view.state.is_terminal()).await;
    assert_eq!(view.state, TxState::Rejected);
    assert_eq!(view.failure.unwrap().code.as_str(), "reservation-expired");
    assert!(left.await.unwrap().is_err());
    b.run_has_no_hole(&anvil, 3).await;
    assert_eq!((effects(&anvil, 1).await, effects(&anvil, 2).await), (1, 1));
    b.stopped().await;
}
