//! What the API (and a program that embeds the engine) can ask.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gapless_core::command::{CommandReceipt, NewCommand, Verb};
use gapless_core::event::{Event, EventCursor, EventPage};
use gapless_core::fees::GasPrice;
use gapless_core::ids::{CommandId, IdError, RequestId, Scope, Seq, TxId};
use gapless_core::intent::IntentError;
use gapless_core::ports::chain::EndpointStatus;
use gapless_core::ports::clock::Clock;
use gapless_core::ports::store::{Registered, Store, StoreError, StoreResult, TxFilter};
use gapless_core::record::TxRecord;
use gapless_core::state::TxState;
use gapless_core::submitter::{ChainId, SubmitterId};
use gapless_core::text::NodeText;
use serde_json::Value;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::balances::Balances;
use crate::desk::Desk;
use crate::gate::{AcceptRules, Gate};
use crate::heads::Heads;
use crate::intake::Intake;
use crate::policies::Policies;
use crate::registry::Registry;
use crate::view::TxView;

pub use crate::submit::{Request, Submitted};

/// Why a request was not accepted, or a question not answered.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The request contradicts itself or a limit.
    #[error("{0}")]
    Intent(#[from] IntentError),
    /// An identifier is not one.
    #[error("{0}")]
    Id(#[from] IdError),
    /// No such submitter.
    #[error("no such submitter is registered")]
    UnknownSubmitter,
    /// No such transaction.
    #[error("no such transaction")]
    UnknownTransaction,
    /// The id belongs to another request.
    #[error("this requestId was accepted with another payload, as transaction {0}")]
    Mismatch(TxId),
    /// Somebody else used the key.
    #[error("somebody else used this account; a human must look (unprotect)")]
    Protected,
    /// An operator paused it.
    #[error("the submitter is paused")]
    Paused,
    /// Too much waits already.
    #[error("{limit} requests of this submitter wait already")]
    QueueFull {
        /// How many may.
        limit: u64,
    },
    /// It has ended; nothing changes it any more.
    #[error("the transaction has ended as {0}; nothing changes it any more")]
    AlreadyFinal(TxState),
    /// The fees asked for would not take the place of what was sent before.
    #[error(
        "the fees asked for do not outbid what was sent before; a node wants at least maxFeePerGas {total} and maxPriorityFeePerGas {tip}"
    )]
    FeeTooLow {
        /// The least total (or legacy price) that would.
        total: GasPrice,
        /// The least tip.
        tip: GasPrice,
    },
    /// Another node leads this submitter.
    #[error("{}", leader(.owner.as_deref()))]
    NotLeader {
        /// Which, if anybody knows.
        owner: Option<String>,
    },
    /// This item cannot be stored.
    #[error("the request cannot be stored: {0}")]
    Poison(NodeText),
    /// The store has trouble.
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl Refusal {
    /// Stable code for API answers.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Intent(error) => error.code(),
            Self::Id(error) => error.code(),
            Self::UnknownSubmitter => "unknown-submitter",
            Self::UnknownTransaction => "unknown-transaction",
            Self::Mismatch(_) => "request-mismatch",
            Self::Protected => "submitter-protected",
            Self::Paused => "submitter-paused",
            Self::QueueFull { .. } => "queue-full",
            Self::NotLeader { .. } => "not-leader",
            Self::AlreadyFinal(_) => "already-final",
            Self::FeeTooLow { .. } => "fee-too-low",
            Self::Poison(_) => "invalid-request",
            Self::Store(error) => error.code(),
        }
    }

    /// What the metrics call it.
    pub(crate) const fn result(&self) -> &'static str {
        match self {
            // The last two are refusals of commands; no create call gets them.
            Self::Intent(_) | Self::Id(_) | Self::AlreadyFinal(_) | Self::FeeTooLow { .. } => "invalid",
            Self::UnknownSubmitter => "unknown_submitter",
            Self::UnknownTransaction => "unknown_transaction",
            Self::Mismatch(_) => "mismatch",
            Self::Protected => "protected",
            Self::Paused => "paused",
            Self::QueueFull { .. } => "queue_full",
            Self::NotLeader { .. } => "not_leader",
            Self::Poison(_) => "poison",
            Self::Store(_) => "error",
        }
    }
}

fn leader(owner: Option<&str>) -> String {
    match owner {
        Some(owner) => format!("node {owner} leads this submitter; send the request there"),
        None => "this node does not lead the submitter and cannot".to_owned(),
    }
}

/// How long `wait` sleeps between looks: changes on other nodes are not signalled here.
const LOOK: Duration = Duration::from_millis(50);

/// Asks the engine. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) intake: Intake,
    pub(crate) work: mpsc::Sender<SubmitterId>,
    pub(crate) registry: Registry,
    pub(crate) heads: Arc<HashMap<ChainId, Heads>>,
    pub(crate) gate: Gate,
    pub(crate) balances: Arc<Balances>,
    pub(crate) policies: Arc<OnceLock<Policies>>,
    pub(crate) desk: Desk,
}

impl Handle {
    /// The same handle under other rules of accepting.
    #[must_use]
    pub fn accepting(mut self, rules: AcceptRules) -> Self {
        self.gate.rules = rules;
        self
    }

    /// The store's port, for reads that need no interpretation.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// What is configured.
    #[must_use]
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The view of a record.
    #[must_use]
    pub fn view(&self, tx: &TxRecord) -> TxView {
        let submitter = &tx.request.submitter;
        let ring = self.heads.get(&submitter.chain()).map(Heads::ring);
        let required = self.registry.settings(submitter).confirmations;
        TxView::of(tx, ring.as_deref(), required)
    }

    /// One transaction as it is stored.
    pub async fn record(&self, tx_id: TxId) -> Result<TxRecord, Refusal> {
        self.store.tx(tx_id).await?.ok_or(Refusal::UnknownTransaction)
    }

    /// One transaction.
    pub async fn tx(&self, tx_id: TxId) -> Result<TxView, Refusal> {
        self.shown_now(&self.record(tx_id).await?).await
    }

    /// Waits until a transaction's event number passes `after` (default: the present one), or it ends.
    pub async fn wait(&self, tx_id: TxId, after: Option<Seq>, most: Duration) -> Result<TxView, Refusal> {
        let deadline = self.clock.tick().plus(most);
        let mut after = after;
        loop {
            let tx = self.record(tx_id).await?;
            let passed = tx.facts.seq > *after.get_or_insert(tx.facts.seq);
            if passed || tx.facts.state.is_terminal() || self.clock.tick() >= deadline {
                return self.shown_now(&tx).await;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The transaction of a request.
    pub async fn by_request(
        &self,
        submitter: &SubmitterId,
        request_id: &RequestId,
    ) -> Result<TxView, Refusal> {
        let found = self.store.tx_by_request(&Scope::from(submitter), request_id).await?;
        self.shown_now(&found.ok_or(Refusal::UnknownTransaction)?).await
    }

    /// The transaction of any attempt's hash.
    pub async fn by_hash(&self, hash: alloy_primitives::B256) -> Result<TxView, Refusal> {
        let found = self.store.tx_by_hash(hash).await?;
        self.shown_now(&found.ok_or(Refusal::UnknownTransaction)?).await
    }

    /// Transactions in order of acceptance, with the order of the last for the next page.
    pub async fn list(
        &self,
        filter: &TxFilter,
    ) -> Result<(Vec<TxView>, Option<gapless_core::ids::Order>), Refusal> {
        let found = self.store.list(filter).await?;
        let next = (found.len() == filter.limit).then(|| found.last().map(|tx| tx.order)).flatten();
        Ok((found.iter().map(|tx| self.view(tx)).collect(), next))
    }

    /// A transaction's history.
    pub async fn tx_events(&self, tx_id: TxId) -> Result<Vec<Event>, Refusal> {
        Ok(self.store.tx_events(tx_id).await?)
    }

    /// The stream of events.
    pub async fn events(&self, cursor: Option<EventCursor>, limit: usize) -> Result<EventPage, Refusal> {
        Ok(self.store.events_after(cursor, limit).await?)
    }

    /// Makes a submitter known to the store.
    pub async fn register(&self, submitter: &SubmitterId) -> StoreResult<Registered> {
        let outcomes = self.store.register(&[(submitter.clone(), "{}".to_owned())]).await?;
        Ok(outcomes.into_iter().next().unwrap_or(Registered::Known))
    }

    /// Hands a command to a submitter's lane.
    pub async fn command(
        &self,
        submitter: &SubmitterId,
        tx_id: Option<TxId>,
        verb: Verb,
        args: Value,
        actor: &str,
    ) -> Result<CommandId, Refusal> {
        let id = CommandId(self.clock.draw());
        let actor = NodeText::new(actor);
        let command = NewCommand { id, submitter: submitter.clone(), tx_id, verb, args, actor };
        let receipts = self.store.insert_commands(&[command]).await?;
        if receipts.first() == Some(&CommandReceipt::UnknownSubmitter) {
            return Err(Refusal::UnknownSubmitter);
        }
        let _ = self.work.try_send(submitter.clone());
        Ok(id)
    }

    /// How the chains' endpoints are doing, and whether a head was seen.
    #[must_use]
    pub fn chains(&self) -> Vec<(ChainId, Option<u64>, Vec<EndpointStatus>)> {
        let head =
            |id: &ChainId| self.heads.get(id).and_then(|heads| heads.ring().head().map(|h| h.this.number));
        self.registry
            .chains()
            .into_iter()
            .map(|(id, chain)| (id.clone(), head(&id), chain.endpoints()))
            .collect()
    }
}
