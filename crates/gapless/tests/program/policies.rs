//! The example with policies of its own, on a real chain: asked, obeyed, and the payment happens once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gapless_core::event::EventKind;
use gapless_core::ids::Nonce;
use gapless_core::state::TxState;
use gapless_engine::Gapless;
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::wait::eventually;
use serde_json::json;

use crate::support::PATIENCE;

#[path = "../../examples/custom_policies.rs"]
#[expect(dead_code, reason = "its main is the example's own")]
mod example;

async fn has_told(gapless: &Gapless, tx_id: gapless_core::ids::TxId, kind: EventKind) -> bool {
    gapless.handle().tx_events(tx_id).await.unwrap().iter().any(|event| event.kind == kind)
}

#[tokio::test]
async fn policies_of_the_program_are_asked_and_obeyed() {
    let extra_args = vec!["--no-mining".to_owned()];
    let anvil = Anvil::start(AnvilOptions { extra_args, ..AnvilOptions::default() }).await.unwrap();
    let bump = Arc::new(example::Doubling::default());
    let stuck = Arc::new(example::CallSomebody { after: Duration::from_secs(3), asked: AtomicU64::new(0) });
    let gapless = example::start(&anvil.url(), bump.clone(), stuck.clone()).await.unwrap();
    let tx_id = gapless.submit(example::payment("one").unwrap()).await.unwrap().view.tx_id;
    let told = |kind| {
        let gapless = &gapless;
        eventually(PATIENCE, kind, move || async move {
            let kind = EventKind::ALL.iter().find(|known| known.name() == kind).copied().unwrap();
            has_told(gapless, tx_id, kind).await.then_some(())
        })
    };
    told("tx.submitted").await.unwrap();

    let submitter = example::payment("one").unwrap().submitter;
    let slot = async || gapless.handle().store().attempts(&submitter, Nonce(0), Nonce(1)).await.unwrap();
    // A block it cannot pay for passes it by.
    anvil.rpc("anvil_setNextBlockBaseFeePerGas", json!(["0x2540be400"])).await.unwrap();
    anvil.rpc("anvil_mine", json!(["0x1"])).await.unwrap();
    told("tx.replaced").await.unwrap();
    told("tx.stuck").await.unwrap();
    assert!(bump.asked.load(Ordering::Relaxed) > 0 && stuck.asked.load(Ordering::Relaxed) > 0);
    let attempts = slot().await;
    let (first, second) = (attempts[0].fees, attempts[1].fees);
    assert_eq!(second.ceiling().0, first.ceiling().0 * 2, "{attempts:#?}");
    assert_eq!(second.tip().0, first.tip().0 * 2, "{attempts:#?}");

    let mined = || async {
        anvil.rpc("anvil_mine", json!(["0x1"])).await.unwrap();
        let view = gapless.wait(tx_id, Duration::from_secs(1)).await.unwrap();
        view.state.is_terminal().then_some(view)
    };
    let view = eventually(PATIENCE, "the end of the payment", mined).await.unwrap();
    assert_eq!(view.state, TxState::Confirmed, "{view:#?}");
    assert!(slot().await.iter().any(|attempt| Some(attempt.hash) == view.tx_hash), "one of ours was mined");
    let receiver = example::payment("one").unwrap().intent.payload.to.unwrap();
    let balance = anvil.rpc("eth_getBalance", json!([receiver, "latest"])).await.unwrap();
    assert_eq!(balance, "0x1", "it happened once");
    gapless.stop().await;
}
