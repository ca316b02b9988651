//! Reorgs of every depth at every stage, with twenty submitters in flight: what vanished comes back and is CONFIRMED once,
//! and a consumer that follows the `newFork` protocol to the letter ends with the canonical list.

use std::collections::BTreeMap;
use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::command::Verb;
use gapless_core::event::{Event, EventKind};
use gapless_core::ids::{RequestId, TxId};
use gapless_core::plan::{Mode, NonceRules, ReleaseAt};
use gapless_core::state::{SubState, TxState};
use gapless_core::submitter::SubmitterId;
use gapless_engine::LaneSettings;
use gapless_engine::handle::Request;
use gapless_evm::LocalSigner;
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::support::{Node, chain, effects, entry, memory, mine, number, pooled, quick};

const LONG: Duration = Duration::from_secs(90);
const CROWD: u64 = 20;
/// As deep as the deepest reorg here: whatever vanishes was not final yet.
const REQUIRED: u64 = 12;

/// When the chain changes its mind.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// In the pool, in no block.
    Pooled,
    /// The block that holds it is the lowest to go.
    Mined,
    /// Its block stays, everything after it goes.
    Confirming,
}

struct Crowd {
    anvil: Anvil,
    node: Node,
    accounts: Vec<SubmitterId>,
}

impl Crowd {
    async fn gather(release_at: ReleaseAt) -> Self {
        let options = AnvilOptions { extra_args: vec!["--no-mining".into()], ..AnvilOptions::default() };
        let anvil = chain(options).await;
        let keys: Vec<String> = (1..=CROWD).map(|n| format!("0x{:064x}", n + 0x5eed)).collect();
        let account =
            |key: &String| SubmitterId::evm(31337, LocalSigner::from_hex(key, None).unwrap().address());
        let accounts: Vec<SubmitterId> = keys.iter().map(account).collect();
        for account in &accounts {
            let rich = json!([account.address().unwrap(), "0x56bc75e2d63100000"]);
            anvil.rpc("anvil_setBalance", rich).await.unwrap();
        }
        mine(&anvil, 2 * REQUIRED).await;
        let rules = NonceRules { mode: Mode::Strict, release_at, max_in_flight: 1 };
        // So rare that only what the lane learns from blocks can have sent anything again.
        let resubmit = Some(Duration::from_secs(3_600));
        let settings = LaneSettings { rules, resubmit, tell_confirmations: true, ..quick(REQUIRED) };
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let node = Node::of(memory(), &[anvil.url()], settings, &keys).await;
        Self { anvil, node, accounts }
    }

    /// One request of each, numbered on from `first`.
    async fn submit(&self, first: u64) -> Vec<TxId> {
        let mut ids = Vec::new();
        for (n, account) in (first..).zip(&self.accounts) {
            let request_id = RequestId::parse(&format!("order-{n}")).unwrap();
            let request = Request { submitter: account.clone(), request_id, ..entry(n) };
            ids.push(self.node.submit(request).await);
        }
        ids
    }

    async fn all(&self, ids: &[TxId], what: &str, sub_state: SubState) {
        for id in ids {
            self.node.until(*id, what, |view| view.sub_state == Some(sub_state)).await;
        }
    }

    async fn all_told(&self, ids: &[TxId], kind: EventKind) {
        for id in ids {
            let told = || async { self.node.told(*id).await.contains(&kind).then_some(()) };
            eventually(LONG, &format!("{kind}"), told).await.unwrap();
        }
    }

    /// The chain changes its mind about the last `depth` blocks, while these are at this stage.
    async fn shake(&self, ids: &[TxId], depth: u64, stage: Stage) {
        pooled(&self.anvil, CROWD).await;
        let reorg = || async { self.anvil.rpc("anvil_reorg", json!([depth, []])).await.unwrap() };
        match stage {
            Stage::Pooled => {
                reorg().await;
                // The node has forgotten what it held. Nobody tells the lane; what it sends again by the clock is another
                // test's business, so it is asked to.
                for id in ids {
                    let view = self.node.handle.tx(*id).await.unwrap();
                    assert_eq!(view.state, TxState::Tracking);
                    let retry = json!({"action": "retry"});
                    let command =
                        self.node.handle.command(&view.submitter, Some(*id), Verb::Resolve, retry, "test");
                    command.await.unwrap();
                }
                pooled(&self.anvil, CROWD).await;
            }
            Stage::Mined => {
                mine(&self.anvil, depth).await;
                self.all(ids, "the block", SubState::Mined).await;
                reorg().await;
                self.all_told(ids, EventKind::TxReorged).await;
                pooled(&self.anvil, CROWD).await;
            }
            Stage::Confirming => {
                mine(&self.anvil, 1 + depth).await;
                self.all(ids, "the block", SubState::Mined).await;
                self.all_told(ids, EventKind::TxConfirmations).await;
                reorg().await;
            }
        }
    }

    /// Blocks, some of them at once, until all are deep enough.
    async fn confirm(&self, ids: &[TxId], first: u64) {
        for blocks in [1, 1, 3, REQUIRED - 5] {
            mine(&self.anvil, blocks).await;
        }
        for (n, id) in (first..).zip(ids) {
            self.node.confirmed(*id).await;
            assert_eq!(effects(&self.anvil, n).await, 1, "effects of request {n}");
            self.follows_the_protocol(*id).await;
        }
    }

    /// Rebuilds the confirmations from the events alone and compares them with the chain.
    async fn follows_the_protocol(&self, id: TxId) {
        let events: Vec<Event> = self.node.handle.tx_events(id).await.unwrap();
        let mut list: Option<Vec<(u64, B256)>> = None;
        for event in events {
            match event.kind {
                EventKind::TxReorged => list = None,
                EventKind::TxConfirmations => {
                    let blocks = event.data["blocks"].as_array().unwrap();
                    let added = blocks.iter().map(|block| {
                        (block["number"].as_u64().unwrap(), block["hash"].as_str().unwrap().parse().unwrap())
                    });
                    if event.data["newFork"] == true {
                        list = Some(added.collect());
                    } else {
                        let Some(list) = list.as_mut() else { panic!("additions before a full list") };
                        list.extend(added);
                    }
                    let count = event.data["count"].as_u64().unwrap();
                    assert_eq!(list.as_ref().unwrap().len() as u64, count, "after {:?}", event.data);
                }
                _ => {}
            }
        }
        let view = serde_json::to_value(self.node.handle.tx(id).await.unwrap()).unwrap();
        let mined = number(&view["receipt"]["blockNumber"]);
        let mut canonical = BTreeMap::new();
        for number in mined + 1..=mined + REQUIRED {
            let block =
                self.anvil.rpc("eth_getBlockByNumber", json!([format!("{number:#x}"), false])).await.unwrap();
            canonical.insert(number, hash(&block["hash"]));
        }
        assert_eq!(list.unwrap_or_default(), canonical.into_iter().collect::<Vec<_>>());
    }
}

fn hash(value: &Value) -> B256 {
    value.as_str().unwrap().parse().unwrap()
}

/// Of every depth, at every stage, one after another.
async fn shaken(release_at: ReleaseAt) {
    let crowd = Crowd::gather(release_at).await;
    let mut first = 0;
    for depth in 1..=REQUIRED {
        let ids = crowd.submit(first).await;
        if [1, 5, 12].contains(&depth) {
            crowd.shake(&ids, depth, Stage::Pooled).await;
        }
        crowd.shake(&ids, depth, Stage::Mined).await;
        crowd.shake(&ids, depth.min(REQUIRED - 1), Stage::Confirming).await;
        crowd.confirm(&ids, first).await;
        first += CROWD;
    }
    crowd.node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_every_depth_at_every_stage_with_release_at_mined() {
    shaken(ReleaseAt::Mined).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_every_depth_at_every_stage_with_release_at_confirmed() {
    shaken(ReleaseAt::Confirmed).await;
}
