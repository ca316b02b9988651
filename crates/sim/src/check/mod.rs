//! The invariants, by name. What must hold of one event (a write that passed, bytes that arrived) is judged here; what
//! must hold of everything at any time is the [`Checker`]'s.

mod standing;

use std::collections::BTreeMap;
use std::fmt;

use gapless_core::allocation::Allocation;
use gapless_core::attempt::StoredAttempt;
use gapless_core::change::LaneChange;
use gapless_core::ids::Nonce;
use gapless_core::limits::{MAX_NONCE, MAX_PAGE};
use gapless_core::ports::store::{Store, StoreResult, SubmitterInfo, TxFilter};
use gapless_core::record::TxRecord;
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use gapless_store::memory::MemoryStore;

pub(crate) use standing::Checker;

use crate::chain::SimTx;

/// What a world holds its nodes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// One slot per submitter and nonce.
    Unique,
    /// Bound nonces are one contiguous run, and each is consumed by an attempt of ours.
    Gapless,
    /// A request's effect is mined at most once, and its end never changes.
    Once,
    /// After a takeover no write of the previous owner changes anything.
    Fenced,
    /// Bytes go to a node only after their committed write.
    DurableFirst,
    /// Once trouble is over, every accepted request is confirmed within bounded time.
    Progress,
    /// The world itself is sound; if not, the simulator is at fault.
    World,
}

impl Invariant {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unique => "unique",
            Self::Gapless => "gapless",
            Self::Once => "once",
            Self::Fenced => "fenced",
            Self::DurableFirst => "durable-first",
            Self::Progress => "progress",
            Self::World => "world",
        }
    }
}

/// An invariant that was broken, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// How.
    pub what: String,
}

impl Violation {
    pub(crate) fn new(invariant: Invariant, what: String) -> Self {
        Self { invariant, what }
    }

    pub(crate) fn world(what: &str) -> Self {
        Self::new(Invariant::World, what.to_owned())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant.name(), self.what)
    }
}

/// What the store holds of one submitter.
pub(crate) struct SeenLane {
    pub(crate) info: SubmitterInfo,
    pub(crate) attempts: Vec<StoredAttempt>,
    pub(crate) allocations: Vec<Allocation>,
}

/// What the store holds.
pub(crate) struct Seen {
    pub(crate) lanes: BTreeMap<SubmitterId, SeenLane>,
    pub(crate) txs: Vec<TxRecord>,
}

/// Reads all of it in one instant: the memory store answers without waiting.
pub(crate) async fn read(store: &MemoryStore, submitters: &[SubmitterId]) -> StoreResult<Seen> {
    let mut lanes = BTreeMap::new();
    for id in submitters {
        // Nobody has registered it yet.
        let Some(info) = store.submitter(id).await? else { continue };
        let attempts = store.attempts(id, Nonce(0), Nonce(MAX_NONCE)).await?;
        let allocations = store.allocations(id, Nonce(0), Nonce(MAX_NONCE)).await?;
        lanes.insert(id.clone(), SeenLane { info, attempts, allocations });
    }
    let filter = TxFilter { limit: MAX_PAGE, ..TxFilter::default() };
    Ok(Seen { lanes, txs: store.list(&filter).await? })
}

/// *fenced*: a write that passed was made under the present lease, on the present version. `before` is the submitter as
/// it stood in the instant before.
pub(crate) fn fence(
    change: &LaneChange,
    before: Option<&SubmitterInfo>,
    now: Timestamp,
) -> Result<(), Violation> {
    let broken = |what: String| Err(Violation::new(Invariant::Fenced, what));
    let Some(before) = before else { return broken("a write for nobody passed".into()) };
    let Some(lease) = &before.lease else { return broken("a write without any lease passed".into()) };
    if (&lease.owner, lease.token) != (change.owner(), change.token()) {
        return broken(format!(
            "a write of {} with token {} passed, while {} holds token {}",
            change.owner().node(),
            change.token(),
            lease.owner.node(),
            lease.token
        ));
    }
    if lease.expires_at <= now {
        return broken(format!("a write of {} passed after its lease had ended", change.owner().node()));
    }
    if before.cursor.version != change.expected() {
        let (planned, found) = (change.expected(), before.cursor.version);
        return broken(format!("a write planned on version {planned} passed on version {found}"));
    }
    Ok(())
}

/// *durable-first*: whoever sends, whenever, the store holds these bytes already.
pub(crate) fn durable_first(seen: &Seen, tx: &SimTx, raw: &[u8]) -> Result<(), Violation> {
    let lane = seen.lanes.iter().find(|(id, _)| id.address() == Some(tx.from)).map(|(_, lane)| lane);
    let stored = lane.into_iter().flat_map(|lane| &lane.attempts);
    if stored.into_iter().any(|a| a.nonce.0 == tx.nonce && a.hash == tx.hash && *a.raw == *raw) {
        return Ok(());
    }
    let what = format!("bytes {} for nonce {} reached the chain before the store", tx.hash, tx.nonce);
    Err(Violation::new(Invariant::DurableFirst, what))
}
