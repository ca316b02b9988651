//! Reorgs deeper than promised: what was final is told to be broken and mined again, its state stays, and nobody behind it
//! waits for ever.

use std::time::Duration;

use gapless_core::event::EventKind;
use gapless_core::state::TxState;
use gapless_engine::LaneSettings;
use gapless_testkit::anvil::Anvil;
use gapless_testkit::wait::eventually;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::json;

use crate::support::{Node, count, effects, entry, mine, pooled, quick, unmined};

const LONG: Duration = Duration::from_secs(60);

/// Blocks until a condition holds.
async fn mine_until<F: Future<Output = bool>>(anvil: &Anvil, what: &str, holds: impl Fn() -> F) {
    eventually(LONG, what, || async {
        mine(anvil, 1).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
        holds().await.then_some(())
    })
    .await
    .unwrap();
}

// On one thread, so that nothing but this node counts here.
#[tokio::test]
async fn what_was_final_is_told_broken_mined_again_and_nobody_waits_for_ever() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let anvil = unmined().await;
    // So rare that only the reorg itself can have sent anything again.
    let resubmit = Some(Duration::from_secs(3_600));
    let node = Node::start(&anvil.url(), LaneSettings { resubmit, ..quick(2) }).await;
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(node.submit(entry(n)).await);
        pooled(&anvil, 1).await;
        mine(&anvil, 1).await;
    }
    mine(&anvil, 2).await;
    let mut before = Vec::new();
    for id in &ids {
        before.push(node.confirmed(*id).await);
    }
    // Nothing of the three is left, and the pool is empty.
    anvil.rpc("anvil_reorg", json!([5, []])).await.unwrap();
    assert_eq!(count(&anvil).await, 0);
    mine(&anvil, 1).await;
    for id in &ids {
        eventually(LONG, "the break to be told", || async {
            node.told(*id).await.contains(&EventKind::TxFinalityBroken).then_some(())
        })
        .await
        .unwrap();
    }
    let last = node.submit(entry(3)).await;
    mine_until(&anvil, "the last one's end", || async {
        node.handle.tx(last).await.unwrap().state.is_terminal()
    })
    .await;
    assert_eq!(node.confirmed(last).await.state, TxState::Confirmed);
    for (n, (id, before)) in ids.iter().zip(&before).enumerate() {
        let after = node.handle.tx(*id).await.unwrap();
        assert_eq!((after.state, after.tx_hash), (TxState::Confirmed, before.tx_hash), "frozen");
        assert_eq!(effects(&anvil, n as u64).await, 1, "mined again, once");
        let told = node.told(*id).await;
        assert_eq!(told.iter().filter(|kind| **kind == EventKind::TxFinalityBroken).count(), 1);
        assert_eq!(told.iter().filter(|kind| **kind == EventKind::TxConfirmed).count(), 1);
    }
    assert_eq!(count(&anvil).await, 4);
    let counted = recorder.handle().render();
    assert!(counted.contains("gapless_deep_reorg_total 1"), "{counted}");
    node.stopped().await;
}
