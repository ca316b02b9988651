//! Calls to one chain that are cheaper together: broadcasts and receipts of all its lanes.

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::attempt::StoredAttempt;
use gapless_core::outcome::SendOutcome;
use gapless_core::ports::chain::{Chain, ChainError, ChainResult, Receipt};
use gapless_core::submitter::ChainId;
use gapless_core::text::NodeText;
use metrics::Gauge;

use crate::batcher::{Batcher, Beside};
use crate::names;
use crate::tasks::Tasks;

/// Most calls in one request to a node.
const BATCH: usize = 100;
/// A node that does not answer keeps those who asked it, not those who come after: their batch may go to another.
const BESIDE: Beside = Beside { after: Duration::from_millis(250), most: 16 };

/// Broadcasts and receipts of one chain.
#[derive(Clone)]
pub struct Calls {
    sends: Batcher<StoredAttempt, SendOutcome>,
    receipts: Batcher<B256, ChainResult<Option<Receipt>>>,
    backlog: Gauge,
}

/// One look-up that waits for its answer, however it ends.
struct Waiting<'a>(&'a Gauge);

impl<'a> Waiting<'a> {
    fn on(backlog: &'a Gauge) -> Self {
        backlog.increment(1.0);
        Self(backlog)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

impl Calls {
    /// Starts the two services; they end with the last handle.
    #[must_use]
    pub fn start(id: &ChainId, chain: &Arc<dyn Chain>, tasks: &Tasks) -> Self {
        let (sends, send_service) = Batcher::overlapping(BATCH, BESIDE);
        let sender = chain.clone();
        tasks.spawn(send_service.run(move |attempts: Vec<StoredAttempt>| {
            let chain = sender.clone();
            Box::pin(async move {
                let outcomes = chain.send(&attempts.iter().collect::<Vec<_>>()).await;
                outcomes.iter().for_each(count);
                outcomes
            })
        }));
        let (receipts, receipt_service) = Batcher::overlapping(BATCH, BESIDE);
        let reader = chain.clone();
        tasks.spawn(receipt_service.run(move |hashes: Vec<B256>| {
            let chain = reader.clone();
            Box::pin(async move { read_receipts(chain.as_ref(), &hashes).await })
        }));
        let backlog = metrics::gauge!(names::RECEIPT_BACKLOG, "chain" => id.to_string());
        Self { sends, receipts, backlog }
    }

    /// Broadcasts stored bytes.
    pub async fn send(&self, attempt: StoredAttempt) -> SendOutcome {
        self.sends.ask(attempt).await.unwrap_or(SendOutcome::TimedOut)
    }

    /// A receipt; `None` is *not found*.
    pub async fn receipt(&self, hash: B256) -> ChainResult<Option<Receipt>> {
        let _waiting = Waiting::on(&self.backlog);
        let stopped = || ChainError::Unavailable(NodeText::new("this node is stopping"));
        self.receipts.ask(hash).await.unwrap_or_else(|| Err(stopped()))
    }
}

fn count(outcome: &SendOutcome) {
    metrics::counter!(names::TX_SUBMIT, "result" => outcome.code()).increment(1);
    match outcome {
        SendOutcome::NonceGap => metrics::counter!(names::NONCE_GAP).increment(1),
        SendOutcome::Unknown(_) => metrics::counter!(names::UNKNOWN_NODE_ERROR).increment(1),
        _ => {}
    }
}

async fn read_receipts(chain: &dyn Chain, hashes: &[B256]) -> Vec<ChainResult<Option<Receipt>>> {
    let answers = match chain.receipts(hashes).await {
        Ok(found) => found.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error); hashes.len()],
    };
    for answer in &answers {
        let result = match answer {
            Ok(Some(_)) => "found",
            Ok(None) => "not_found",
            Err(_) => "error",
        };
        metrics::counter!(names::RECEIPT_CHECK, "result" => result).increment(1);
    }
    answers
}
