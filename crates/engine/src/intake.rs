//! Accepting with natural group commit: what arrives while one commit runs goes into the next.

use std::sync::Arc;

use gapless_core::limits::MAX_ACCEPT_BATCH;
use gapless_core::ports::store::{Store, StoreError, StoreResult};
use gapless_core::record::{Accepted, NewTx};
use gapless_core::submitter::SubmitterId;
use tokio::sync::mpsc;

use crate::batcher::{Answerer, Batcher};
use crate::names;
use crate::points::{Point, Points};

type Answer = StoreResult<Accepted>;

/// Takes requests.
#[derive(Clone)]
pub struct Intake(Batcher<NewTx, Answer>);

/// The service behind it.
pub struct IntakeService(Answerer<NewTx, Answer>);

impl Intake {
    /// An intake and its service.
    #[must_use]
    pub fn new() -> (Self, IntakeService) {
        let (batcher, answerer) = Batcher::new(MAX_ACCEPT_BATCH);
        (Self(batcher), IntakeService(answerer))
    }

    /// Accepts one request, together with whatever else waits.
    pub async fn accept(&self, item: NewTx) -> Answer {
        let stopped = || StoreError::Unavailable("this node is stopping".into());
        self.0.ask(item).await.unwrap_or_else(|| Err(stopped()))
    }
}

impl IntakeService {
    /// Runs until every intake is dropped. `work` hears of submitters that have something new.
    pub async fn run(self, store: Arc<dyn Store>, work: mpsc::Sender<SubmitterId>, points: Points) {
        self.0
            .run(move |items| {
                let (store, work, points) = (store.clone(), work.clone(), points.clone());
                Box::pin(async move { accept(store.as_ref(), &work, &points, items).await })
            })
            .await;
    }
}

async fn accept(
    store: &dyn Store,
    work: &mpsc::Sender<SubmitterId>,
    points: &Points,
    items: Vec<NewTx>,
) -> Vec<Answer> {
    let answers: Vec<Answer> = match store.accept(&items).await {
        Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error); items.len()],
    };
    let mut told = std::collections::BTreeSet::new();
    for (item, answer) in items.iter().zip(&answers) {
        let result = match answer {
            Ok(Accepted::New { .. }) => "new",
            Ok(Accepted::Known(_)) => "known",
            Ok(Accepted::Mismatch { .. }) => "mismatch",
            Ok(Accepted::UnknownSubmitter) => "unknown_submitter",
            Ok(Accepted::Poison { .. }) => "poison",
            Err(_) => "error",
        };
        metrics::counter!(names::TX_CREATE, "result" => result).increment(1);
        if result == "new" {
            points.reach(Point::AfterAcceptCommit);
            if told.insert(&item.submitter) {
                // A full channel means that the keeper is busy claiming; its sweep finds what is dropped here.
                let _ = work.try_send(item.submitter.clone());
            }
        }
    }
    answers
}
