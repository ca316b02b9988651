//! Wiring: one engine per process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gapless_core::lease::{LeaseTerms, Owner};
use gapless_core::ports::clock::Clock;
use gapless_core::ports::store::{Store, StoreResult};
use gapless_core::submitter::{ChainId, SubmitterId};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::balances::Balances;
use crate::calls::Calls;
use crate::depth::Depths;
use crate::desk::Desk;
use crate::gate::{AcceptRules, Gate};
use crate::handle::Handle;
use crate::heads::{Heads, Tracker};
use crate::intake::Intake;
use crate::keeper::{Keeper, KeeperOptions, LaneEnd};
use crate::lane::{ChainTools, Lane, Tools};
use crate::lookups::{LookupService, Lookups};
use crate::points::Points;
use crate::policies::Policies;
use crate::registry::Registry;
use crate::tags::Tags;
use crate::tasks::Tasks;
use crate::writer::Writer;

/// How an engine runs.
#[derive(Clone)]
pub struct EngineOptions {
    /// This process.
    pub owner: Owner,
    /// The lease.
    pub terms: LeaseTerms,
    /// How often to renew it.
    pub renew: Duration,
    /// How often to look for work nobody does.
    pub sweep: Duration,
    /// How long an idle lane keeps its lease.
    pub idle_release: Duration,
    /// How often to look at the head.
    pub poll: Duration,
    /// Whether lanes trust the local clock (always, but in tests of the fence).
    pub guard: bool,
    /// Test points.
    pub points: Points,
}

/// One process's engine.
pub struct Engine {
    options: EngineOptions,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    registry: Registry,
    handle: Handle,
    parts: Parts,
    tasks: Tasks,
    #[cfg(feature = "test-hooks")]
    sends_first: bool,
}

struct Parts {
    trackers: Vec<Tracker>,
    intake: crate::intake::IntakeService,
    lookups: LookupService,
    work: mpsc::Receiver<SubmitterId>,
}

/// Words about new work that may wait for the keeper.
const WORK: usize = 4_096;

impl Engine {
    /// An engine and its handle. Registers the configured submitters.
    pub async fn build(
        options: EngineOptions,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        registry: Registry,
    ) -> StoreResult<(Self, Handle)> {
        let configured: Vec<_> = registry.submitters().into_iter().map(|s| (s.id, "{}".to_owned())).collect();
        if !configured.is_empty() {
            store.register(&configured).await?;
        }
        let mut heads: HashMap<ChainId, Heads> = HashMap::new();
        let mut trackers = Vec::new();
        for (id, chain) in registry.chains() {
            let (tracker, view) = Tracker::new(chain, options.poll);
            trackers.push(tracker);
            heads.insert(id, view);
        }
        let (intake, intake_service) = Intake::new();
        let (work_sender, work) = mpsc::channel(WORK);
        let (lookups, lookup_service) = Lookups::new();
        let gate = Gate {
            store: store.clone(),
            lookups,
            owner: options.owner.clone(),
            terms: options.terms,
            registry: registry.clone(),
            work: work_sender.clone(),
            rules: AcceptRules::default(),
            depths: Arc::new(Depths::new(clock.clone())),
            stopping: Arc::default(),
        };
        let handle = Handle {
            store: store.clone(),
            clock: clock.clone(),
            intake,
            work: work_sender,
            registry: registry.clone(),
            heads: Arc::new(heads),
            gate,
            balances: Arc::new(Balances::new(clock.clone(), registry.clone())),
            policies: Arc::default(),
            desk: Desk::default(),
        };
        let parts = Parts { trackers, intake: intake_service, lookups: lookup_service, work };
        let engine = Self {
            options,
            store,
            clock,
            registry,
            handle: handle.clone(),
            parts,
            tasks: Tasks::default(),
            #[cfg(feature = "test-hooks")]
            sends_first: false,
        };
        Ok((engine, handle))
    }

    /// Starts every task by `tasks` instead of on the runtime that runs the engine.
    #[must_use]
    pub fn on(self, tasks: Tasks) -> Self {
        Self { tasks, ..self }
    }

    /// Decides by these policies instead of the settings' own. The first word counts: call it once, before running.
    #[must_use]
    pub fn with_policies(self, policies: Policies) -> Self {
        // Shared with the handles that exist already: what they foretell must be what the lanes do.
        let _ = self.handle.policies.set(policies);
        self
    }

    /// Breaks durable-first: bytes go to the chain before they are stored.
    #[cfg(feature = "test-hooks")]
    #[must_use]
    pub fn sending_before_storing(self) -> Self {
        Self { sends_first: true, ..self }
    }

    /// Runs until cancelled, then drains: lanes finish the write in hand and leases are given back.
    pub async fn run(self, stop: CancellationToken) {
        #[cfg(feature = "test-hooks")]
        let sends_first = self.sends_first;
        let Self { options, store, clock, registry, handle, parts, tasks, .. } = self;
        let background = CancellationToken::new();
        let _ = handle.gate.stopping.set(stop.clone());
        for tracker in parts.trackers {
            tasks.spawn(tracker.run(background.clone()));
        }
        tasks.spawn(parts.lookups.run(store.clone()));
        tasks.spawn(parts.intake.run(store.clone(), handle.work.clone(), options.points.clone()));
        let (hears, heard) = mpsc::channel(WORK);
        tasks.spawn(listen(store.clone(), hears, background.clone()));
        let (writer, writer_service) = Writer::new();
        tasks.spawn(writer_service.run(store.clone(), clock.clone()));

        let mut chains = HashMap::new();
        for (id, chain) in registry.chains() {
            let Some(heads) = handle.heads.get(&id).cloned() else { continue };
            let calls = Calls::start(&id, &chain, &tasks);
            chains.insert(id, ChainTools { chain, calls, heads, tags: Tags::default() });
        }
        let tools = Tools {
            store: store.clone(),
            writer,
            clock: clock.clone(),
            points: options.points.clone(),
            idle_release: options.idle_release,
            policies: handle.policies.get().cloned().unwrap_or_default(),
            desk: handle.desk.clone(),
            #[cfg(feature = "test-hooks")]
            sends_first,
        };
        let (lane_tasks, served) = (tasks.clone(), registry.clone());
        let keeper = Keeper {
            store,
            clock,
            owner: options.owner,
            options: KeeperOptions {
                terms: options.terms,
                renew: options.renew,
                sweep: options.sweep,
                guard: options.guard,
            },
            serves: Box::new(move |id| served.submitter(id).is_some()),
            spawn: Box::new(move |seat, ends| {
                let id = seat.submitter.clone();
                let (Some(submitter), Some(chain)) = (registry.submitter(&id), chains.get(&id.chain()))
                else {
                    return false;
                };
                let lane = Lane::new(seat, submitter, tools.clone(), chain.clone());
                let farewell = Farewell { submitter: id, ends };
                lane_tasks.spawn(async move { farewell.say(lane.run().await).await });
                true
            }),
        };
        keeper.run(parts.work, heard, stop).await;
        background.cancel();
        drop(handle);
        // What still waits for an answer (askers of intake and calls) ends with its handles; nobody is waited for.
    }
}

/// Tells the keeper that a lane has ended, even by a panic: a seat that nobody sits on would keep its lease for ever.
struct Farewell {
    submitter: SubmitterId,
    ends: mpsc::Sender<(SubmitterId, LaneEnd)>,
}

impl Farewell {
    async fn say(self, end: LaneEnd) {
        // The keeper outlives its lanes; what the drop adds finds the seat gone already.
        let _ = self.ends.send((self.submitter.clone(), end)).await;
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.ends.try_send((self.submitter.clone(), LaneEnd::Lost));
        }
    }
}

/// Hears other nodes' words about new work.
async fn listen(store: Arc<dyn Store>, hears: mpsc::Sender<SubmitterId>, stop: CancellationToken) {
    loop {
        let heard = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            heard = store.notified() => heard,
        };
        match heard {
            Ok(submitters) => {
                for submitter in submitters {
                    let _ = hears.try_send(submitter);
                }
            }
            Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}
