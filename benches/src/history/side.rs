//! One database with lanes at work: the one that stays empty, or the one that grows.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gapless_core::event::EventCursor;
use gapless_core::ids::Nonce;
use gapless_core::lease::Grant;
use gapless_core::ports::store::{Acquired, Renewal, Store};
use gapless_core::record::NewTx;
use gapless_core::submitter::SubmitterId;
use gapless_store::postgres::PostgresStore;
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

/// How many transactions go through a new database's sessions one after another, each session making its plans
/// on what those before it left. On a table of a page or two several indexes cost the same, and the planner may
/// take one that suits only small tables.
pub(super) const FIRST_BATCHES: [usize; 3] = [1, 16, 200];

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
    database: String,
    sessions: Vec<PostgresStore>,
    load: Workload,
    pipelines: Vec<Pipeline>,
    cursor: EventCursor,
}

impl Side {
    /// A new database with lanes at work and every statement prepared. Each session has one connection for its
    /// work, so that no later call can meet fresher plans.
    pub(super) async fn open(server: &Server, name: &str) -> Result<Self> {
        let Database { name: database, store } = server.store(name, Some(1)).await?;
        fill::still(server, &database).await?;
        let others: Vec<SubmitterId> = fill::OTHERS.chain(ORPHANS).map(fixtures::submitter).collect();
        register(&store, &others).await?;
        let load = Workload::open(&store, START).await?;
        let cursor = EventCursor::start(store.epoch().await?);
        let pipelines = (0..LANES).map(|_| Pipeline::default()).collect();
        let mut side = Self { database, sessions: Vec::new(), load, pipelines, cursor };
        for batch in FIRST_BATCHES {
            let session = server.open(&side.database, Some(1)).await?;
            side.prepare(&session, batch).await?;
            side.sessions.push(session);
        }
        store.close().await;
        for orphan in ORPHANS {
            side.sessions[0].accept(&[request(&fixtures::submitter(orphan), orphan)?]).await?;
        }
        side.fill_pipelines().await?;
        for turn in 0..LANES {
            for op in Op::ALL {
                side.time(op, turn, 0).await?;
            }
        }
        Ok(side)
    }

    pub(super) fn database(&self) -> &str {
        &self.database
    }

    pub(super) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Runs every statement as a new installation does: a node looks for work, and a batch arrives before that or
    /// after. Whatever plans that gives, the session keeps.
    async fn prepare(&mut self, store: &PostgresStore, batch: usize) -> Result<()> {
        self.warm_lease_sessions(store).await?;
        let submitter = fixtures::submitter(0);
        let items = self.load.requests(batch)?;
        let arrived =
            if self.sessions.len() % 2 == 1 { Some(self.load.accept(store, &items).await?) } else { None };
        store.claimable(self.load.terms(), None, 100).await?;
        store.peek_queue(&submitter, QUEUED).await?;
        let (_, mut txs) = match arrived {
            Some(arrived) => arrived,
            None => self.load.accept(store, &items).await?,
        };
        for step in Step::ALL {
            self.load.commit(store, step, &mut txs).await?;
            store.load_lane(&submitter).await?;
        }
        let tx = txs.first().context("an empty batch")?;
        let NewTx { scope, request_id, tx_id, .. } = &tx.record.request;
        store.tx_by_request(scope, request_id).await?;
        store.tx_events(*tx_id).await?;
        store.events_after(None, 100).await?;
        Ok(())
    }

    async fn fill_pipelines(&mut self) -> Result<()> {
        for lane in 0..LANES {
            for _ in 0..QUEUED + BOUND + MINED {
                self.accept(lane, 0).await?;
            }
            for _ in 0..BOUND + MINED {
                self.advance(lane, Step::Bind, 0).await?;
            }
            for _ in 0..MINED {
                self.advance(lane, Step::Mined, 0).await?;
            }
        }
        Ok(())
    }

    /// Leases have two connections; both must have their plans.
    async fn warm_lease_sessions(&self, store: &PostgresStore) -> Result<()> {
        let (terms, owner) = (self.load.terms(), self.load.owner());
        let (grants, submitters) = (self.grants(), [fixtures::submitter(0)]);
        for _ in 0..8 {
            let (a, b) = tokio::join!(store.renew(&grants, terms), store.renew(&grants, terms));
            let (c, d) = tokio::join!(
                store.acquire(owner, &submitters, terms),
                store.acquire(owner, &submitters, terms)
            );
            a.and(b)?;
            c.and(d)?;
        }
        Ok(())
    }

    fn grants(&self) -> Vec<Grant> {
        self.load.lanes().iter().map(|lane| lane.grant.clone()).collect()
    }

    async fn accept(&mut self, lane: usize, session: usize) -> Result<Duration> {
        let item = self.load.request_of(lane)?;
        let (taken, accepted) = self.load.accept(&self.sessions[session], &[item]).await?;
        self.pipelines[lane].queued.extend(accepted);
        Ok(taken)
    }

    /// Takes a lane's oldest transaction of the stage before `step` through it.
    async fn advance(&mut self, lane: usize, step: Step, session: usize) -> Result<Duration> {
        let pipeline = &mut self.pipelines[lane];
        let from = match step {
            Step::Bind => &mut pipeline.queued,
            Step::Mined => &mut pipeline.bound,
            Step::Final => &mut pipeline.mined,
        };
        let mut txs = [from.pop_front().context("a lane ran dry")?];
        let taken = self.load.commit(&self.sessions[session], step, &mut txs).await?;
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
        let mut connection = server.connect(&self.database).await?;
        let xid: i64 = sqlx::query_scalar("SELECT pg_current_xact_id()::text::bigint")
            .fetch_one(&mut connection)
            .await?;
        connection.close().await?;
        self.cursor.commit = xid.unsigned_abs();
        (self.cursor.row, self.cursor.taken) = (0, 0);
        Ok(())
    }

    /// Runs one operation in one of the sessions and checks that it did what it should.
    pub(super) async fn time(&mut self, op: Op, turn: usize, session: usize) -> Result<Duration> {
        let lane = turn % LANES;
        match op {
            Op::Accept => return self.accept(lane, session).await,
            Op::Bind => return self.advance(lane, Step::Bind, session).await,
            Op::Mined => return self.advance(lane, Step::Mined, session).await,
            Op::Final => return self.advance(lane, Step::Final, session).await,
            _ => {}
        }
        let store = &self.sessions[session];
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
                let claimable = store.claimable(terms, None, 100).await?;
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
