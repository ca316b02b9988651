//! What the tests share: a node with quick settings on a store of its own, and what the chain itself says.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::{Address, B256, Bytes, U256};
use gapless_core::event::EventKind;
use gapless_core::fees::{Fees, Gas, GasPrice};
use gapless_core::ids::{Nonce, RequestId, TxId};
use gapless_core::intent::{Intent, Payload};
use gapless_core::lease::{LeaseTerms, Owner};
use gapless_core::plan::Mode;
use gapless_core::ports::chain::{Signed, Unsigned};
use gapless_core::ports::clock::Clock;
use gapless_core::ports::signer::Signer;
use gapless_core::ports::store::Store;
use gapless_core::state::TxState;
use gapless_core::submitter::SubmitterId;
use gapless_engine::handle::Request;
use gapless_engine::nonces::{NonceRange, NonceView};
use gapless_engine::points::Points;
use gapless_engine::view::TxView;
use gapless_engine::{Engine, EngineOptions, Handle, LaneSettings, NonceRequest, Registry, Submitter};
use gapless_evm::{EvmChain, EvmOptions, LocalSigner};
use gapless_store::clock::SystemClock;
use gapless_store::postgres::{PostgresOptions, PostgresStore};
use gapless_store::sqlite::SqliteStore;
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::postgres::{PgCluster, TestDb};
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The first two of the node's well-known development keys.
pub(crate) const KEY: &str = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";
pub(crate) const OTHER_KEY: &str = "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d";
/// A contract that counts calls by their first word.
const LEDGER: Address = Address::repeat_byte(0x1e);
const LEDGER_CODE: [u8; 11] = [0x60, 0, 0x35, 0x80, 0x54, 0x60, 1, 0x01, 0x90, 0x55, 0x00];
/// Far beyond what anything takes here, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(90);

pub(crate) fn submitter() -> SubmitterId {
    "eip155:31337:0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266".parse().unwrap()
}

/// Settings under which waiting costs a test little.
pub(crate) fn quick() -> LaneSettings {
    LaneSettings {
        confirmations: 0,
        reconcile: Duration::from_millis(300),
        retry: Duration::from_millis(50),
        recycle_hold: Duration::from_millis(200),
        ..LaneSettings::default()
    }
}

/// The same with a window.
pub(crate) fn pipelined() -> LaneSettings {
    let mut settings = quick();
    settings.rules.mode = Mode::Pipelined;
    settings
}

/// Holders have this long.
pub(crate) fn within(settings: LaneSettings, most: Duration) -> LaneSettings {
    LaneSettings { reservation_timeout: most, ..settings }
}

/// A store in a file.
pub(crate) async fn sqlite(folder: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(&folder.join("gapless.db"), Arc::new(SystemClock)).await.unwrap())
}

/// A database of its own.
pub(crate) async fn database() -> TestDb {
    let cluster = PgCluster::shared().await.unwrap();
    let migrate = |url: String| async move { PostgresStore::migrate(&PostgresOptions::new(&url)).await };
    cluster.template("reserve", migrate).await.unwrap();
    cluster.clone_template("reserve").await.unwrap()
}

pub(crate) async fn postgres(database: &TestDb) -> Arc<dyn Store> {
    let options = PostgresOptions { pool: 6, ..PostgresOptions::new(&database.url) };
    Arc::new(PostgresStore::open(&options).await.unwrap())
}

/// A chain that mines each transaction as it comes.
pub(crate) async fn instant() -> Anvil {
    chain(AnvilOptions::default()).await
}

pub(crate) async fn chain(options: AnvilOptions) -> Anvil {
    let anvil = Anvil::start(options).await.unwrap();
    let code = Bytes::copy_from_slice(&LEDGER_CODE);
    anvil.rpc("anvil_setCode", json!([LEDGER, code])).await.unwrap();
    anvil
}

/// One process's engine on its store.
pub(crate) struct Node {
    pub(crate) handle: Handle,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Node {
    pub(crate) async fn start(store: Arc<dyn Store>, anvil: &Anvil, settings: LaneSettings) -> Self {
        Self::named("a", store, anvil, settings).await
    }

    pub(crate) async fn named(
        name: &str,
        store: Arc<dyn Store>,
        anvil: &Anvil,
        settings: LaneSettings,
    ) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let registry = Registry::new(settings.clone());
        let reached = EvmChain::new(&EvmOptions::new(31_337, [anvil.url()])).unwrap();
        registry.add_chain(submitter().chain(), Arc::new(reached));
        registry.add_submitter(Submitter { id: submitter(), settings, signer: Some(Arc::new(signer(KEY))) });
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

    pub(crate) async fn stopped(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(30), self.running).await.unwrap().unwrap();
    }

    /// Submits an ordinary request whose effect is number `n`.
    pub(crate) async fn submit(&self, n: u64) -> TxId {
        let intent = Intent { payload: effect(n), ..Intent::default() };
        let request_id = RequestId::parse(&format!("order-{n}")).unwrap();
        let request = Request { submitter: submitter(), request_id, intent, metadata: None };
        self.handle.submit(request).await.unwrap().view.tx_id
    }

    /// Waits until a transaction is as wanted.
    pub(crate) async fn until(&self, id: TxId, what: &str, wanted: impl Fn(&TxView) -> bool) -> TxView {
        let found = eventually(LONG, what, || async {
            let view = self.handle.tx(id).await.unwrap();
            wanted(&view).then_some(view)
        });
        match found.await {
            Ok(view) => view,
            Err(error) => panic!("{error}: {:#?}", self.handle.tx(id).await.unwrap()),
        }
    }

    pub(crate) async fn confirmed(&self, id: TxId) -> TxView {
        let view = self.until(id, "the end of a transaction", |view| view.state.is_terminal()).await;
        assert_eq!(view.state, TxState::Confirmed, "{view:#?}");
        view
    }

    /// The kinds of a transaction's events, whose numbers must have no hole.
    pub(crate) async fn told(&self, id: TxId) -> Vec<EventKind> {
        let events = self.handle.tx_events(id).await.unwrap();
        let numbers: Vec<u64> = events.iter().map(|event| event.seq.0).collect();
        assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
        events.into_iter().map(|event| event.kind).collect()
    }

    /// One slot as it is shown.
    pub(crate) async fn slot(&self, nonce: u64) -> Option<NonceView> {
        let range = NonceRange { from: Some(Nonce(nonce)), to: Some(Nonce(nonce + 1)) };
        self.handle.nonces(&submitter(), range).await.unwrap().unwrap().into_iter().next()
    }

    /// Waits until a slot is as wanted.
    pub(crate) async fn until_slot(&self, nonce: u64, what: &str, wanted: impl Fn(&NonceView) -> bool) {
        let found = eventually(LONG, what, || async {
            self.slot(nonce).await.filter(|slot| wanted(slot)).map(|_| ())
        });
        if let Err(error) = found.await {
            panic!("{error}: {:#?}", self.slot(nonce).await);
        }
    }

    /// The lane has nothing against itself, everything it bound is consumed, and the chain counts the same.
    pub(crate) async fn run_has_no_hole(&self, anvil: &Anvil, nonces: u64) {
        let what = "the end of the run";
        let found = eventually(LONG, what, || async {
            let view = self.handle.submitter(&submitter()).await.unwrap();
            (view.consumed == Some(Nonce(nonces)) && view.next_nonce == Some(Nonce(nonces))).then_some(view)
        });
        let view = match found.await {
            Ok(view) => view,
            Err(error) => panic!("{error}: {:#?}", self.handle.submitter(&submitter()).await.unwrap()),
        };
        assert_eq!(view.condition.name(), "ok", "{view:#?}");
        assert_eq!(count(anvil).await, nonces);
    }
}

pub(crate) fn signer(key: &str) -> LocalSigner {
    LocalSigner::from_hex(key, None).unwrap()
}

pub(crate) fn named(id: &str) -> NonceRequest {
    NonceRequest::new(submitter(), RequestId::parse(id).unwrap())
}

/// What makes the ledger count `n`.
pub(crate) fn effect(n: u64) -> Payload {
    Payload { to: Some(LEDGER), data: U256::from(n).to_be_bytes::<32>().into(), ..Payload::default() }
}

pub(crate) const fn gas() -> Gas {
    Gas(100_000)
}

/// Plenty.
pub(crate) const fn fees() -> Fees {
    let (max_fee_per_gas, max_priority_fee_per_gas) = (GasPrice(5_000_000_000), GasPrice(1_000_000_000));
    Fees::Dynamic { max_fee_per_gas, max_priority_fee_per_gas }
}

/// Bytes made outside of the engine.
pub(crate) async fn signed(key: &str, chain: u64, nonce: Nonce, payload: Payload) -> Signed {
    let signer = signer(key);
    let submitter = SubmitterId::evm(chain, signer.address());
    let unsigned = Unsigned { submitter, nonce, payload, gas_limit: gas(), fees: fees() };
    let (signed, error) = signer.sign(&[unsigned]).await;
    assert_eq!(error, None);
    signed.into_iter().next().unwrap()
}

fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

/// How many transactions of the account are in the chain.
pub(crate) async fn count(anvil: &Anvil) -> u64 {
    let address = submitter().address().unwrap();
    number(&anvil.rpc("eth_getTransactionCount", json!([address, "latest"])).await.unwrap())
}

/// The nonce of what was mined.
pub(crate) async fn nonce_of(anvil: &Anvil, hash: B256) -> u64 {
    number(&anvil.rpc("eth_getTransactionByHash", json!([hash])).await.unwrap()["nonce"])
}

/// How often the effect number `n` happened.
pub(crate) async fn effects(anvil: &Anvil, n: u64) -> u64 {
    let at = B256::from(U256::from(n));
    let held = anvil.rpc("eth_getStorageAt", json!([LEDGER, at, "latest"])).await.unwrap();
    let held: B256 = held.as_str().unwrap().parse().unwrap();
    U256::from_be_bytes(held.0).to()
}
