//! What goes out, and what is on its way.
//!
//! A lane hands stored bytes over lowest nonce first, and its broadcasts go out one after another: so slots reach a node in
//! order. While one is being answered the next is ready, and the lane binds more. A slot is *unsent* until the moment it is handed over; from then
//! on its bytes are assumed sent, whatever becomes of the answer.

use std::collections::{BTreeSet, VecDeque};

use gapless_core::attempt::StoredAttempt;
use gapless_core::ids::Nonce;
use gapless_core::outcome::SendOutcome;
use tokio::sync::oneshot;

use super::memory::Memory;
use super::{Lane, Stop};
use crate::names;
use crate::points::Point;

/// Slots in one broadcast. While it is under way, what is bound gathers for the next.
const MOST: usize = 400;

/// Broadcasts handed over and not answered: one that a node works on, and one that is ready when it is done.
const READY: usize = 2;

/// One attempt that was handed over.
pub(super) struct Sent {
    pub(super) attempt: StoredAttempt,
    /// Whether nobody had its slot before.
    pub(super) first: bool,
}

struct UnderWay {
    sent: Vec<Sent>,
    answer: oneshot::Receiver<Vec<SendOutcome>>,
}

/// Slots to be sent, and the broadcast that waits for its answer.
#[derive(Default)]
pub(super) struct Sending {
    queued: BTreeSet<Nonce>,
    /// They are answered in this order.
    under_way: VecDeque<UnderWay>,
    answered: Option<Vec<(Sent, SendOutcome)>>,
}

impl Sending {
    /// The current attempts of these slots are to go out.
    pub(super) fn queue(&mut self, nonces: impl IntoIterator<Item = Nonce>) {
        self.queued.extend(nonces);
    }

    /// Waits for a node to speak; for ever, if nothing is under way.
    pub(super) async fn answered(&mut self) {
        if self.answered.is_some() {
            return;
        }
        let Some(under_way) = self.under_way.front_mut() else { return std::future::pending().await };
        // Without an answer the bytes were possibly sent.
        let outcomes = (&mut under_way.answer).await.unwrap_or_default();
        self.note(outcomes);
    }

    /// The answer, if it is there.
    fn take(&mut self) -> Option<Vec<(Sent, SendOutcome)>> {
        if self.answered.is_none()
            && let Some(under_way) = self.under_way.front_mut()
        {
            match under_way.answer.try_recv() {
                Ok(outcomes) => self.note(outcomes),
                Err(oneshot::error::TryRecvError::Closed) => self.note(Vec::new()),
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
        }
        self.answered.take()
    }

    fn note(&mut self, outcomes: Vec<SendOutcome>) {
        let Some(under_way) = self.under_way.pop_front() else { return };
        let silence = std::iter::repeat(SendOutcome::TimedOut);
        self.answered = Some(under_way.sent.into_iter().zip(outcomes.into_iter().chain(silence)).collect());
    }
}

impl Lane {
    /// Notes what nodes said of the broadcasts that they have answered.
    pub(super) async fn take_answers(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        while let Some(answers) = memory.sending.take() {
            self.take_answer(memory, answers).await?;
        }
        Ok(())
    }

    async fn take_answer(
        &mut self,
        memory: &mut Memory,
        answers: Vec<(Sent, SendOutcome)>,
    ) -> Result<(), Stop> {
        self.tools.points.reach(Point::AfterSend);
        let now = self.database_time();
        for (sent, _) in answers.iter().filter(|(sent, _)| sent.first) {
            if let Some(tx) = sent.attempt.tx_id.and_then(|tx_id| memory.txs.get(&tx_id)) {
                let waited = now.since(tx.created_at);
                metrics::histogram!(names::ACCEPTED_TO_SENT).record(waited.as_secs_f64());
            }
        }
        let answers = answers.into_iter().map(|(sent, outcome)| (sent.attempt, outcome)).collect();
        self.note_outcomes(memory, answers).await
    }

    /// Hands the next slots over, lowest first, unless enough is under way. The lease is looked at right before.
    pub(super) async fn hand_over(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        self.take_answers(memory).await?;
        while memory.sending.under_way.len() < READY {
            let sent = self.next_broadcast(memory)?;
            if sent.is_empty() {
                break;
            }
            let attempts = sent.iter().map(|sent| sent.attempt.clone()).collect();
            let lease = Some(self.seat.lease.clone());
            let answer = self.chain.calls.hand_over(&self.submitter.id, attempts, lease).await;
            memory.sending.under_way.push_back(UnderWay { sent, answer });
        }
        Ok(())
    }

    fn next_broadcast(&self, memory: &mut Memory) -> Result<Vec<Sent>, Stop> {
        let mut sent = Vec::new();
        if memory.sending.queued.is_empty() {
            return Ok(sent);
        }
        self.lease()?;
        while sent.len() < MOST
            && let Some(nonce) = memory.sending.queued.pop_first()
        {
            let open = memory.run().is_some_and(|run| run.consumed <= nonce && nonce < run.next);
            // It may have been given up, or given to another attempt, since it was queued.
            let Some(attempt) = memory.current(nonce).filter(|_| open).cloned() else { continue };
            let notes = memory.notes(nonce);
            let first = std::mem::take(&mut notes.unsent);
            sent.push(Sent { attempt, first });
        }
        Ok(sent)
    }

    /// Hands everything over, and waits until nodes have spoken.
    pub(super) async fn send_queued(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        loop {
            self.hand_over(memory).await?;
            if memory.sending.under_way.is_empty() {
                return Ok(());
            }
            memory.sending.answered().await;
            self.take_answers(memory).await?;
        }
    }
}
