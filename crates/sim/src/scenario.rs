//! What a seed chooses before anything happens: how many, how fast, and what goes wrong how often.

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::{Address, Bytes};
use gapless_core::bump::BumpRules;
use gapless_core::govern::{Step, StuckRules};
use gapless_core::ids::RequestId;
use gapless_core::intent::{Intent, Payload};
use gapless_core::plan::{Mode, NonceRules, ReleaseAt};
use gapless_core::ports::policy::StuckAction;
use gapless_core::submitter::SubmitterId;
use gapless_engine::handle::Request;
use gapless_engine::{HealthRules, LaneSettings};

use crate::dice::Dice;

pub(crate) const CHAIN: u64 = 31_337;

/// How often things go wrong, in a thousand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates {
    /// A call never leaves the node.
    pub(crate) not_sent: u64,
    /// A call leaves late.
    pub(crate) slow: u64,
    /// A call takes effect and its answer is lost.
    pub(crate) lost: u64,
    /// A call is given up by its caller and takes effect later.
    pub(crate) ghost: u64,
    /// A read is answered by a backend that still stands at the previous head.
    pub(crate) stale: u64,
    /// A pool takes a transaction and forgets it; also what is lost of an orphaned block.
    pub(crate) dropped: u64,
    /// The head is replaced instead of extended.
    pub(crate) reorg: u64,
    /// The endpoint begins to call everything invalid.
    pub(crate) lies: u64,
    /// Somebody changes his mind about a request.
    pub(crate) second_thoughts: u64,
    /// A moment brings a crash or a freeze.
    pub(crate) trouble: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) nodes: usize,
    pub(crate) submitters: Vec<SubmitterId>,
    pub(crate) requests: usize,
    pub(crate) settings: LaneSettings,
    pub(crate) lease: Duration,
    pub(crate) allowance: Duration,
    pub(crate) sweep: Duration,
    pub(crate) idle_release: Duration,
    pub(crate) poll: Duration,
    /// Whether lanes heed their local clock. Without it only the fence stands between a zombie and the rows.
    pub(crate) guard: bool,
    pub(crate) block_time: Duration,
    /// How long faults go on.
    pub(crate) troubled: Duration,
    pub(crate) rates: Rates,
}

/// Anything but a placeholder: nobody asked for an end that nobody asked for.
fn stuck_rules(dice: &Dice) -> StuckRules {
    let step = |action| Step { after: dice.millis(1_000..=15_000), action, max: 2, when: None };
    let steps = if dice.chance(500) {
        let mut steps = vec![step(StuckAction::Rebroadcast), step(StuckAction::Bump)];
        steps.sort_by_key(|step| step.after);
        steps
    } else {
        Vec::new()
    };
    StuckRules {
        stall_after: dice.millis(1_000..=6_000),
        max_age: dice.millis(8_000..=60_000),
        steps,
        ..StuckRules::default()
    }
}

impl Scenario {
    pub(crate) fn choose(dice: &Dice) -> Self {
        let account = |n: u64| SubmitterId::evm(CHAIN, Address::with_last_byte(n as u8 + 1));
        let release_at = if dice.chance(250) { ReleaseAt::Confirmed } else { ReleaseAt::Mined };
        let mode = if dice.chance(300) { Mode::Pipelined } else { Mode::Strict };
        let settings = LaneSettings {
            rules: NonceRules { mode, release_at, max_in_flight: dice.between(2..=6) },
            confirmations: dice.between(1..=3),
            resubmit: Some(dice.millis(1_500..=6_000)),
            reconcile: dice.millis(800..=4_000),
            stale_receipts: dice.millis(2_000..=8_000),
            retry: dice.millis(100..=800),
            bump: BumpRules {
                enabled: dice.chance(500),
                min_interval: dice.millis(800..=5_000),
                ..BumpRules::default()
            },
            stuck: Arc::new(stuck_rules(dice)),
            diagnose: dice.chance(300),
            finality_depth: Some(dice.between(0..=5)),
            tell_confirmations: dice.chance(300),
            recycle_hold: dice.millis(200..=3_000),
            health: HealthRules { retry: dice.millis(500..=2_000), ..LaneSettings::default().health },
            ..LaneSettings::default()
        };
        let lease = dice.millis(1_500..=4_000);
        Self {
            nodes: dice.between(2..=3) as usize,
            submitters: (0..dice.between(1..=2)).map(account).collect(),
            requests: dice.between(4..=10) as usize,
            settings,
            lease,
            allowance: lease / 10,
            sweep: dice.millis(300..=1_200),
            idle_release: dice.millis(500..=8_000),
            poll: dice.millis(150..=600),
            guard: dice.chance(700),
            block_time: dice.millis(400..=1_500),
            troubled: dice.millis(15_000..=40_000),
            rates: Rates {
                not_sent: dice.between(0..=60),
                slow: dice.between(0..=20),
                lost: dice.between(0..=60),
                ghost: dice.between(0..=40),
                stale: dice.between(0..=150),
                dropped: dice.between(0..=200),
                reorg: dice.between(0..=250),
                lies: if dice.chance(400) { dice.between(20..=150) } else { 0 },
                second_thoughts: dice.between(0..=500),
                trouble: dice.between(200..=700),
            },
        }
    }

    /// How long after the last fault every request must have ended: twice what the slowest honest way takes.
    pub(crate) fn patience(&self) -> Duration {
        let depth = self.settings.confirmations.max(self.lost_depth());
        let blocks = u32::try_from(self.requests as u64 * (depth + 3)).unwrap_or(u32::MAX);
        Duration::from_secs(240) + self.block_time * blocks * 2
    }

    /// How deep a slot that went to anything but its own payload must lie.
    pub(crate) fn lost_depth(&self) -> u64 {
        self.settings.confirmations.max(self.settings.finality_depth.unwrap_or(12))
    }

    /// What request `n` is replaced by, if it is.
    pub(crate) fn replacement(&self, n: usize) -> Payload {
        let data = Bytes::from(format!("replaced-{n}").into_bytes());
        Payload { to: Some(Address::repeat_byte(0xee)), data, ..Payload::default() }
    }

    /// The request with this number; its calldata is its mark on chain.
    pub(crate) fn request(&self, n: usize) -> Option<Request> {
        let payload = Payload {
            to: Some(Address::repeat_byte(0xee)),
            data: Bytes::from(format!("request-{n}").into_bytes()),
            ..Payload::default()
        };
        Some(Request {
            submitter: self.submitters.get(n % self.submitters.len())?.clone(),
            request_id: RequestId::parse(&format!("request-{n}")).ok()?,
            intent: Intent { payload, ..Intent::default() },
            metadata: None,
        })
    }
}
