//! A lane: the single-threaded actor of one submitter on the node that holds its lease.
//!
//! It is woken by a signal, a head, a node's answer or a tick, looks at what it knows, and does what is missing, in this
//! order: commands, what nodes answered, reservations, receipts and ends, counts and health, dearer attempts, sending again,
//! binding, handing over. After acceptance only the lane changes a transaction; every change goes
//! through the fence, and nothing is sent before it is stored.
//!
//! Whatever goes wrong with a write ends in one of three ways ([`Stop`]): fenced (drop everything), in doubt (raise the
//! token, then read again), or out of step with the stored rows (read again).

mod audit;
mod bid;
mod bind;
mod broadcast;
mod canonical;
mod commands;
mod confirming;
mod deep;
mod diagnose;
mod expiry;
mod finish;
mod foreign;
mod genesis;
mod govern;
mod hand_in;
mod health;
mod lapse;
mod market;
mod memory;
mod notes;
mod ownership;
mod prepare;
mod reconcile;
mod recycle;
mod refusals;
mod reserve;
mod run;
mod said;
mod sending;
mod settle;
mod signing;
mod unread;
#[cfg(feature = "test-hooks")]
mod unstored;
mod window;

use std::sync::Arc;
use std::time::Duration;

use gapless_core::change::{Draft, LaneChange, Verdict};
use gapless_core::lane::{LaneEvent, LanePhase};
use gapless_core::ports::chain::Chain;
use gapless_core::ports::clock::Clock;
use gapless_core::ports::store::{Acquired, Parting, Store, StoreError};
use gapless_core::time::{Tick, Timestamp};
use tracing::{error, info, warn};

use crate::calls::Calls;
use crate::desk::Desk;
use crate::heads::Heads;
use crate::keeper::{LaneEnd, LaneSeat};
use crate::names;
use crate::points::{Point, Points};
use crate::policies::Policies;
use crate::registry::Submitter;
use crate::tags::Tags;
use crate::writer::Writer;
use memory::Memory;

/// Why a lane cannot go on as it is.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Somebody else acts for this submitter, or the lease is over.
    Lost,
    /// The outcome of a write is unknown.
    InDoubt,
    /// What is stored is not what was planned on.
    OutOfStep,
    /// The store does not answer; nothing was written.
    StoreDown(StoreError),
}

/// What every lane works with.
#[derive(Clone)]
pub struct Tools {
    /// The store, for reads.
    pub store: Arc<dyn Store>,
    /// The road to fenced writes.
    pub writer: Writer,
    /// The local clock.
    pub clock: Arc<dyn Clock>,
    /// Test points.
    pub points: Points,
    /// How long a lane with nothing to do keeps its lease.
    pub idle_release: Duration,
    /// What the program that embeds the engine decides for itself.
    pub policies: Policies,
    /// Where callers of this process want nonces for bytes of their own.
    pub(crate) desk: Desk,
    /// Whether bytes go out before they are stored.
    #[cfg(feature = "test-hooks")]
    pub sends_first: bool,
}

/// One chain as lanes use it.
#[derive(Clone)]
pub struct ChainTools {
    /// Single calls.
    pub chain: Arc<dyn Chain>,
    /// Batched calls.
    pub calls: Calls,
    /// Its head.
    pub heads: Heads,
    /// What it calls safe and finalized.
    pub tags: Tags,
}

/// How often a busy row is tried again before the lane gives up on a change.
const RETRIES: u32 = 50;
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// The actor.
pub struct Lane {
    seat: LaneSeat,
    submitter: Submitter,
    tools: Tools,
    chain: ChainTools,
    phase: LanePhase,
}

impl Lane {
    /// A lane on its seat.
    #[must_use]
    pub fn new(seat: LaneSeat, submitter: Submitter, tools: Tools, chain: ChainTools) -> Self {
        Self { seat, submitter, tools, chain, phase: LanePhase::Loading }
    }

    /// Runs until it is lost, told to stop, or has been idle for long enough.
    pub async fn run(mut self) -> LaneEnd {
        loop {
            let mut memory = match self.take_up().await {
                Ok(memory) => memory,
                Err(stop) => match self.recover(stop).await {
                    Some(end) => return end,
                    None => continue,
                },
            };
            let stop = match self.live(&mut memory).await {
                Ok(parting) => return LaneEnd::Parted(parting),
                Err(stop) => stop,
            };
            if let Some(end) = self.recover(stop).await {
                return end;
            }
        }
    }

    fn advance(&mut self, event: LaneEvent) {
        match self.phase.next(event) {
            Ok(next) => self.phase = next,
            Err(illegal) => {
                metrics::counter!(names::INVARIANT, "kind" => "lane_phase").increment(1);
                error!(submitter = %self.submitter.id, %illegal, "a lane took a wrong turn");
            }
        }
    }

    /// Reads stored state alone; the chain comes after.
    async fn take_up(&mut self) -> Result<Memory, Stop> {
        self.phase = LanePhase::Loading;
        self.tools.points.reach(Point::DuringTakeover);
        let snapshot = self.tools.store.load_lane(&self.submitter.id).await.map_err(Stop::StoreDown)?;
        let mut memory = Memory::load(snapshot.ok_or(Stop::Lost)?);
        memory.watch_all_used();
        self.advance(LaneEvent::Loaded);
        Ok(memory)
    }

    /// Rounds, until something stops them or nothing has happened for long.
    async fn live(&mut self, memory: &mut Memory) -> Result<Parting, Stop> {
        let mut last_work = self.tools.clock.tick();
        let mut last_look = last_work;
        loop {
            if self.seat.stop.is_cancelled() {
                let busy = memory.has_work();
                return Ok(if busy { Parting::Unfinished } else { Parting::Idle });
            }
            let next = self.round(memory).await?;
            let now = self.tools.clock.tick();
            if memory.has_work() {
                last_work = now;
            } else if now.since(last_work) >= self.tools.idle_release {
                return Ok(Parting::Idle);
            }
            // What may have been asked for is looked for soon.
            let next = if memory.commands_due { next.min(commands::PAUSE) } else { next };
            // Heads may come faster than the timer runs out, and a word about new work may be lost: look anyway.
            let told = self.wait(memory, next).await;
            let now = self.tools.clock.tick();
            if told || now.since(last_look) >= self.submitter.settings.reconcile {
                (memory.look_again, memory.commands_due) = (true, true);
                last_look = now;
            }
        }
    }

    /// Waits for a reason to look. Whether it may be new work.
    async fn wait(&mut self, memory: &mut Memory, next: Duration) -> bool {
        // Only a lane that watches slots cares about heads.
        let watches = memory.watches();
        // Its own receiver, not a copy: a copy would show the same old head as news for ever, and the lane would spin.
        let heads = &mut self.chain.heads;
        tokio::select! {
            biased;
            () = self.seat.stop.cancelled() => false,
            () = self.seat.wake.notified() => true,
            () = heads.changed(), if watches => false,
            () = memory.sending.answered() => false,
            () = tokio::time::sleep(next) => true,
        }
    }

    /// One look at the world. How long to wait if nothing else happens.
    async fn round(&mut self, memory: &mut Memory) -> Result<Duration, Stop> {
        self.lease()?;
        if self.is_another_chain(memory).await? {
            return Ok(self.submitter.settings.reconcile);
        }
        // What was asked for does not wait for the chain.
        self.execute_commands(memory).await?;
        if self.phase == LanePhase::Reconciling && !self.reconcile(memory).await? {
            return Ok(self.submitter.settings.retry);
        }
        self.take_answers(memory).await?;
        self.watch_reserved(memory).await?;
        self.settle(memory).await?;
        self.widen(memory).await?;
        self.watch_counts(memory).await?;
        self.watch_health(memory).await?;
        self.expire_bound(memory).await?;
        self.govern(memory).await?;
        self.bid_due(memory).await?;
        self.send_due(memory).await?;
        self.grant_asks(memory).await?;
        let mut more = self.bind_next(memory).await?;
        while self.reserve_next(memory).await? {
            more = self.bind_next(memory).await?;
        }
        self.fill_free(memory).await?;
        self.hand_over(memory).await?;
        self.note_market(memory).await?;
        if more {
            return Ok(Duration::ZERO);
        }
        let next = memory.next_tick(self.database_time(), &self.submitter.settings);
        Ok(next.min(self.next_reserved(memory)))
    }

    /// What to do about a stop: an end, or none to go on from stored state.
    async fn recover(&mut self, stop: Stop) -> Option<LaneEnd> {
        match stop {
            Stop::Lost => return Some(LaneEnd::Lost),
            Stop::OutOfStep => {
                self.advance(LaneEvent::OutOfStep);
                warn!(submitter = %self.submitter.id, "reading the lane again");
                // What does not fit twice in a row must not spin.
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Stop::StoreDown(error) => {
                warn!(submitter = %self.submitter.id, %error, "the store does not answer");
                tokio::time::sleep(self.submitter.settings.retry).await;
            }
            Stop::InDoubt => {
                self.advance(LaneEvent::OutcomeUnknown);
                if !self.raise_token().await {
                    return Some(LaneEnd::Lost);
                }
                self.advance(LaneEvent::Granted);
            }
        }
        if self.seat.stop.is_cancelled() {
            return Some(LaneEnd::Parted(Parting::Unfinished));
        }
        self.seat.lease.live().is_none().then_some(LaneEnd::Lost)
    }

    /// A ghost of our own write may still be on its way: fence it before reading anything.
    async fn raise_token(&self) -> bool {
        loop {
            let Some((grant, _)) = self.seat.lease.live() else { return false };
            let sent_at = self.tools.clock.tick();
            match self.tools.store.raise_token(&grant, self.seat.lease.terms()).await {
                Ok(Acquired::Held { grant, .. }) => {
                    info!(submitter = %self.submitter.id, fencing_token = grant.token().0, "token raised");
                    self.seat.lease.set(grant, sent_at);
                    return true;
                }
                Ok(Acquired::Busy) | Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
                Ok(Acquired::NotOwner { .. } | Acquired::UnknownSubmitter) => return false,
            }
        }
    }

    fn lease(&self) -> Result<gapless_core::lease::Grant, Stop> {
        self.seat.lease.live().map(|(grant, _)| grant).ok_or(Stop::Lost)
    }

    fn database_time(&self) -> Timestamp {
        self.seat.lease.database_time()
    }

    fn tick(&self) -> Tick {
        self.tools.clock.tick()
    }

    /// A draft on what this lane knows; none without a live lease.
    fn draft(&self, memory: &Memory) -> Result<Draft, Stop> {
        let (grant, sent_at) = self.seat.lease.live().ok_or(Stop::Lost)?;
        let lease =
            grant.live(sent_at, self.seat.lease.terms(), self.tools.clock.tick()).ok_or(Stop::Lost)?;
        Ok(Draft::open(&lease, &memory.cursor))
    }

    /// Writes a change and takes it over into memory.
    async fn commit(&self, memory: &mut Memory, draft: Draft) -> Result<(), Stop> {
        let change: LaneChange = match draft.seal() {
            Ok(change) => change,
            Err(unsound) => {
                metrics::counter!(names::INVARIANT, "kind" => "unsound_change").increment(1);
                error!(submitter = %self.submitter.id, %unsound, "a lane drafted what must not be");
                return Err(Stop::OutOfStep);
            }
        };
        for _ in 0..RETRIES {
            match self.tools.writer.commit(change.clone()).await {
                Ok(verdict @ Verdict::Applied { version }) => {
                    said::written(memory, &change, version);
                    self.audit(memory, &change);
                    memory.take_over(&change, &verdict, self.database_time());
                    return Ok(());
                }
                Ok(Verdict::Retry) => tokio::time::sleep(RETRY_PAUSE).await,
                Ok(Verdict::Fenced) => return Err(Stop::Lost),
                Ok(Verdict::Refused { reason }) => {
                    error!(submitter = %self.submitter.id, %reason, "a change was refused");
                    return Err(Stop::OutOfStep);
                }
                Err(StoreError::OutcomeUnknown(_)) => return Err(Stop::InDoubt),
                Err(error) => return Err(Stop::StoreDown(error)),
            }
        }
        Err(Stop::OutOfStep)
    }
}
