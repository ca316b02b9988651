//! Policies that users replace, as lanes ask them.

use std::sync::Arc;

use gapless_core::bump::ByRules;
use gapless_core::ports::policy::{GasBumpPolicy, MempoolInspector, StuckPolicy};

/// Who decides what lanes do not decide by themselves.
#[derive(Clone)]
pub struct Policies {
    /// What to pay next.
    pub bump: Arc<dyn GasBumpPolicy>,
    /// What to do about the stuck; the submitter's rules if none.
    pub stuck: Option<Arc<dyn StuckPolicy>>,
    /// Who looks into pools; the chain's own answers if none.
    pub inspector: Option<Arc<dyn MempoolInspector>>,
}

impl Default for Policies {
    fn default() -> Self {
        Self { bump: Arc::new(ByRules), stuck: None, inspector: None }
    }
}
