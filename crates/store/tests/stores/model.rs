//! Model-based comparison: random sequences of operations by two nodes (with expiry, takeover, stale
//! memories, commands and reservations) must get the same answers from SQLite and PostgreSQL as from memory.
//!
//! A failing case prints its minimal sequence and is kept in `proptest-regressions`.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::allocation::{AllocationWrite, Mark};
use gapless_core::attempt::Refusal;
use gapless_core::change::{Draft, RefusalNote, ResendClaim, TxWrite, Verdict};
use gapless_core::command::{CommandEnd, CommandOutcome, NewCommand, Verb};
use gapless_core::cursor::Run;
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::{CommandId, LockOwner, Nonce, TxId};
use gapless_core::lease::Grant;
use gapless_core::ports::store::{Acquired, Parting, Renewal, TxFilter};
use gapless_core::record::TxFacts;
use gapless_core::state::{TxEvent, TxState};
use gapless_core::submitter::SubmitterId;
use gapless_core::text::NodeText;
use gapless_testkit::fixtures::{self, Lane, TestClock, owner, request};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use uuid::Uuid;

use crate::world::{self, World};

/// One step. Small numbers choose nodes, submitters, requests; most steps act on what a node *remembers*,
/// which may be stale.
#[derive(Debug, Clone)]
enum Op {
    Accept {
        submitter: u64,
        request: u8,
        value: u8,
    },
    Acquire {
        node: u8,
        submitter: u64,
    },
    Reload {
        node: u8,
        submitter: u64,
    },
    Renew {
        node: u8,
    },
    Release {
        node: u8,
        submitter: u64,
        idle: bool,
    },
    Raise {
        node: u8,
        submitter: u64,
    },
    Advance {
        millis: u64,
    },
    /// Several lanes of a node in one commit.
    Bind {
        node: u8,
        count: u8,
    },
    Mine {
        node: u8,
        submitter: u64,
        count: u8,
    },
    Confirm {
        node: u8,
        submitter: u64,
        count: u8,
    },
    Unbind {
        node: u8,
        submitter: u64,
    },
    Resend {
        node: u8,
        submitter: u64,
        nonce: u64,
    },
    Pause {
        node: u8,
        submitter: u64,
        paused: bool,
    },
    Reserve {
        node: u8,
        submitter: u64,
        holder: u8,
    },
    Lapse {
        node: u8,
        submitter: u64,
        nonce: u64,
    },
    Settle {
        node: u8,
        submitter: u64,
        nonce: u64,
    },
    Mark {
        submitter: u64,
        nonce: u64,
        holder: u8,
        used: bool,
    },
    Command {
        id: u8,
        submitter: u64,
    },
    EndCommand {
        node: u8,
        id: u8,
        submitter: u64,
    },
    Look {
        submitter: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let (node, submitter) = (0..2_u8, 1..3_u64);
    let lane = (node.clone(), submitter.clone());
    prop_oneof![
        4 => (submitter.clone(), 0..6_u8, 0..2_u8)
            .prop_map(|(submitter, request, value)| Op::Accept { submitter, request, value }),
        4 => lane.clone().prop_map(|(node, submitter)| Op::Acquire { node, submitter }),
        1 => lane.clone().prop_map(|(node, submitter)| Op::Reload { node, submitter }),
        1 => node.clone().prop_map(|node| Op::Renew { node }),
        1 => (lane.clone(), any::<bool>())
            .prop_map(|((node, submitter), idle)| Op::Release { node, submitter, idle }),
        1 => lane.clone().prop_map(|(node, submitter)| Op::Raise { node, submitter }),
        2 => prop_oneof![Just(1_000), Just(6_000), Just(10_000), Just(11_000), Just(120_000)]
            .prop_map(|millis| Op::Advance { millis }),
        6 => (node.clone(), 1..4_u8).prop_map(|(node, count)| Op::Bind { node, count }),
        4 => (lane.clone(), 1..3_u8)
            .prop_map(|((node, submitter), count)| Op::Mine { node, submitter, count }),
        3 => (lane.clone(), 1..3_u8)
            .prop_map(|((node, submitter), count)| Op::Confirm { node, submitter, count }),
        1 => lane.clone().prop_map(|(node, submitter)| Op::Unbind { node, submitter }),
        1 => (lane.clone(), 0..4_u64)
            .prop_map(|((node, submitter), nonce)| Op::Resend { node, submitter, nonce }),
        1 => (lane.clone(), any::<bool>())
            .prop_map(|((node, submitter), paused)| Op::Pause { node, submitter, paused }),
        2 => (lane.clone(), 0..2_u8)
            .prop_map(|((node, submitter), holder)| Op::Reserve { node, submitter, holder }),
        1 => (lane.clone(), 0..4_u64).prop_map(|((node, submitter), nonce)| Op::Lapse { node, submitter, nonce }),
        1 => (lane.clone(), 0..4_u64).prop_map(|((node, submitter), nonce)| Op::Settle { node, submitter, nonce }),
        2 => (submitter.clone(), 0..4_u64, 0..2_u8, any::<bool>())
            .prop_map(|(submitter, nonce, holder, used)| Op::Mark { submitter, nonce, holder, used }),
        1 => (0..3_u8, submitter.clone()).prop_map(|(id, submitter)| Op::Command { id, submitter }),
        1 => (node, 0..3_u8, submitter.clone())
            .prop_map(|(node, id, submitter)| Op::EndCommand { node, id, submitter }),
        2 => submitter.prop_map(|submitter| Op::Look { submitter }),
    ]
}

/// Plays operations on one store and writes down every answer.
struct Player {
    world: World,
    /// What each node remembers of each lane.
    memories: BTreeMap<(u8, u64), Lane>,
    ids: u128,
}

impl Player {
    async fn new(world: World) -> Self {
        for n in 1..3 {
            world.submitter(n).await;
        }
        Self { world, memories: BTreeMap::new(), ids: 0 }
    }

    fn remembered(&self, node: u8, submitter: u64) -> Option<Lane> {
        self.memories.get(&(node, submitter)).cloned()
    }

    async fn load(&mut self, node: u8, submitter: u64, grant: Grant) {
        let name = fixtures::submitter(submitter);
        let snapshot = self.world.store.load_lane(&name).await.unwrap().unwrap();
        match self.memories.get_mut(&(node, submitter)) {
            Some(lane) => (lane.grant, lane.cursor) = (grant, snapshot.cursor),
            None => {
                let (store, terms) = (self.world.store.as_ref(), self.world.terms());
                let lane = Lane::take(store, grant.owner(), &name, &terms).await.unwrap().unwrap();
                self.memories.insert((node, submitter), lane);
            }
        }
    }

    async fn commit_one(
        &mut self,
        node: u8,
        submitter: u64,
        write: impl FnOnce(&Lane, &mut Draft),
    ) -> String {
        let Some(lane) = self.remembered(node, submitter) else { return "-".into() };
        let mut draft = lane.draft();
        write(&lane, &mut draft);
        let Ok(change) = draft.seal() else { return "unsound".into() };
        let verdict = self.world.store.commit(std::slice::from_ref(&change)).await.unwrap().remove(0);
        self.memories.get_mut(&(node, submitter)).unwrap().follow(&change, &verdict);
        verdict_text(&verdict)
    }

    /// Transactions of a submitter in a state, by nonce.
    async fn bound(&self, submitter: &SubmitterId, mined: bool, count: u8) -> Vec<(TxId, TxFacts)> {
        let filter = TxFilter { submitter: Some(submitter.clone()), limit: 100, ..Default::default() };
        let all = self.world.store.list(&filter).await.unwrap();
        let mut found: Vec<_> = all
            .into_iter()
            .filter(|tx| tx.facts.state == TxState::Tracking && tx.facts.mined.is_some() == mined)
            .map(|tx| (tx.tx_id(), tx.facts))
            .collect();
        found.sort_by_key(|(_, facts)| facts.nonce);
        found.truncate(usize::from(count));
        found
    }

    async fn bind(&mut self, node: u8, count: u8) -> String {
        let mut changes = Vec::new();
        for submitter in 1..3 {
            let Some(lane) = self.remembered(node, submitter) else { continue };
            let queue = self
                .world
                .store
                .peek_queue(&fixtures::submitter(submitter), usize::from(count))
                .await
                .unwrap();
            let mut draft = lane.draft();
            lane.bind(&mut draft, &queue);
            if let Ok(change) = draft.seal() {
                changes.push((submitter, change));
            }
        }
        let batch: Vec<_> = changes.iter().map(|(_, change)| change.clone()).collect();
        let verdicts = self.world.store.commit(&batch).await.unwrap();
        for ((submitter, change), verdict) in changes.iter().zip(&verdicts) {
            self.memories.get_mut(&(node, *submitter)).unwrap().follow(change, verdict);
        }
        verdicts.iter().map(verdict_text).collect::<Vec<_>>().join(",")
    }

    async fn step(&mut self, op: &Op) -> String {
        let terms = self.world.terms();
        let store = self.world.store.clone();
        match *op {
            Op::Accept { submitter, request: id, value } => {
                self.ids += 1;
                let name = fixtures::submitter(submitter);
                let item = request(&name, &format!("r{id}"), Uuid::from_u128(self.ids), u64::from(value));
                text(&store.accept(&[item]).await)
            }
            Op::Acquire { node, submitter } => {
                let me = owner("node", u128::from(node) + 1).unwrap();
                let acquired =
                    store.acquire(&me, &[fixtures::submitter(submitter)], &terms).await.unwrap().remove(0);
                if let Acquired::Held { grant, .. } = &acquired {
                    self.load(node, submitter, grant.clone()).await;
                }
                text(&acquired)
            }
            Op::Reload { node, submitter } => match self.remembered(node, submitter) {
                Some(lane) => {
                    self.load(node, submitter, lane.grant).await;
                    text(&self.remembered(node, submitter).map(|lane| lane.cursor))
                }
                None => "-".into(),
            },
            Op::Renew { node } => {
                let keys: Vec<_> = self.memories.keys().filter(|(n, _)| *n == node).copied().collect();
                let grants: Vec<_> = keys.iter().map(|key| self.memories[key].grant.clone()).collect();
                let renewals = store.renew(&grants, &terms).await.unwrap();
                for (key, renewal) in keys.iter().zip(&renewals) {
                    if let Renewal::Renewed(grant) = renewal {
                        self.memories.get_mut(key).unwrap().grant = grant.clone();
                    }
                }
                text(&renewals)
            }
            Op::Release { node, submitter, idle } => match self.remembered(node, submitter) {
                Some(lane) => {
                    let parting = if idle { Parting::Idle } else { Parting::Unfinished };
                    text(&store.release(&[(lane.grant, parting)]).await)
                }
                None => "-".into(),
            },
            Op::Raise { node, submitter } => match self.remembered(node, submitter) {
                Some(lane) => {
                    let raised = store.raise_token(&lane.grant, &terms).await.unwrap();
                    if let Acquired::Held { grant, .. } = &raised {
                        self.memories.get_mut(&(node, submitter)).unwrap().grant = grant.clone();
                    }
                    text(&raised)
                }
                None => "-".into(),
            },
            Op::Advance { millis } => {
                self.world.advance(Duration::from_millis(millis)).await;
                text(&store.now().await)
            }
            Op::Bind { node, count } => self.bind(node, count).await,
            Op::Mine { node, submitter, count } => {
                let txs = self.bound(&fixtures::submitter(submitter), false, count).await;
                self.commit_one(node, submitter, |lane, draft| lane.mine(draft, &txs, 7)).await
            }
            Op::Confirm { node, submitter, count } => {
                let txs = self.bound(&fixtures::submitter(submitter), true, count).await;
                self.commit_one(node, submitter, |lane, draft| lane.confirm(draft, &txs)).await
            }
            Op::Unbind { node, submitter } => {
                let txs = self.bound(&fixtures::submitter(submitter), false, 9).await;
                self.commit_one(node, submitter, |lane, draft| unbind_last(lane, draft, &txs)).await
            }
            Op::Resend { node, submitter, nonce } => {
                self.commit_one(node, submitter, |_, draft| {
                    let (nonce, n) = (Nonce(nonce), 0);
                    let refusal = Refusal { code: NodeText::new("unknown"), text: NodeText::new("odd\0") };
                    draft.writes.resends =
                        vec![ResendClaim { nonce, n, next_send_at: TestClock::START, sends: true }];
                    draft.writes.refusals = vec![RefusalNote { nonce, n, refusal }];
                })
                .await
            }
            Op::Pause { node, submitter, paused } => {
                self.commit_one(node, submitter, |_, draft| {
                    draft.cursor.conditions.paused = paused;
                    draft.writes.told = vec![Told::plain(EventKind::SubmitterHold)];
                })
                .await
            }
            Op::Reserve { node, submitter, holder } => {
                self.commit_one(node, submitter, |lane, draft| {
                    let run = lane.run();
                    draft.cursor.run = Some(Run { next: run.next.next(), ..run });
                    let lock_owner = lock_owner(holder);
                    let hold = Duration::from_secs(60);
                    let reserve = AllocationWrite::Reserve { nonce: run.next, lock_owner, hold, tx_id: None };
                    draft.writes.allocations = vec![reserve];
                })
                .await
            }
            Op::Lapse { node, submitter, nonce } => {
                let lapse = AllocationWrite::Lapse { nonce: Nonce(nonce) };
                self.commit_one(node, submitter, |_, draft| draft.writes.allocations = vec![lapse]).await
            }
            Op::Settle { node, submitter, nonce } => {
                let settle = AllocationWrite::Settle { nonce: Nonce(nonce) };
                self.commit_one(node, submitter, |_, draft| draft.writes.allocations = vec![settle]).await
            }
            Op::Mark { submitter, nonce, holder, used } => {
                let mark = if used { Mark::Used(B256::repeat_byte(1)) } else { Mark::Recyclable };
                text(
                    &store
                        .mark(&fixtures::submitter(submitter), Nonce(nonce), lock_owner(holder), mark)
                        .await,
                )
            }
            Op::Command { id, submitter } => {
                let command = NewCommand {
                    id: CommandId(Uuid::from_u128(u128::from(id) + 1)),
                    submitter: fixtures::submitter(submitter),
                    tx_id: None,
                    verb: Verb::Pause,
                    args: serde_json::json!({}),
                    actor: NodeText::new("op"),
                };
                text(&store.insert_commands(&[command]).await)
            }
            Op::EndCommand { node, id, submitter } => {
                let end = CommandEnd {
                    id: CommandId(Uuid::from_u128(u128::from(id) + 1)),
                    outcome: CommandOutcome::Done,
                    code: None,
                    result: None,
                };
                self.commit_one(node, submitter, |_, draft| draft.writes.commands = vec![end]).await
            }
            Op::Look { submitter } => self.look(&fixtures::submitter(submitter)).await,
        }
    }

    /// Everything that can be read about a submitter.
    async fn look(&self, submitter: &SubmitterId) -> String {
        let store = &self.world.store;
        let everything = (
            store.load_lane(submitter).await.unwrap(),
            store.peek_queue(submitter, 100).await.unwrap(),
            store.submitter(submitter).await.unwrap(),
            store.claimable(&self.world.terms(), None, 10).await.unwrap(),
            store.attempts(submitter, Nonce(0), Nonce(100)).await.unwrap(),
            store.allocations(submitter, Nonce(0), Nonce(100)).await.unwrap(),
        );
        let filter = TxFilter { submitter: Some(submitter.clone()), limit: 100, ..Default::default() };
        let mut seen = text(&everything);
        for tx in store.list(&filter).await.unwrap() {
            seen += &text(&tx);
            seen += &text(&store.tx_events(tx.tx_id()).await.unwrap());
        }
        seen
    }

    async fn finish(&self) -> String {
        let mut seen = String::new();
        for n in 1..3 {
            seen += &self.look(&fixtures::submitter(n)).await;
        }
        seen + &text(&self.world.stream().await.events)
    }
}

fn lock_owner(holder: u8) -> LockOwner {
    LockOwner(Uuid::from_u128(u128::from(holder) + 100))
}

fn text(value: &impl Debug) -> String {
    format!("{value:?}")
}

/// The reason of a refusal is the store's own word; that it is refused is not.
fn verdict_text(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Refused { .. } => "Refused".into(),
        other => text(other),
    }
}

fn unbind_last(lane: &Lane, draft: &mut Draft, txs: &[(TxId, TxFacts)]) {
    let run = lane.run();
    let Some(last) = run.next.0.checked_sub(1).map(Nonce) else { return };
    draft.cursor.run = Some(Run { next: last, ..run });
    draft.writes.unbound = vec![last];
    let owner = txs.iter().find(|(_, facts)| facts.nonce == Some(last));
    if let Some((tx_id, facts)) = owner {
        let told = vec![Told::plain(EventKind::TxRequeued)];
        let write = TxWrite::new(*tx_id, facts, &[TxEvent::Unbind], told, |facts| {
            (facts.nonce, facts.tx_hash, facts.sub_state) = (None, None, None);
        });
        draft.writes.txs.extend(write);
    }
}

/// Numbers drawn from a sequence may have holes where requests were repeated; their order may not differ.
/// Each is replaced by its rank of appearance.
#[derive(Default)]
struct Ranks(Vec<String>);

impl Ranks {
    fn replace(&mut self, text: &str) -> String {
        let mut parts = text.split("Order(");
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (number, rest) = part.split_once(')').unwrap();
            let rank = self.0.iter().position(|known| known == number).unwrap_or_else(|| {
                self.0.push(number.to_owned());
                self.0.len() - 1
            });
            out += &format!("Order#{rank}{rest}");
        }
        out
    }
}

async fn play_both(ops: &[Op], mut model: Player, mut real: Player) -> Result<(), TestCaseError> {
    let (mut model_ranks, mut real_ranks) = (Ranks::default(), Ranks::default());
    for (n, op) in ops.iter().enumerate() {
        let expected = model_ranks.replace(&model.step(op).await);
        let found = real_ranks.replace(&real.step(op).await);
        prop_assert_eq!(expected, found, "step {}: {:?}", n, op);
    }
    let expected = model_ranks.replace(&model.finish().await);
    prop_assert_eq!(expected, real_ranks.replace(&real.finish().await), "the final state");
    Ok(())
}

fn compare<F: Future<Output = World>>(cases: u32, steps: usize, real: impl Fn() -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let config = Config { cases, max_shrink_iters: 400, ..Config::with_source_file(file!()) };
    let sequences = proptest::collection::vec(op(), 1..steps);
    let outcome = TestRunner::new(config).run(&sequences, |ops| {
        runtime.block_on(async {
            play_both(&ops, Player::new(world::memory()).await, Player::new(real().await).await).await
        })
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

#[test]
fn sqlite_answers_as_the_model_does() {
    compare(60, 80, world::sqlite);
}

#[test]
fn postgres_answers_as_the_model_does() {
    compare(60, 80, world::postgres);
}
