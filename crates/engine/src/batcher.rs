//! Natural batching: the first question goes at once, and what arrives while it is being answered forms the next
//! batch. Under light load nobody waits; under heavy load batches grow by themselves.

use std::pin::Pin;

use tokio::sync::{mpsc, oneshot};

type Answering<A> = Pin<Box<dyn Future<Output = Vec<A>> + Send>>;

/// A queue of questions that are answered together.
pub(crate) struct Batcher<Q, A> {
    questions: mpsc::Sender<(Q, oneshot::Sender<A>)>,
}

impl<Q, A> Clone for Batcher<Q, A> {
    fn clone(&self) -> Self {
        Self { questions: self.questions.clone() }
    }
}

/// The other end: answers until every asker is gone.
pub(crate) struct Answerer<Q, A> {
    questions: mpsc::Receiver<(Q, oneshot::Sender<A>)>,
    most: usize,
}

impl<Q: Send + 'static, A: Send + 'static> Batcher<Q, A> {
    /// At most `most` questions are answered at once; as many again may wait before askers do.
    pub(crate) fn new(most: usize) -> (Self, Answerer<Q, A>) {
        let (sender, questions) = mpsc::channel(most);
        (Self { questions: sender }, Answerer { questions, most })
    }

    /// Asks; `None` if nobody answers any more.
    pub(crate) async fn ask(&self, question: Q) -> Option<A> {
        let (reply, answer) = oneshot::channel();
        self.questions.send((question, reply)).await.ok()?;
        answer.await.ok()
    }
}

impl<Q: Send + 'static, A: Send + 'static> Answerer<Q, A> {
    /// Answers batches one after another. `answer` gives one answer per question, in order.
    pub(crate) async fn run(mut self, answer: impl Fn(Vec<Q>) -> Answering<A> + Send) {
        while let Some(first) = self.questions.recv().await {
            let mut batch = vec![first];
            while batch.len() < self.most {
                let Ok(next) = self.questions.try_recv() else { break };
                batch.push(next);
            }
            let (questions, replies): (Vec<Q>, Vec<_>) = batch.into_iter().unzip();
            for (reply, answer) in replies.into_iter().zip(answer(questions).await) {
                // An asker that went away does not want its answer.
                let _ = reply.send(answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[tokio::test(start_paused = true)]
    async fn the_first_goes_at_once_and_the_rest_together() {
        let (batcher, answerer) = Batcher::<u32, u32>::new(10);
        let sizes: Arc<Mutex<Vec<usize>>> = Arc::default();
        let seen = sizes.clone();
        tokio::spawn(answerer.run(move |batch| {
            seen.lock().unwrap().push(batch.len());
            Box::pin(async move {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                batch.into_iter().map(|q| q + 1).collect()
            })
        }));
        let ask = |q| {
            let batcher = batcher.clone();
            tokio::spawn(async move { batcher.ask(q).await })
        };
        let mut asked = vec![ask(0)];
        // While the first is being answered, the others come.
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        asked.extend((1..6).map(ask));
        for (q, answer) in asked.into_iter().enumerate() {
            assert_eq!(answer.await.unwrap(), Some(q as u32 + 1));
        }
        assert_eq!(*sizes.lock().unwrap(), [1, 5]);
    }
}
