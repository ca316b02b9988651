//! Two nodes on one store: one leads the account, the other hands in what is asked of its lane. Between them and the chain
//! stands a door that lets bytes through or not, so that a test decides who wins a race for a nonce.

use std::sync::Mutex;
use std::time::Duration;

use alloy_primitives::U256;
use gapless_core::attempt::StoredAttempt;
use gapless_core::command::{CommandEnd, Verb};
use gapless_core::event::EventKind;
use gapless_core::ids::{Nonce, TxId};
use gapless_core::record::MinedAs;
use gapless_core::state::TxState;
use gapless_engine::LaneSettings;
use gapless_engine::handle::Request;
use gapless_engine::view::TxView;
use gapless_testkit::anvil::Anvil;
use gapless_testkit::node::EthNode;
use gapless_testkit::rpc_proxy::{Fault, RpcProxy, RuleId};
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::support::{
    LEDGER, Node, address, attempts, call, count, effects, entry, memory, mine, quick, submitter,
};

pub(crate) const LONG: Duration = Duration::from_secs(90);
/// A request that is replaced counts here instead.
pub(crate) const INSTEAD: u64 = 1_000;

/// Settings under which a lost slot is settled soon, but later than one that was not lost.
pub(crate) fn soon_settled(confirmations: u64) -> LaneSettings {
    LaneSettings { finality_depth: Some(confirmations + 1), ..quick(confirmations) }
}

/// How the chain receives the account at first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// As usual.
    Open,
    /// No bytes come through.
    Shut,
    /// The account is empty.
    Poor,
}

/// Two nodes, one chain that mines when told, and the requests number 0, 1, ….
pub(crate) struct Contest {
    pub(crate) anvil: Anvil,
    proxy: RpcProxy,
    shut: Mutex<Option<RuleId>>,
    pub(crate) leads: Node,
    pub(crate) other: Node,
    pub(crate) ids: Vec<TxId>,
}

impl Contest {
    /// With this many requests, submitted to the node that leads.
    pub(crate) async fn of(anvil: Anvil, settings: LaneSettings, many: u64, door: Door) -> Self {
        Self::over(anvil, settings, (0..many).map(entry).collect(), door).await
    }

    /// With these requests.
    pub(crate) async fn over(
        anvil: Anvil,
        settings: LaneSettings,
        requests: Vec<Request>,
        door: Door,
    ) -> Self {
        if door == Door::Poor {
            set_balance(&anvil, 0).await;
        }
        Self::behind(anvil, settings, requests, (door == Door::Shut).then(full)).await
    }

    /// With these requests, and these words for whatever is sent.
    pub(crate) async fn refusing(
        anvil: Anvil,
        settings: LaneSettings,
        requests: Vec<Request>,
        words: Fault,
    ) -> Self {
        Self::behind(anvil, settings, requests, Some(words)).await
    }

    async fn behind(
        anvil: Anvil,
        settings: LaneSettings,
        requests: Vec<Request>,
        words: Option<Fault>,
    ) -> Self {
        let proxy = RpcProxy::start(anvil.url()).unwrap();
        let (store, urls) = (memory(), [proxy.url()]);
        let shut = Mutex::new(words.map(|words| proxy.rule("eth_sendRawTransaction", words)));
        let leads = Node::on(store.clone(), &urls, settings.clone()).await;
        let mut ids = Vec::new();
        for request in requests {
            ids.push(leads.submit(request).await);
        }
        leads.until_submitter("the lease", |view| view.owner_node.is_some()).await;
        let other = Node::beside(store, &urls, settings).await;
        Self { anvil, proxy, shut, leads, other, ids }
    }

    /// From now on nothing that is sent arrives.
    pub(crate) fn shut(&self) {
        self.shut.lock().unwrap().get_or_insert_with(|| self.proxy.rule("eth_sendRawTransaction", full()));
    }

    /// From now on everything does.
    pub(crate) fn open(&self) {
        if let Some(rule) = self.shut.lock().unwrap().take() {
            self.proxy.remove(rule);
        }
    }

    /// Asks through the node that does not lead, and waits for the lane's word.
    pub(crate) async fn ask(&self, about: Option<TxId>, verb: Verb, args: Value) -> CommandEnd {
        let end = ask(&self.other, about, verb, args).await;
        assert_eq!(self.other.submitter().await.owner_node.as_deref(), Some("a"), "the lane has not moved");
        end
    }

    /// Asks for request number `n` to be cancelled, or to be replaced by what counts at `INSTEAD + n`.
    pub(crate) async fn withdraw(&self, n: usize, verb: Verb) -> CommandEnd {
        self.ask(Some(self.ids[n]), verb, args_for(verb, n as u64)).await
    }

    /// Waits until a slot has this many attempts.
    pub(crate) async fn stored(&self, nonce: u64, many: usize) -> Vec<StoredAttempt> {
        eventually(LONG, "the stored bytes", || async {
            Some(attempts(&self.leads, nonce).await).filter(|found| found.len() >= many)
        })
        .await
        .unwrap()
    }

    /// Waits until the chain's node holds these bytes.
    pub(crate) async fn held(&self, attempt: &StoredAttempt) {
        held(&self.anvil, attempt).await;
    }

    /// Gives stored bytes to the chain's node behind everybody's back, unless it has them.
    pub(crate) async fn smuggle(&self, attempt: &StoredAttempt) {
        let _ = self.anvil.rpc("eth_sendRawTransaction", json!([attempt.raw])).await;
        self.held(attempt).await;
    }

    /// A block, and what became of request number `n` in it.
    pub(crate) async fn mined(&self, n: usize) -> TxView {
        mine(&self.anvil, 1).await;
        self.leads.until(self.ids[n], "the block", |view| view.mined_as.is_some()).await
    }

    /// Blocks until everything has ended.
    pub(crate) async fn to_the_end(&self) {
        eventually(LONG, "all ends", || async {
            mine(&self.anvil, 1).await;
            tokio::time::sleep(Duration::from_millis(60)).await;
            let mut over = true;
            for id in &self.ids {
                over &= self.other.handle.tx(*id).await.unwrap().state.is_terminal();
            }
            over.then_some(())
        })
        .await
        .unwrap();
    }

    /// What must hold at the end, whoever won: an effect for each CONFIRMED request, none for any other, no hole, and ends
    /// that stay. Both nodes go down.
    pub(crate) async fn kept(self) {
        self.to_the_end().await;
        let mut ends = Vec::new();
        for (n, id) in self.ids.iter().enumerate() {
            ends.push(took_effect_as_told(&self.leads, &self.anvil, n as u64, *id).await);
        }
        let run = self.leads.submitter().await;
        let used = Nonce(count(&self.anvil).await);
        assert_eq!((run.next_nonce, run.consumed), (Some(used), Some(used)), "every nonce was used");
        mine(&self.anvil, 4).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        for (id, end) in self.ids.iter().zip(ends) {
            let view = self.other.handle.tx(*id).await.unwrap();
            assert_eq!((view.state, view.seq), end, "an end stays");
        }
        self.leads.stopped().await;
        self.other.stopped().await;
    }
}

/// The chain agrees with what is told of request number `n`.
pub(crate) async fn took_effect_as_told(
    node: &Node,
    anvil: &Anvil,
    n: u64,
    id: TxId,
) -> (TxState, gapless_core::ids::Seq) {
    let view = node.handle.tx(id).await.unwrap();
    assert!(view.state.is_terminal(), "{view:#?}");
    let told = match (view.state, view.mined_as) {
        (TxState::Confirmed, Some(MinedAs::Payload)) => (1, 0),
        (TxState::Confirmed, Some(MinedAs::Replacement)) => (0, 1),
        (TxState::Confirmed, other) => panic!("CONFIRMED by {other:?}"),
        _ => (0, 0),
    };
    let happened = (effects(anvil, n).await, effects(anvil, INSTEAD + n).await);
    assert_eq!(happened, told, "effects of request {n}: {view:#?}");
    node.told(id).await;
    (view.state, view.seq)
}

/// Asks a lane through any node, and waits for its word.
pub(crate) async fn ask(node: &Node, about: Option<TxId>, verb: Verb, args: Value) -> CommandEnd {
    let id = node.handle.command(&submitter(), about, verb, args, "test").await.unwrap();
    let end = || async { node.handle.store().command_end(id).await.unwrap() };
    eventually(LONG, "the command's end", end).await.unwrap()
}

/// What a command on request number `n` says.
pub(crate) fn args_for(verb: Verb, n: u64) -> Value {
    match verb {
        Verb::Replace => json!({"payload": call(LEDGER, U256::from(INSTEAD + n).to_be_bytes::<32>())}),
        _ => json!({}),
    }
}

/// What was told of commands on a transaction.
pub(crate) async fn commands_told(node: &Node, id: TxId) -> Vec<Value> {
    let events = node.handle.tx_events(id).await.unwrap();
    events.into_iter().filter(|event| event.kind == EventKind::TxCommand).map(|event| event.data).collect()
}

/// Waits until a chain's node holds these bytes.
pub(crate) async fn held(node: &impl EthNode, attempt: &StoredAttempt) {
    eventually(LONG, "the bytes at the node", || async {
        let found = node.rpc("eth_getTransactionByHash", json!([attempt.hash])).await.unwrap();
        (!found.is_null()).then_some(())
    })
    .await
    .unwrap();
}

/// Gives the account this much.
pub(crate) async fn set_balance(anvil: &Anvil, wei: u128) {
    anvil.rpc("anvil_setBalance", json!([address(), format!("{wei:#x}")])).await.unwrap();
}

fn full() -> Fault {
    Fault::ErrorWithoutForward { code: -32000, message: "txpool is full".into() }
}
