//! What the tests share: a node with quick settings, requests whose effects the chain itself counts, and one check of
//! the whole promise.

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::{Address, B256, Bytes, U256};
use gapless_core::attempt::StoredAttempt;
use gapless_core::event::EventKind;
use gapless_core::ids::{Nonce, RequestId, TxId};
use gapless_core::intent::{Intent, Payload};
use gapless_core::lease::{LeaseTerms, Owner};
use gapless_core::ports::clock::Clock;
use gapless_core::ports::signer::Signer;
use gapless_core::ports::store::Store;
use gapless_core::state::TxState;
use gapless_core::submitter::{ChainId, SubmitterId};
use gapless_engine::handle::Request;
use gapless_engine::points::Points;
use gapless_engine::view::{SubmitterView, TxView};
use gapless_engine::{Engine, EngineOptions, Handle, LaneSettings, Registry, Submitter};
use gapless_evm::{EvmChain, EvmOptions, LocalSigner};
use gapless_store::clock::SystemClock;
use gapless_store::memory::MemoryStore;
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::node::EthNode;
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::contracts;

/// The first of the node's well-known development keys.
pub(crate) const KEY: &str = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";
const ACCOUNT: &str = "eip155:31337:0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266";
/// A contract that counts what arrives.
pub(crate) const LEDGER: Address = Address::repeat_byte(0x1e);
/// Far beyond what anything takes here, even on a busy machine.
const LONG: Duration = Duration::from_secs(90);

pub(crate) fn submitter() -> SubmitterId {
    ACCOUNT.parse().unwrap()
}

/// The account's address alone.
pub(crate) fn address() -> Address {
    submitter().address().unwrap()
}

/// Settings under which waiting costs a test little.
pub(crate) fn quick(confirmations: u64) -> LaneSettings {
    LaneSettings {
        confirmations,
        reconcile: Duration::from_millis(500),
        retry: Duration::from_millis(50),
        ..LaneSettings::default()
    }
}

/// One process's engine on its store.
pub(crate) struct Node {
    pub(crate) handle: Handle,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Node {
    /// On a store in memory.
    pub(crate) async fn start(url: &str, settings: LaneSettings) -> Self {
        Self::on(memory(), &[url.to_owned()], settings).await
    }

    /// On this store, with these endpoints, and the account's own key.
    pub(crate) async fn on(store: Arc<dyn Store>, urls: &[String], settings: LaneSettings) -> Self {
        Self::of(store, urls, settings, &[KEY]).await
    }

    /// With the accounts of these keys.
    pub(crate) async fn of(
        store: Arc<dyn Store>,
        urls: &[String],
        settings: LaneSettings,
        keys: &[&str],
    ) -> Self {
        Self::with("a", store, urls, settings, accounts(keys)).await
    }

    /// A second process beside the first, on the same store.
    pub(crate) async fn beside(store: Arc<dyn Store>, urls: &[String], settings: LaneSettings) -> Self {
        Self::with("b", store, urls, settings, accounts(&[KEY])).await
    }

    /// With another signer.
    pub(crate) async fn signing(
        store: Arc<dyn Store>,
        urls: &[String],
        settings: LaneSettings,
        signer: Arc<dyn Signer>,
    ) -> Self {
        Self::with("a", store, urls, settings, vec![(submitter(), signer)]).await
    }

    async fn with(
        name: &str,
        store: Arc<dyn Store>,
        urls: &[String],
        settings: LaneSettings,
        accounts: Vec<(SubmitterId, Arc<dyn Signer>)>,
    ) -> Self {
        Self::reaching(name, store, &EvmOptions::new(31337, urls), settings, accounts).await
    }

    /// With the account's own key, reaching its chain in another than the usual way.
    pub(crate) async fn through(options: &EvmOptions, settings: LaneSettings) -> Self {
        Self::through_with(options, settings, &[KEY]).await
    }

    /// The same with the accounts of these keys.
    pub(crate) async fn through_with(options: &EvmOptions, settings: LaneSettings, keys: &[&str]) -> Self {
        Self::reaching("a", memory(), options, settings, accounts(keys)).await
    }

    async fn reaching(
        name: &str,
        store: Arc<dyn Store>,
        options: &EvmOptions,
        settings: LaneSettings,
        accounts: Vec<(SubmitterId, Arc<dyn Signer>)>,
    ) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let registry = Registry::new(settings.clone());
        let chain_id: ChainId = "eip155:31337".parse().unwrap();
        registry.add_chain(chain_id, Arc::new(EvmChain::new(options).unwrap()));
        for (id, signer) in accounts {
            registry.add_submitter(Submitter { id, settings: settings.clone(), signer: Some(signer) });
        }
        let options = EngineOptions {
            owner: Owner::new(name, clock.draw()).unwrap(),
            terms: LeaseTerms::new(Duration::from_secs(6), Duration::from_millis(500)).unwrap(),
            renew: Duration::from_millis(1_000),
            sweep: Duration::from_millis(300),
            idle_release: Duration::from_secs(60),
            poll: Duration::from_millis(100),
            guard: true,
            points: Points::default(),
        };
        let (engine, handle) = Engine::build(options, store, clock, registry).await.unwrap();
        let stop = CancellationToken::new();
        let running = tokio::spawn(engine.run(stop.clone()));
        Self { handle, stop, running }
    }

    /// Ends the process. Whatever was done to it, what it stored breaks no invariant.
    pub(crate) async fn stopped(self) {
        for view in self.handle.submitters(None, 100).await.unwrap() {
            let report = self.handle.report(&view.submitter, None, None).await.unwrap().unwrap();
            assert_eq!(report.violations, [], "{report:#?}");
        }
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(30), self.running).await.unwrap().unwrap();
    }

    /// Submits a request that is new.
    pub(crate) async fn submit(&self, request: Request) -> TxId {
        let submitted = self.handle.submit(request).await.unwrap();
        assert!(submitted.new);
        submitted.view.tx_id
    }

    /// Submits the requests number `from` to `to` (not included).
    pub(crate) async fn submit_all(&self, from: u64, to: u64) -> Vec<TxId> {
        let mut ids = Vec::new();
        for n in from..to {
            ids.push(self.submit(entry(n)).await);
        }
        ids
    }

    /// Waits until a transaction is as wanted.
    pub(crate) async fn until(&self, id: TxId, what: &str, wanted: impl Fn(&TxView) -> bool) -> TxView {
        let found = eventually(LONG, what, || async {
            let view = self.handle.tx(id).await.unwrap();
            wanted(&view).then_some(view)
        })
        .await;
        match found {
            Ok(view) => view,
            Err(error) => panic!(
                "{error}: {:#?}\n{:#?}",
                self.handle.tx(id).await.unwrap(),
                self.handle.submitter(&submitter()).await.unwrap()
            ),
        }
    }

    /// Waits for a transaction's end, which must be CONFIRMED.
    pub(crate) async fn confirmed(&self, id: TxId) -> TxView {
        let view = self.until(id, "the end of a transaction", |view| view.state.is_terminal()).await;
        assert_eq!(view.state, TxState::Confirmed, "{view:#?}");
        view
    }

    pub(crate) async fn submitter(&self) -> SubmitterView {
        self.handle.submitter(&submitter()).await.unwrap()
    }

    /// Waits until the submitter is as wanted.
    pub(crate) async fn until_submitter(
        &self,
        what: &str,
        wanted: impl Fn(&SubmitterView) -> bool,
    ) -> SubmitterView {
        eventually(LONG, what, || async {
            let view = self.submitter().await;
            wanted(&view).then_some(view)
        })
        .await
        .unwrap()
    }

    /// The kinds of a transaction's events, whose numbers must have no hole.
    pub(crate) async fn told(&self, id: TxId) -> Vec<EventKind> {
        let events = self.handle.tx_events(id).await.unwrap();
        let numbers: Vec<u64> = events.iter().map(|event| event.seq.0).collect();
        assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
        events.into_iter().map(|event| event.kind).collect()
    }

    /// Whether anybody has told this, ever.
    pub(crate) async fn ever_told(&self, kind: EventKind) -> bool {
        self.times_told(kind).await > 0
    }

    /// How often it was told.
    pub(crate) async fn times_told(&self, kind: EventKind) -> usize {
        let (mut cursor, mut times) = (None, 0);
        loop {
            let page = self.handle.events(cursor, 500).await.unwrap();
            times += page.events.iter().filter(|event| event.kind == kind).count();
            if page.events.is_empty() {
                return times;
            }
            cursor = Some(page.next);
        }
    }

    /// The whole promise: these requests, numbered from 0, all end CONFIRMED; the chain holds the effect of each exactly
    /// once, in an unbroken run of nonces, and nothing else of this account.
    pub(crate) async fn each_took_effect_once(&self, node: &impl EthNode, ids: &[TxId]) {
        self.each_took_effect_once_of(node, &submitter(), 0, ids).await;
    }

    /// The same of any account, whose requests are numbered from `first`.
    pub(crate) async fn each_took_effect_once_of(
        &self,
        node: &impl EthNode,
        who: &SubmitterId,
        first: u64,
        ids: &[TxId],
    ) {
        let mut nonces = Vec::new();
        for id in ids {
            let view = self.confirmed(*id).await;
            nonces.push(nonce_of(node, view.tx_hash.unwrap()).await);
            self.told(*id).await;
        }
        assert_eq!(nonces, (0..ids.len() as u64).collect::<Vec<_>>());
        for n in first..first + ids.len() as u64 {
            assert_eq!(effects(node, n).await, 1, "effects of request {n}");
        }
        assert_eq!(count_of(node, who).await, ids.len() as u64, "nothing else was sent");
    }
}

fn accounts(keys: &[&str]) -> Vec<(SubmitterId, Arc<dyn Signer>)> {
    let account = |key: &&str| -> (SubmitterId, Arc<dyn Signer>) {
        let signer = LocalSigner::from_hex(key, None).unwrap();
        (SubmitterId::evm(31337, signer.address()), Arc::new(signer))
    };
    keys.iter().map(account).collect()
}

pub(crate) fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(Arc::new(SystemClock)))
}

/// A node of the chain with the ledger on it.
pub(crate) async fn chain(options: AnvilOptions) -> Anvil {
    let anvil = Anvil::start(options).await.unwrap();
    place(&anvil, LEDGER, &contracts::LEDGER).await;
    anvil
}

/// A chain that mines each transaction as it comes.
pub(crate) async fn instant() -> Anvil {
    chain(AnvilOptions::default()).await
}

/// A chain that mines only when told.
pub(crate) async fn unmined() -> Anvil {
    chain(AnvilOptions { extra_args: vec!["--no-mining".into()], ..AnvilOptions::default() }).await
}

/// A chain with blocks at this distance.
pub(crate) async fn ticking(block_time: Duration) -> Anvil {
    chain(AnvilOptions { block_time: Some(block_time), ..AnvilOptions::default() }).await
}

pub(crate) async fn place(anvil: &Anvil, at: Address, code: &[u8]) {
    anvil.rpc("anvil_setCode", json!([at, Bytes::copy_from_slice(code)])).await.unwrap();
}

pub(crate) async fn mine(node: &impl EthNode, blocks: u64) {
    node.mine(blocks).await.unwrap();
}

pub(crate) fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

/// How many transactions of the account are in the chain.
pub(crate) async fn count(node: &impl EthNode) -> u64 {
    count_of(node, &submitter()).await
}

/// How many transactions of an account are in the chain.
pub(crate) async fn count_of(node: &impl EthNode, who: &SubmitterId) -> u64 {
    let address = who.address().unwrap();
    number(&node.rpc("eth_getTransactionCount", json!([address, "latest"])).await.unwrap())
}

pub(crate) async fn nonce_of(node: &impl EthNode, hash: B256) -> u64 {
    number(&node.rpc("eth_getTransactionByHash", json!([hash])).await.unwrap()["nonce"])
}

/// How often the effect of request `n` happened.
pub(crate) async fn effects(node: &impl EthNode, n: u64) -> u64 {
    slot(node, LEDGER, U256::from(n)).await
}

pub(crate) async fn slot(node: &impl EthNode, contract: Address, at: U256) -> u64 {
    let held = node.rpc("eth_getStorageAt", json!([contract, B256::from(at), "latest"])).await.unwrap();
    let held: B256 = held.as_str().unwrap().parse().unwrap();
    U256::from_be_bytes(held.0).to()
}

pub(crate) fn request(id: &str, payload: Payload) -> Request {
    let intent = Intent { payload, ..Default::default() };
    Request { submitter: submitter(), request_id: RequestId::parse(id).unwrap(), intent, metadata: None }
}

pub(crate) fn call(to: Address, data: impl Into<Bytes>) -> Payload {
    Payload { to: Some(to), data: data.into(), ..Default::default() }
}

/// Request number `n`: the ledger counts it.
pub(crate) fn entry(n: u64) -> Request {
    named_entry(&format!("order-{n}"), n)
}

/// The same under another id.
pub(crate) fn named_entry(id: &str, n: u64) -> Request {
    request(id, call(LEDGER, U256::from(n).to_be_bytes::<32>()))
}

/// The attempts of one slot, as stored.
pub(crate) async fn attempts(node: &Node, nonce: u64) -> Vec<StoredAttempt> {
    node.handle.store().attempts(&submitter(), Nonce(nonce), Nonce(nonce + 1)).await.unwrap()
}

/// Waits until the pool holds this many transactions that could be mined.
pub(crate) async fn pooled(anvil: &Anvil, many: u64) {
    eventually(LONG, "the pool", || async {
        let pool = anvil.rpc("txpool_status", json!([])).await.unwrap();
        (number(&pool["pending"]) >= many).then_some(())
    })
    .await
    .unwrap();
}

/// Sets the base fee of the next block.
pub(crate) async fn set_base_fee(anvil: &Anvil, wei: u128) {
    anvil.rpc("anvil_setNextBlockBaseFeePerGas", json!([format!("{wei:#x}")])).await.unwrap();
}
