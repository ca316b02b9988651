//! Which submitters this process can run: their settings, signer and chain.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use gapless_core::ports::chain::Chain;
use gapless_core::ports::signer::Signer;
use gapless_core::submitter::{ChainId, SubmitterId};

use crate::settings::LaneSettings;

/// One submitter as configured.
#[derive(Clone)]
pub struct Submitter {
    /// Which.
    pub id: SubmitterId,
    /// How.
    pub settings: LaneSettings,
    /// Signs for it. None rejects its transactions (`no-signer`), whichever other node could have signed: nobody can tell
    /// whether one will ever come, and any node may run any lane, so all nodes of a cluster are given the same keys.
    pub signer: Option<Arc<dyn Signer>>,
}

/// Everything configured. Submitters may be added while running.
#[derive(Clone, Default)]
pub struct Registry {
    chains: Arc<RwLock<BTreeMap<ChainId, Arc<dyn Chain>>>>,
    submitters: Arc<RwLock<BTreeMap<SubmitterId, Submitter>>>,
    defaults: LaneSettings,
}

impl Registry {
    /// An empty registry; submitters known to the store only run with `defaults` and no signer.
    #[must_use]
    pub fn new(defaults: LaneSettings) -> Self {
        Self { defaults, ..Self::default() }
    }

    /// Adds a chain.
    pub fn add_chain(&self, id: ChainId, chain: Arc<dyn Chain>) {
        self.chains.write().unwrap_or_else(std::sync::PoisonError::into_inner).insert(id, chain);
    }

    /// Adds or replaces a submitter.
    pub fn add_submitter(&self, submitter: Submitter) {
        let mut submitters = self.submitters.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        submitters.insert(submitter.id.clone(), submitter);
    }

    /// All chains.
    #[must_use]
    pub fn chains(&self) -> Vec<(ChainId, Arc<dyn Chain>)> {
        let chains = self.chains.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        chains.iter().map(|(id, chain)| (id.clone(), chain.clone())).collect()
    }

    /// One chain.
    #[must_use]
    pub fn chain(&self, id: &ChainId) -> Option<Arc<dyn Chain>> {
        self.chains.read().unwrap_or_else(std::sync::PoisonError::into_inner).get(id).cloned()
    }

    /// A submitter, if this process can reach its chain.
    #[must_use]
    pub fn submitter(&self, id: &SubmitterId) -> Option<Submitter> {
        let known =
            self.chains.read().unwrap_or_else(std::sync::PoisonError::into_inner).contains_key(&id.chain());
        let submitters = self.submitters.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let unsigned = || Submitter { id: id.clone(), settings: self.defaults.clone(), signer: None };
        known.then(|| submitters.get(id).cloned().unwrap_or_else(unsigned))
    }

    /// The settings of a submitter, whether or not this process can reach its chain.
    #[must_use]
    pub fn settings(&self, id: &SubmitterId) -> LaneSettings {
        let submitters = self.submitters.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        submitters.get(id).map_or_else(|| self.defaults.clone(), |submitter| submitter.settings.clone())
    }

    /// All configured submitters.
    #[must_use]
    pub fn submitters(&self) -> Vec<Submitter> {
        self.submitters.read().unwrap_or_else(std::sync::PoisonError::into_inner).values().cloned().collect()
    }
}
