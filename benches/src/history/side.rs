//! One database with lanes at work: the one that stays empty, or the one that grows.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gapless_core::event::EventCursor;
use gapless_core::ids::Nonce;
use gapless_core::lease::Grant;
use gapless_core::ports::store::{Acquired, Renewal, Store};
use gapless_core::submitter::SubmitterId;
use gapless_testkit::fixtures;
use sqlx::Connection;

use super::{Op, fill};
use crate::server::{Database, Server};
use crate::stats::Stopwatch;
use crate::workload::{LANES, Step, Tracked, Workload, register, request};

/// Transactions that stand in each lane's queue, and slots that are bound and mined, throughout.
const QUEUED: usize = 16;
const BOUND: usize = 8;
const MINED: usize = 8;

/// Submitters with a queue that nobody holds.
const ORPHANS: std::ops::Range<u64> = 100..102;

/// Where the measured lanes' nonces begin: above the history's.
const START: Nonce = Nonce(100_000_000);

/// Transactions of one lane, by how far they are.
#[derive(Debug, Default)]
struct Pipeline {
    queued: VecDeque<Tracked>,
    bound: VecDeque<Tracked>,
    mined: VecDeque<Tracked>,
    ended: Option<Tracked>,
}

pub(super) struct Side {
    database: Database,
    load: Workload,
    pipelines: Vec<Pipeline>,
    cursor: EventCursor,
}

impl Side {
    /// A new database with lanes at work and every statement prepared. One connection for all work, so that
    /// no later call can meet a session with fresher plans.
    pub(super) async fn open(server: &Server, name: &str) -> Result<Self> {
        let database = server.store(name, Some(1)).await?;
        fill::still(server, &database.name).await?;
        let store = &database.store;
        let others: Vec<SubmitterId> = fill::OTHERS.chain(ORPHANS).map(fixtures::submitter).collect();
        register(store, &others).await?;
        for orphan in ORPHANS {
            store.accept(&[request(&fixtures::submitter(orphan), orphan)?]).await?;
        }
        let load = Workload::open(store, START).await?;
        let cursor = EventCursor::start(store.epoch().await?);
        let pipelines = (0..LANES).map(|_| Pipeline::default()).collect();
        let mut side = Self { database, load, pipelines, cursor };
        side.fill_pipelines().await?;
        for turn in 0..2 * LANES {
            for op in Op::ALL {
                side.time(op, turn).await?;
            }
        }
        side.warm_lease_sessions().await?;
        Ok(side)
    }

    pub(super) fn database(&self) -> &str {
        &self.database.name
    }

    async fn fill_pipelines(&mut self) -> Result<()> {
        for lane in 0..LANES {
            for _ in 0..QUEUED + BOUND + MINED {
                self.accept(lane).await?;
            }
            for _ in 0..BOUND + MINED {
                self.advance(lane, Step::Bind).await?;
            }
            for _ in 0..MINED {
                self.advance(lane, Step::Mined).await?;
            }
        }
        Ok(())
    }

    /// Leases have two connections; both must have their plans.
    async fn warm_lease_sessions(&self) -> Result<()> {
        let (store, terms, owner) = (&self.database.store, self.load.terms(), self.load.owner());
        let (grants, submitters) = (self.grants(), [fixtures::submitter(0)]);
        for _ in 0..8 {
            let (a, b) = tokio::join!(store.renew(&grants, terms), store.renew(&grants, terms));
            let (c, d) = tokio::join!(
                store.acquire(owner, &submitters, terms),
                store.acquire(owner, &submitters, terms)
            );
            (a?, b?, c?, d?);
        }
        Ok(())
    }

    fn grants(&self) -> Vec<Grant> {
        self.load.lanes().iter().map(|lane| lane.grant.clone()).collect()
    }

    async fn accept(&mut self, lane: usize) -> Result<Duration> {
        let item = self.load.request_of(lane)?;
        let (taken, accepted) = self.load.accept(&self.database.store, &[item]).await?;
        self.pipelines[lane].queued.extend(accepted);
        Ok(taken)
    }

    /// Takes a lane's oldest transaction of the stage before `step` through it.
    async fn advance(&mut self, lane: usize, step: Step) -> Result<Duration> {
        let pipeline = &mut self.pipelines[lane];
        let from = match step {
            Step::Bind => &mut pipeline.queued,
            Step::Mined => &mut pipeline.bound,
            Step::Final => &mut pipeline.mined,
        };
        let mut txs = [from.pop_front().context("a lane ran dry")?];
        let taken = self.load.commit(&self.database.store, step, &mut txs).await?;
        let [tx] = txs;
        match step {
            Step::Bind => pipeline.bound.push_back(tx),
            Step::Mined => pipeline.mined.push_back(tx),
            Step::Final => pipeline.ended = Some(tx),
        }
        Ok(taken)
    }

    /// Reads on from here: what the history told is not the tail.
    pub(super) async fn skip_events(&mut self, server: &Server) -> Result<()> {
        let mut connection = server.connect(&self.database.name).await?;
        let xid: i64 = sqlx::query_scalar("SELECT pg_current_xact_id()::text::bigint")
            .fetch_one(&mut connection)
            .await?;
        connection.close().await?;
        self.cursor.commit = xid.unsigned_abs();
        (self.cursor.row, self.cursor.taken) = (0, 0);
        Ok(())
    }

    /// Runs one operation and checks that it did what it should.
    pub(super) async fn time(&mut self, op: Op, turn: usize) -> Result<Duration> {
        let lane = turn % LANES;
        match op {
            Op::Accept => return self.accept(lane).await,
            Op::Bind => return self.advance(lane, Step::Bind).await,
            Op::Mined => return self.advance(lane, Step::Mined).await,
            Op::Final => return self.advance(lane, Step::Final).await,
            _ => {}
        }
        let store = &self.database.store;
        let (owner, terms) = (self.load.owner(), self.load.terms());
        let submitter = self.load.lanes()[lane].grant.submitter();
        let ended = || self.pipelines[lane].ended.as_ref().context("nothing ended yet");
        let grants = if op == Op::Renew { self.grants() } else { Vec::new() };
        let watch = Stopwatch::start();
        let taken = match op {
            Op::Acquire => {
                let acquired = store.acquire(owner, std::slice::from_ref(submitter), terms).await?;
                let taken = watch.elapsed();
                ensure!(matches!(acquired[..], [Acquired::Held { .. }]), "{acquired:?}");
                taken
            }
            Op::Renew => {
                let renewed = store.renew(&grants, terms).await?;
                let taken = watch.elapsed();
                ensure!(renewed.iter().all(|renewal| *renewal != Renewal::Lost), "{renewed:?}");
                taken
            }
            Op::PeekQueue => {
                let queue = store.peek_queue(submitter, QUEUED).await?;
                let taken = watch.elapsed();
                ensure!(queue.len() == QUEUED, "{} in the queue", queue.len());
                taken
            }
            Op::LoadLane => {
                let lane = store.load_lane(submitter).await?.context("no such lane")?;
                let taken = watch.elapsed();
                ensure!(lane.txs.len() == BOUND + MINED + 1, "{} slots", lane.txs.len());
                taken
            }
            Op::Claimable => {
                let claimable = store.claimable(terms, 100).await?;
                let taken = watch.elapsed();
                ensure!(claimable.len() == ORPHANS.count(), "{claimable:?}");
                taken
            }
            Op::TxByRequest => {
                let request = &ended()?.record.request;
                let found = store.tx_by_request(&request.scope, &request.request_id).await?;
                let taken = watch.elapsed();
                ensure!(found.is_some_and(|tx| tx.facts.ended_at.is_some()), "not found, or not ended");
                taken
            }
            Op::TxEvents => {
                let events = store.tx_events(ended()?.record.tx_id()).await?;
                let taken = watch.elapsed();
                ensure!(events.len() == 4, "{events:?}");
                taken
            }
            Op::EventsAfter => {
                let page = store.events_after(Some(self.cursor), 100).await?;
                let taken = watch.elapsed();
                ensure!(!page.events.is_empty(), "nothing was told");
                self.cursor = page.next;
                taken
            }
            Op::Accept | Op::Bind | Op::Mined | Op::Final => watch.elapsed(),
        };
        Ok(taken)
    }
}
