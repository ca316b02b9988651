//! The Store port of one node: every call goes over the wire to the one store of the world, and every write is followed
//! by a look at the invariants, in the same instant.

use std::sync::Arc;

use alloy_primitives::B256;
use async_trait::async_trait;
use gapless_core::allocation::{Allocation, Mark, MarkOutcome};
use gapless_core::attempt::StoredAttempt;
use gapless_core::change::{LaneChange, Verdict};
use gapless_core::command::{Command, CommandEnd, CommandReceipt, NewCommand};
use gapless_core::event::{Event, EventCursor, EventPage};
use gapless_core::ids::{CommandId, Epoch, LockOwner, Nonce, RequestId, Scope, TxId};
use gapless_core::lease::{AcquireKind, Grant, LeaseTerms, Owner};
use gapless_core::ports::store::{
    Acquired, LaneSnapshot, Parting, Registered, Renewal, Store, StoreError, StoreResult, SubmitterInfo,
    TxFilter,
};
use gapless_core::record::{Accepted, NewTx, TxRecord};
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;

use crate::wire::{Lost, Wire};
use crate::world::World;

/// The store as one node reaches it.
pub(crate) struct NodeStore(pub(crate) Wire);

impl NodeStore {
    async fn ask<T: Send + 'static, F>(
        &self,
        what: &'static str,
        effect: impl FnOnce(Arc<World>, Arc<str>) -> F,
    ) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>> + Send + 'static,
    {
        let effect = effect(self.0.world.clone(), self.0.node.clone());
        match self.0.ask(what, effect).await {
            Ok(answer) => answer,
            Err(Lost::NotSent) => Err(StoreError::Unavailable("connection refused".into())),
            Err(Lost::Unknown) => Err(StoreError::OutcomeUnknown("the connection broke".into())),
        }
    }
}

/// A read: its loss means nothing but that it must be asked again.
macro_rules! read {
    ($self:ident, $what:literal, |$store:ident| $read:expr) => {{
        let answer = $self
            .ask(concat!("store.", $what), |world, _| async move {
                let $store = &world.store;
                $read.await
            })
            .await;
        answer.map_err(|error| match error {
            StoreError::OutcomeUnknown(words) => StoreError::Unavailable(words),
            other => other,
        })
    }};
}

#[async_trait]
impl Store for NodeStore {
    async fn now(&self) -> StoreResult<Timestamp> {
        read!(self, "now", |store| store.now())
    }

    async fn epoch(&self) -> StoreResult<Epoch> {
        read!(self, "epoch", |store| store.epoch())
    }

    async fn register(&self, submitters: &[(SubmitterId, String)]) -> StoreResult<Vec<Registered>> {
        let submitters = submitters.to_vec();
        self.ask("store.register", |world, _| async move { world.store.register(&submitters).await }).await
    }

    async fn submitter(&self, submitter: &SubmitterId) -> StoreResult<Option<SubmitterInfo>> {
        let submitter = submitter.clone();
        read!(self, "submitter", |store| store.submitter(&submitter))
    }

    async fn named_submitters(&self, names: &[SubmitterId]) -> StoreResult<Vec<Option<SubmitterInfo>>> {
        let names = names.to_vec();
        read!(self, "named_submitters", |store| store.named_submitters(&names))
    }

    async fn submitters(&self, after: Option<&SubmitterId>, limit: usize) -> StoreResult<Vec<SubmitterInfo>> {
        let after = after.cloned();
        read!(self, "submitters", |store| store.submitters(after.as_ref(), limit))
    }

    async fn queue_depths(&self, submitters: &[SubmitterId]) -> StoreResult<Vec<u64>> {
        let submitters = submitters.to_vec();
        read!(self, "queue_depths", |store| store.queue_depths(&submitters))
    }

    async fn accept(&self, items: &[NewTx]) -> StoreResult<Vec<Accepted>> {
        let items = items.to_vec();
        self.ask("store.accept", |world, node| async move {
            let accepted = world.store.accept(&items).await?;
            for (item, outcome) in items.iter().zip(&accepted) {
                let outcome = match outcome {
                    Accepted::New { order, .. } => format!("new, order {order}"),
                    Accepted::Known(_) => "known".to_owned(),
                    other => format!("{other:?}"),
                };
                world.trace.line(&node, &format!("accept {}: {outcome}", item.request_id.as_str()));
            }
            world.look().await;
            Ok(accepted)
        })
        .await
    }

    async fn acquire(
        &self,
        owner: &Owner,
        submitters: &[SubmitterId],
        terms: &LeaseTerms,
    ) -> StoreResult<Vec<Acquired>> {
        let (owner, submitters, terms) = (owner.clone(), submitters.to_vec(), *terms);
        self.ask("store.acquire", |world, node| async move {
            let acquired = world.store.acquire(&owner, &submitters, &terms).await?;
            for (submitter, outcome) in submitters.iter().zip(&acquired) {
                if let Acquired::Held { kind, grant } = outcome {
                    if *kind == AcquireKind::Takeover {
                        world.tally.add("takeovers");
                    }
                    let words = format!("acquire {}: {kind:?}, token {}", short(submitter), grant.token());
                    world.trace.line(&node, &words);
                }
            }
            world.look().await;
            Ok(acquired)
        })
        .await
    }

    async fn renew(&self, grants: &[Grant], terms: &LeaseTerms) -> StoreResult<Vec<Renewal>> {
        let (grants, terms) = (grants.to_vec(), *terms);
        self.ask("store.renew", |world, node| async move {
            let renewals = world.store.renew(&grants, &terms).await?;
            for (grant, renewal) in grants.iter().zip(&renewals) {
                if *renewal == Renewal::Lost {
                    let words = format!("renew {} token {}: lost", short(grant.submitter()), grant.token());
                    world.trace.line(&node, &words);
                }
            }
            Ok(renewals)
        })
        .await
    }

    async fn release(&self, grants: &[(Grant, Parting)]) -> StoreResult<Vec<bool>> {
        let grants = grants.to_vec();
        self.ask("store.release", |world, node| async move {
            let released = world.store.release(&grants).await?;
            for ((grant, parting), was_ours) in grants.iter().zip(&released) {
                let (submitter, token) = (short(grant.submitter()), grant.token());
                let words = format!("release {submitter} token {token} {parting:?}: {was_ours}");
                world.trace.line(&node, &words);
            }
            world.look().await;
            Ok(released)
        })
        .await
    }

    async fn raise_token(&self, grant: &Grant, terms: &LeaseTerms) -> StoreResult<Acquired> {
        let (grant, terms) = (grant.clone(), *terms);
        self.ask("store.raise_token", |world, node| async move {
            let raised = world.store.raise_token(&grant, &terms).await?;
            let outcome = match &raised {
                Acquired::Held { grant, .. } => format!("now {}", grant.token()),
                other => format!("{other:?}"),
            };
            let words = format!("raise {} token {}: {outcome}", short(grant.submitter()), grant.token());
            world.trace.line(&node, &words);
            world.look().await;
            Ok(raised)
        })
        .await
    }

    async fn claimable(
        &self,
        terms: &LeaseTerms,
        after: Option<&SubmitterId>,
        limit: usize,
    ) -> StoreResult<Vec<SubmitterId>> {
        let (terms, after) = (*terms, after.cloned());
        read!(self, "claimable", |store| store.claimable(&terms, after.as_ref(), limit))
    }

    async fn notify(&self, submitters: &[SubmitterId]) -> StoreResult<()> {
        let submitters = submitters.to_vec();
        self.ask("store.notify", |world, _| async move { world.store.notify(&submitters).await }).await
    }

    async fn notified(&self) -> StoreResult<Vec<SubmitterId>> {
        self.0.world.store.notified().await
    }

    async fn load_lane(&self, submitter: &SubmitterId) -> StoreResult<Option<LaneSnapshot>> {
        let submitter = submitter.clone();
        read!(self, "load_lane", |store| store.load_lane(&submitter))
    }

    async fn peek_queue(&self, submitter: &SubmitterId, limit: usize) -> StoreResult<Vec<TxRecord>> {
        let submitter = submitter.clone();
        read!(self, "peek_queue", |store| store.peek_queue(&submitter, limit))
    }

    async fn commit(&self, changes: &[LaneChange]) -> StoreResult<Vec<Verdict>> {
        let changes = changes.to_vec();
        self.ask("store.commit", |world, node| async move { world.commit(&node, &changes).await }).await
    }

    async fn insert_commands(&self, commands: &[NewCommand]) -> StoreResult<Vec<CommandReceipt>> {
        let commands = commands.to_vec();
        self.ask(
            "store.insert_commands",
            |world, _| async move { world.store.insert_commands(&commands).await },
        )
        .await
    }

    async fn take_commands(&self, submitter: &SubmitterId, limit: usize) -> StoreResult<Vec<Command>> {
        let submitter = submitter.clone();
        read!(self, "take_commands", |store| store.take_commands(&submitter, limit))
    }

    async fn command_end(&self, id: CommandId) -> StoreResult<Option<CommandEnd>> {
        read!(self, "command_end", |store| store.command_end(id))
    }

    async fn mark(
        &self,
        submitter: &SubmitterId,
        nonce: Nonce,
        owner: LockOwner,
        mark: Mark,
    ) -> StoreResult<MarkOutcome> {
        let submitter = submitter.clone();
        self.ask(
            "store.mark",
            |world, _| async move { world.store.mark(&submitter, nonce, owner, mark).await },
        )
        .await
    }

    async fn tx(&self, tx_id: TxId) -> StoreResult<Option<TxRecord>> {
        read!(self, "tx", |store| store.tx(tx_id))
    }

    async fn tx_by_request(&self, scope: &Scope, request_id: &RequestId) -> StoreResult<Option<TxRecord>> {
        let (scope, request_id) = (scope.clone(), request_id.clone());
        read!(self, "tx_by_request", |store| store.tx_by_request(&scope, &request_id))
    }

    async fn tx_by_hash(&self, hash: B256) -> StoreResult<Option<TxRecord>> {
        read!(self, "tx_by_hash", |store| store.tx_by_hash(hash))
    }

    async fn list(&self, filter: &TxFilter) -> StoreResult<Vec<TxRecord>> {
        let filter = filter.clone();
        read!(self, "list", |store| store.list(&filter))
    }

    async fn attempts(
        &self,
        submitter: &SubmitterId,
        from: Nonce,
        to: Nonce,
    ) -> StoreResult<Vec<StoredAttempt>> {
        let submitter = submitter.clone();
        read!(self, "attempts", |store| store.attempts(&submitter, from, to))
    }

    async fn allocations(
        &self,
        submitter: &SubmitterId,
        from: Nonce,
        to: Nonce,
    ) -> StoreResult<Vec<Allocation>> {
        let submitter = submitter.clone();
        read!(self, "allocations", |store| store.allocations(&submitter, from, to))
    }

    async fn tx_events(&self, tx_id: TxId) -> StoreResult<Vec<Event>> {
        read!(self, "tx_events", |store| store.tx_events(tx_id))
    }

    async fn events_after(&self, cursor: Option<EventCursor>, limit: usize) -> StoreResult<EventPage> {
        read!(self, "events_after", |store| store.events_after(cursor, limit))
    }
}

/// The last digits tell submitters apart.
pub(crate) fn short(submitter: &SubmitterId) -> &str {
    let text = submitter.as_str();
    text.get(text.len().saturating_sub(2)..).unwrap_or(text)
}
