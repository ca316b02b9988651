//! The market runs away from what was offered: with bumps off a transaction waits and says so, with bumps on it is replaced
//! within its caps, and at the cap it waits for the market.

use std::time::Duration;

use gapless_core::bump::BumpRules;
use gapless_core::event::EventKind;
use gapless_core::fees::GasPrice;
use gapless_core::state::TxState;
use gapless_core::wait::WaitReason;
use gapless_engine::{FeeCaps, LaneSettings};
use gapless_testkit::anvil::Anvil;

use crate::support::{Node, attempts, effects, entry, mine, number, pooled, quick, set_base_fee, unmined};

/// What the surge asks: far above what was offered at the market before.
const SURGE: u128 = 50_000_000_000;

fn bumping(caps: FeeCaps) -> LaneSettings {
    let bump = BumpRules { enabled: true, min_interval: Duration::from_millis(200), ..BumpRules::default() };
    LaneSettings { bump, caps, resubmit: Some(Duration::from_millis(300)), ..quick(1) }
}

/// A transaction in the pool, and then a block it cannot pay for.
async fn surged(settings: LaneSettings) -> (Anvil, Node, gapless_core::ids::TxId) {
    let anvil = unmined().await;
    let node = Node::start(&anvil.url(), settings).await;
    let id = node.submit(entry(0)).await;
    pooled(&anvil, 1).await;
    set_base_fee(&anvil, SURGE).await;
    mine(&anvil, 1).await;
    (anvil, node, id)
}

/// Blocks until it is over: what is sent again reaches the pool when it does.
async fn mined_in_time(anvil: &Anvil, node: &Node, id: gapless_core::ids::TxId) {
    gapless_testkit::wait::eventually(Duration::from_secs(60), "the end", || async {
        mine(anvil, 1).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        node.handle.tx(id).await.unwrap().state.is_terminal().then_some(())
    })
    .await
    .unwrap();
}

async fn base_fee(anvil: &Anvil) -> u128 {
    let block = anvil.rpc("eth_getBlockByNumber", serde_json::json!(["latest", false])).await.unwrap();
    u128::from(number(&block["baseFeePerGas"]))
}

#[tokio::test(flavor = "multi_thread")]
async fn without_bumps_it_waits_with_the_figures_is_sent_again_and_goes_when_the_market_falls() {
    let settings = LaneSettings { resubmit: Some(Duration::from_millis(300)), ..quick(1) };
    let (anvil, node, id) = surged(settings).await;
    let below = |view: &gapless_engine::view::TxView| {
        matches!(view.wait_reason, Some(WaitReason::BelowBaseFee { .. }))
    };
    let view = node.until(id, "the reason", below).await;
    let Some(WaitReason::BelowBaseFee { offered, base_fee: asked }) = view.wait_reason else {
        unreachable!()
    };
    let stored = attempts(&node, 0).await;
    assert_eq!((offered, asked), (stored[0].fees.ceiling(), GasPrice(SURGE)));
    gapless_testkit::wait::eventually(Duration::from_secs(20), "the same bytes again", || async {
        (attempts(&node, 0).await[0].resends >= 2).then_some(())
    })
    .await
    .unwrap();
    while base_fee(&anvil).await > offered.0 / 2 {
        mine(&anvil, 1).await;
    }
    mined_in_time(&anvil, &node, id).await;
    node.each_took_effect_once(&anvil, &[id]).await;
    assert_eq!(attempts(&node, 0).await.len(), 1, "nothing but the first attempt was ever made");
    assert!(!node.told(id).await.contains(&EventKind::TxReplaced));
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_bumps_it_is_replaced_all_hashes_are_kept_and_the_mined_one_wins() {
    let (anvil, node, id) = surged(bumping(FeeCaps::default())).await;
    let dearer = |view: &gapless_engine::view::TxView| view.seq.0 > 2;
    node.until(id, "a dearer attempt", dearer).await;
    mined_in_time(&anvil, &node, id).await;
    let view = node.confirmed(id).await;
    let stored = attempts(&node, 0).await;
    assert!(stored.len() > 1);
    for pair in stored.windows(2) {
        let (old, new) = (pair[0].fees, pair[1].fees);
        assert!(new.ceiling().0 * 10 >= old.ceiling().0 * 11 && new.tip().0 * 10 >= old.tip().0 * 11);
    }
    assert!(stored.iter().any(|attempt| Some(attempt.hash) == view.tx_hash && attempt.n > 0));
    for attempt in &stored {
        assert_eq!(node.handle.by_hash(attempt.hash).await.unwrap().tx_id, id, "any attempt's hash resolves");
    }
    let replaced = node.told(id).await.into_iter().filter(|kind| *kind == EventKind::TxReplaced).count();
    assert_eq!(replaced, stored.len() - 1);
    assert_eq!(effects(&anvil, 0).await, 1);
    node.each_took_effect_once(&anvil, &[id]).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_cap_it_stops_bumping_says_so_and_goes_when_the_market_falls() {
    let cap = GasPrice(SURGE / 5);
    let caps = FeeCaps { max_fee_per_gas: Some(cap), ..FeeCaps::default() };
    let (anvil, node, id) = surged(bumping(caps)).await;
    for _ in 0..60 {
        // Blocks at the surge's price, so that every bid is due and none is enough.
        set_base_fee(&anvil, SURGE).await;
        mine(&anvil, 1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        if let Some(WaitReason::FeeCap { .. }) = node.handle.tx(id).await.unwrap().wait_reason {
            break;
        }
    }
    let capped =
        |view: &gapless_engine::view::TxView| matches!(view.wait_reason, Some(WaitReason::FeeCap { .. }));
    let view = node.until(id, "the cap", capped).await;
    assert_eq!(view.state, TxState::Tracking);
    let Some(WaitReason::FeeCap { cap: said, market }) = view.wait_reason else { unreachable!() };
    assert!(said == cap && market > cap, "{said} {market}");
    let made = attempts(&node, 0).await;
    assert!(made.iter().all(|attempt| attempt.fees.ceiling() <= cap));
    while base_fee(&anvil).await > cap.0 / 2 {
        mine(&anvil, 1).await;
    }
    mined_in_time(&anvil, &node, id).await;
    node.each_took_effect_once(&anvil, &[id]).await;
    node.stopped().await;
}
