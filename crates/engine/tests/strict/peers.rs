//! Faults seen in other transaction managers, each one once.

use std::time::Duration;

use gapless_core::event::EventKind;
use gapless_core::fees::GasPrice;
use gapless_core::state::TxState;
use gapless_core::wait::WaitReason;
use gapless_engine::{FeeCaps, LaneSettings};
use gapless_testkit::rpc_proxy::{Fault, RpcProxy, Rule};
use serde_json::{Value, json};

use crate::support::{
    Node, call, count, effects, entry, instant, memory, mine, named_entry, quick, request, slot, submitter,
    unmined,
};

fn null(mut answer: Value) -> Value {
    answer["result"] = Value::Null;
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn receipts_null_for_ten_seconds_while_the_count_has_moved_are_lag_and_not_a_replacement() {
    let anvil = instant().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let rule = proxy.rule("eth_getTransactionReceipt", Fault::result(|_, answer| null(answer)));
    let node = Node::start(&proxy.url(), quick(0)).await;
    let ids = node.submit_all(0, 3).await;
    node.until(ids[0], "the first to be sent", |view| view.state == TxState::Tracking).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(proxy.fired(rule) > 3, "receipts were asked for");
    assert_eq!(count(&anvil).await, 1, "the second waits for the first's receipt");
    assert_eq!(node.handle.tx(ids[0]).await.unwrap().state, TxState::Tracking);
    proxy.remove(rule);
    node.each_took_effect_once(&anvil, &ids).await;
    assert!(!node.ever_told(EventKind::SubmitterProtected).await);
    assert!(!node.ever_told(EventKind::SubmitterHold).await);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_for_receipts_while_the_count_has_moved_are_trouble_and_not_a_replacement() {
    let anvil = instant().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let fault = Fault::ErrorWithoutForward { code: -32603, message: "internal error".into() };
    let rule = proxy.rule("eth_getTransactionReceipt", fault);
    let node = Node::start(&proxy.url(), quick(0)).await;
    let ids = node.submit_all(0, 3).await;
    node.until(ids[0], "the first to be sent", |view| view.state == TxState::Tracking).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(proxy.fired(rule) > 3, "receipts were asked for");
    proxy.remove(rule);
    node.each_took_effect_once(&anvil, &ids).await;
    assert!(!node.ever_told(EventKind::SubmitterProtected).await);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_429_on_every_method_fails_nothing_and_stops_nobody() {
    let anvil = instant().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let node = Node::start(&proxy.url(), quick(0)).await;
    let mut ids = node.submit_all(0, 2).await;
    let storm = proxy.rule("*", Fault::HttpStatus(429));
    ids.extend(node.submit_all(2, 5).await);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(proxy.fired(storm) > 0);
    proxy.remove(storm);
    // The storm calms down to every seventh call, which fails its whole batch (the longest has four).
    let squalls = proxy.add(Rule::new("*", Fault::HttpStatus(429)).every(7));
    ids.extend(node.submit_all(5, 8).await);
    node.each_took_effect_once(&anvil, &ids).await;
    assert!(proxy.fired(squalls) > 0);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_429_on_any_single_method_fails_nothing_and_stops_nobody() {
    let methods = [
        "eth_estimateGas",
        "eth_getTransactionCount",
        "eth_feeHistory",
        "eth_getBalance",
        "eth_sendRawTransaction",
        "eth_getTransactionReceipt",
    ];
    let anvil = instant().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let rules = methods.map(|method| proxy.add(Rule::new(method, Fault::HttpStatus(429)).every(2).times(3)));
    let node = Node::start(&proxy.url(), quick(0)).await;
    let ids = node.submit_all(0, 8).await;
    node.each_took_effect_once(&anvil, &ids).await;
    for (method, rule) in methods.iter().zip(rules) {
        assert!(proxy.fired(rule) > 0, "{method}");
    }
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_after_confirmation_is_answered_and_not_executed_again() {
    let anvil = instant().await;
    let node = Node::start(&anvil.url(), quick(0)).await;
    let id = node.submit(entry(0)).await;
    node.confirmed(id).await;
    for _ in 0..5 {
        let again = node.handle.submit(entry(0)).await.unwrap();
        assert!(!again.new);
        assert_eq!((again.view.tx_id, again.view.state), (id, TxState::Confirmed));
    }
    let other = node.handle.submit(named_entry("order-0", 7)).await.unwrap_err();
    assert_eq!(other.code(), "request-mismatch");
    // One more goes through, so whatever the repeats could have caused has had its turn.
    let ids = [id, node.submit(entry(1)).await];
    node.each_took_effect_once(&anvil, &ids).await;
    assert_eq!(effects(&anvil, 7).await, 0);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_request_ids_are_names_like_any_other() {
    let long = "ü".repeat(100);
    assert_eq!(long.len(), 200);
    let odd = [
        "a:b",
        "a",
        "b",
        "a/b",
        "a/b/",
        "../a",
        "order:1",
        "order::1",
        "%2e%2F",
        "?x=1&y=2",
        "日本語 🦀 é e\u{301}",
        " leading and trailing ",
        "\t\r\n",
        "\"'\\;--",
        "{}",
        "null",
        "0",
        &long,
    ];
    let anvil = instant().await;
    let dir = tempfile::tempdir().unwrap();
    let clock = std::sync::Arc::new(gapless_store::clock::SystemClock);
    let store =
        gapless_store::sqlite::SqliteStore::open(&dir.path().join("gapless.db"), clock).await.unwrap();
    let node = Node::on(std::sync::Arc::new(store), &[anvil.url()], quick(0)).await;
    let mut ids = Vec::new();
    for (n, id) in odd.iter().enumerate() {
        ids.push(node.submit(named_entry(id, n as u64)).await);
    }
    node.each_took_effect_once(&anvil, &ids).await;
    for (n, (name, id)) in odd.iter().zip(&ids).enumerate() {
        let again = node.handle.submit(named_entry(name, n as u64)).await.unwrap();
        assert_eq!((again.new, again.view.tx_id), (false, *id), "{name}");
        let name = gapless_core::ids::RequestId::parse(name).unwrap();
        let found = node.handle.by_request(&submitter(), &name).await.unwrap();
        assert_eq!((found.tx_id, found.request_id), (*id, name));
    }
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_refused_sends_produce_no_needless_transactions() {
    let anvil = instant().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let settings = LaneSettings { retry: Duration::from_millis(5), ..quick(0) };
    let node = Node::start(&proxy.url(), settings).await;
    let mut ids = Vec::new();
    for n in 0..10 {
        let fault = Fault::ErrorWithoutForward { code: -32000, message: "txpool is full".into() };
        let rule = proxy.add(Rule::new("eth_sendRawTransaction", fault).times(5));
        let id = node.submit(entry(n)).await;
        node.confirmed(id).await;
        assert_eq!(proxy.fired(rule), 5);
        ids.push(id);
    }
    node.each_took_effect_once(&anvil, &ids).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nonce_too_low_never_leads_to_a_new_nonce_for_the_same_payload() {
    // True for what was mined at once, and false for what never arrived: the words are the same.
    let words = || ("nonce too low".to_owned(), -32003);
    let (message, code) = words();
    let (again, _) = words();
    for fault in
        [Fault::ErrorAfterForward { code, message }, Fault::ErrorWithoutForward { code, message: again }]
    {
        let anvil = instant().await;
        let proxy = RpcProxy::start(anvil.url()).unwrap();
        let rule = proxy.add(Rule::new("eth_sendRawTransaction", fault).every(2).times(4));
        let node = Node::start(&proxy.url(), quick(0)).await;
        let ids = node.submit_all(0, 8).await;
        node.each_took_effect_once(&anvil, &ids).await;
        assert!(proxy.fired(rule) > 1);
        assert!(!node.ever_told(EventKind::SubmitterProtected).await);
        node.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_feed_that_stops_holds_nothing_up_once_it_goes_on() {
    let anvil = instant().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let node = Node::start(&proxy.url(), quick(0)).await;
    let first = node.submit(entry(0)).await;
    node.confirmed(first).await;
    let frozen = anvil.rpc("eth_getBlockByNumber", json!(["latest", false])).await.unwrap();
    let fault = Fault::result(move |request, mut answer| {
        if request["params"][0] == "latest" {
            answer["result"] = frozen.clone();
        }
        answer
    });
    let rule = proxy.rule("eth_getBlockByNumber", fault);
    let second = node.submit(entry(1)).await;
    node.until(second, "the second to be sent", |view| view.state == TxState::Tracking).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    proxy.remove(rule);
    node.each_took_effect_once(&anvil, &[first, second]).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_stays_in_the_pool_is_neither_failed_nor_replaced() {
    let anvil = unmined().await;
    let settings = LaneSettings { resubmit: Some(Duration::from_millis(200)), ..quick(0) };
    let node = Node::start(&anvil.url(), settings).await;
    let ids = node.submit_all(0, 2).await;
    node.until(ids[0], "the first to be sent", |view| view.state == TxState::Tracking).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let pool = anvil.rpc("txpool_status", json!([])).await.unwrap();
    assert_eq!(pool, json!({"pending": "0x1", "queued": "0x0"}));
    for _ in 0..2 {
        mine(&anvil, 1).await;
        let open = node.submitter().await.next_nonce.unwrap().0;
        node.until_submitter("the nonce to be consumed", |view| view.consumed.unwrap().0 >= open).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    node.each_took_effect_once(&anvil, &ids).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_endpoint_disables_nothing() {
    let anvil = instant().await;
    let (hangs, refuses) = (RpcProxy::start(anvil.url()).unwrap(), RpcProxy::start(anvil.url()).unwrap());
    let node = Node::on(memory(), &[refuses.url(), anvil.url(), hangs.url()], quick(0)).await;
    let mut ids = node.submit_all(0, 2).await;
    hangs.rule("*", Fault::Hang);
    refuses.rule("*", Fault::HttpStatus(500));
    ids.extend(node.submit_all(2, 6).await);
    node.each_took_effect_once(&anvil, &ids).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fee_cap_below_the_market_says_so_with_its_figures_and_ends_with_the_market() {
    let anvil = instant().await;
    let cap = GasPrice(50_000_000);
    let caps = FeeCaps { max_fee_per_gas: Some(cap), ..FeeCaps::default() };
    let node = Node::start(&anvil.url(), LaneSettings { caps, ..quick(0) }).await;
    let id = node.submit(entry(0)).await;
    let waits = node.until(id, "the reason", |view| view.wait_reason.is_some()).await;
    let Some(WaitReason::FeeCap { cap: shown, market }) = waits.wait_reason else {
        panic!("{waits:?}");
    };
    assert!(shown == cap && market > cap);
    anvil.rpc("anvil_setNextBlockBaseFeePerGas", json!(["0x1"])).await.unwrap();
    mine(&anvil, 1).await;
    node.each_took_effect_once(&anvil, &[id]).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_mined_and_reverts_is_told_as_failed_once_and_not_tried_again() {
    let anvil = unmined().await;
    let flag = alloy_primitives::Address::repeat_byte(0xf1);
    crate::support::place(&anvil, flag, &crate::contracts::FLAG).await;
    let node = Node::start(&anvil.url(), quick(1)).await;
    // With a gas limit of its own nothing is estimated, so the revert happens on chain.
    let mut payload = call(flag, vec![1]);
    payload.gas_limit = Some(gapless_core::fees::Gas(100_000));
    let id = node.submit(request("reverts", payload)).await;
    node.until(id, "sending", |view| view.state == TxState::Tracking).await;
    mine(&anvil, 2).await;
    let ended = node.until(id, "the end", |view| view.state.is_terminal()).await;
    assert_eq!(ended.state, TxState::FailedFinal);
    assert_eq!(ended.failure.unwrap().code.as_str(), "reverted");
    assert_eq!(slot(&anvil, flag, alloy_primitives::U256::from(1)).await, 0);
    assert_eq!(count(&anvil).await, 1);
    node.stopped().await;
}
