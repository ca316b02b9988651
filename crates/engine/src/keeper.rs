//! Holding lanes: acquire what has work, renew all in one statement, release what is idle or when draining.
//!
//! The keeper never touches transactions. It owns the truth about which lanes this process may run and until when;
//! lanes read it through a [`LeaseCell`] before every write and every broadcast.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gapless_core::lease::{AcquireKind, Grant, LeaseTerms, Owner};
use gapless_core::ports::clock::Clock;
use gapless_core::ports::store::{Acquired, Parting, Renewal, Store};
use gapless_core::submitter::SubmitterId;
use gapless_core::time::{Tick, Timestamp};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::names;

/// A grant and when it was asked for, shared between the keeper and its lane.
#[derive(Clone)]
pub struct LeaseCell {
    held: Arc<Mutex<(Grant, Tick)>>,
    terms: LeaseTerms,
    clock: Arc<dyn Clock>,
    guard: bool,
}

impl LeaseCell {
    fn new(grant: Grant, sent_at: Tick, terms: LeaseTerms, clock: Arc<dyn Clock>, guard: bool) -> Self {
        Self { held: Arc::new(Mutex::new((grant, sent_at))), terms, clock, guard }
    }

    /// The grant, if the local clock still allows it, with the tick it counts from.
    #[must_use]
    pub fn live(&self) -> Option<(Grant, Tick)> {
        let (grant, sent_at) = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let now = self.clock.tick();
        // Switched off only by tests that want to see the database's fence at work.
        let sent_at = if self.guard { sent_at } else { now };
        let alive = grant.live(sent_at, &self.terms, now).is_some();
        alive.then_some((grant, sent_at))
    }

    /// The terms it lives under.
    #[must_use]
    pub const fn terms(&self) -> &LeaseTerms {
        &self.terms
    }

    /// A newer grant, asked for at `sent_at`.
    pub fn set(&self, grant: Grant, sent_at: Tick) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = (grant, sent_at);
    }

    /// A renewed grant, unless the lane has raised its token meanwhile: an older grant never takes a newer one's place.
    fn renewed(&self, old: &Grant, grant: Grant, sent_at: Tick) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let same = held.0.token() == old.token();
        if same {
            *held = (grant, sent_at);
        }
        same
    }

    /// The database's time, as far as can be told without asking: it stood `duration` before the lease's end when the
    /// lease was written.
    #[must_use]
    pub fn database_time(&self) -> Timestamp {
        let (grant, sent_at) = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone();
        grant.expires_at().minus(self.terms.duration()).plus(self.clock.tick().since(sent_at))
    }

    fn grant(&self) -> Grant {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

/// How a lane ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneEnd {
    /// It may not act any more; nothing is to be released.
    Lost,
    /// It stopped by itself or was asked to.
    Parted(Parting),
}

/// What the keeper gives a lane.
pub struct LaneSeat {
    /// Whose lane.
    pub submitter: SubmitterId,
    /// Its lease.
    pub lease: LeaseCell,
    /// Rings when there may be new work.
    pub wake: Arc<Notify>,
    /// Ends it: finish the write in hand, take nothing new.
    pub stop: CancellationToken,
}

struct Seated {
    lease: LeaseCell,
    wake: Arc<Notify>,
    stop: CancellationToken,
}

/// Times the keeper works by.
#[derive(Debug, Clone, Copy)]
pub struct KeeperOptions {
    /// The lease.
    pub terms: LeaseTerms,
    /// How often to renew.
    pub renew: Duration,
    /// How often to look for work nobody does.
    pub sweep: Duration,
    /// Whether lanes trust the local clock (always, but in tests of the fence).
    pub guard: bool,
}

/// Before a lease row that is being written is tried again.
pub(crate) const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Lanes acquired in one call: their leases count from when it was sent.
const TOGETHER: usize = 16;

/// Most lanes claimed in one sweep.
const CLAIM: usize = 256;

/// Whether this process could run a submitter's lane at all.
pub type Serves = Box<dyn Fn(&SubmitterId) -> bool + Send + Sync>;

/// Starts a lane on a seat; reports its end.
pub type Spawn = Box<dyn Fn(LaneSeat, mpsc::Sender<(SubmitterId, LaneEnd)>) -> bool + Send + Sync>;

/// The keeper.
pub struct Keeper {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// This process.
    pub owner: Owner,
    /// Its times.
    pub options: KeeperOptions,
    /// Which lanes it could run. A lease that nobody here can use would only keep others from it.
    pub serves: Serves,
    /// Starts lanes.
    pub spawn: Spawn,
}

impl Keeper {
    /// Runs until cancelled, then drains: every lane finishes its write, and every lease is given back.
    ///
    /// `work` is this node's own news, passed on to whoever runs the lane; `heard` is what others passed on.
    pub async fn run(
        self,
        mut work: mpsc::Receiver<SubmitterId>,
        mut heard: mpsc::Receiver<SubmitterId>,
        stop: CancellationToken,
    ) {
        let (ends, mut ended) = mpsc::channel(1_024);
        let mut seats: BTreeMap<SubmitterId, Seated> = BTreeMap::new();
        let mut swept: Option<SubmitterId> = None;
        let mut renew = tokio::time::interval(self.options.renew);
        let mut sweep = tokio::time::interval(self.options.sweep);
        renew.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = renew.tick() => self.renew(&mut seats).await,
                Some((submitter, end)) = ended.recv() => self.seat_is_free(&mut seats, &submitter, end).await,
                Some(submitter) = work.recv() => {
                    let elsewhere = self.attend(&mut seats, all(submitter, &mut work), &ends).await;
                    self.tell(&elsewhere).await;
                }
                // Never passed on again: a node hears its own words too, and two would talk without end.
                Some(submitter) = heard.recv() => {
                    self.attend(&mut seats, all(submitter, &mut heard), &ends).await;
                }
                _ = sweep.tick() => {
                    if let Ok(wanted) = self.store.claimable(&self.options.terms, swept.as_ref(), CLAIM).await {
                        // The next sweep goes on where this one had to end: what nobody here can run must not hide the rest.
                        swept = wanted.last().filter(|_| wanted.len() == CLAIM).cloned();
                        self.attend(&mut seats, wanted, &ends).await;
                    }
                }
            }
        }
        seats.values().for_each(|seat| seat.stop.cancel());
        while !seats.is_empty() {
            let Some((submitter, end)) = ended.recv().await else { break };
            self.seat_is_free(&mut seats, &submitter, end).await;
        }
    }

    /// Wakes lanes that run here; takes those that nobody runs. Those that others run.
    async fn attend(
        &self,
        seats: &mut BTreeMap<SubmitterId, Seated>,
        mut wanted: Vec<SubmitterId>,
        ends: &mpsc::Sender<(SubmitterId, LaneEnd)>,
    ) -> Vec<SubmitterId> {
        let mut elsewhere = Vec::new();
        wanted.sort();
        wanted.dedup();
        wanted.retain(|submitter| match seats.get(submitter) {
            Some(seat) => {
                seat.wake.notify_one();
                false
            }
            None => (self.serves)(submitter),
        });
        let mut renewed_at = self.clock.tick();
        for some in wanted.chunks(TOGETHER) {
            let sent_at = self.clock.tick();
            // Acquiring is a commit per lane: many of them must not cost the lanes that run theirs.
            if sent_at.since(renewed_at) >= self.options.renew {
                self.renew(seats).await;
                renewed_at = sent_at;
            }
            elsewhere.extend(self.acquire(seats, some, ends).await);
        }
        elsewhere
    }

    /// Takes what nobody runs, in one call. Those that others run.
    async fn acquire(
        &self,
        seats: &mut BTreeMap<SubmitterId, Seated>,
        wanted: &[SubmitterId],
        ends: &mpsc::Sender<(SubmitterId, LaneEnd)>,
    ) -> Vec<SubmitterId> {
        let mut elsewhere = Vec::new();
        let sent_at = self.clock.tick();
        let acquired = match self.store.acquire(&self.owner, wanted, &self.options.terms).await {
            Ok(acquired) => acquired,
            Err(error) => {
                warn!(%error, "lanes cannot be acquired");
                return elsewhere;
            }
        };
        for (submitter, acquired) in wanted.iter().cloned().zip(acquired) {
            match acquired {
                Acquired::Held { kind, grant } => {
                    count_acquired(kind);
                    info!(submitter = %submitter, node_id = self.owner.node(), fencing_token = grant.token().0,
                        ?kind, "lane acquired");
                    // A lease that was still ours may have a ghost of ours behind it: take it up with a new token.
                    let taken_up = match kind {
                        AcquireKind::Renew => self.store.raise_token(&grant, &self.options.terms).await,
                        AcquireKind::Insert | AcquireKind::Takeover => Ok(Acquired::Held { kind, grant }),
                    };
                    if let Ok(Acquired::Held { grant, .. }) = taken_up {
                        self.seat(seats, submitter, grant, sent_at, ends);
                    }
                }
                Acquired::NotOwner { .. } => {
                    count_not_owner();
                    elsewhere.push(submitter);
                }
                Acquired::Busy | Acquired::UnknownSubmitter => {}
            }
        }
        elsewhere
    }

    async fn tell(&self, submitters: &[SubmitterId]) {
        if !submitters.is_empty()
            && let Err(error) = self.store.notify(submitters).await
        {
            warn!(%error, "other nodes cannot be told; their sweep will find it");
        }
    }

    fn seat(
        &self,
        seats: &mut BTreeMap<SubmitterId, Seated>,
        submitter: SubmitterId,
        grant: Grant,
        sent_at: Tick,
        ends: &mpsc::Sender<(SubmitterId, LaneEnd)>,
    ) {
        let (terms, guard) = (self.options.terms, self.options.guard);
        let lease = LeaseCell::new(grant, sent_at, terms, self.clock.clone(), guard);
        let (wake, stop) = (Arc::new(Notify::new()), CancellationToken::new());
        let seat = LaneSeat {
            submitter: submitter.clone(),
            lease: lease.clone(),
            wake: wake.clone(),
            stop: stop.clone(),
        };
        if (self.spawn)(seat, ends.clone()) {
            seats.insert(submitter, Seated { lease, wake, stop });
        }
    }

    async fn renew(&self, seats: &mut BTreeMap<SubmitterId, Seated>) {
        if seats.is_empty() {
            return;
        }
        let cells: Vec<&Seated> = seats.values().collect();
        let grants: Vec<Grant> = cells.iter().map(|seat| seat.lease.grant()).collect();
        let sent_at = self.clock.tick();
        match self.store.renew(&grants, &self.options.terms).await {
            Ok(renewals) => {
                for ((seat, old), renewal) in cells.iter().zip(&grants).zip(renewals) {
                    match renewal {
                        Renewal::Renewed(grant) => {
                            if seat.lease.renewed(old, grant, sent_at) {
                                count_acquired(AcquireKind::Renew);
                            }
                        }
                        // Without the guard nothing but a fenced write may end a lane.
                        Renewal::Lost if self.options.guard && seat.lease.grant().token() == old.token() => {
                            count_not_owner();
                            seat.stop.cancel();
                        }
                        Renewal::Lost => {}
                    }
                }
            }
            Err(error) => warn!(%error, "leases cannot be renewed; lanes stop before theirs end"),
        }
    }

    async fn seat_is_free(
        &self,
        seats: &mut BTreeMap<SubmitterId, Seated>,
        submitter: &SubmitterId,
        end: LaneEnd,
    ) {
        let Some(seat) = seats.remove(submitter) else { return };
        let LaneEnd::Parted(parting) = end else {
            info!(submitter = %submitter, node_id = self.owner.node(), "lane lost");
            return;
        };
        let grant = seat.lease.grant();
        info!(submitter = %submitter, node_id = self.owner.node(), fencing_token = grant.token().0, ?parting, "lane released");
        match self.store.release(&[(grant, parting)]).await {
            // Work is left: whoever else can do it should not have to wait for its next sweep.
            Ok(released) if parting == Parting::Unfinished && released == [true] => {
                self.tell(std::slice::from_ref(submitter)).await;
            }
            Ok(_) => {}
            Err(error) => warn!(%error, "a lease was not given back; it will expire"),
        }
    }
}

/// A word and whatever else waits behind it.
fn all(first: SubmitterId, channel: &mut mpsc::Receiver<SubmitterId>) -> Vec<SubmitterId> {
    let mut words = vec![first];
    while let Ok(more) = channel.try_recv() {
        words.push(more);
    }
    words
}

/// Counts a lease that was got.
pub(crate) fn count_acquired(kind: AcquireKind) {
    count(match kind {
        AcquireKind::Insert => "insert",
        AcquireKind::Renew => "renew",
        AcquireKind::Takeover => "takeover",
    });
}

/// Counts a lease that somebody else holds.
pub(crate) fn count_not_owner() {
    count("not_owner");
}

fn count(result: &'static str) {
    metrics::counter!(names::LEASE_ACQUIRE, "result" => result).increment(1);
}
