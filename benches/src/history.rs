//! What lane operations cost with a long history behind them.
//!
//! The trap: a statement prepared on small tables keeps its plan when they have grown, and nobody analyses them
//! in time. So sessions prepare their statements on tables of no or few rows, the history is poured in behind their
//! back, and they go on with the plans they have. Several sessions do, each a little later than the one before,
//! since small differences decide which plan it is; the session that loses most counts. A second database on the same server stays empty; each operation
//! runs on both in turns, so that a noisy moment hits both.

mod fill;
mod side;

use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::server::Server;
use crate::stats::{Stopwatch, median, micros};
use crate::workload::LANES;
use side::Side;

/// Where a plan scans the history, turns take long: after this time a few of them say enough.
const PATIENCE: Duration = Duration::from_secs(20);

/// Operations of the store, as measured here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Acquire,
    Renew,
    Accept,
    PeekQueue,
    Bind,
    LoadLane,
    Mined,
    Final,
    Claimable,
    TxByRequest,
    TxEvents,
    EventsAfter,
}

impl Op {
    /// In the order they are run; a transaction moves on through each turn.
    const ALL: [Self; 12] = [
        Self::Acquire,
        Self::Renew,
        Self::Accept,
        Self::PeekQueue,
        Self::Bind,
        Self::LoadLane,
        Self::Mined,
        Self::Final,
        Self::Claimable,
        Self::TxByRequest,
        Self::TxEvents,
        Self::EventsAfter,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Acquire => "acquire (own lease)",
            Self::Renew => "renew (10 leases)",
            Self::Accept => "accept (1)",
            Self::PeekQueue => "peek_queue (16)",
            Self::Bind => "commit bind (1)",
            Self::LoadLane => "load_lane (16 slots)",
            Self::Mined => "commit mined (1)",
            Self::Final => "commit final (1)",
            Self::Claimable => "claimable",
            Self::TxByRequest => "tx_by_request",
            Self::TxEvents => "tx_events",
            Self::EventsAfter => "events_after (tail)",
        }
    }

    /// Whether a lane does it. The others are the API's.
    const fn of_lane(self) -> bool {
        !matches!(self, Self::Accept | Self::TxByRequest | Self::TxEvents | Self::EventsAfter)
    }
}

/// Medians of one operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpCost {
    /// The operation.
    pub op: String,
    /// Whether a lane does it; the target counts these.
    pub of_lane: bool,
    /// With an empty history, in the same session and turns.
    pub empty_us: f64,
    /// With the history, in the session that loses most by it.
    pub grown_us: f64,
    /// How many transactions there were when that session had made its plans.
    pub planned_at: usize,
}

impl OpCost {
    /// How many times an empty history's cost.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.grown_us / self.empty_us
    }
}

/// All operations with a history of one length.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HistoryCost {
    /// Finished transactions; as many attempts and rows of events.
    pub finished: usize,
    /// Whether the tables were vacuumed and analysed since they grew.
    pub analysed: bool,
    /// The operations.
    pub ops: Vec<OpCost>,
}

/// How long a history, and how often each operation is timed.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Lengths, ascending.
    pub lengths: Vec<usize>,
    /// Turns per length.
    pub turns: usize,
}

/// Measures every length, the last one also after VACUUM ANALYZE.
pub async fn measure(server: &Server, plan: &Plan, tell: &dyn Fn(&str)) -> Result<Vec<HistoryCost>> {
    let mut empty = Side::open(server, "empty").await?;
    let mut grown = Side::open(server, "grown").await?;
    let mut found = Vec::new();
    let mut length = 0;
    for next in &plan.lengths {
        if *next > length {
            tell(&format!("history: filling in {} finished transactions", next - length));
            fill::pour(server, grown.database(), length, *next).await?;
            length = *next;
        }
        tell(&format!("history: timing {} turns with {length} finished transactions", plan.turns));
        let ops = compare(server, &mut empty, &mut grown, plan.turns).await?;
        found.push(HistoryCost { finished: length, analysed: false, ops });
    }
    tell("history: once more after VACUUM ANALYZE");
    fill::vacuum(server, grown.database()).await?;
    let ops = compare(server, &mut empty, &mut grown, plan.turns).await?;
    found.push(HistoryCost { finished: length, analysed: true, ops });
    Ok(found)
}

/// Times every operation on both sides, in turns.
async fn compare(server: &Server, empty: &mut Side, grown: &mut Side, turns: usize) -> Result<Vec<OpCost>> {
    // What the filling left dirty is written out now, not while somebody is timed.
    server.run("CHECKPOINT").await?;
    empty.skip_events(server).await?;
    grown.skip_events(server).await?;
    let sessions = grown.sessions();
    let mut times: Vec<Times> = Op::ALL.iter().map(|_| Times::of(sessions)).collect();
    // The first turns touch each page for the first time after the checkpoint.
    let unrecorded = LANES * sessions;
    let watch = Stopwatch::start();
    for turn in 0..turns + unrecorded {
        if watch.elapsed() > PATIENCE && turn >= 2 * unrecorded {
            break;
        }
        // Every lane has its turn in every session.
        let session = turn / LANES % sessions;
        for (op, times) in Op::ALL.into_iter().zip(&mut times) {
            let doing = || format!("timing {}", op.name());
            let (on_empty, on_grown) = if turn % 2 == 0 {
                let first = empty.time(op, turn, session).await.with_context(doing)?;
                (first, grown.time(op, turn, session).await.with_context(doing)?)
            } else {
                let first = grown.time(op, turn, session).await.with_context(doing)?;
                (empty.time(op, turn, session).await.with_context(doing)?, first)
            };
            if turn >= unrecorded {
                let (of_empty, of_grown) = &mut times.0[session];
                of_empty.push(micros(on_empty));
                of_grown.push(micros(on_grown));
            }
        }
    }
    Ok(Op::ALL.into_iter().zip(times).map(|(op, times)| times.cost(op)).collect())
}

/// Times of one operation in each session: on the empty side and on the grown one.
struct Times(Vec<(Vec<f64>, Vec<f64>)>);

impl Times {
    fn of(sessions: usize) -> Self {
        Self(vec![(Vec::new(), Vec::new()); sessions])
    }

    /// The session that lost most by the history.
    fn cost(self, op: Op) -> OpCost {
        let medians = self.0.into_iter().map(|(empty, grown)| (median(empty), median(grown))).enumerate();
        let worst = medians.max_by(|(_, a), (_, b)| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
        let (session, (empty_us, grown_us)) = worst.unwrap_or_default();
        let planned_at = side::FIRST_BATCHES.iter().take(session + 1).sum();
        OpCost { op: op.name().to_owned(), of_lane: op.of_lane(), empty_us, grown_us, planned_at }
    }
}
