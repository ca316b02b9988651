//! Ten lanes that accept, bind, mine and confirm, driven through the port in batches.
//!
//! Only the time inside store calls is counted: drafting a change is the engine's cost, not the store's.

use std::time::Duration;

use alloy_primitives::{Address, Bytes, keccak256};
use anyhow::{Context, Result, bail};
use gapless_core::change::{LaneChange, Verdict};
use gapless_core::cursor::Run;
use gapless_core::ids::{Nonce, RequestId, Scope, TxId};
use gapless_core::intent::{Intent, Payload};
use gapless_core::lease::{LeaseTerms, Owner};
use gapless_core::ports::clock::Clock;
use gapless_core::ports::store::Store;
use gapless_core::record::{Accepted, NewTx, TxFacts, TxRecord};
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use gapless_store::clock::SystemClock;
use gapless_testkit::fixtures::{self, Lane, after};

use crate::stats::Stopwatch;

/// Lanes of the workload.
pub const LANES: usize = 10;

/// What a commit does to the transactions in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Signed bytes are stored under the next nonces.
    Bind,
    /// They are in a block.
    Mined,
    /// That block is deep enough.
    Final,
}

impl Step {
    /// In the order a transaction passes through them.
    pub const ALL: [Self; 3] = [Self::Bind, Self::Mined, Self::Final];

    /// Its name in the tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bind => "bind",
            Self::Mined => "mined",
            Self::Final => "final",
        }
    }
}

/// A transaction on its way, with the lane it belongs to.
#[derive(Debug, Clone)]
pub struct Tracked {
    /// Which of the lanes.
    pub lane: usize,
    /// As it stands.
    pub record: TxRecord,
}

impl Tracked {
    fn facts(&self) -> (TxId, TxFacts) {
        (self.record.tx_id(), self.record.facts.clone())
    }
}

/// Lanes held by one node, and a source of requests for them.
#[derive(Debug)]
pub struct Workload {
    owner: Owner,
    terms: LeaseTerms,
    lanes: Vec<Lane>,
    start: Nonce,
    drawn: u64,
    block: u64,
}

/// Longer than any run: nobody renews here.
fn terms() -> Result<LeaseTerms> {
    Ok(LeaseTerms::new(Duration::from_secs(3_600), Duration::from_secs(1))?)
}

impl Workload {
    /// Registers and takes the lanes. Their nonces begin at `start`.
    pub async fn open(store: &dyn Store, start: Nonce) -> Result<Self> {
        let owner = fixtures::owner("bench", SystemClock.draw().as_u128())?;
        let terms = terms()?;
        let submitters: Vec<SubmitterId> = (0..LANES as u64).map(fixtures::submitter).collect();
        register(store, &submitters).await?;
        let mut lanes = Vec::with_capacity(LANES);
        for submitter in &submitters {
            let lane = Lane::take(store, &owner, submitter, &terms).await?;
            lanes.push(lane.with_context(|| format!("{submitter:?} is held by somebody else"))?);
        }
        Ok(Self { owner, terms, lanes, start, drawn: 0, block: 1_000 })
    }

    /// Who holds the lanes.
    #[must_use]
    pub const fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The terms of their leases.
    #[must_use]
    pub const fn terms(&self) -> &LeaseTerms {
        &self.terms
    }

    /// The lanes.
    #[must_use]
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// New requests, lane after lane in turn.
    pub fn requests(&mut self, count: usize) -> Result<Vec<NewTx>> {
        (0..count)
            .map(|_| {
                let lane = (self.drawn % LANES as u64) as usize;
                self.drawn += 1;
                request(self.lanes[lane].grant.submitter(), self.drawn)
            })
            .collect()
    }

    /// One new request of a lane.
    pub fn request_of(&mut self, lane: usize) -> Result<NewTx> {
        self.drawn += 1;
        request(self.lanes[lane].grant.submitter(), self.drawn)
    }

    /// Accepts requests in one call: the time it took, and the transactions.
    pub async fn accept(&self, store: &dyn Store, items: &[NewTx]) -> Result<(Duration, Vec<Tracked>)> {
        let watch = Stopwatch::start();
        let answers = store.accept(items).await?;
        let taken = watch.elapsed();
        let tracked = items.iter().zip(&answers).map(|(item, answer)| self.tracked(item, answer));
        Ok((taken, tracked.collect::<Result<_>>()?))
    }

    fn tracked(&self, item: &NewTx, answer: &Accepted) -> Result<Tracked> {
        let Accepted::New { order, .. } = answer else { bail!("a new request was answered {answer:?}") };
        let owned = |lane: &Lane| *lane.grant.submitter() == item.submitter;
        let lane = self.lanes.iter().position(owned).context("a request of no lane of ours")?;
        let at = Timestamp::from_micros(1_700_000_000_000_000);
        let record = TxRecord {
            request: item.clone(),
            order: *order,
            created_at: at,
            facts: TxFacts::accepted(),
            updated_at: at,
            fencing_token: None,
        };
        Ok(Tracked { lane, record })
    }

    /// Takes these transactions one step further, all lanes in one commit: the time the store took.
    pub async fn commit(&mut self, store: &dyn Store, step: Step, txs: &mut [Tracked]) -> Result<Duration> {
        self.block += 1;
        let mut lanes = Vec::new();
        let mut changes = Vec::new();
        for lane in 0..self.lanes.len() {
            let members: Vec<&Tracked> = txs.iter().filter(|tx| tx.lane == lane).collect();
            if !members.is_empty() {
                changes.push(self.draft(step, lane, &members));
                lanes.push(lane);
            }
        }
        let watch = Stopwatch::start();
        let verdicts = store.commit(&changes).await?;
        let taken = watch.elapsed();
        for ((lane, change), verdict) in lanes.into_iter().zip(&changes).zip(&verdicts) {
            let Verdict::Applied { .. } = verdict else {
                bail!("a {} was answered {verdict:?}", step.name())
            };
            self.lanes[lane].follow(change, verdict);
            let members = txs.iter_mut().filter(|tx| tx.lane == lane);
            for (tx, (tx_id, facts)) in members.zip(after(change)) {
                debug_assert_eq!(tx.record.tx_id(), tx_id, "a change keeps the order of its transactions");
                tx.record.facts = facts;
            }
        }
        Ok(taken)
    }

    fn draft(&self, step: Step, lane: usize, members: &[&Tracked]) -> LaneChange {
        let lane = &self.lanes[lane];
        lane.change(|draft| {
            draft.cursor.run.get_or_insert(Run::starting_at(self.start));
            let facts = || members.iter().map(|tx| tx.facts()).collect::<Vec<_>>();
            match step {
                Step::Bind => {
                    lane.bind(draft, &members.iter().map(|tx| tx.record.clone()).collect::<Vec<_>>());
                }
                Step::Mined => lane.mine(draft, &facts(), self.block),
                Step::Final => lane.confirm(draft, &facts()),
            }
        })
    }
}

/// Registers submitters, whether or not they are known.
pub async fn register(store: &dyn Store, submitters: &[SubmitterId]) -> Result<()> {
    let settings: Vec<_> = submitters.iter().map(|submitter| (submitter.clone(), "{}".to_owned())).collect();
    store.register(&settings).await?;
    Ok(())
}

/// An ERC-20 transfer: about 200 bytes of JSON, under an id as callers draw them, in no order.
pub fn request(submitter: &SubmitterId, number: u64) -> Result<NewTx> {
    let mut data = vec![0xa9, 0x05, 0x9c, 0xbb];
    data.extend([0; 12]);
    data.extend(Address::repeat_byte(0xbe));
    data.extend([0; 24]);
    data.extend(number.to_be_bytes());
    let payload =
        Payload { to: Some(Address::repeat_byte(0xee)), data: Bytes::from(data), ..Payload::default() };
    let intent = Intent { payload, ..Intent::default() };
    let drawn = keccak256([submitter.as_str().as_bytes(), &number.to_be_bytes()].concat());
    let request_id = RequestId::parse(&format!("{:#x}", Address::from_word(drawn)))?;
    let tx_id = TxId(SystemClock.draw());
    Ok(NewTx::new(tx_id, Scope::from(submitter), submitter.clone(), request_id, intent, None)?)
}
