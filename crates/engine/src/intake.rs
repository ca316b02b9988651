//! Accepting with natural group commit: what arrives while one commit runs goes into the next.
//!
//! A caller's group is never torn apart: it is one part of one accept call.

use std::sync::Arc;
use std::time::Duration;

use gapless_core::limits::MAX_ACCEPT_BATCH;
use gapless_core::ports::store::{Store, StoreError, StoreResult};
use gapless_core::record::{Accepted, NewTx};
use gapless_core::submitter::SubmitterId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::batcher::{Answerer, Batcher, Beside};
use crate::points::{Point, Points};

/// What became of a request, and the request.
type Answer = StoreResult<(Accepted, NewTx)>;
type Group = (Vec<NewTx>, OwnedSemaphorePermit);

/// Calls to the store at once, when one cannot hold all that wait. One that is not full makes the next wait, and grow.
const BESIDE: Beside = Beside { after: Duration::MAX, most: 2 };

/// Items that may be with the store or wait for it.
const ROOM: usize = 4 * MAX_ACCEPT_BATCH;

/// Takes requests.
#[derive(Clone)]
pub struct Intake {
    groups: Batcher<Group, Vec<Answer>>,
    room: Arc<Semaphore>,
}

/// The service behind it.
pub struct IntakeService(Answerer<Group, Vec<Answer>>);

fn stopped() -> StoreError {
    StoreError::Unavailable("this node is stopping".into())
}

impl Intake {
    /// An intake and its service.
    #[must_use]
    pub fn new() -> (Self, IntakeService) {
        let items = |group: &Group| group.0.len();
        let (groups, answerer) = Batcher::weighing(MAX_ACCEPT_BATCH, items, MAX_ACCEPT_BATCH);
        let answerer = answerer.beside(BESIDE);
        (Self { groups, room: Arc::new(Semaphore::new(ROOM)) }, IntakeService(answerer))
    }

    /// Accepts a group of requests in one call, in its order, together with whatever else waits. One answer each.
    pub async fn accept(&self, items: Vec<NewTx>) -> Vec<Answer> {
        let given = items.len();
        if given > MAX_ACCEPT_BATCH {
            let error = StoreError::TooMany { what: "accept", given, limit: MAX_ACCEPT_BATCH };
            return vec![Err(error); given];
        }
        if items.is_empty() {
            return Vec::new();
        }
        let taken = u32::try_from(given).unwrap_or(u32::MAX);
        let Ok(permit) = self.room.clone().acquire_many_owned(taken).await else {
            return vec![Err(stopped()); given];
        };
        self.groups.ask((items, permit)).await.unwrap_or_else(|| vec![Err(stopped()); given])
    }
}

impl IntakeService {
    /// Runs until every intake is dropped. `work` hears of submitters that have something new.
    pub async fn run(self, store: Arc<dyn Store>, work: mpsc::Sender<SubmitterId>, points: Points) {
        let accepting = self.0.run(move |groups| {
            let (store, work, points) = (store.clone(), work.clone(), points.clone());
            Box::pin(async move {
                let mut answers = Vec::with_capacity(groups.len());
                for call in calls(groups) {
                    answers.extend(accept(store.as_ref(), &work, &points, call).await);
                }
                answers
            })
        });
        accepting.await;
    }
}

/// Whole groups, put together into calls that the store takes.
fn calls(groups: Vec<Group>) -> Vec<Vec<Group>> {
    let mut calls: Vec<Vec<Group>> = Vec::new();
    let mut filled = 0;
    for group in groups {
        let more = group.0.len();
        match calls.last_mut() {
            Some(call) if filled + more <= MAX_ACCEPT_BATCH => {
                filled += more;
                call.push(group);
            }
            _ => {
                filled = more;
                calls.push(vec![group]);
            }
        }
    }
    calls
}

async fn accept(
    store: &dyn Store,
    work: &mpsc::Sender<SubmitterId>,
    points: &Points,
    groups: Vec<Group>,
) -> Vec<Vec<Answer>> {
    let sizes: Vec<usize> = groups.iter().map(|(items, _)| items.len()).collect();
    let (items, _permits): (Vec<Vec<NewTx>>, Vec<OwnedSemaphorePermit>) = groups.into_iter().unzip();
    let items: Vec<NewTx> = items.into_iter().flatten().collect();
    let answers: Vec<Answer> = match store.accept(&items).await {
        Ok(outcomes) => outcomes.into_iter().zip(items).map(Ok).collect(),
        Err(error) => vec![Err(error); items.len()],
    };
    let mut told = std::collections::BTreeSet::new();
    for (outcome, item) in answers.iter().flatten() {
        if matches!(outcome, Accepted::New { .. }) {
            points.reach(Point::AfterAcceptCommit);
            if told.insert(&item.submitter) {
                // A full channel means that the keeper is busy claiming; its sweep finds what is dropped here.
                let _ = work.try_send(item.submitter.clone());
            }
        }
    }
    let mut answers = answers.into_iter();
    sizes.into_iter().map(|size| answers.by_ref().take(size).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gapless_core::ids::{RequestId, Scope, TxId};
    use gapless_core::intent::Intent;

    fn group(size: usize, room: &Arc<Semaphore>) -> Group {
        let submitter: SubmitterId = "eip155:1:0x0000000000000000000000000000000000000001".parse().unwrap();
        let (scope, id) = (Scope::from(&submitter), RequestId::parse("r").unwrap());
        let mut intent = Intent::default();
        intent.payload.to = Some(alloy_primitives::Address::ZERO);
        let item = NewTx::new(TxId(uuid::Uuid::nil()), scope, submitter, id, intent, None).unwrap();
        (vec![item; size], room.clone().try_acquire_owned().unwrap())
    }

    #[test]
    fn groups_are_put_together_and_never_torn_apart() {
        let room = Arc::new(Semaphore::new(ROOM));
        let groups = [1, 999, 1, 600, 600, 1].map(|size| group(size, &room));
        let sizes: Vec<Vec<usize>> = calls(groups.into())
            .iter()
            .map(|call| call.iter().map(|group| group.0.len()).collect())
            .collect();
        assert_eq!(sizes, [vec![1, 999], vec![1, 600], vec![600, 1]]);
    }
}
