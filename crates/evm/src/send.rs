//! Broadcasting stored bytes.
//!
//! The same bytes may go to a node any number of times, so a doubtful answer is always followed by
//! another endpoint; what is never done is to conclude from silence that nothing was sent. Order is
//! kept but for a few: the next part of a broadcast is on its way while a node still works on the one before, and no slot
//! overtakes more than nodes keep of an account. Where an endpoint takes nothing before its turn, all go in their turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use alloy_primitives::{B256, hex};
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use gapless_core::attempt::StoredAttempt;
use gapless_core::outcome::SendOutcome;
use gapless_core::text::NodeText;
use serde_json::json;
use tokio::sync::mpsc;

use crate::classify::{more_informative, refused, silent};
use crate::decode;
use crate::rpc::endpoint::Endpoint;
use crate::rpc::pool::{Pool, Turns};
use crate::rpc::{Call, Quarantine, Reply, RpcError, Trouble, wire};
use crate::signer::tx;
use crate::unknown::UnknownTexts;

/// How a broadcast goes out.
#[derive(Debug)]
pub(crate) struct Manner {
    pub(crate) max_batch: usize,
    pub(crate) to_all: bool,
    /// Whether endpoints take a nonce before the one below it has arrived. Believed until one does not.
    pub(crate) take_gaps: AtomicBool,
}

/// Most bytes that may arrive before those of a lower nonce. Nodes keep that many of an account (geth: 64).
const AHEAD: usize = 50;

/// Parts of a broadcast that are under way at once: while a node works on one, the next is there already.
const UNDER_WAY: usize = 2;

/// What one part of a broadcast came to.
struct Part {
    outcomes: Vec<SendOutcome>,
    /// Whether some endpoint has said anything.
    answered: bool,
}

/// Sends in the given order; one outcome each.
pub(crate) async fn send(
    pool: &Pool,
    unknown: &UnknownTexts,
    manner: &Manner,
    attempts: &[&StoredAttempt],
) -> Vec<SendOutcome> {
    let overlaps = manner.take_gaps.load(Ordering::Relaxed);
    let (most, under_way) = match overlaps {
        true => (manner.max_batch.min(AHEAD), UNDER_WAY),
        false => (manner.max_batch, 1),
    };
    let parts = wire::chunks(attempts, most, |attempt| attempt.raw.len() * 2 + 128);
    let mut waiting = parts.iter();
    let mut sending = FuturesOrdered::new();
    let mut outcomes = Vec::with_capacity(attempts.len());
    for part in &parts {
        for next in waiting.by_ref().take(under_way - sending.len()) {
            sending.push_back(send_part(pool, manner, next));
        }
        let Some(mut sent) = sending.next().await else { break };
        if overlaps && sent.outcomes.contains(&SendOutcome::NonceGap) {
            // It came before its turn, to a node that does not keep it. Now everything below has been there.
            manner.take_gaps.store(false, Ordering::Relaxed);
            sent = send_part(pool, manner, part).await;
        }
        outcomes.extend(sent.outcomes);
        if !sent.answered {
            // The rest would wait as long, and overtake what may still be on its way.
            let skipped = NodeText::new("not tried: nobody answered to the bytes before");
            outcomes.resize(attempts.len(), SendOutcome::Unavailable(skipped));
            break;
        }
    }
    for outcome in &outcomes {
        if let SendOutcome::Unknown(text) = outcome {
            unknown.note(text);
        }
    }
    outcomes
}

async fn send_part(pool: &Pool, manner: &Manner, part: &[&StoredAttempt]) -> Part {
    let mut broadcast = Broadcast::new(pool, part);
    if manner.to_all {
        broadcast.at_once().await;
    }
    broadcast.in_turn().await;
    Part { answered: broadcast.answered, outcomes: broadcast.finish() }
}

/// Some bytes on their way.
struct Broadcast<'a> {
    pool: &'a Pool,
    attempts: &'a [&'a StoredAttempt],
    calls: Arc<[Call]>,
    outcomes: Vec<Option<SendOutcome>>,
    turns: Turns<'a>,
    /// Whether some endpoint has said, or may have heard, anything: then nobody is waited for.
    heard: bool,
    /// Whether some endpoint has said anything.
    answered: bool,
}

impl<'a> Broadcast<'a> {
    fn new(pool: &'a Pool, attempts: &'a [&'a StoredAttempt]) -> Self {
        let call = |attempt: &&StoredAttempt| {
            Call::new("eth_sendRawTransaction", json!([hex::encode_prefixed(&attempt.raw)]))
        };
        Self {
            pool,
            attempts,
            calls: attempts.iter().map(call).collect(),
            outcomes: vec![None; attempts.len()],
            turns: pool.turns(),
            heard: false,
            answered: false,
        }
    }

    /// To everybody who is ready, at once. Returns when all is in some pool or everybody has answered;
    /// slower endpoints get theirs all the same.
    async fn at_once(&mut self) {
        self.pool.verify_due().await;
        let (answers, mut arriving) = mpsc::unbounded_channel();
        for (place, endpoint) in self.pool.ready() {
            let (endpoint, calls, answers) = (Arc::clone(endpoint), Arc::clone(&self.calls), answers.clone());
            tokio::spawn(async move {
                // Nobody may be listening any more.
                let _ = answers.send((place, endpoint.ask(&calls).await));
            });
        }
        drop(answers);
        let everything: Vec<usize> = (0..self.calls.len()).collect();
        while let Some((place, answer)) = arriving.recv().await {
            self.take(place, &everything, answer);
            if self.outcomes.iter().all(|outcome| outcome.as_ref().is_some_and(is_taken)) {
                return;
            }
        }
    }

    /// What nobody has settled yet goes to one endpoint after another.
    async fn in_turn(&mut self) {
        loop {
            let open: Vec<usize> = (0..self.calls.len()).filter(|at| !self.is_settled(*at)).collect();
            if open.is_empty() {
                return;
            }
            let turn = if self.heard { self.turns.now() } else { self.turns.next().await };
            let Some((place, endpoint)) = turn else { return };
            let answer = if open.len() == self.calls.len() {
                endpoint.ask(&self.calls).await
            } else {
                let calls: Vec<Call> = open.iter().map(|at| self.calls[*at].clone()).collect();
                endpoint.ask(&calls).await
            };
            self.take(place, &open, answer);
        }
    }

    /// Notes what an endpoint answered to the calls at `open`.
    fn take(&mut self, place: usize, open: &[usize], answer: Result<Vec<Reply>, Trouble>) {
        let endpoint = &self.pool.endpoints()[place];
        match answer {
            Ok(replies) => {
                let throttled =
                    |reply: &Reply| matches!(reply, Err(RpcError::Node(error)) if wire::is_throttled(error));
                self.answered = true;
                if !replies.iter().any(throttled) {
                    self.turns.strike(place);
                    self.heard = true;
                }
                for (at, reply) in open.iter().zip(&replies) {
                    let outcome = self.outcome_of(endpoint, self.attempts[*at], reply);
                    self.merge(*at, outcome);
                }
            }
            Err(trouble) => {
                if trouble.may_have_arrived() {
                    self.turns.strike(place);
                    self.heard = true;
                }
                for at in open {
                    self.merge(*at, silent(&trouble));
                }
            }
        }
    }

    fn outcome_of(&self, endpoint: &Endpoint, attempt: &StoredAttempt, reply: &Reply) -> SendOutcome {
        let outcome = match reply {
            Ok(raw) => match decode::required::<B256>(raw) {
                Ok(hash) if hash == attempt.hash => SendOutcome::Accepted,
                _ => SendOutcome::Unknown(NodeText::new(&format!("answered with another hash: {raw}"))),
            },
            Err(RpcError::Node(error)) => refused(error),
            Err(RpcError::Trouble(trouble)) => silent(trouble),
        };
        let SendOutcome::WrongEndpoint(text) = outcome else { return outcome };
        // Bytes signed elsewhere may be for another chain: then the endpoint is right.
        let ours = self.pool.identity().chain_id();
        match tx::chain_id(&attempt.raw) {
            Some(chain_id) if chain_id == ours => {
                endpoint.put_aside(Quarantine::Said(text.to_string()), self.pool.identity());
                SendOutcome::WrongEndpoint(text)
            }
            Some(_) => SendOutcome::Invalid(text),
            None => SendOutcome::WrongEndpoint(text),
        }
    }

    fn merge(&mut self, at: usize, outcome: SendOutcome) {
        let known = self.outcomes[at].take();
        self.outcomes[at] = Some(match known {
            Some(known) => more_informative(known, outcome),
            None => outcome,
        });
    }

    /// Whether another endpoint's answer could change nothing of use.
    fn is_settled(&self, at: usize) -> bool {
        self.outcomes[at].as_ref().is_some_and(|outcome| {
            !outcome.is_possibly_sent()
                && !matches!(outcome, SendOutcome::Invalid(_) | SendOutcome::WrongEndpoint(_))
        })
    }

    fn finish(self) -> Vec<SendOutcome> {
        let Self { pool, outcomes, turns, .. } = self;
        let unheard = || {
            let all = pool.endpoints().iter().enumerate();
            all.filter(|(place, endpoint)| !turns.is_struck(*place) && endpoint.health().is_verified())
                .count()
        };
        let said = |outcome: Option<SendOutcome>| match outcome {
            Some(SendOutcome::Invalid(text)) if unheard() > 0 => {
                let text = format!("{text}; but {} endpoints could not be asked", unheard());
                SendOutcome::Unavailable(NodeText::new(&text))
            }
            Some(outcome) => outcome,
            None => SendOutcome::Unavailable(NodeText::new(&pool.nobody(None).to_string())),
        };
        outcomes.into_iter().map(said).collect()
    }
}

const fn is_taken(outcome: &SendOutcome) -> bool {
    matches!(outcome, SendOutcome::Accepted | SendOutcome::AlreadyKnown)
}
