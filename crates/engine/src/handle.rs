//! What the API (and a program that embeds the engine) can ask.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gapless_core::command::{CommandReceipt, NewCommand, Verb};
use gapless_core::condition::Condition;
use gapless_core::event::{Event, EventCursor, EventPage};
use gapless_core::ids::{CommandId, IdError, RequestId, Scope, Seq, TxId};
use gapless_core::intent::{Intent, IntentError};
use gapless_core::ports::chain::EndpointStatus;
use gapless_core::ports::clock::Clock;
use gapless_core::ports::store::{Registered, Store, StoreError, StoreResult, SubmitterInfo, TxFilter};
use gapless_core::record::{Accepted, Metadata, NewTx, TxRecord};
use gapless_core::submitter::{ChainId, SubmitterId};
use gapless_core::text::NodeText;
use serde_json::Value;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::heads::Heads;
use crate::intake::Intake;
use crate::registry::Registry;
use crate::view::{SubmitterView, TxView};

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
            Self::Poison(_) => "invalid-request",
            Self::Store(error) => error.code(),
        }
    }
}

/// A request before it is checked.
#[derive(Debug, Clone)]
pub struct Request {
    /// The account.
    pub submitter: SubmitterId,
    /// The caller's name for it.
    pub request_id: RequestId,
    /// What and how.
    pub intent: Intent,
    /// The caller's notes.
    pub metadata: Option<Metadata>,
}

/// An accepted request.
#[derive(Debug, Clone)]
pub struct Submitted {
    /// Whether it is new (202) or known (200).
    pub new: bool,
    /// Its view.
    pub view: TxView,
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
}

impl Handle {
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

    /// Accepts a request: idempotent, any node.
    pub async fn submit(&self, request: Request) -> Result<Submitted, Refusal> {
        let Request { submitter, request_id, intent, metadata } = request;
        let scope = Scope::from(&submitter);
        let tx_id = TxId(self.clock.draw());
        let item = NewTx::new(tx_id, scope, submitter, request_id, intent, metadata)?;
        if let Some(refusal) = self.gate(&item).await? {
            // A repeat of an accepted request is answered before any other refusal.
            let known = self.store.tx_by_request(&item.scope, &item.request_id).await?;
            return match known {
                Some(known) if known.request.digest == item.digest => {
                    Ok(Submitted { new: false, view: self.view(&known) })
                }
                Some(known) => Err(Refusal::Mismatch(known.tx_id())),
                None => Err(refusal),
            };
        }
        match self.intake.accept(item).await? {
            Accepted::New { .. } => {
                let record = self.store.tx(tx_id).await?.ok_or(Refusal::UnknownTransaction)?;
                Ok(Submitted { new: true, view: self.view(&record) })
            }
            Accepted::Known(known) => Ok(Submitted { new: false, view: self.view(&known) }),
            Accepted::Mismatch { tx_id } => Err(Refusal::Mismatch(tx_id)),
            Accepted::UnknownSubmitter => Err(Refusal::UnknownSubmitter),
            Accepted::Poison { reason } => Err(Refusal::Poison(reason)),
        }
    }

    /// Whether new requests of a submitter are turned away.
    async fn gate(&self, item: &NewTx) -> Result<Option<Refusal>, Refusal> {
        let info = self.store.submitter(&item.submitter).await?;
        Ok(match info.map(|info| info.cursor.cursor.conditions.gravest()) {
            None => Some(Refusal::UnknownSubmitter),
            Some(Condition::Protect) => Some(Refusal::Protected),
            Some(Condition::Paused) => Some(Refusal::Paused),
            Some(_) => None,
        })
    }

    /// The view of a record.
    #[must_use]
    pub fn view(&self, tx: &TxRecord) -> TxView {
        let submitter = &tx.request.submitter;
        let ring = self.heads.get(&submitter.chain()).map(Heads::ring);
        let required = self.registry.submitter(submitter).map_or(0, |s| s.settings.confirmations);
        TxView::of(tx, ring.as_deref(), required)
    }

    /// One transaction.
    pub async fn tx(&self, tx_id: TxId) -> Result<TxView, Refusal> {
        Ok(self.view(&self.store.tx(tx_id).await?.ok_or(Refusal::UnknownTransaction)?))
    }

    /// Waits until a transaction's event number passes `after` (default: the present one), or it ends.
    pub async fn wait(&self, tx_id: TxId, after: Option<Seq>, most: Duration) -> Result<TxView, Refusal> {
        let deadline = self.clock.tick().plus(most);
        let mut after = after;
        loop {
            let tx = self.store.tx(tx_id).await?.ok_or(Refusal::UnknownTransaction)?;
            let passed = tx.facts.seq > *after.get_or_insert(tx.facts.seq);
            if passed || tx.facts.state.is_terminal() || self.clock.tick() >= deadline {
                return Ok(self.view(&tx));
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
        Ok(self.view(&found.ok_or(Refusal::UnknownTransaction)?))
    }

    /// The transaction of any attempt's hash.
    pub async fn by_hash(&self, hash: alloy_primitives::B256) -> Result<TxView, Refusal> {
        Ok(self.view(&self.store.tx_by_hash(hash).await?.ok_or(Refusal::UnknownTransaction)?))
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

    fn submitter_view(&self, info: &SubmitterInfo) -> SubmitterView {
        let rules = self.registry.submitter(&info.submitter).map(|s| s.settings.rules);
        SubmitterView::of(info, rules.map_or("strict", |rules| rules.mode.name()))
    }

    /// Submitters by name.
    pub async fn submitters(
        &self,
        after: Option<&SubmitterId>,
        limit: usize,
    ) -> Result<Vec<SubmitterView>, Refusal> {
        let found = self.store.submitters(after, limit).await?;
        Ok(found.iter().map(|info| self.submitter_view(info)).collect())
    }

    /// One submitter.
    pub async fn submitter(&self, submitter: &SubmitterId) -> Result<SubmitterView, Refusal> {
        let info = self.store.submitter(submitter).await?.ok_or(Refusal::UnknownSubmitter)?;
        Ok(self.submitter_view(&info))
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
