//! Accepting requests: checked, let through the gate, accepted in one call, answered each in its place.
//!
//! A repeat of an accepted request gets its answer before any refusal: what the gate turns away is first looked up.

use std::collections::{BTreeMap, HashMap};

use gapless_core::ids::{RequestId, Scope, TxId};
use gapless_core::intent::Intent;
use gapless_core::ports::store::StoreResult;
use gapless_core::record::{Accepted, Metadata, NewTx, TxRecord};
use gapless_core::submitter::SubmitterId;

use crate::gate::Pass;
use crate::handle::{Handle, Refusal};
use crate::names;
use crate::view::TxView;

/// A request before it is checked.
#[derive(Debug, Clone)]
pub struct Request {
    /// The account.
    pub submitter: SubmitterId,
    /// The caller's name for it.
    pub request_id: RequestId,
    /// What and how.
    pub intent: Intent,
    /// The caller's notes.
    pub metadata: Option<Metadata>,
}

/// An accepted request.
#[derive(Debug, Clone)]
pub struct Submitted {
    /// Whether it is new (202) or known (200).
    pub new: bool,
    /// Its view.
    pub view: TxView,
}

type Answer = Result<Submitted, Refusal>;

impl Handle {
    /// Accepts a request: idempotent, any node.
    pub async fn submit(&self, request: Request) -> Answer {
        let answers = self.submit_many(vec![request]).await;
        answers.into_iter().next().unwrap_or(Err(Refusal::UnknownTransaction))
    }

    /// Accepts requests, each by itself and all in one call; requests of one submitter keep their order. One answer
    /// each, in order.
    pub async fn submit_many(&self, requests: Vec<Request>) -> Vec<Answer> {
        let began = self.clock.tick();
        let mut answers: Vec<Option<Answer>> = requests.iter().map(|_| None).collect();
        let mut items = Vec::with_capacity(requests.len());
        for (place, request) in requests.into_iter().enumerate() {
            let Request { submitter, request_id, intent, metadata } = request;
            let (scope, tx_id) = (Scope::from(&submitter), TxId(self.clock.draw()));
            match NewTx::new(tx_id, scope, submitter, request_id, intent, metadata) {
                Ok(item) => items.push((place, item)),
                Err(error) => answers[place] = Some(Err(error.into())),
            }
        }
        let (passed, turned_away) = self.sort_out(items).await;
        for (place, answer) in self.accept(passed).await {
            answers[place] = Some(answer);
        }
        for (place, item, refusal) in turned_away {
            answers[place] = Some(self.known_or(&item, refusal).await);
        }
        let answers: Vec<Answer> =
            answers.into_iter().map(|answer| answer.unwrap_or(Err(Refusal::UnknownTransaction))).collect();
        answers.iter().for_each(count);
        metrics::histogram!(names::ACCEPT_SECONDS).record(self.clock.tick().since(began).as_secs_f64());
        answers
    }

    /// Whom the gate lets in, and whom not.
    async fn sort_out(
        &self,
        items: Vec<(usize, NewTx)>,
    ) -> (Vec<(usize, NewTx)>, Vec<(usize, NewTx, Refusal)>) {
        let mut wanted: BTreeMap<SubmitterId, u64> = BTreeMap::new();
        for (_, item) in &items {
            *wanted.entry(item.submitter.clone()).or_default() += 1;
        }
        let mut verdicts = self.gate.judge(&wanted).await;
        let (mut passed, mut turned_away) = (Vec::with_capacity(items.len()), Vec::new());
        for (place, item) in items {
            let refusal = match verdicts.get_mut(&item.submitter) {
                Some(Ok(Pass::Room(0))) => self.gate.full(),
                Some(Ok(Pass::Room(room))) => {
                    *room -= 1;
                    passed.push((place, item));
                    continue;
                }
                Some(Ok(Pass::Closed(refusal))) => refusal.clone(),
                Some(Err(error)) => error.clone().into(),
                None => Refusal::UnknownSubmitter,
            };
            turned_away.push((place, item, refusal));
        }
        (passed, turned_away)
    }

    /// The answer to a repeat, or the refusal.
    async fn known_or(&self, item: &NewTx, refusal: Refusal) -> Answer {
        if matches!(refusal, Refusal::Store(_)) {
            return Err(refusal);
        }
        match self.store.tx_by_request(&item.scope, &item.request_id).await? {
            Some(known) if known.request.digest == item.digest => {
                Ok(Submitted { new: false, view: self.view(&known) })
            }
            Some(known) => Err(Refusal::Mismatch(known.tx_id())),
            None => Err(refusal),
        }
    }

    /// Accepts what the gate let in.
    async fn accept(&self, items: Vec<(usize, NewTx)>) -> Vec<(usize, Answer)> {
        let (places, items): (Vec<usize>, Vec<NewTx>) = items.into_iter().unzip();
        let submitters: Vec<SubmitterId> = items.iter().map(|item| item.submitter.clone()).collect();
        let outcomes = self.intake.accept(items).await;
        let mut unused: HashMap<&SubmitterId, u64> = HashMap::new();
        let not_new = |outcome: &Accepted| !matches!(outcome, Accepted::New { .. });
        for (submitter, outcome) in submitters.iter().zip(&outcomes) {
            if outcome.as_ref().map_or(true, |(outcome, _)| not_new(outcome)) {
                *unused.entry(submitter).or_default() += 1;
            }
        }
        for (submitter, count) in unused {
            self.gate.depths.give_back(submitter, count);
        }
        let answer = |outcome: StoreResult<(Accepted, NewTx)>| match outcome? {
            (Accepted::New { order, at }, item) => {
                let record = TxRecord::accepted(item, order, at);
                Ok(Submitted { new: true, view: self.view(&record) })
            }
            (Accepted::Known(known), _) => Ok(Submitted { new: false, view: self.view(&known) }),
            (Accepted::Mismatch { tx_id }, _) => Err(Refusal::Mismatch(tx_id)),
            (Accepted::UnknownSubmitter, _) => Err(Refusal::UnknownSubmitter),
            (Accepted::Poison { reason }, _) => Err(Refusal::Poison(reason)),
        };
        places.into_iter().zip(outcomes.into_iter().map(answer)).collect()
    }
}

fn count(answer: &Answer) {
    let result = match answer {
        Ok(Submitted { new: true, .. }) => "new",
        Ok(Submitted { new: false, .. }) => "known",
        Err(refusal) => refusal.result(),
    };
    metrics::counter!(names::TX_CREATE, "result" => result).increment(1);
}
