//! A store that notes which methods were called and which outcomes came back.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use alloy_primitives::B256;
use async_trait::async_trait;
use gapless_core::allocation::{Allocation, Mark, MarkOutcome};
use gapless_core::attempt::StoredAttempt;
use gapless_core::change::{LaneChange, Verdict};
use gapless_core::command::{Command, CommandEnd, CommandReceipt, NewCommand};
use gapless_core::event::{Event, EventCursor, EventPage};
use gapless_core::ids::{CommandId, Epoch, LockOwner, Nonce, RequestId, Scope, TxId};
use gapless_core::lease::{Grant, LeaseTerms, Owner};
use gapless_core::ports::store::{
    Acquired, LaneSnapshot, Parting, Registered, Renewal, Store, StoreResult, SubmitterInfo, TxFilter,
};
use gapless_core::record::{Accepted, NewTx, TxRecord};
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;

/// What was seen: `method`, and `Enum::Variant` for outcomes.
#[derive(Debug, Clone, Default)]
pub struct Seen(Arc<Mutex<BTreeSet<String>>>);

impl Seen {
    pub fn note(&self, what: String) {
        self.0.lock().unwrap().insert(what);
    }

    pub fn all(&self) -> BTreeSet<String> {
        self.0.lock().unwrap().clone()
    }

    /// The variant is the first word of the value's debug text.
    pub fn outcome(&self, of: &str, value: &impl Debug) {
        let text = format!("{value:?}");
        let variant: String = text.chars().take_while(|c| c.is_alphanumeric()).collect();
        self.note(format!("{of}::{variant}"));
    }

    fn called<T>(&self, method: &str, result: StoreResult<T>) -> StoreResult<T> {
        self.note(method.to_owned());
        if let Err(error) = &result {
            self.outcome("StoreError", error);
        }
        result
    }

    fn each<T: Debug>(&self, method: &str, of: &str, result: StoreResult<Vec<T>>) -> StoreResult<Vec<T>> {
        for item in result.iter().flatten() {
            self.outcome(of, item);
        }
        self.called(method, result)
    }
}

pub struct Recording {
    pub inner: Arc<dyn Store>,
    pub seen: Seen,
}

#[async_trait]
impl Store for Recording {
    async fn now(&self) -> StoreResult<Timestamp> {
        self.seen.called("now", self.inner.now().await)
    }

    async fn epoch(&self) -> StoreResult<Epoch> {
        self.seen.called("epoch", self.inner.epoch().await)
    }

    async fn register(&self, submitters: &[(SubmitterId, String)]) -> StoreResult<Vec<Registered>> {
        self.seen.each("register", "Registered", self.inner.register(submitters).await)
    }

    async fn submitter(&self, submitter: &SubmitterId) -> StoreResult<Option<SubmitterInfo>> {
        self.seen.called("submitter", self.inner.submitter(submitter).await)
    }

    async fn named_submitters(&self, names: &[SubmitterId]) -> StoreResult<Vec<Option<SubmitterInfo>>> {
        self.seen.called("named_submitters", self.inner.named_submitters(names).await)
    }

    async fn submitters(&self, after: Option<&SubmitterId>, limit: usize) -> StoreResult<Vec<SubmitterInfo>> {
        self.seen.called("submitters", self.inner.submitters(after, limit).await)
    }

    async fn accept(&self, items: &[NewTx]) -> StoreResult<Vec<Accepted>> {
        self.seen.each("accept", "Accepted", self.inner.accept(items).await)
    }

    async fn acquire(
        &self,
        owner: &Owner,
        submitters: &[SubmitterId],
        terms: &LeaseTerms,
    ) -> StoreResult<Vec<Acquired>> {
        let acquired = self.inner.acquire(owner, submitters, terms).await;
        for item in acquired.iter().flatten() {
            if let Acquired::Held { kind, .. } = item {
                self.seen.outcome("AcquireKind", kind);
            }
        }
        self.seen.each("acquire", "Acquired", acquired)
    }

    async fn renew(&self, grants: &[Grant], terms: &LeaseTerms) -> StoreResult<Vec<Renewal>> {
        self.seen.each("renew", "Renewal", self.inner.renew(grants, terms).await)
    }

    async fn release(&self, grants: &[(Grant, Parting)]) -> StoreResult<Vec<bool>> {
        grants.iter().for_each(|(_, parting)| self.seen.outcome("Parting", parting));
        self.seen.called("release", self.inner.release(grants).await)
    }

    async fn raise_token(&self, grant: &Grant, terms: &LeaseTerms) -> StoreResult<Acquired> {
        self.seen.called("raise_token", self.inner.raise_token(grant, terms).await)
    }

    async fn claimable(
        &self,
        terms: &LeaseTerms,
        after: Option<&SubmitterId>,
        limit: usize,
    ) -> StoreResult<Vec<SubmitterId>> {
        self.seen.called("claimable", self.inner.claimable(terms, after, limit).await)
    }

    async fn notify(&self, submitters: &[SubmitterId]) -> StoreResult<()> {
        self.seen.called("notify", self.inner.notify(submitters).await)
    }

    async fn notified(&self) -> StoreResult<Vec<SubmitterId>> {
        self.seen.called("notified", self.inner.notified().await)
    }

    async fn load_lane(&self, submitter: &SubmitterId) -> StoreResult<Option<LaneSnapshot>> {
        self.seen.called("load_lane", self.inner.load_lane(submitter).await)
    }

    async fn peek_queue(&self, submitter: &SubmitterId, limit: usize) -> StoreResult<Vec<TxRecord>> {
        self.seen.called("peek_queue", self.inner.peek_queue(submitter, limit).await)
    }

    async fn queue_depths(&self, submitters: &[SubmitterId]) -> StoreResult<Vec<u64>> {
        self.seen.called("queue_depths", self.inner.queue_depths(submitters).await)
    }

    async fn commit(&self, changes: &[LaneChange]) -> StoreResult<Vec<Verdict>> {
        self.seen.each("commit", "Verdict", self.inner.commit(changes).await)
    }

    async fn insert_commands(&self, commands: &[NewCommand]) -> StoreResult<Vec<CommandReceipt>> {
        self.seen.each("insert_commands", "CommandReceipt", self.inner.insert_commands(commands).await)
    }

    async fn take_commands(&self, submitter: &SubmitterId, limit: usize) -> StoreResult<Vec<Command>> {
        self.seen.called("take_commands", self.inner.take_commands(submitter, limit).await)
    }

    async fn command_end(&self, id: CommandId) -> StoreResult<Option<CommandEnd>> {
        self.seen.called("command_end", self.inner.command_end(id).await)
    }

    async fn mark(
        &self,
        submitter: &SubmitterId,
        nonce: Nonce,
        owner: LockOwner,
        mark: Mark,
    ) -> StoreResult<MarkOutcome> {
        let outcome = self.inner.mark(submitter, nonce, owner, mark).await;
        outcome.iter().for_each(|outcome| self.seen.outcome("MarkOutcome", outcome));
        self.seen.called("mark", outcome)
    }

    async fn tx(&self, tx_id: TxId) -> StoreResult<Option<TxRecord>> {
        self.seen.called("tx", self.inner.tx(tx_id).await)
    }

    async fn tx_by_request(&self, scope: &Scope, request_id: &RequestId) -> StoreResult<Option<TxRecord>> {
        self.seen.called("tx_by_request", self.inner.tx_by_request(scope, request_id).await)
    }

    async fn tx_by_hash(&self, hash: B256) -> StoreResult<Option<TxRecord>> {
        self.seen.called("tx_by_hash", self.inner.tx_by_hash(hash).await)
    }

    async fn list(&self, filter: &TxFilter) -> StoreResult<Vec<TxRecord>> {
        self.seen.called("list", self.inner.list(filter).await)
    }

    async fn attempts(
        &self,
        submitter: &SubmitterId,
        from: Nonce,
        to: Nonce,
    ) -> StoreResult<Vec<StoredAttempt>> {
        self.seen.called("attempts", self.inner.attempts(submitter, from, to).await)
    }

    async fn allocations(
        &self,
        submitter: &SubmitterId,
        from: Nonce,
        to: Nonce,
    ) -> StoreResult<Vec<Allocation>> {
        self.seen.called("allocations", self.inner.allocations(submitter, from, to).await)
    }

    async fn tx_events(&self, tx_id: TxId) -> StoreResult<Vec<Event>> {
        self.seen.called("tx_events", self.inner.tx_events(tx_id).await)
    }

    async fn events_after(&self, cursor: Option<EventCursor>, limit: usize) -> StoreResult<EventPage> {
        self.seen.called("events_after", self.inner.events_after(cursor, limit).await)
    }
}
