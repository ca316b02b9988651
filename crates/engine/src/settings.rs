//! How one submitter is to be run.

use std::sync::Arc;
use std::time::Duration;

use gapless_core::bump::BumpRules;
use gapless_core::fees::{FeeCaps, Wei};
use gapless_core::govern::StuckRules;
use gapless_core::ids::Nonce;
use gapless_core::plan::{Mode, NonceRules, ReleaseAt};
use gapless_core::ports::chain::Tag;
use gapless_core::submitter::ChainId;

/// When a slot counts as deep enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalityRule {
    /// So many blocks after inclusion.
    Depth,
    /// At or below the block the chain calls by this name.
    Tag(Tag),
}

/// The least depth at which the use of a nonce by anything but its own attempt counts (invariant *patient*). No setting
/// goes below it; chains that exist for development have none.
#[must_use]
pub fn finality_floor(chain: &ChainId) -> u64 {
    match chain.evm() {
        Some(1_337 | 31_337) => 0,
        _ => 64,
    }
}

/// How an account's health is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthRules {
    /// Below this the account is told to be low; none never.
    pub min_balance: Option<Wei>,
    /// How often the balance is read while the lane runs.
    pub balance_refresh: Duration,
    /// How often to look whether what failed works again.
    pub retry: Duration,
}

/// The settings of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneSettings {
    /// Strict or pipelined, and when the next nonce may go.
    pub rules: NonceRules,
    /// What the start nonce must be, if the operator insists.
    pub start_from: Option<Nonce>,
    /// Blocks after inclusion that make an end.
    pub confirmations: u64,
    /// How often to send the same bytes again; none never does.
    pub resubmit: Option<Duration>,
    /// How often to compare with the chain while live.
    pub reconcile: Duration,
    /// How often to ask for receipts although no block said so.
    pub stale_receipts: Duration,
    /// How long to wait before trying what did not work again.
    pub retry: Duration,
    /// Fee ceilings.
    pub caps: FeeCaps,
    /// What deep enough means.
    pub finality: FinalityRule,
    /// How deep the use of a nonce by anything but its own attempt must lie, where the chain's own floor is lower.
    pub finality_depth: Option<u64>,
    /// When and how much dearer attempts are made.
    pub bump: BumpRules,
    /// What is done about transactions that do not move.
    pub stuck: Arc<StuckRules>,
    /// Whether pools are looked into.
    pub diagnose: bool,
    /// How long a recycled slot waits for a transaction before a placeholder takes it.
    pub recycle_hold: Duration,
    /// How long a nonce stays reserved for bytes that somebody else makes.
    pub reservation_timeout: Duration,
    /// Whether every confirmation is told, or only the end.
    pub tell_confirmations: bool,
    /// How the account's health is watched.
    pub health: HealthRules,
}

/// What development chains do without being told.
const LOCAL_DEPTH: u64 = 12;

/// As good as never.
const NEVER: Duration = Duration::from_secs(86_400 * 365);

impl LaneSettings {
    /// How deep the use of a nonce by anything but its own attempt must lie (invariant *patient*).
    #[must_use]
    pub fn patience(&self, chain: &ChainId) -> u64 {
        let floor = finality_floor(chain);
        let default = if floor == 0 { LOCAL_DEPTH } else { floor };
        self.confirmations.max(self.finality_depth.unwrap_or(default).max(floor))
    }

    /// When the same bytes are due again although a node has them.
    #[must_use]
    pub const fn resubmit_after(&self) -> Duration {
        match self.resubmit {
            Some(interval) => interval,
            None => NEVER,
        }
    }
}

impl Default for LaneSettings {
    fn default() -> Self {
        Self {
            rules: NonceRules { mode: Mode::Strict, release_at: ReleaseAt::Mined, max_in_flight: 64 },
            start_from: None,
            confirmations: 20,
            resubmit: Some(Duration::from_secs(60)),
            reconcile: Duration::from_secs(5),
            stale_receipts: Duration::from_secs(60),
            retry: Duration::from_secs(1),
            caps: FeeCaps::default(),
            finality: FinalityRule::Depth,
            finality_depth: None,
            bump: BumpRules::default(),
            stuck: Arc::default(),
            diagnose: false,
            recycle_hold: Duration::from_secs(5),
            reservation_timeout: Duration::from_secs(60),
            tell_confirmations: false,
            health: HealthRules {
                min_balance: None,
                balance_refresh: Duration::from_secs(300),
                retry: Duration::from_secs(60),
            },
        }
    }
}
