//! Nodes that do not answer at all: they keep those who asked them, and nobody else.

use std::sync::Arc;
use std::time::Duration;

use gapless_core::ids::TxId;
use gapless_core::lease::{LeaseTerms, Owner};
use gapless_core::ports::clock::Clock;
use gapless_core::state::TxState;
use gapless_core::submitter::SubmitterId;
use gapless_engine::handle::Request;
use gapless_engine::points::Points;
use gapless_engine::{Engine, EngineOptions, Handle, Registry, Submitter};
use gapless_evm::{EvmChain, EvmOptions, LocalSigner};
use gapless_store::clock::SystemClock;
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use gapless_testkit::wait::eventually;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::{KEY, Node, chain, count_of, effects, entry, instant, memory, quick, submitter};
use crate::window::pipelined;

/// The other chain's number.
const OTHER: u64 = 1337;
const SECOND_KEY: &str = "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d";
const SOON: Duration = Duration::from_secs(90);

/// One process with a submitter on each of two chains.
struct TwoChains {
    handle: Handle,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

fn on_other() -> SubmitterId {
    SubmitterId::evm(OTHER, submitter().address().unwrap())
}

impl TwoChains {
    async fn start(first: &str, other: &str) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let settings = pipelined(20, 0);
        let registry = Registry::new(settings.clone());
        for (number, url) in [(31337, first), (OTHER, other)] {
            let chain = EvmChain::new(&EvmOptions::new(number, [url])).unwrap();
            registry.add_chain(format!("eip155:{number}").parse().unwrap(), Arc::new(chain));
            let signer = LocalSigner::from_hex(KEY, None).unwrap();
            let id = SubmitterId::evm(number, signer.address());
            let signer = Some(Arc::new(signer) as _);
            registry.add_submitter(Submitter { id, settings: settings.clone(), signer });
        }
        let options = EngineOptions {
            owner: Owner::new("a", clock.draw()).unwrap(),
            terms: LeaseTerms::new(Duration::from_secs(6), Duration::from_millis(500)).unwrap(),
            renew: Duration::from_millis(1_000),
            sweep: Duration::from_millis(300),
            idle_release: Duration::from_secs(60),
            poll: Duration::from_millis(100),
            guard: true,
            points: Points::default(),
        };
        let (engine, handle) = Engine::build(options, memory(), clock, registry).await.unwrap();
        let stop = CancellationToken::new();
        let running = tokio::spawn(engine.run(stop.clone()));
        Self { handle, stop, running }
    }

    async fn submit(&self, who: &SubmitterId, from: u64, to: u64) -> Vec<TxId> {
        let mut ids = Vec::new();
        for n in from..to {
            let request = Request { submitter: who.clone(), ..entry(n) };
            ids.push(self.handle.submit(request).await.unwrap().view.tx_id);
        }
        ids
    }

    /// Waits until all of these are CONFIRMED; how many a second.
    async fn confirmed(&self, ids: &[TxId]) -> f64 {
        let began = Instant::now();
        for id in ids {
            let ended = || async {
                let view = self.handle.tx(*id).await.unwrap();
                view.state.is_terminal().then_some(view)
            };
            let view = eventually(SOON, "the end", ended).await.unwrap();
            assert_eq!(view.state, TxState::Confirmed, "{view:?}");
        }
        ids.len() as f64 / began.elapsed().as_secs_f64()
    }

    async fn stopped(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(30), self.running).await.unwrap().unwrap();
    }
}

async fn other_chain() -> Anvil {
    chain(AnvilOptions { chain_id: OTHER, ..AnvilOptions::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_that_hangs_keeps_no_other_and_loses_nothing() {
    let (dark, bright) = (instant().await, other_chain().await);
    let proxy = RpcProxy::start(dark.url()).unwrap();
    let node = TwoChains::start(&proxy.url(), &bright.url()).await;
    let mut ours = node.submit(&submitter(), 0, 3).await;
    node.confirmed(&ours).await;
    let theirs = node.submit(&on_other(), 0, 40).await;
    let alone = node.confirmed(&theirs).await;

    let hole = proxy.rule("*", Fault::Hang);
    ours.extend(node.submit(&submitter(), 3, 13).await);
    eventually(SOON, "calls that hang", || async { (proxy.fired(hole) > 1).then_some(()) }).await.unwrap();
    let more = node.submit(&on_other(), 40, 80).await;
    let beside = node.confirmed(&more).await;
    println!("confirmed per second: {alone:.1} alone, {beside:.1} beside a chain that hangs");
    assert_eq!(count_of(&bright, &on_other()).await, 80);
    for id in &ours[3..] {
        assert!(!node.handle.tx(*id).await.unwrap().state.is_terminal(), "its chain says nothing");
    }
    proxy.remove(hole);
    node.confirmed(&ours).await;
    for n in 0..13 {
        assert_eq!(effects(&dark, n).await, 1, "effects of request {n}");
    }
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_hangs_is_not_preferred_to_one_that_answers() {
    let anvil = instant().await;
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let urls = [proxy.url(), anvil.url()];
    let node = Node::of(memory(), &urls, quick(0), &[KEY, SECOND_KEY]).await;
    let second = LocalSigner::from_hex(SECOND_KEY, None).unwrap();
    let second = SubmitterId::evm(31337, second.address());
    let mut ours = node.submit_all(0, 2).await;
    for id in &ours {
        node.confirmed(*id).await;
    }
    let calls = |proxy: &RpcProxy| proxy.calls("eth_sendRawTransaction");
    assert!(calls(&proxy) >= 2, "it is the preferred one");
    let hole = proxy.rule("*", Fault::Hang);
    ours.extend(node.submit_all(2, 12).await);
    let mut theirs = Vec::new();
    for n in 100..110 {
        theirs.push(node.submit(Request { submitter: second.clone(), ..entry(n) }).await);
    }
    let began = Instant::now();
    node.each_took_effect_once(&anvil, &ours).await;
    node.each_took_effect_once_of(&anvil, &second, 100, &theirs).await;
    let (fell, took) = (proxy.fired(hole), began.elapsed());
    println!("{fell} calls fell into the hole, 20 requests took {took:?}");
    // Twenty requests make well over a hundred calls; whoever is asked first gets them all.
    assert!(fell < 30, "{fell} calls fell into the hole");
    node.stopped().await;
}
