//! A node: one engine behind a gate, started again whenever it crashed.

use std::sync::{Arc, Mutex, PoisonError};

use gapless_core::lease::{LeaseTerms, Owner};
use gapless_core::ports::clock::Clock;
use gapless_core::submitter::ChainId;
use gapless_engine::points::Points;
use gapless_engine::{Engine, EngineOptions, Handle, Registry, Submitter};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::chain::NodeChain;
use crate::check::Violation;
use crate::clock::SimClock;
use crate::gate::Gate;
use crate::scenario::CHAIN;
use crate::store::NodeStore;
use crate::wire::Wire;
use crate::world::World;

/// What runs under a node's name at present.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) gate: Arc<Gate>,
    /// None until the engine is built.
    pub(crate) handle: Option<Handle>,
    stop: CancellationToken,
}

/// A name under which one engine after another runs.
pub(crate) struct Node {
    pub(crate) name: Arc<str>,
    world: Arc<World>,
    clock: Arc<dyn Clock>,
    running: Mutex<Running>,
    stopped: Notify,
}

impl Node {
    pub(crate) fn new(world: &Arc<World>, n: usize) -> Arc<Self> {
        let clock = Arc::new(SimClock::skewed(world.began, world.dice.clone()));
        let name = format!("node-{}", char::from(b'a' + n as u8)).into();
        Arc::new(Self {
            name,
            world: world.clone(),
            clock,
            running: Mutex::new(idle()),
            stopped: Notify::new(),
        })
    }

    pub(crate) fn running(&self) -> Running {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, running: Running) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = running;
    }

    /// Runs engines under this name, each until it crashes.
    pub(crate) async fn supervise(self: Arc<Self>) {
        loop {
            let running = idle();
            let gate = running.gate.clone();
            self.set(running);
            self.world.trace.line(&self.name, "starts");
            gate.spawn(self.clone().run(self.running()));
            gate.crashed().await;
            self.set(idle());
            self.world.tally.add("crashes");
            self.world.trace.line(&self.name, "crashed");
            tokio::time::sleep(self.world.dice.millis(0..=6_000)).await;
        }
    }

    async fn run(self: Arc<Self>, running: Running) {
        let (engine, handle) = loop {
            match self.build().await {
                Ok(Some(built)) => break built,
                Ok(None) => tokio::time::sleep(self.world.dice.millis(50..=500)).await,
                Err(violation) => return self.world.breaks(violation),
            }
        };
        let engine = engine.on(running.gate.tasks());
        self.set(Running { handle: Some(handle), ..running.clone() });
        engine.run(running.stop).await;
        self.world.trace.line(&self.name, "stopped");
        self.stopped.notify_one();
    }

    /// None if the store did not answer.
    async fn build(&self) -> Result<Option<(Engine, Handle)>, Violation> {
        let scenario = &self.world.scenario;
        let wire = Wire { world: self.world.clone(), node: self.name.clone() };
        let chain = Arc::new(NodeChain(wire.clone()));
        let registry = Registry::new(scenario.settings.clone());
        let unfit = |error: &dyn std::fmt::Display| Violation::world(&error.to_string());
        let chain_id: ChainId = format!("eip155:{CHAIN}").parse().map_err(|error| unfit(&error))?;
        registry.add_chain(chain_id, chain.clone());
        for id in &scenario.submitters {
            let (id, signer) = (id.clone(), Some(chain.clone() as _));
            registry.add_submitter(Submitter { id, settings: scenario.settings.clone(), signer });
        }
        let options = EngineOptions {
            owner: Owner::new(&self.name, self.clock.draw()).map_err(|error| unfit(&error))?,
            terms: LeaseTerms::new(scenario.lease, scenario.allowance).map_err(|error| unfit(&error))?,
            renew: scenario.lease / 3,
            sweep: scenario.sweep,
            idle_release: scenario.idle_release,
            poll: scenario.poll,
            guard: scenario.guard,
            points: Points::default(),
        };
        let built = Engine::build(options, Arc::new(NodeStore(wire)), self.clock.clone(), registry).await;
        Ok(built.ok().map(|(engine, handle)| (self.sabotaged(engine), handle)))
    }

    #[cfg(feature = "sabotage")]
    fn sabotaged(&self, engine: Engine) -> Engine {
        let sends_first = self.world.sabotage == Some(crate::Sabotage::SendBeforeStore);
        if sends_first { engine.sending_before_storing() } else { engine }
    }

    #[cfg(not(feature = "sabotage"))]
    fn sabotaged(&self, engine: Engine) -> Engine {
        engine
    }

    pub(crate) async fn stopped(&self) {
        self.stopped.notified().await;
    }

    /// Asks the engine to drain.
    pub(crate) fn stop(&self) {
        self.running().stop.cancel();
    }
}

fn idle() -> Running {
    Running { gate: Arc::default(), handle: None, stop: CancellationToken::new() }
}
