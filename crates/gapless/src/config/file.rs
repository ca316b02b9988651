//! The configuration as written. Durations are texts such as "10s".

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use gapless_api::duration;
use gapless_core::govern::Finding;
use gapless_core::ports::policy::StuckAction;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// A duration as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        duration::parse(&String::deserialize(deserializer)?).map(Self).map_err(D::Error::custom)
    }
}

/// Declares a section: every key optional, unknown keys refused.
macro_rules! section {
    ($(#[$doc:meta])* $name:ident { $($key:ident: $type:ty = $default:expr),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct $name { $(pub(crate) $key: $type),* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default),* }
            }
        }
    };
}

const fn s(seconds: u64) -> Span {
    Span(Duration::from_secs(seconds))
}

section! { Node { id: Option<String> = None, drain_timeout: Span = s(30) } }
section! { Http { listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8080)) } }
section! { Api { accept: Accept = Accept::Any } }
section! { Store { url: String = "sqlite://gapless.db".to_owned(), pool: u32 = 16, schema: String = "public".to_owned() } }
section! { Lease { duration: Span = s(10), renew_interval: Span = s(3), clock_skew_allowance: Span = s(1), idle_release: Span = s(30) } }
section! { Limits { queued_per_submitter: u64 = 100_000, body_bytes: usize = 262_144, batch_bytes: usize = 16_777_216 } }
section! { Log { format: LogFormat = LogFormat::Text } }
section! { Mempool { diagnose: bool = false } }
section! { Events { mode: String = "poll".to_owned(), confirmations: String = "final".to_owned(), broker_url: Option<String> = None } }
section! { Rpc { send_timeout: Span = s(8), client_nonce: String = "ignore".to_owned() } }
section! { Retention { finished: String = "off".to_owned(), events: String = "7d".to_owned() } }

/// Declares a section that a chain or a submitter may override: nothing is set unless it is written.
macro_rules! overridable {
    ($name:ident { $($key:ident: $type:ty),* $(,)? }) => {
        #[derive(Debug, Clone, Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct $name { $(pub(crate) $key: Option<$type>),* }
    };
}

overridable! { Nonce {
    mode: String, release_at: String, max_in_flight: u64, start_from: u64, recycle_hold: Span, reconcile_interval: Span,
    reservation_timeout: Span,
} }
overridable! { Resubmit { enabled: bool, interval: Span } }
overridable! { GasBump { enabled: bool, min_interval: Span, max_attempts: u32, multiplier: f64 } }
overridable! { Fees {
    r#type: String, refresh: String, max_fee_per_gas: String, max_priority_fee_per_gas: String, max_cost: String,
} }
overridable! { Confirmations { required: u64, rule: String, stale_receipt_timeout: Span, receipt_workers: u32 } }
overridable! { Stuck { stall_after: Span, max_attempts: u32, max_age: Span, steps: Vec<StuckStep> } }
overridable! { Health { balance_refresh: Span, retry: Span, min_balance: String } }
overridable! { Policy {
    receivers: Vec<String>, methods: Vec<String>, max_value: String, max_gas_limit: String, spend_per_hour: String,
    spend_per_day: String, private: bool,
} }

/// One of `[[stuck.steps]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StuckStep {
    pub(crate) after: Span,
    pub(crate) action: StuckAction,
    #[serde(default)]
    pub(crate) max: Option<u32>,
    #[serde(default)]
    pub(crate) when: Option<BTreeSet<Finding>>,
}

/// The sections that a chain or a submitter may override.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    pub(crate) nonce: Nonce,
    pub(crate) resubmit: Resubmit,
    pub(crate) gas_bump: GasBump,
    pub(crate) fees: Fees,
    pub(crate) confirmations: Confirmations,
    pub(crate) stuck: Stuck,
    pub(crate) health: Health,
    /// Names of written sections and keys that this version reads but does not act on.
    pub(crate) idle: Vec<&'static str>,
}

/// Declares a struct with the overridable sections and further keys, and a way to get at the sections.
macro_rules! with_overrides {
    ($(#[$doc:meta])* $name:ident { $($(#[$attr:meta])* $key:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[$attr])* pub(crate) $key: $type,)*
            #[serde(default)] nonce: Nonce,
            #[serde(default)] resubmit: Resubmit,
            #[serde(default)] gas_bump: GasBump,
            #[serde(default)] fees: Fees,
            #[serde(default)] confirmations: Confirmations,
            #[serde(default)] stuck: Stuck,
            #[serde(default)] health: Health,
            #[serde(default)] policy: Policy,
        }

        impl $name {
            /// What is overridden here.
            pub(crate) fn overrides(&self) -> Overrides {
                Overrides {
                    nonce: self.nonce.clone(),
                    resubmit: self.resubmit.clone(),
                    gas_bump: self.gas_bump.clone(),
                    fees: self.fees.clone(),
                    confirmations: self.confirmations.clone(),
                    stuck: self.stuck.clone(),
                    health: self.health.clone(),
                    idle: super::idle::keys(&self.fees, &self.confirmations, &self.policy),
                }
            }
        }
    };
}

with_overrides! {
    /// Everything.
    Config {
        #[serde(default)] node: Node,
        #[serde(default)] http: Http,
        #[serde(default)] api: Api,
        #[serde(default)] store: Store,
        #[serde(default)] lease: Lease,
        #[serde(default)] mempool: Mempool,
        #[serde(default)] events: Events,
        #[serde(default)] rpc: Rpc,
        #[serde(default)] limits: Limits,
        #[serde(default)] retention: Retention,
        #[serde(default)] log: Log,
        #[serde(default)] chains: Vec<ChainConfig>,
        #[serde(default)] submitters: Vec<SubmitterConfig>,
        #[serde(default)] api_keys: Vec<ApiKeyConfig>,
    }
}

with_overrides! {
    /// A chain.
    ChainConfig {
        id: String,
        rpc: Vec<String>,
        #[serde(default)] private_rpc: Vec<String>,
        #[serde(default = "ten_seconds")] rpc_timeout: Span,
        #[serde(default = "a_hundred")] rpc_max_in_flight: usize,
        #[serde(default)] finality_depth: Option<u64>,
    }
}

fn ten_seconds() -> Span {
    s(10)
}

fn a_hundred() -> usize {
    100
}

with_overrides! {
    /// A submitter.
    SubmitterConfig {
        chain: String,
        address: String,
        #[serde(default)] signer: Option<SignerConfig>,
    }
}

/// Where signatures come from. No secret stands here, only where it is.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SignerConfig {
    pub(crate) private_key_file: Option<PathBuf>,
    pub(crate) keystore: Option<PathBuf>,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) mnemonic_file: Option<PathBuf>,
    pub(crate) path: Option<String>,
    pub(crate) remote: Option<String>,
    pub(crate) aws_kms: Option<toml::Value>,
    pub(crate) gcp_kms: Option<toml::Value>,
    pub(crate) external: Option<toml::Value>,
}

/// An API key: its hash only.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApiKeyConfig {
    pub(crate) name: String,
    /// SHA-256 of the key, in hex.
    pub(crate) hash: String,
    pub(crate) scopes: Vec<String>,
    #[serde(default)]
    pub(crate) submitters: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) expires_at: Option<String>,
}

/// Which nodes accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Accept {
    Any,
    Leader,
}

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}
