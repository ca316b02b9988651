//! Calls to one chain that are cheaper together: broadcasts and receipts of all its lanes.
//!
//! A lane's broadcasts go out one after another, so its slots reach a node in the order of their nonces; several lanes have
//! theirs at once. What goes out looks at its lane's lease right before (invariant *fenced*: a zombie could only repeat what
//! is stored, and even that is not done knowingly).

mod receipts;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::attempt::StoredAttempt;
use gapless_core::outcome::SendOutcome;
use gapless_core::ports::chain::{Chain, ChainResult, Receipt};
use gapless_core::submitter::{ChainId, SubmitterId};
use gapless_core::text::NodeText;
use tokio::sync::{mpsc, oneshot};

use crate::keeper::LeaseCell;
use crate::names;
use crate::tasks::Tasks;
use receipts::Receipts;
pub(crate) use receipts::Wanted;

/// Calls in one request to a node, about: the broadcasts of several lanes go together until they are so many.
const BATCH: usize = 100;

/// Broadcasts to one chain that may be under way at once. More would only queue up in the node.
const AT_ONCE: usize = 4;

/// A node that does not answer keeps those who asked it, not those who come after: theirs may go to another.
const SLOW: Duration = Duration::from_millis(250);

/// Slow ones or not, there are never more.
const IN_ALL: usize = 16;

/// Broadcasts that may wait before lanes do.
const WAITING: usize = 1_000;

/// Stored bytes of one lane, in the order of their nonces, and whether it may still act when they go out.
struct Broadcast {
    lane: SubmitterId,
    attempts: Vec<StoredAttempt>,
    lease: Option<LeaseCell>,
    reply: oneshot::Sender<Vec<SendOutcome>>,
}

/// Broadcasts and receipts of one chain.
#[derive(Clone)]
pub struct Calls {
    broadcasts: mpsc::Sender<Broadcast>,
    receipts: Receipts,
}

impl Calls {
    /// Starts the two services; they end with the last handle.
    #[must_use]
    pub fn start(id: &ChainId, chain: &Arc<dyn Chain>, tasks: &Tasks) -> Self {
        let (broadcasts, waiting) = mpsc::channel(WAITING);
        tasks.spawn(send_together(chain.clone(), waiting, tasks.clone()));
        Self { broadcasts, receipts: Receipts::start(id, chain, tasks) }
    }

    /// Hands a lane's stored bytes over; the answer comes when a node has spoken.
    pub(crate) async fn hand_over(
        &self,
        lane: &SubmitterId,
        attempts: Vec<StoredAttempt>,
        lease: Option<LeaseCell>,
    ) -> oneshot::Receiver<Vec<SendOutcome>> {
        let (reply, answer) = oneshot::channel();
        // Nobody listens any more: then nobody answers either, and that is what the lane will see.
        let _ = self.broadcasts.send(Broadcast { lane: lane.clone(), attempts, lease, reply }).await;
        answer
    }

    /// Broadcasts stored bytes.
    #[cfg(feature = "test-hooks")]
    pub async fn send(&self, lane: &SubmitterId, attempt: StoredAttempt) -> Option<SendOutcome> {
        self.hand_over(lane, vec![attempt], None).await.await.ok()?.pop()
    }

    /// A receipt; `None` is *not found*.
    pub async fn receipt(&self, hash: B256) -> ChainResult<Option<Receipt>> {
        let mut answers = self.receipts.read(vec![Wanted { hash, block: None }]).await;
        answers.pop().unwrap_or_else(|| Err(receipts::stopped()))
    }

    /// Receipts; one answer each, in order.
    pub(crate) async fn receipts(&self, wanted: Vec<Wanted>) -> Vec<ChainResult<Option<Receipt>>> {
        self.receipts.read(wanted).await
    }
}

/// Natural batching: what waits when a place becomes free goes together, and nothing of a lane while something of it is
/// still on its way.
async fn send_together(chain: Arc<dyn Chain>, mut incoming: mpsc::Receiver<Broadcast>, tasks: Tasks) {
    let mut waiting: VecDeque<Broadcast> = VecDeque::new();
    let mut busy: HashSet<SubmitterId> = HashSet::new();
    let (over, mut ended) = mpsc::channel::<Over>(IN_ALL * 2);
    let (mut quick, mut in_all) = (0, 0);
    loop {
        while quick < AT_ONCE && in_all < IN_ALL {
            let together = take_together(&mut waiting, &busy);
            if together.is_empty() {
                break;
            }
            (quick, in_all) = (quick + 1, in_all + 1);
            let lanes: Vec<SubmitterId> = together.iter().map(|broadcast| broadcast.lane.clone()).collect();
            busy.extend(lanes.iter().cloned());
            let under_way = UnderWay { lanes, was_slow: false, over: over.clone() };
            tasks.spawn(send_one(chain.clone(), together, under_way));
        }
        tokio::select! {
            biased;
            Some(end) = ended.recv() => match end {
                Over::Patience => quick -= 1,
                Over::All { lanes, was_slow } => {
                    in_all -= 1;
                    quick -= usize::from(!was_slow);
                    lanes.iter().for_each(|lane| { busy.remove(lane); });
                }
            },
            next = incoming.recv(), if waiting.len() < WAITING => match next {
                Some(broadcast) => waiting.push_back(broadcast),
                // The last handle is gone. What waits is given up: its lanes are.
                None => return,
            },
        }
    }
}

/// How a batch under way goes on.
enum Over {
    /// It takes long: its place is free, its lanes are not.
    Patience,
    /// It is answered.
    All { lanes: Vec<SubmitterId>, was_slow: bool },
}

/// The next batch: the first that wait, about so many calls, of lanes that have nothing under way.
fn take_together(waiting: &mut VecDeque<Broadcast>, busy: &HashSet<SubmitterId>) -> Vec<Broadcast> {
    let (mut together, mut left) = (Vec::new(), VecDeque::with_capacity(waiting.len()));
    let mut calls = 0;
    while let Some(broadcast) = waiting.pop_front() {
        if calls >= BATCH {
            left.push_back(broadcast);
            break;
        }
        match busy.contains(&broadcast.lane) {
            true => left.push_back(broadcast),
            false => {
                calls += broadcast.attempts.len();
                together.push(broadcast);
            }
        }
    }
    left.append(waiting);
    *waiting = left;
    together
}

/// A batch under way; its lanes are free again however that ends.
struct UnderWay {
    lanes: Vec<SubmitterId>,
    was_slow: bool,
    over: mpsc::Sender<Over>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // There is room for two words of each. Nobody listens any more only when nothing goes out any more.
        let all = Over::All { lanes: std::mem::take(&mut self.lanes), was_slow: self.was_slow };
        let _ = self.over.try_send(all);
    }
}

async fn send_one(chain: Arc<dyn Chain>, together: Vec<Broadcast>, mut under_way: UnderWay) {
    let mut sending = std::pin::pin!(send(chain.as_ref(), together));
    tokio::select! {
        () = &mut sending => return,
        () = tokio::time::sleep(SLOW) => {}
    }
    under_way.was_slow = true;
    let _ = under_way.over.try_send(Over::Patience);
    sending.await;
}

async fn send(chain: &dyn Chain, together: Vec<Broadcast>) {
    let may_send = |broadcast: &Broadcast| match &broadcast.lease {
        Some(lease) => lease.live().is_some(),
        None => true,
    };
    let allowed: Vec<bool> = together.iter().map(may_send).collect();
    let going = together.iter().zip(&allowed).filter(|(_, allowed)| **allowed);
    let attempts: Vec<&StoredAttempt> = going.flat_map(|(broadcast, _)| &broadcast.attempts).collect();
    let outcomes = chain.send(&attempts).await;
    outcomes.iter().for_each(count);
    let mut outcomes = outcomes.into_iter();
    for (broadcast, allowed) in together.into_iter().zip(allowed) {
        let unsent = || SendOutcome::Unavailable(NodeText::new("not sent: the lease is over"));
        let one = |_: &StoredAttempt| {
            let sent = if allowed { outcomes.next() } else { None };
            sent.unwrap_or_else(unsent)
        };
        let answer = broadcast.attempts.iter().map(one).collect();
        // A lane that went away does not want its answer.
        let _ = broadcast.reply.send(answer);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn broadcast(lane: u8) -> Broadcast {
        let lane = SubmitterId::evm(1, alloy_primitives::Address::repeat_byte(lane));
        Broadcast { lane, attempts: Vec::new(), lease: None, reply: oneshot::channel().0 }
    }

    fn lanes<'a>(broadcasts: impl IntoIterator<Item = &'a Broadcast>) -> Vec<u8> {
        broadcasts.into_iter().map(|broadcast| broadcast.lane.address().unwrap_or_default()[0]).collect()
    }

    #[test]
    fn a_lane_with_something_under_way_waits_and_keeps_nobody_else_waiting() {
        let mut waiting: VecDeque<Broadcast> = [1, 2, 1, 3, 2].map(broadcast).into();
        let busy = HashSet::from([broadcast(1).lane]);
        assert_eq!(lanes(&take_together(&mut waiting, &busy)), [2, 3, 2]);
        assert_eq!(lanes(&waiting), [1, 1], "in their order");
        assert!(take_together(&mut waiting, &busy).is_empty());
        assert_eq!(lanes(&take_together(&mut waiting, &HashSet::new())), [1, 1]);
    }
}
