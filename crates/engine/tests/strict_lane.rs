//! The strict lane on a real chain: the engine on each embedded store, with a real node.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::{Address, U256};
use gapless_core::command::Verb;
use gapless_core::condition::Condition;
use gapless_core::fees::{Gas, Wei};
use gapless_core::ids::{Nonce, RequestId, TxId};
use gapless_core::intent::{Intent, Payload};
use gapless_core::lease::{LeaseTerms, Owner};
use gapless_core::ports::clock::Clock;
use gapless_core::ports::store::Store;
use gapless_core::state::{SubState, TxState};
use gapless_core::submitter::{ChainId, SubmitterId};
use gapless_engine::handle::Request;
use gapless_engine::points::Points;
use gapless_engine::view::TxView;
use gapless_engine::{Engine, EngineOptions, Handle, LaneSettings, Registry, Submitter};
use gapless_evm::{EvmChain, EvmOptions, LocalSigner};
use gapless_store::clock::SystemClock;
use gapless_store::memory::MemoryStore;
use gapless_store::sqlite::SqliteStore;
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::rpc_proxy::{Fault, RpcProxy, Rule};
use gapless_testkit::wait::eventually;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The first of the node's well-known development keys.
const KEY: &str = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";
const ACCOUNT: &str = "eip155:31337:0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266";

struct Node {
    handle: Handle,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

async fn node(name: &str, store: Arc<dyn Store>, url: &str, confirmations: u64) -> Node {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let settings = LaneSettings {
        confirmations,
        reconcile: Duration::from_millis(500),
        retry: Duration::from_millis(100),
        ..LaneSettings::default()
    };
    let registry = Registry::new(settings);
    let chain_id: ChainId = "eip155:31337".parse().unwrap();
    registry.add_chain(chain_id, Arc::new(EvmChain::new(&EvmOptions::new(31337, [url])).unwrap()));
    let id: SubmitterId = ACCOUNT.parse().unwrap();
    let signer = LocalSigner::from_hex(KEY, id.address()).unwrap();
    registry.add_submitter(Submitter { id, settings, signer: Some(Arc::new(signer)) });
    let options = EngineOptions {
        owner: Owner::new(name, clock.draw()).unwrap(),
        terms: LeaseTerms::new(Duration::from_secs(3), Duration::from_millis(300)).unwrap(),
        renew: Duration::from_millis(800),
        sweep: Duration::from_millis(300),
        idle_release: Duration::from_secs(30),
        poll: Duration::from_millis(100),
        guard: true,
        points: Points::default(),
    };
    let (engine, handle) = Engine::build(options, store, clock, registry).await.unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(engine.run(stop.clone()));
    Node { handle, stop, running }
}

fn transfer(n: u64) -> Request {
    let payload = Payload {
        to: Some(Address::repeat_byte(0xee)),
        value: Wei(U256::from(1_000 + n)),
        ..Default::default()
    };
    Request {
        submitter: ACCOUNT.parse().unwrap(),
        request_id: RequestId::parse(&format!("order-{n}")).unwrap(),
        intent: Intent { payload, ..Default::default() },
        metadata: None,
    }
}

/// Submits `count` transfers and checks that each is CONFIRMED, once, in an unbroken run of nonces.
async fn all_confirmed(node: &Node, anvil: &Anvil, count: u64) {
    let mut ids = Vec::new();
    for n in 0..count {
        let first = node.handle.submit(transfer(n)).await.unwrap();
        let again = node.handle.submit(transfer(n)).await.unwrap();
        assert!(first.new && !again.new);
        assert_eq!(first.view.tx_id, again.view.tx_id);
        ids.push(first.view.tx_id);
    }
    let mut nonces = Vec::new();
    for tx_id in ids {
        let mut view = node.handle.tx(tx_id).await.unwrap();
        for _ in 0..200 {
            if view.state.is_terminal() {
                break;
            }
            view = node.handle.wait(tx_id, Some(view.seq), Duration::from_secs(5)).await.unwrap();
        }
        assert_eq!(view.state, TxState::Confirmed, "{view:?}");
        let hash = view.tx_hash.unwrap();
        let mined = anvil.rpc("eth_getTransactionByHash", json!([hash])).await.unwrap();
        nonces.push(
            u64::from_str_radix(mined["nonce"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap(),
        );
    }
    assert_eq!(nonces, (0..count).collect::<Vec<_>>());
    let balance = anvil.rpc("eth_getBalance", json!([Address::repeat_byte(0xee), "latest"])).await.unwrap();
    let sum: u64 = (0..count).map(|n| 1_000 + n).sum();
    assert_eq!(balance, json!(format!("{sum:#x}")), "each effect happened once");
}

async fn stopped(node: Node) {
    node.stop.cancel();
    tokio::time::timeout(Duration::from_secs(10), node.running).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_reach_confirmed_in_order_on_memory_with_instant_mining() {
    let anvil = Anvil::start(AnvilOptions::default()).await.unwrap();
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let node = node("a", store, &anvil.url(), 0).await;
    all_confirmed(&node, &anvil, 20).await;
    stopped(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_reach_confirmed_in_order_on_sqlite_with_blocks() {
    let block_time = Some(Duration::from_secs(1));
    let anvil = Anvil::start(AnvilOptions { block_time, ..AnvilOptions::default() }).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("gapless.db"), Arc::new(SystemClock)).await.unwrap();
    let node = node("a", Arc::new(store), &anvil.url(), 2).await;
    all_confirmed(&node, &anvil, 5).await;
    stopped(node).await;
}

fn request(id: &str, payload: Payload) -> Request {
    let intent = Intent { payload, ..Default::default() };
    Request { request_id: RequestId::parse(id).unwrap(), intent, ..transfer(0) }
}

/// Waits until a transaction is as wanted.
async fn until(node: &Node, tx_id: TxId, what: &str, wanted: impl Fn(&TxView) -> bool) -> TxView {
    eventually(Duration::from_secs(30), what, || async {
        let view = node.handle.tx(tx_id).await.unwrap();
        wanted(&view).then_some(view)
    })
    .await
    .unwrap()
}

/// Init code of a contract whose runtime reverts with `Error("no")`.
fn reverting_contract() -> Vec<u8> {
    let mut answer = vec![0x08, 0xc3, 0x79, 0xa0];
    answer.extend(U256::from(32).to_be_bytes::<32>());
    answer.extend(U256::from(2).to_be_bytes::<32>());
    answer.extend_from_slice(b"no");
    answer.resize(100, 0);
    // Runtime: copy the answer behind the code to memory and revert with it.
    let mut runtime = vec![0x60, 100, 0x60, 12, 0x60, 0, 0x39, 0x60, 100, 0x60, 0, 0xfd];
    runtime.extend(answer);
    let mut init =
        vec![0x60, runtime.len() as u8, 0x60, 12, 0x60, 0, 0x39, 0x60, runtime.len() as u8, 0x60, 0, 0xf3];
    init.extend(runtime);
    init
}

#[tokio::test(flavor = "multi_thread")]
async fn prepare_refuses_without_taking_a_nonce_and_waits_for_funds() {
    let anvil = Anvil::start(AnvilOptions::default()).await.unwrap();
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let node = node("a", store, &anvil.url(), 0).await;
    let deploy = Payload { data: reverting_contract().into(), ..Default::default() };
    let deployed = node.handle.submit(request("deploy", deploy)).await.unwrap().view.tx_id;
    let deployed = until(&node, deployed, "the contract", |view| view.state.is_terminal()).await;
    assert_eq!(deployed.state, TxState::Confirmed);
    let contract = serde_json::to_value(&deployed).unwrap()["receipt"]["contractAddress"].clone();
    let contract: Address = contract.as_str().unwrap().parse().unwrap();

    let call = Payload { to: Some(contract), ..Default::default() };
    let reverting = node.handle.submit(request("revert", call)).await.unwrap().view.tx_id;
    let rejected = until(&node, reverting, "the refusal", |view| view.state.is_terminal()).await;
    assert_eq!(rejected.state, TxState::Rejected);
    let failure = rejected.failure.unwrap();
    assert_eq!(failure.code.as_str(), "execution-reverted");
    assert!(failure.reason.as_str().contains("no"), "{}", failure.reason);

    let huge = Payload { gas_limit: Some(Gas(u64::MAX / 2)), to: Some(contract), ..Default::default() };
    let huge = node.handle.submit(request("huge", huge)).await.unwrap().view.tx_id;
    let huge = until(&node, huge, "the refusal", |view| view.state.is_terminal()).await;
    assert_eq!(huge.failure.unwrap().code.as_str(), "gas-above-block-limit");

    let balance = json!("0x3635c9adc5dea00000");
    let account = ACCOUNT.rsplit(':').next().unwrap();
    anvil.rpc("anvil_setBalance", json!([account, "0x1"])).await.unwrap();
    let poor = node.handle.submit(transfer(7)).await.unwrap().view.tx_id;
    let waiting = until(&node, poor, "waiting for funds", |view| view.wait_reason.is_some()).await;
    assert_eq!(waiting.sub_state, Some(SubState::WaitingFunds), "{waiting:?}");
    anvil.rpc("anvil_setBalance", json!([account, balance])).await.unwrap();
    until(&node, poor, "the end once funded", |view| view.state == TxState::Confirmed).await;
    let info = node.handle.submitter(&ACCOUNT.parse().unwrap()).await.unwrap();
    assert_eq!(info.next_nonce, Some(Nonce(2)), "the refused ones took no nonce");
    stopped(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_transaction_puts_the_submitter_in_protect_and_unprotect_goes_on_without_loss() {
    let anvil = Anvil::start(AnvilOptions::default()).await.unwrap();
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let node = node("a", store, &anvil.url(), 0).await;
    let id: SubmitterId = ACCOUNT.parse().unwrap();
    let first = node.handle.submit(transfer(0)).await.unwrap().view.tx_id;
    until(&node, first, "the first", |view| view.state == TxState::Confirmed).await;

    let account = ACCOUNT.rsplit(':').next().unwrap();
    let foreign = json!([{"from": account, "to": Address::repeat_byte(0xaa), "value": "0x1"}]);
    let hash = anvil.rpc("eth_sendTransaction", foreign).await.unwrap();
    let protected = eventually(Duration::from_secs(10), "PROTECT", || async {
        let view = node.handle.submitter(&id).await.unwrap();
        (view.condition == Condition::Protect).then_some(view)
    })
    .await
    .unwrap();
    let exhibit = serde_json::to_value(&protected.protect).unwrap();
    assert_eq!((&exhibit["hash"], &exhibit["nonce"]), (&hash, &json!(1)));
    assert_eq!(node.handle.submit(transfer(1)).await.unwrap_err().code(), "submitter-protected");
    assert!(!node.handle.submit(transfer(0)).await.unwrap().new, "a repeat is answered all the same");

    let args = json!({"acknowledgedNonce": 1});
    node.handle.command(&id, None, Verb::Unprotect, args, "operator").await.unwrap();
    eventually(Duration::from_secs(10), "the lane to go on", || async {
        let view = node.handle.submitter(&id).await.unwrap();
        (view.condition == Condition::Ok).then_some(())
    })
    .await
    .unwrap();
    let next = node.handle.submit(transfer(1)).await.unwrap().view.tx_id;
    let next = until(&node, next, "the next", |view| view.state == TxState::Confirmed).await;
    let mined = anvil.rpc("eth_getTransactionByHash", json!([next.tx_hash])).await.unwrap();
    assert_eq!(mined["nonce"], json!("0x2"));
    stopped(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gray_zone_of_sending_never_loses_and_never_doubles() {
    let faults = [
        Fault::DropAnswer,
        Fault::ErrorWithoutForward { code: -32000, message: "something odd happened".into() },
        Fault::FixedResult(json!(format!("0x{}", "ab".repeat(32)))),
    ];
    for fault in faults {
        let anvil = Anvil::start(AnvilOptions::default()).await.unwrap();
        let proxy = RpcProxy::start(anvil.url()).unwrap();
        let rule = proxy.add(Rule::new("eth_sendRawTransaction", fault).times(4));
        let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
        let node = node("a", store, &proxy.url(), 0).await;
        all_confirmed(&node, &anvil, 6).await;
        assert!(proxy.fired(rule) > 0);
        stopped(node).await;
    }
}
