//! Natural batching: the first question goes at once, and what arrives while it is being answered forms the next
//! batch. Under light load nobody waits; under heavy load batches grow by themselves.
//!
//! Where answers come from outside, one that does not come must not keep those who ask somebody else: after a while the next
//! batch goes beside it. Who asks waits for its answer, so its own questions stay in order.

use std::pin::Pin;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
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
    /// What a question weighs, and when a batch is heavy enough.
    weight: (fn(&Q) -> usize, usize),
    beside: Option<Beside>,
}

/// When a batch is not waited for any longer, and how many of such there may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beside {
    pub(crate) after: Duration,
    pub(crate) most: usize,
}

impl<Q: Send + 'static, A: Send + 'static> Batcher<Q, A> {
    /// At most `most` questions are answered at once; as many again may wait before askers do.
    pub(crate) fn new(most: usize) -> (Self, Answerer<Q, A>) {
        let (sender, questions) = mpsc::channel(most);
        (Self { questions: sender }, Answerer { questions, most, weight: (|_| 1, most), beside: None })
    }

    /// The same, where no question joins a batch that is heavy enough by itself.
    pub(crate) fn weighing(most: usize, weigh: fn(&Q) -> usize, enough: usize) -> (Self, Answerer<Q, A>) {
        let (batcher, answerer) = Self::new(most);
        (batcher, Answerer { weight: (weigh, enough), ..answerer })
    }

    /// The same, where a batch that takes long, or could not be larger, does not keep the next.
    pub(crate) fn overlapping(most: usize, beside: Beside) -> (Self, Answerer<Q, A>) {
        let (batcher, answerer) = Self::new(most);
        (batcher, answerer.beside(beside))
    }

    /// Asks; `None` if nobody answers any more.
    pub(crate) async fn ask(&self, question: Q) -> Option<A> {
        let (reply, answer) = oneshot::channel();
        self.questions.send((question, reply)).await.ok()?;
        answer.await.ok()
    }
}

impl<Q: Send + 'static, A: Send + 'static> Answerer<Q, A> {
    /// A batch that takes long, or could not be larger, does not keep the next.
    pub(crate) fn beside(self, beside: Beside) -> Self {
        Self { beside: Some(beside), ..self }
    }

    /// Answers batches one after another. `answer` gives one answer per question, in order.
    pub(crate) async fn run(mut self, answer: impl Fn(Vec<Q>) -> Answering<A> + Send) {
        let mut slow = FuturesUnordered::new();
        let room = self.beside.map_or(1, |beside| beside.most.max(1));
        loop {
            let first = tokio::select! {
                biased;
                Some(()) = slow.next(), if !slow.is_empty() => continue,
                first = self.questions.recv(), if slow.len() < room => first,
            };
            let Some(first) = first else { break };
            let (weigh, enough) = self.weight;
            let mut weight = weigh(&first.0);
            let mut batch = vec![first];
            while batch.len() < self.most && weight < enough {
                let Ok(next) = self.questions.try_recv() else { break };
                weight += weigh(&next.0);
                batch.push(next);
            }
            let questions_in = batch.len();
            let (questions, replies): (Vec<Q>, Vec<_>) = batch.into_iter().unzip();
            let answering = answer(questions);
            let mut answering = Box::pin(async move {
                for (reply, answer) in replies.into_iter().zip(answering.await) {
                    // An asker that went away does not want its answer.
                    let _ = reply.send(answer);
                }
            });
            // A batch that could not be larger gains nothing by making the next one wait.
            let full = questions_in >= self.most || weight >= enough;
            let Some(beside) = self.beside else {
                answering.await;
                continue;
            };
            if full {
                slow.push(answering);
                continue;
            }
            let patience = tokio::time::sleep(beside.after);
            tokio::pin!(patience);
            loop {
                tokio::select! {
                    biased;
                    () = &mut answering => break,
                    Some(()) = slow.next(), if !slow.is_empty() => {}
                    () = &mut patience => {
                        slow.push(answering);
                        break;
                    }
                }
            }
        }
        while slow.next().await.is_some() {}
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

    #[tokio::test(start_paused = true)]
    async fn what_is_heavy_enough_goes_alone_and_keeps_nobody() {
        let beside = Beside { after: Duration::from_secs(60), most: 2 };
        let (batcher, answerer) = Batcher::<usize, usize>::weighing(10, |weight| *weight, 5);
        let batches: Arc<Mutex<Vec<Vec<usize>>>> = Arc::default();
        let seen = batches.clone();
        let ask = |q| {
            let batcher = batcher.clone();
            tokio::spawn(async move { batcher.ask(q).await })
        };
        let asked: Vec<_> = [2, 4, 7, 1, 1].map(ask).into();
        tokio::time::sleep(Duration::from_millis(1)).await;
        let began = tokio::time::Instant::now();
        tokio::spawn(answerer.beside(beside).run(move |batch| {
            seen.lock().unwrap().push(batch.clone());
            Box::pin(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                batch
            })
        }));
        for asked in asked {
            assert!(asked.await.unwrap().is_some());
        }
        assert_eq!(*batches.lock().unwrap(), [vec![2, 4], vec![7], vec![1, 1]]);
        assert_eq!(began.elapsed(), Duration::from_secs(2), "two at once, and no more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_is_never_answered_does_not_keep_the_next() {
        let beside = Beside { after: Duration::from_millis(200), most: 2 };
        let (batcher, answerer) = Batcher::<u32, u32>::overlapping(10, beside);
        tokio::spawn(answerer.run(|batch| {
            Box::pin(async move {
                if batch.contains(&0) {
                    tokio::time::sleep(Duration::from_secs(10)).await;
                }
                batch.into_iter().map(|q| q + 1).collect()
            })
        }));
        let began = tokio::time::Instant::now();
        let ask = |q| {
            let batcher = batcher.clone();
            tokio::spawn(async move { batcher.ask(q).await })
        };
        let hangs = [ask(0)];
        tokio::time::sleep(Duration::from_millis(1)).await;
        for q in 1..4 {
            assert_eq!(ask(q).await.unwrap(), Some(q + 1));
        }
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        // A second one that hangs is all there may be: the rest waits for one of them.
        let second = ask(0);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(ask(7).await.unwrap(), Some(8));
        assert!(began.elapsed() >= Duration::from_secs(10), "{:?}", began.elapsed());
        for hanging in hangs.into_iter().chain([second]) {
            assert_eq!(hanging.await.unwrap(), Some(1));
        }
    }
}
