//! The only road to fenced writes: changes of all lanes, gathered while the last commit runs, in one call.

use std::sync::Arc;

use gapless_core::change::{LaneChange, Verdict};
use gapless_core::limits::MAX_COMMIT_LANES;
use gapless_core::ports::clock::Clock;
use gapless_core::ports::store::{Store, StoreError, StoreResult};
use tracing::warn;

use crate::batcher::{Answerer, Batcher};
use crate::names;

type Answer = StoreResult<Verdict>;

/// Rows after which nothing more joins a commit: it must be over long before a session's time-out, however busy all lanes are.
const ENOUGH: usize = 2_000;

fn rows(change: &LaneChange) -> usize {
    let writes = change.writes();
    1 + writes.txs.len() + writes.attempts.len() + writes.resends.len() + writes.refusals.len()
}

/// Hands changes to the store.
#[derive(Clone)]
pub struct Writer(Batcher<LaneChange, Answer>);

/// The service behind it.
pub struct WriterService(Answerer<LaneChange, Answer>);

impl Writer {
    /// A writer and its service.
    #[must_use]
    pub fn new() -> (Self, WriterService) {
        let (batcher, answerer) = Batcher::weighing(MAX_COMMIT_LANES, rows, ENOUGH);
        (Self(batcher), WriterService(answerer))
    }

    /// Commits one lane's change, together with whatever else waits.
    pub async fn commit(&self, change: LaneChange) -> Answer {
        let gone = || StoreError::OutcomeUnknown("the writer stopped".into());
        self.0.ask(change).await.unwrap_or_else(|| Err(gone()))
    }
}

impl WriterService {
    /// Runs until every writer is dropped.
    pub async fn run(self, store: Arc<dyn Store>, clock: Arc<dyn Clock>) {
        self.0
            .run(move |changes| {
                let (store, clock) = (store.clone(), clock.clone());
                Box::pin(async move { commit(store.as_ref(), clock.as_ref(), changes).await })
            })
            .await;
    }
}

async fn commit(store: &dyn Store, clock: &dyn Clock, changes: Vec<LaneChange>) -> Vec<Answer> {
    let began = clock.tick();
    let answers = match store.commit(&changes).await {
        Ok(verdicts) => verdicts.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error); changes.len()],
    };
    metrics::histogram!(names::STORE_BATCH).record(changes.len() as f64);
    metrics::histogram!(names::STORE_COMMIT).record(clock.tick().since(began).as_secs_f64());
    for (change, answer) in changes.iter().zip(&answers) {
        log(change, answer);
    }
    answers
}

/// What was not written is said here, with the token it came under; what was, by the lane (it knows the transactions).
fn log(change: &LaneChange, answer: &Answer) {
    let submitter = change.submitter();
    let (node_id, fencing_token) = (change.owner().node(), change.token().0);
    match answer {
        Ok(Verdict::Applied { .. }) => {}
        Ok(Verdict::Fenced) => {
            metrics::counter!(names::LEASE_FENCED, "operation" => "commit").increment(1);
            warn!(%submitter, node_id, fencing_token, "fenced");
        }
        other => warn!(%submitter, node_id, fencing_token, ?other, "not written"),
    }
}
