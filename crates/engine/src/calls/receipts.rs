//! Receipts of all lanes of a chain. Where a block proves them, nobody is asked; where it holds many that are wanted, all of
//! its receipts are fetched at once and kept for the lanes that ask next; elsewhere they are fetched by hash, many in one
//! request.
//!
//! What is kept is named by its block's hash, so it cannot become wrong: whether that block stands is asked by the lanes.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::ports::chain::{Chain, ChainError, ChainResult, Receipt};
use gapless_core::submitter::ChainId;
use gapless_core::text::NodeText;
use metrics::Gauge;
use tokio::sync::OnceCell;

use crate::batcher::{Batcher, Beside};
use crate::names;
use crate::tasks::Tasks;

/// Questions of lanes that are answered together.
const TOGETHER: usize = 256;

/// A node that does not answer keeps those who asked it, not those who come after: their batch may go to another.
const BESIDE: Beside = Beside { after: Duration::from_millis(250), most: 16 };

/// A block is worth fetching when it holds so many that are wanted,
const WORTHWHILE: usize = 16;

/// and one in so many of its transactions is.
const SHARE: usize = 8;

/// Blocks kept.
const KEPT: usize = 4;

/// A receipt that is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// Of which transaction.
    pub(crate) hash: B256,
    /// The block that names it, and how many transactions that has.
    pub(crate) block: Option<(B256, usize)>,
}

type Answers = Vec<ChainResult<Option<Receipt>>>;

/// All receipts of one block. While one question fetches them, the others wait for it instead of asking again.
type OfBlock = Arc<OnceCell<HashMap<B256, Receipt>>>;

/// The last blocks whose receipts were wanted.
type Kept = Arc<Mutex<VecDeque<(B256, OfBlock)>>>;

/// Reads receipts.
#[derive(Clone)]
pub(super) struct Receipts {
    questions: Batcher<Vec<Wanted>, Answers>,
    backlog: Gauge,
}

/// Look-ups that wait for their answers, however that ends.
struct Waiting<'a>(&'a Gauge, f64);

impl<'a> Waiting<'a> {
    fn on(backlog: &'a Gauge, many: usize) -> Self {
        backlog.increment(many as f64);
        Self(backlog, many as f64)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.decrement(self.1);
    }
}

pub(super) fn stopped() -> ChainError {
    ChainError::Unavailable(NodeText::new("this node is stopping"))
}

impl Receipts {
    pub(super) fn start(id: &ChainId, chain: &Arc<dyn Chain>, tasks: &Tasks) -> Self {
        let (questions, service) = Batcher::overlapping(TOGETHER, BESIDE);
        let (reader, kept) = (chain.clone(), Kept::default());
        tasks.spawn(service.run(move |questions: Vec<Vec<Wanted>>| {
            let (chain, kept) = (reader.clone(), kept.clone());
            Box::pin(async move { answer(chain.as_ref(), &kept, questions).await })
        }));
        Self { questions, backlog: metrics::gauge!(names::RECEIPT_BACKLOG, "chain" => id.to_string()) }
    }

    pub(super) async fn read(&self, wanted: Vec<Wanted>) -> Answers {
        let many = wanted.len();
        if many == 0 {
            return Vec::new();
        }
        let _waiting = Waiting::on(&self.backlog, many);
        self.questions.ask(wanted).await.unwrap_or_else(|| vec![Err(stopped()); many])
    }
}

async fn answer(chain: &dyn Chain, kept: &Kept, questions: Vec<Vec<Wanted>>) -> Vec<Answers> {
    let all: Vec<Wanted> = questions.iter().flatten().copied().collect();
    let mut found = of_blocks(chain, kept, &all).await;
    let rest: Vec<B256> =
        all.iter().map(|wanted| wanted.hash).filter(|hash| !found.contains_key(hash)).collect();
    let mut failed = None;
    if !rest.is_empty() {
        match chain.receipts(&rest).await {
            Ok(read) => {
                found.extend(rest.into_iter().zip(read).filter_map(|(hash, read)| Some((hash, read?))))
            }
            Err(error) => failed = Some(error),
        }
    }
    let one = |wanted: &Wanted| match (found.get(&wanted.hash), &failed) {
        (Some(receipt), _) => Ok(Some(*receipt)),
        (None, Some(error)) => Err(error.clone()),
        (None, None) => Ok(None),
    };
    let answers: Vec<Answers> = questions.iter().map(|wanted| wanted.iter().map(one).collect()).collect();
    answers.iter().flatten().for_each(count);
    answers
}

/// Receipts from blocks that are kept, or worth fetching whole.
async fn of_blocks(chain: &dyn Chain, kept: &Kept, all: &[Wanted]) -> HashMap<B256, Receipt> {
    let mut of_block: BTreeMap<B256, (usize, HashSet<B256>)> = BTreeMap::new();
    for wanted in all {
        if let Some((block, size)) = wanted.block {
            of_block.entry(block).or_insert_with(|| (size, HashSet::new())).1.insert(wanted.hash);
        }
    }
    let mut found = HashMap::new();
    for (block, (size, wanted)) in of_block {
        let receipts = kept_of(kept, block);
        if receipts.get().is_none()
            && let Some(proven) = chain.proven_receipts(block).await
        {
            // Somebody else may have been faster, with the same.
            let _ = receipts.set(by_hash(proven));
        }
        let worthwhile = wanted.len() >= WORTHWHILE && wanted.len() * SHARE >= size;
        let receipts = match receipts.get() {
            Some(receipts) => receipts,
            // By hash, then.
            None if !worthwhile => continue,
            None => {
                let fetch =
                    || async { chain.block_receipts(block).await.ok().flatten().map(by_hash).ok_or(()) };
                let Ok(receipts) = receipts.get_or_try_init(fetch).await else { continue };
                receipts
            }
        };
        found.extend(wanted.iter().filter_map(|hash| Some((*hash, *receipts.get(hash)?))));
    }
    found
}

fn by_hash(receipts: Vec<Receipt>) -> HashMap<B256, Receipt> {
    receipts.into_iter().map(|receipt| (receipt.hash, receipt)).collect()
}

/// The place for a block's receipts.
fn kept_of(kept: &Kept, block: B256) -> OfBlock {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, known)) = kept.iter().find(|(hash, _)| *hash == block) {
        return known.clone();
    }
    let place = OfBlock::default();
    kept.push_back((block, place.clone()));
    while kept.len() > KEPT {
        kept.pop_front();
    }
    place
}

fn count(answer: &ChainResult<Option<Receipt>>) {
    let result = match answer {
        Ok(Some(_)) => "found",
        Ok(None) => "not_found",
        Err(_) => "error",
    };
    metrics::counter!(names::RECEIPT_CHECK, "result" => result).increment(1);
}
