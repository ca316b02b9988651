//! Where callers in this process and the lanes of this process meet over reserved nonces.
//!
//! A lane alone reserves and binds, through its fenced change; a caller alone runs its closure. Neither waits for the other:
//! the caller leaves an offer (its closure will run) or an ask (a nonce is wanted), the lane leaves a grant, the caller hands
//! in what its closure made. Nothing here is needed for safety: what is forgotten with the process lapses with its
//! reservation, and what is handed in for a reservation that is over is thrown away by the lane.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alloy_primitives::Bytes;
use gapless_core::fees::FeeWishes;
use gapless_core::ids::{LockOwner, Nonce, TxId};
use gapless_core::intent::Payload;
use gapless_core::ports::chain::Signed;
use gapless_core::record::Failure;
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Tick;
use tokio::sync::{Notify, mpsc, oneshot};

/// Asks of one submitter that may wait.
#[cfg(any(feature = "low-level", test))]
pub(crate) const MAX_ASKS: usize = 1_024;

/// What a closure makes for the nonce it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NonceTx {
    /// Signed bytes. They are sent as they are and never signed again while they hold their nonce: neither fees nor gas are
    /// changed, whatever the market does.
    Signed(Bytes),
    /// What should happen. Gas and fees are decided, and it is signed, as for any other request.
    Unsigned {
        /// What.
        payload: Payload,
        /// At what price, if the closure insists.
        fees: FeeWishes,
    },
}

impl From<Signed> for NonceTx {
    fn from(signed: Signed) -> Self {
        Self::Signed(signed.raw)
    }
}

impl From<Payload> for NonceTx {
    fn from(payload: Payload) -> Self {
        Self::Unsigned { payload, fees: FeeWishes::default() }
    }
}

/// A nonce that is somebody's for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) nonce: Nonce,
    pub(crate) lock_owner: LockOwner,
    /// Its end by the local clock, never later than by the database's.
    pub(crate) until: Tick,
}

/// What came of a closure.
#[derive(Debug, Clone)]
pub(crate) struct HandedIn {
    pub(crate) tx_id: TxId,
    pub(crate) lock_owner: LockOwner,
    pub(crate) outcome: Result<NonceTx, Failure>,
}

struct Offer {
    granted: mpsc::Sender<Granted>,
    done: Arc<Notify>,
}

#[derive(Default)]
struct Counter {
    offers: BTreeMap<TxId, Offer>,
    handed_in: Vec<HandedIn>,
    asks: VecDeque<oneshot::Sender<Granted>>,
}

impl Counter {
    fn is_empty(&self) -> bool {
        self.offers.is_empty() && self.handed_in.is_empty() && self.asks.is_empty()
    }
}

/// The desk of one process. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Desk(Arc<Mutex<HashMap<SubmitterId, Counter>>>);

impl Desk {
    fn lock(&self) -> MutexGuard<'_, HashMap<SubmitterId, Counter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a submitter's counter, and takes it away if nothing is left on it.
    fn at<T>(&self, submitter: &SubmitterId, act: impl FnOnce(&mut Counter) -> T) -> Option<T> {
        let mut counters = self.lock();
        let counter = counters.get_mut(submitter)?;
        let answer = act(counter);
        if counter.is_empty() {
            counters.remove(submitter);
        }
        Some(answer)
    }

    /// Offers to run a transaction's closure; none if somebody here does already.
    pub(crate) fn offer(&self, submitter: &SubmitterId, tx_id: TxId) -> Option<Place> {
        let mut counters = self.lock();
        let counter = counters.entry(submitter.clone()).or_default();
        if counter.offers.contains_key(&tx_id) {
            return None;
        }
        let (granted, grants) = mpsc::channel(1);
        let done = Arc::new(Notify::new());
        counter.offers.insert(tx_id, Offer { granted, done: done.clone() });
        Some(Place { desk: self.clone(), submitter: submitter.clone(), tx_id, grants, done })
    }

    /// Asks for a nonce; none if too many do.
    #[cfg(any(feature = "low-level", test))]
    pub(crate) fn ask(&self, submitter: &SubmitterId) -> Option<oneshot::Receiver<Granted>> {
        let mut counters = self.lock();
        let counter = counters.entry(submitter.clone()).or_default();
        counter.asks.retain(|ask| !ask.is_closed());
        if counter.asks.len() >= MAX_ASKS {
            return None;
        }
        let (granted, grant) = oneshot::channel();
        counter.asks.push_back(granted);
        Some(grant)
    }

    /// The next one who asks and still waits.
    pub(crate) fn next_ask(&self, submitter: &SubmitterId) -> Option<oneshot::Sender<Granted>> {
        self.at(submitter, |counter| {
            std::iter::from_fn(|| counter.asks.pop_front()).find(|ask| !ask.is_closed())
        })
        .flatten()
    }

    /// Back to the front: it could not be granted yet.
    pub(crate) fn ask_again(&self, submitter: &SubmitterId, ask: oneshot::Sender<Granted>) {
        self.lock().entry(submitter.clone()).or_default().asks.push_front(ask);
    }

    /// Whose closures are here.
    pub(crate) fn offered(&self, submitter: &SubmitterId) -> BTreeSet<TxId> {
        self.at(submitter, |counter| counter.offers.keys().copied().collect()).unwrap_or_default()
    }

    /// Gives a nonce to a closure. Whether anybody took it.
    pub(crate) fn grant(&self, submitter: &SubmitterId, tx_id: TxId, granted: Granted) -> bool {
        let sent = |counter: &mut Counter| {
            counter.offers.get(&tx_id).is_some_and(|offer| offer.granted.try_send(granted).is_ok())
        };
        self.at(submitter, sent).unwrap_or_default()
    }

    /// Hands in what came of a closure.
    pub(crate) fn hand_in(&self, submitter: &SubmitterId, made: HandedIn) {
        self.lock().entry(submitter.clone()).or_default().handed_in.push(made);
    }

    /// What was handed in and is not done with. It stays until it is: a lane may lose its memory over it.
    pub(crate) fn handed_in(&self, submitter: &SubmitterId) -> Vec<HandedIn> {
        self.at(submitter, |counter| counter.handed_in.clone()).unwrap_or_default()
    }

    /// A transaction's reservation is over, one way or the other.
    pub(crate) fn done(&self, submitter: &SubmitterId, tx_id: TxId) {
        self.at(submitter, |counter| {
            counter.handed_in.retain(|made| made.tx_id != tx_id);
            if let Some(offer) = counter.offers.get(&tx_id) {
                offer.done.notify_one();
            }
        });
    }

    fn leave(&self, submitter: &SubmitterId, tx_id: TxId) {
        self.at(submitter, |counter| counter.offers.remove(&tx_id));
    }
}

/// An offer's place at the desk; given up when it is dropped.
pub(crate) struct Place {
    desk: Desk,
    submitter: SubmitterId,
    tx_id: TxId,
    grants: mpsc::Receiver<Granted>,
    done: Arc<Notify>,
}

impl Place {
    /// Waits for a nonce, or for word that something was done about the last one.
    pub(crate) async fn hears(&mut self) -> Option<Granted> {
        tokio::select! {
            granted = self.grants.recv() => granted,
            () = self.done.notified() => None,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.desk.leave(&self.submitter, self.tx_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn account() -> SubmitterId {
        "eip155:1:0x0000000000000000000000000000000000000001".parse().unwrap()
    }

    #[test]
    fn one_closure_per_transaction_and_nothing_is_left_behind() {
        let (desk, tx_id) = (Desk::default(), TxId(Uuid::from_u128(1)));
        let place = desk.offer(&account(), tx_id).unwrap();
        assert!(desk.offer(&account(), tx_id).is_none());
        assert!(desk.offered(&account()).contains(&tx_id));
        drop(place);
        assert!(desk.offered(&account()).is_empty());
        let granted = Granted { nonce: Nonce(0), lock_owner: LockOwner(Uuid::nil()), until: Tick::default() };
        assert!(!desk.grant(&account(), tx_id, granted), "nobody is there to take it");
        assert!(desk.lock().is_empty());
    }

    #[test]
    fn who_has_stopped_waiting_is_passed_over() {
        let desk = Desk::default();
        drop(desk.ask(&account()).unwrap());
        let waits = desk.ask(&account()).unwrap();
        let ask = desk.next_ask(&account()).unwrap();
        assert!(!ask.is_closed());
        assert!(desk.next_ask(&account()).is_none());
        drop(waits);
        assert!(desk.lock().is_empty());
    }
}
