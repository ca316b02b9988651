//! Closures that return what will not do: refused with a code, and the nonce goes on.

use alloy_primitives::Bytes;
use gapless_core::ids::{Nonce, RequestId};
use gapless_core::intent::{Intent, Payload};
use gapless_core::state::TxState;
use gapless_engine::handle::Request;
use gapless_engine::{NonceContext, NonceRequest, NonceTx, Refusal, WithNonceError};

use crate::support::{
    KEY, Node, OTHER_KEY, effect, effects, instant, named, nonce_of, quick, signed, sqlite, submitter,
};

#[tokio::test(flavor = "multi_thread")]
async fn bytes_for_another_nonce_chain_or_account_are_refused_and_leave_no_hole() {
    let (folder, anvil) = (tempfile::tempdir().unwrap(), instant().await);
    let mut settings = quick();
    settings.recycle_hold = std::time::Duration::from_secs(600);
    let node = Node::start(sqlite(folder.path()).await, &anvil, settings).await;
    let good = signed(KEY, 31_337, Nonce(0), effect(7)).await;
    let mut starved = signed(KEY, 31_337, Nonce(0), effect(7)).await.raw.to_vec();
    starved.truncate(20);
    let bad: [(&str, NonceTx); 6] = [
        ("wrong-nonce", signed(KEY, 31_337, Nonce(5), effect(7)).await.into()),
        ("wrong-chain", signed(KEY, 1, Nonce(0), effect(7)).await.into()),
        ("wrong-sender", signed(OTHER_KEY, 31_337, Nonce(0), effect(7)).await.into()),
        ("unreadable-transaction", NonceTx::Signed(Bytes::from(starved))),
        ("unreadable-transaction", NonceTx::Signed(Bytes::new())),
        ("invalid-request", NonceTx::from(Payload::default())),
    ];
    for (at, (code, made)) in bad.into_iter().enumerate() {
        let closure = |context: NonceContext| {
            assert_eq!(context.nonce(), Nonce(0), "the same nonce goes from hand to hand");
            let made = made.clone();
            async move { Ok::<NonceTx, String>(made) }
        };
        let error = node.handle.with_nonce(named(&format!("bad-{at}")), closure).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        let WithNonceError::Ended(view) = error else { panic!("{error}") };
        assert_eq!(view.state, TxState::Rejected);
    }
    let closure = |_: NonceContext| {
        let good = good.clone();
        async move { Ok::<_, String>(good) }
    };
    let made = node.handle.with_nonce(named("good"), closure).await.unwrap();
    let view = node.confirmed(made.view.tx_id).await;
    assert_eq!(view.tx_hash, Some(good.hash), "sent as it was made");
    assert_eq!(nonce_of(&anvil, good.hash).await, 0);
    assert_eq!(effects(&anvil, 7).await, 1);
    node.run_has_no_hole(&anvil, 1).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_unknown_and_what_was_asked_otherwise_is_refused_before_anything_is_written() {
    let (folder, anvil) = (tempfile::tempdir().unwrap(), instant().await);
    let node = Node::start(sqlite(folder.path()).await, &anvil, quick()).await;
    let closure = |_: NonceContext| async move { panic!("it must not run") };
    let run = async |request: NonceRequest| {
        let made = node.handle.with_nonce::<_, _, Payload, String>(request, closure).await;
        made.unwrap_err().code().to_owned()
    };
    let stranger = "eip155:31337:0x0000000000000000000000000000000000000009".parse().unwrap();
    let request_id = RequestId::parse("x").unwrap();
    assert_eq!(run(NonceRequest::new(stranger, request_id.clone())).await, "unknown-submitter");

    let ordinary = node.submit(1).await;
    assert_eq!(run(named("order-1")).await, "request-mismatch");
    node.confirmed(ordinary).await;
    let made = |_: NonceContext| async move { Ok::<_, String>(effect(2)) };
    let made = node.handle.with_nonce(named("closure"), made).await.unwrap();
    let intent = Intent { payload: effect(2), ..Intent::default() };
    let request_id = RequestId::parse("closure").unwrap();
    let request = Request { submitter: submitter(), request_id, intent, metadata: None };
    let mismatch = node.handle.submit(request).await.unwrap_err();
    assert_eq!(mismatch, Refusal::Mismatch(made.view.tx_id));
    node.run_has_no_hole(&anvil, 2).await;
    node.stopped().await;
}
