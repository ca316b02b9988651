//! Submitters as they are stored, looked up by many at once: whoever asks while a look is under way is answered by the next
//! one, which begins after the question. So nobody gets an old answer, and a thousand requests cost a few statements.

use std::sync::Arc;

use gapless_core::limits::MAX_PAGE;
use gapless_core::ports::store::{Store, StoreResult, SubmitterInfo};
use gapless_core::submitter::SubmitterId;

use crate::batcher::{Answerer, Batcher};

type Answer = StoreResult<Option<SubmitterInfo>>;

/// Looks submitters up.
#[derive(Clone)]
pub(crate) struct Lookups(Batcher<SubmitterId, Answer>);

/// The service behind it.
pub(crate) struct LookupService(Answerer<SubmitterId, Answer>);

impl Lookups {
    pub(crate) fn new() -> (Self, LookupService) {
        let (questions, answerer) = Batcher::new(MAX_PAGE);
        (Self(questions), LookupService(answerer))
    }

    /// One submitter, as stored now; `None` if nobody looks any more.
    pub(crate) async fn submitter(&self, name: SubmitterId) -> Option<Answer> {
        self.0.ask(name).await
    }
}

impl LookupService {
    /// Runs until nobody can ask any more.
    pub(crate) async fn run(self, store: Arc<dyn Store>) {
        self.0
            .run(move |names| {
                let store = store.clone();
                Box::pin(async move { look_up(store.as_ref(), names).await })
            })
            .await;
    }
}

async fn look_up(store: &dyn Store, names: Vec<SubmitterId>) -> Vec<Answer> {
    let mut distinct = names.clone();
    distinct.sort_unstable();
    distinct.dedup();
    match store.named_submitters(&distinct).await {
        Ok(found) => {
            let answer = |name: &SubmitterId| {
                let place = distinct.binary_search(name).ok();
                Ok(place.and_then(|place| found.get(place).cloned().flatten()))
            };
            names.iter().map(answer).collect()
        }
        Err(error) => vec![Err(error); names.len()],
    }
}
