//! The engine inside another program: name the parts, start, submit, wait, stop.
//!
//! A thin layer over [`Engine`]: it fills in the ordinary terms and refuses, before anything runs, what could only fail
//! later.

use std::sync::Arc;
use std::time::Duration;

use gapless_core::govern::PolicyError;
use gapless_core::ids::{IdError, TxId};
use gapless_core::lease::{LeaseTerms, Owner, TermsError};
use gapless_core::ports::chain::Chain;
use gapless_core::ports::clock::Clock;
use gapless_core::ports::policy::{GasBumpPolicy, MempoolInspector, StuckPolicy};
use gapless_core::ports::signer::Signer;
use gapless_core::ports::store::{Store, StoreError};
use gapless_core::submitter::{ChainId, SubmitterId};
use thiserror::Error;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, EngineOptions};
use crate::handle::{Handle, Refusal, Request, Submitted};
use crate::points::Points;
use crate::policies::Policies;
use crate::registry::{Registry, Submitter};
use crate::settings::LaneSettings;
use crate::view::TxView;

/// Why an engine was not started.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StartError {
    /// A part is missing.
    #[error("no {0} was given")]
    Missing(&'static str),
    /// A submitter's chain is missing.
    #[error("{submitter} is on a chain that was not given; add it with .chain()")]
    UnknownChain {
        /// Whose.
        submitter: SubmitterId,
    },
    /// A submitter's rules for the stuck cannot work.
    #[error("the rules of {submitter} for the stuck")]
    Policy {
        /// Whose.
        submitter: SubmitterId,
        /// Why.
        #[source]
        error: PolicyError,
    },
    /// The node's name is none.
    #[error(transparent)]
    Name(#[from] IdError),
    /// The lease's terms protect nothing.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// The store has trouble.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Gathers the parts of an engine.
#[derive(Default)]
pub struct Builder {
    store: Option<Arc<dyn Store>>,
    clock: Option<Arc<dyn Clock>>,
    owner: Option<Owner>,
    node_id: Option<String>,
    chains: Vec<(ChainId, Arc<dyn Chain>)>,
    submitters: Vec<Submitter>,
    policies: Policies,
}

impl Builder {
    /// Where everything is stored.
    #[must_use]
    pub fn store(self, store: Arc<dyn Store>) -> Self {
        Self { store: Some(store), ..self }
    }

    /// Local time and randomness.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// This process in the cluster, in full; otherwise it is named by [`Self::node_id`] and a fresh id.
    #[must_use]
    pub fn owner(self, owner: Owner) -> Self {
        Self { owner: Some(owner), ..self }
    }

    /// The node's name.
    #[must_use]
    pub fn node_id(self, node_id: impl Into<String>) -> Self {
        Self { node_id: Some(node_id.into()), ..self }
    }

    /// Adds a chain.
    #[must_use]
    pub fn chain(mut self, id: ChainId, chain: Arc<dyn Chain>) -> Self {
        self.chains.push((id, chain));
        self
    }

    /// Adds an account, how it is run, and who signs for it.
    #[must_use]
    pub fn submitter(mut self, id: SubmitterId, settings: LaneSettings, signer: Arc<dyn Signer>) -> Self {
        self.submitters.push(Submitter { id, settings, signer: Some(signer) });
        self
    }

    /// Decides what a dearer attempt offers.
    #[must_use]
    pub fn gas_bump_policy(mut self, policy: Arc<dyn GasBumpPolicy>) -> Self {
        self.policies.bump = policy;
        self
    }

    /// Decides about transactions that do not move, instead of each submitter's rules.
    #[must_use]
    pub fn stuck_policy(mut self, policy: Arc<dyn StuckPolicy>) -> Self {
        self.policies.stuck = Some(policy);
        self
    }

    /// Looks into pools.
    #[must_use]
    pub fn mempool_inspector(mut self, inspector: Arc<dyn MempoolInspector>) -> Self {
        self.policies.inspector = Some(inspector);
        self
    }

    /// Starts the engine on the runtime that runs the caller.
    pub async fn start(self) -> Result<Gapless, StartError> {
        let Self { store, clock, owner, node_id, chains, submitters, policies } = self;
        let store = store.ok_or(StartError::Missing("store"))?;
        let clock = clock.ok_or(StartError::Missing("clock"))?;
        let owner = match owner {
            Some(owner) => owner,
            None => Owner::new(node_id.as_deref().unwrap_or("embedded"), clock.draw())?,
        };
        let registry = Registry::new(LaneSettings::default());
        for (id, chain) in chains {
            registry.add_chain(id, chain);
        }
        for submitter in submitters {
            let id = submitter.id.clone();
            if registry.chain(&id.chain()).is_none() {
                return Err(StartError::UnknownChain { submitter: id });
            }
            if let Err(error) = submitter.settings.stuck.check() {
                return Err(StartError::Policy { submitter: id, error });
            }
            registry.add_submitter(submitter);
        }
        let options = EngineOptions {
            owner,
            terms: LeaseTerms::new(Duration::from_secs(10), Duration::from_secs(1))?,
            renew: Duration::from_secs(3),
            sweep: Duration::from_secs(1),
            idle_release: Duration::from_secs(30),
            poll: Duration::from_millis(500),
            guard: true,
            points: Points::default(),
        };
        let (engine, handle) = Engine::build(options, store, clock, registry).await?;
        let engine = engine.with_policies(policies);
        let stopping = CancellationToken::new();
        let running = tokio::spawn(engine.run(stopping.clone()));
        Ok(Gapless { handle, stopping, running })
    }
}

/// An engine that runs. Dropping it lets it run on without a handle; [`Gapless::stop`] ends it.
pub struct Gapless {
    handle: Handle,
    stopping: CancellationToken,
    running: JoinHandle<()>,
}

impl Gapless {
    /// An engine to be.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Everything else that can be asked.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Accepts a request: idempotent by its request id.
    pub async fn submit(&self, request: Request) -> Result<Submitted, Refusal> {
        self.handle.submit(request).await
    }

    /// Waits for a transaction's end, or until so much time has passed: the view says which.
    pub async fn wait(&self, tx_id: TxId, most: Duration) -> Result<TxView, Refusal> {
        let deadline = self.handle.clock.tick().plus(most);
        let mut view = self.handle.tx(tx_id).await?;
        loop {
            let left = deadline.since(self.handle.clock.tick());
            if view.state.is_terminal() || left.is_zero() {
                return Ok(view);
            }
            view = self.handle.wait(tx_id, Some(view.seq), left).await?;
        }
    }

    /// Finishes the writes in hand, gives the leases back, and ends.
    pub async fn stop(self) {
        self.stopping.cancel();
        let _ = self.running.await;
    }
}

#[cfg(test)]
mod tests {
    use gapless_core::govern::StuckRules;
    use gapless_evm::{EvmChain, EvmOptions, LocalSigner};
    use gapless_store::clock::SystemClock;
    use gapless_store::memory::MemoryStore;

    use super::*;

    const KEY: &str = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";

    fn account() -> SubmitterId {
        "eip155:31337:0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266".parse().unwrap()
    }

    fn parts() -> Builder {
        let clock = Arc::new(SystemClock);
        Gapless::builder().store(Arc::new(MemoryStore::new(clock.clone()))).clock(clock)
    }

    fn with_account(builder: Builder, settings: LaneSettings) -> Builder {
        let signer = LocalSigner::from_hex(KEY, account().address()).unwrap();
        builder.submitter(account(), settings, Arc::new(signer))
    }

    fn chain() -> Arc<EvmChain> {
        Arc::new(EvmChain::new(&EvmOptions::new(31_337, ["http://127.0.0.1:1"])).unwrap())
    }

    async fn refused(builder: Builder) -> StartError {
        match builder.start().await {
            Ok(_) => panic!("it started"),
            Err(error) => error,
        }
    }

    #[tokio::test]
    async fn what_could_only_fail_later_is_refused_at_the_start() {
        assert_eq!(refused(Gapless::builder()).await, StartError::Missing("store"));
        let clock = Arc::new(SystemClock);
        let no_clock = Gapless::builder().store(Arc::new(MemoryStore::new(clock)));
        assert_eq!(refused(no_clock).await, StartError::Missing("clock"));
        let homeless = with_account(parts(), LaneSettings::default());
        assert_eq!(refused(homeless).await, StartError::UnknownChain { submitter: account() });
        assert!(matches!(refused(parts().node_id("")).await, StartError::Name(_)));
        let endless = StuckRules { stall_after: Duration::ZERO, ..StuckRules::default() };
        let settings = LaneSettings { stuck: Arc::new(endless), ..LaneSettings::default() };
        match refused(with_account(parts().chain(account().chain(), chain()), settings)).await {
            StartError::Policy { error, .. } => assert_eq!(error.code(), "policy-cannot-terminate"),
            other => panic!("{other}"),
        }
    }

    #[tokio::test]
    async fn what_was_started_can_be_stopped() {
        let builder = with_account(parts().chain(account().chain(), chain()), LaneSettings::default());
        let gapless = builder.node_id("here").start().await.unwrap();
        assert_eq!(gapless.handle().registry().submitters().len(), 1);
        gapless.stop().await;
    }
}
