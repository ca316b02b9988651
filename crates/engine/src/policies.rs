//! What a program that embeds the engine may decide for itself. Policies only answer: the lane acts, fenced and within
//! the caps, so a wrong answer costs money or patience, never a nonce or an effect.

use std::fmt;
use std::sync::Arc;

use gapless_core::bump::ByRules;
use gapless_core::ports::policy::{GasBumpPolicy, MempoolInspector, StuckPolicy};

use crate::settings::LaneSettings;

/// The policies of one engine.
#[derive(Clone)]
pub struct Policies {
    /// What a dearer attempt offers.
    pub bump: Arc<dyn GasBumpPolicy>,
    /// What is done about transactions that do not move; none: the rules of each submitter's settings.
    pub stuck: Option<Arc<dyn StuckPolicy>>,
    /// Who looks into pools; none: the chain itself.
    pub inspector: Option<Arc<dyn MempoolInspector>>,
}

impl Policies {
    /// Who decides about the stuck of a submitter with these settings.
    #[must_use]
    pub fn stuck_for<'a>(&'a self, settings: &'a LaneSettings) -> &'a dyn StuckPolicy {
        match &self.stuck {
            Some(policy) => policy.as_ref(),
            None => settings.stuck.as_ref(),
        }
    }
}

impl Default for Policies {
    fn default() -> Self {
        Self { bump: Arc::new(ByRules), stuck: None, inspector: None }
    }
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policies")
            .field("stuck", &self.stuck.is_some())
            .field("inspector", &self.inspector.is_some())
            .finish_non_exhaustive()
    }
}
