//! Everything outside the nodes: the one store, the chain, the clients' requests, and the eye that checks.
//!
//! What happens to the store or the chain happens here, and the invariants are looked at in the same instant, before any
//! node can act on the news. The first one broken ends the run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gapless_core::change::{LaneChange, Verdict};
use gapless_core::outcome::SendOutcome;
use gapless_core::ports::store::{Store, StoreResult};
use gapless_store::memory::MemoryStore;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::chain::{SimChain, SimTx};
use crate::check::{Checker, Violation};
use crate::clock::SimClock;
use crate::dice::Dice;
use crate::scenario::Scenario;
use crate::store::short;
use crate::trace::Trace;
use crate::{Options, Sabotage};

/// How often what happened, by name.
#[derive(Default)]
pub(crate) struct Tally(Mutex<BTreeMap<&'static str, u64>>);

impl Tally {
    pub(crate) fn add(&self, what: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_insert(0) += 1;
    }

    pub(crate) fn take(&self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Second thoughts about a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Thoughts {
    pub(crate) cancelled: bool,
    pub(crate) replaced: bool,
}

pub(crate) struct World {
    pub(crate) began: Instant,
    pub(crate) dice: Arc<Dice>,
    pub(crate) trace: Trace,
    pub(crate) tally: Tally,
    pub(crate) scenario: Scenario,
    #[cfg(feature = "sabotage")]
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) store: MemoryStore,
    chain: Mutex<SimChain>,
    checker: Mutex<Checker>,
    troubled: AtomicBool,
    violation: Mutex<Option<Violation>>,
    broken: Notify,
    waiting: Mutex<String>,
    lies_until: Mutex<Option<Instant>>,
    has_lied: AtomicBool,
    /// What was asked of requests after they were accepted.
    thoughts: Mutex<BTreeMap<usize, Thoughts>>,
}

impl World {
    pub(crate) fn new(seed: u64, options: &Options) -> Arc<Self> {
        let began = Instant::now();
        let dice = Arc::new(Dice::new(seed));
        let scenario = Scenario::choose(&dice);
        let store = MemoryStore::new(Arc::new(SimClock::exact(began, dice.clone())));
        Arc::new(Self {
            began,
            trace: Trace::new(began, options.trace),
            tally: Tally::default(),
            store: sabotaged(store, options.sabotage),
            #[cfg(feature = "sabotage")]
            sabotage: options.sabotage,
            chain: Mutex::new(SimChain::new()),
            checker: Mutex::new(Checker::new(&scenario)),
            troubled: AtomicBool::new(true),
            violation: Mutex::default(),
            broken: Notify::new(),
            waiting: Mutex::default(),
            lies_until: Mutex::default(),
            has_lied: AtomicBool::new(false),
            thoughts: Mutex::default(),
            scenario,
            dice,
        })
    }

    /// What was asked of request `n` since.
    pub(crate) fn thoughts(&self, n: usize) -> Thoughts {
        let thoughts = self.thoughts.lock().unwrap_or_else(PoisonError::into_inner);
        thoughts.get(&n).copied().unwrap_or_default()
    }

    /// Somebody will ask this of request `n`.
    pub(crate) fn thinks(&self, n: usize, thoughts: Thoughts) {
        self.thoughts.lock().unwrap_or_else(PoisonError::into_inner).insert(n, thoughts);
    }

    pub(crate) fn chain(&self) -> MutexGuard<'_, SimChain> {
        self.chain.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn checker(&self) -> MutexGuard<'_, Checker> {
        self.checker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a fault of this rate happens now. None does once trouble is over.
    pub(crate) fn goes_wrong(&self, per_mille: u64) -> bool {
        self.is_troubled() && self.dice.chance(per_mille)
    }

    pub(crate) fn is_troubled(&self) -> bool {
        self.troubled.load(Ordering::Relaxed)
    }

    pub(crate) fn end_trouble(&self) {
        self.troubled.store(false, Ordering::Relaxed);
        self.trace.line("world", "trouble ends");
    }

    /// For a while the chain's endpoint calls everything invalid.
    pub(crate) fn lie_for(&self, how_long: std::time::Duration) {
        self.trace.line("chain", &format!("calls everything invalid for {how_long:?}"));
        self.has_lied.store(true, Ordering::Relaxed);
        *self.lies_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + how_long);
    }

    fn is_lying(&self) -> bool {
        let until = *self.lies_until.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_troubled() && until.is_some_and(|until| Instant::now() < until)
    }

    /// Whether transactions may have been given up as invalid.
    pub(crate) fn has_lied(&self) -> bool {
        self.has_lied.load(Ordering::Relaxed)
    }

    /// Ends the run. Only the first break counts.
    pub(crate) fn breaks(&self, violation: Violation) {
        let mut first = self.violation.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none() {
            self.trace.line("world", &format!("BROKEN {violation}"));
            *first = Some(violation);
            self.broken.notify_one();
        }
    }

    pub(crate) async fn broken(&self) {
        self.broken.notified().await;
    }

    pub(crate) fn violation(&self) -> Option<Violation> {
        self.violation.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps in mind what the end of the run waits for.
    pub(crate) fn waits_for(&self, what: String) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    pub(crate) fn waiting(&self) -> String {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn judge(&self, judged: Result<(), Violation>) {
        if let Err(violation) = judged {
            self.breaks(violation);
        }
    }

    /// Looks at everything that must hold at any time.
    pub(crate) async fn look(&self) {
        let seen = match crate::check::read(&self.store, &self.scenario.submitters).await {
            Ok(seen) => seen,
            Err(error) => {
                return self.breaks(Violation::world(&format!("the store cannot be read: {error}")));
            }
        };
        let judged = self.checker().look(&seen, &self.chain(), self.has_lied());
        self.judge(judged);
    }

    /// Fenced writes arrive at the store.
    pub(crate) async fn commit(&self, node: &str, changes: &[LaneChange]) -> StoreResult<Vec<Verdict>> {
        let now = self.store.now().await?;
        let mut before = Vec::with_capacity(changes.len());
        for change in changes {
            before.push(self.store.submitter(change.submitter()).await?);
        }
        let verdicts = self.store.commit(changes).await?;
        for ((change, verdict), before) in changes.iter().zip(&verdicts).zip(before) {
            self.trace.line(node, &describe(change, verdict));
            match verdict {
                Verdict::Applied { .. } => {
                    self.judge(crate::check::fence(change, before.as_ref(), now));
                }
                Verdict::Fenced => self.tally.add("fenced"),
                Verdict::Retry | Verdict::Refused { .. } => {}
            }
        }
        self.look().await;
        Ok(verdicts)
    }

    /// Bytes arrive at the chain.
    pub(crate) async fn receive(&self, node: &str, raw: &[u8]) -> SendOutcome {
        let Some(tx) = SimTx::decode(raw) else {
            self.breaks(Violation::world("bytes that no signer of ours made"));
            return SendOutcome::Invalid(gapless_core::text::NodeText::new("not a transaction"));
        };
        match crate::check::read(&self.store, &self.scenario.submitters).await {
            Ok(seen) => self.judge(crate::check::durable_first(&seen, &tx, raw)),
            Err(error) => self.breaks(Violation::world(&format!("the store cannot be read: {error}"))),
        }
        let outcome = if self.is_lying() {
            self.tally.add("false refusals");
            SendOutcome::Invalid(gapless_core::text::NodeText::new("never, says the node"))
        } else {
            self.chain().offer(raw)
        };
        let words = format!("send {} nonce {} {}: {}", mark(&tx), tx.nonce, tx.hash, outcome.code());
        self.trace.line(node, &words);
        if outcome.is_in_pool() && self.goes_wrong(self.scenario.rates.dropped) {
            self.forget();
        }
        outcome
    }

    fn forget(&self) {
        if let Some(tx) = self.chain().forget_one(&self.dice) {
            self.tally.add("dropped");
            self.trace.line("chain", &format!("forgets {} nonce {}", mark(&tx), tx.nonce));
        }
    }

    /// Makes blocks for ever; now and then replaces one.
    pub(crate) async fn make_blocks(self: Arc<Self>) {
        let rates = self.scenario.rates;
        let usual = u64::try_from(self.scenario.block_time.as_millis()).unwrap_or(1_000);
        loop {
            tokio::time::sleep(self.dice.millis(usual / 2..=usual * 3 / 2)).await;
            if self.goes_wrong(rates.dropped) {
                self.forget();
            }
            // As deep as anything can be that is not final yet.
            let depth = self.dice.between(1..=self.scenario.settings.confirmations) as usize;
            let replaced = if self.goes_wrong(rates.reorg) {
                self.chain().reorg(depth, &self.dice, rates.dropped)
            } else {
                None
            };
            let words = match replaced {
                Some((gone, head)) => {
                    self.tally.add("reorgs");
                    format!("block {} {} replaces {}", head.number, head.hash, gone.hash)
                }
                None => {
                    let head = self.chain().mine(&self.dice);
                    format!("block {} {}", head.number, head.hash)
                }
            };
            let head = self.chain().head();
            let marks: Vec<String> = self
                .chain()
                .canonical()
                .take_while(|placed| placed.block == head)
                .map(|placed| mark(&placed.tx))
                .collect();
            self.trace.line("chain", &format!("{words} [{}]", marks.join(", ")));
            self.look().await;
        }
    }
}

fn mark(tx: &SimTx) -> String {
    String::from_utf8_lossy(&tx.mark).into_owned()
}

fn describe(change: &LaneChange, verdict: &Verdict) -> String {
    let writes = change.writes();
    let run = change.cursor().run.map_or("no run".to_owned(), |run| {
        format!("next {} consumed {} resolved {}", run.next, run.consumed, run.resolved)
    });
    let states: Vec<&str> = writes.txs.iter().map(|write| write.facts().state.name()).collect();
    let verdict = match verdict {
        Verdict::Applied { version } => format!("applied, version {version}"),
        other => format!("{other:?}"),
    };
    format!(
        "commit {} token {} on version {} [{run}] {states:?}, {} new bytes, {} resends: {verdict}",
        short(change.submitter()),
        change.token(),
        change.expected(),
        writes.attempts.len(),
        writes.resends.len(),
    )
}

#[cfg(feature = "sabotage")]
fn sabotaged(store: MemoryStore, sabotage: Option<Sabotage>) -> MemoryStore {
    if sabotage == Some(Sabotage::NoFence) { store.without_fence() } else { store }
}

#[cfg(not(feature = "sabotage"))]
fn sabotaged(store: MemoryStore, _: Option<Sabotage>) -> MemoryStore {
    store
}
