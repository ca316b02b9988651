//! The store in memory: the model the others are compared with, and the simulator's store.
//!
//! Plain maps under one lock, each operation atomic. It is written to be obviously right rather than
//! fast: every rule that the SQL stores state in SQL is stated here (or in `core`) in ordinary code.

mod commit;
mod depth;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alloy_primitives::B256;
use async_trait::async_trait;
use gapless_core::allocation::{Allocation, Mark, MarkOutcome};
use gapless_core::attempt::StoredAttempt;
use gapless_core::change::{LaneChange, Verdict};
use gapless_core::command::{Command, CommandEnd, CommandReceipt, NewCommand};
use gapless_core::event::{Event, EventCursor, EventKind, EventPage, EventRow, StoredEvent, Told};
use gapless_core::ids::{
    CommandId, Epoch, FencingToken, LockOwner, Nonce, Order, RequestId, Scope, Seq, TxId,
};
use gapless_core::lease::{self, AcquireKind, Grant, LeaseRow, LeaseTerms, Owner};
use gapless_core::limits::{MAX_ACCEPT_BATCH, MAX_COMMIT_LANES, MAX_PAGE};
use gapless_core::ports::clock::Clock;
use gapless_core::ports::store::{
    Acquired, LaneSnapshot, Parting, Registered, Renewal, Store, StoreError, StoreResult, SubmitterInfo,
    TxFilter,
};
use gapless_core::record::{Accepted, NewTx, TxRecord};
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;

use crate::notices::Notices;
use state::{Lane, Lease, State};

/// The store in memory.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    notices: Notices,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let epoch = Epoch(clock.draw());
        Self { clock, state: Mutex::new(State::new(epoch)), notices: Notices::default() }
    }

    /// Ignores owner, token, expiry and version from now on.
    #[cfg(feature = "test-hooks")]
    #[must_use]
    pub fn without_fence(self) -> Self {
        self.lock().0.fenced = false;
        self
    }

    fn lock(&self) -> (MutexGuard<'_, State>, Timestamp) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state, self.clock.now())
    }
}

/// Refuses a call that carries too much.
pub(crate) fn bounded(what: &'static str, given: usize, limit: usize) -> StoreResult<()> {
    if given > limit { Err(StoreError::TooMany { what, given, limit }) } else { Ok(()) }
}

#[async_trait]
impl Store for MemoryStore {
    async fn now(&self) -> StoreResult<Timestamp> {
        Ok(self.clock.now())
    }

    async fn epoch(&self) -> StoreResult<Epoch> {
        Ok(self.lock().0.epoch)
    }

    async fn register(&self, submitters: &[(SubmitterId, String)]) -> StoreResult<Vec<Registered>> {
        let (mut state, now) = self.lock();
        let register = |(submitter, settings): &(SubmitterId, String)| {
            if state.lanes.contains_key(submitter) {
                return Registered::Known;
            }
            state.lanes.insert(submitter.clone(), Lane::new(settings.clone(), now));
            Registered::New
        };
        Ok(submitters.iter().map(register).collect())
    }

    async fn submitter(&self, submitter: &SubmitterId) -> StoreResult<Option<SubmitterInfo>> {
        Ok(self.lock().0.lanes.get(submitter).map(|lane| lane.info(submitter)))
    }

    async fn named_submitters(&self, names: &[SubmitterId]) -> StoreResult<Vec<Option<SubmitterInfo>>> {
        bounded("submitters", names.len(), MAX_PAGE)?;
        let (state, _) = self.lock();
        Ok(names.iter().map(|name| state.lanes.get(name).map(|lane| lane.info(name))).collect())
    }

    async fn submitters(&self, after: Option<&SubmitterId>, limit: usize) -> StoreResult<Vec<SubmitterInfo>> {
        bounded("submitters", limit, MAX_PAGE)?;
        let (state, _) = self.lock();
        let later = state.lanes.iter().filter(|(name, _)| after.is_none_or(|after| *name > after));
        Ok(later.take(limit).map(|(name, lane)| lane.info(name)).collect())
    }

    async fn accept(&self, items: &[NewTx]) -> StoreResult<Vec<Accepted>> {
        bounded("accept", items.len(), MAX_ACCEPT_BATCH)?;
        let (mut state, now) = self.lock();
        let accepted = items.iter().map(|item| accept_one(&mut state, item, now)).collect();
        state.commits += 1;
        Ok(accepted)
    }

    async fn acquire(
        &self,
        owner: &Owner,
        submitters: &[SubmitterId],
        terms: &LeaseTerms,
    ) -> StoreResult<Vec<Acquired>> {
        let (mut state, now) = self.lock();
        let acquire = |submitter: &SubmitterId| {
            let Some(lane) = state.lanes.get_mut(submitter) else { return Acquired::UnknownSubmitter };
            acquire_one(lane, submitter, owner, now, terms, false)
        };
        Ok(submitters.iter().map(acquire).collect())
    }

    async fn renew(&self, grants: &[Grant], terms: &LeaseTerms) -> StoreResult<Vec<Renewal>> {
        let (mut state, now) = self.lock();
        let renew = |grant: &Grant| {
            let lease = state.lease_of(grant);
            match lease.filter(|lease| lease.row.expires_at > now.minus(terms.allowance())) {
                Some(lease) => {
                    lease.row.expires_at = now.plus(terms.duration());
                    Renewal::Renewed(grant_of(grant.submitter(), &lease.row))
                }
                None => Renewal::Lost,
            }
        };
        Ok(grants.iter().map(renew).collect())
    }

    async fn release(&self, grants: &[(Grant, Parting)]) -> StoreResult<Vec<bool>> {
        let (mut state, _) = self.lock();
        let release = |(grant, parting): &(Grant, Parting)| {
            let Some(lease) = state.lease_of(grant) else { return false };
            lease.row.expires_at = Timestamp::from_micros(0);
            lease.idle = *parting == Parting::Idle;
            true
        };
        Ok(grants.iter().map(release).collect())
    }

    async fn raise_token(&self, grant: &Grant, terms: &LeaseTerms) -> StoreResult<Acquired> {
        let (mut state, now) = self.lock();
        let Some(lane) = state.lanes.get_mut(grant.submitter()) else {
            return Ok(Acquired::UnknownSubmitter);
        };
        Ok(acquire_one(lane, grant.submitter(), grant.owner(), now, terms, true))
    }

    async fn claimable(
        &self,
        terms: &LeaseTerms,
        after: Option<&SubmitterId>,
        limit: usize,
    ) -> StoreResult<Vec<SubmitterId>> {
        let (state, now) = self.lock();
        let nobody =
            Owner::new("-", uuid::Uuid::nil()).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let free =
            |lane: &Lane| lease::decide(lane.lease.as_ref().map(|l| &l.row), &nobody, now, terms).is_some();
        let waiting = |name: &SubmitterId, lane: &Lane| {
            lane.lease.as_ref().is_some_and(|lease| !lease.idle)
                || lane.commands.iter().any(|(_, end)| end.is_none())
                || state.queue(name).next().is_some()
        };
        let later = |name: &SubmitterId| after.is_none_or(|after| name > after);
        let found =
            state.lanes.iter().filter(|(name, lane)| later(name) && free(lane) && waiting(name, lane));
        Ok(found.take(limit).map(|(name, _)| name.clone()).collect())
    }

    async fn notify(&self, submitters: &[SubmitterId]) -> StoreResult<()> {
        self.notices.speak(submitters);
        Ok(())
    }

    async fn notified(&self) -> StoreResult<Vec<SubmitterId>> {
        Ok(self.notices.hear().await)
    }

    async fn load_lane(&self, submitter: &SubmitterId) -> StoreResult<Option<LaneSnapshot>> {
        Ok(self.lock().0.snapshot(submitter))
    }

    async fn peek_queue(&self, submitter: &SubmitterId, limit: usize) -> StoreResult<Vec<TxRecord>> {
        bounded("peek_queue", limit, MAX_PAGE)?;
        Ok(self.lock().0.queue(submitter).take(limit).cloned().collect())
    }

    async fn queue_depths(&self, submitters: &[SubmitterId]) -> StoreResult<Vec<u64>> {
        bounded("queue_depths", submitters.len(), MAX_PAGE)?;
        Ok(depth::queue_depths(&self.lock().0, submitters))
    }

    async fn commit(&self, changes: &[LaneChange]) -> StoreResult<Vec<Verdict>> {
        bounded("commit", changes.len(), MAX_COMMIT_LANES)?;
        let (mut state, now) = self.lock();
        Ok(commit::commit(&mut state, changes, now))
    }

    async fn insert_commands(&self, commands: &[NewCommand]) -> StoreResult<Vec<CommandReceipt>> {
        let (mut state, now) = self.lock();
        let insert = |command: &NewCommand| {
            if !state.lanes.contains_key(&command.submitter) {
                return CommandReceipt::UnknownSubmitter;
            }
            if !state.command_ids.insert(command.id) {
                return CommandReceipt::Duplicate;
            }
            if let Some(lane) = state.lanes.get_mut(&command.submitter) {
                lane.commands.push((Command { command: command.clone(), created_at: now }, None));
            }
            CommandReceipt::Inserted
        };
        Ok(commands.iter().map(insert).collect())
    }

    async fn take_commands(&self, submitter: &SubmitterId, limit: usize) -> StoreResult<Vec<Command>> {
        bounded("take_commands", limit, MAX_PAGE)?;
        let (state, _) = self.lock();
        Ok(state
            .lanes
            .get(submitter)
            .map(|lane| lane.waiting_commands().take(limit).collect())
            .unwrap_or_default())
    }

    async fn command_end(&self, id: CommandId) -> StoreResult<Option<CommandEnd>> {
        let (state, _) = self.lock();
        let mut ends =
            state.lanes.values().flat_map(|lane| &lane.commands).filter_map(|(_, end)| end.as_ref());
        Ok(ends.find(|end| end.id == id).cloned())
    }

    async fn mark(
        &self,
        submitter: &SubmitterId,
        nonce: Nonce,
        owner: LockOwner,
        mark: Mark,
    ) -> StoreResult<MarkOutcome> {
        let (mut state, now) = self.lock();
        let Some(lane) = state.lanes.get_mut(submitter) else { return Ok(MarkOutcome::NotReserved) };
        Ok(match mark.judge(owner, lane.allocations.get(&nonce), now) {
            Ok(row) => {
                lane.allocations.insert(nonce, row);
                MarkOutcome::Marked
            }
            Err(outcome) => outcome,
        })
    }

    async fn tx(&self, tx_id: TxId) -> StoreResult<Option<TxRecord>> {
        Ok(self.lock().0.txs.get(&tx_id).cloned())
    }

    async fn tx_by_request(&self, scope: &Scope, request_id: &RequestId) -> StoreResult<Option<TxRecord>> {
        let (state, _) = self.lock();
        let tx_id = state.requests.get(&(scope.clone(), request_id.clone()));
        Ok(tx_id.and_then(|tx_id| state.txs.get(tx_id)).cloned())
    }

    async fn tx_by_hash(&self, hash: B256) -> StoreResult<Option<TxRecord>> {
        let (state, _) = self.lock();
        let attempt = state.lanes.values().flat_map(|lane| lane.attempts.values()).find(|a| a.hash == hash);
        Ok(attempt.and_then(|a| a.tx_id).and_then(|tx_id| state.txs.get(&tx_id)).cloned())
    }

    async fn list(&self, filter: &TxFilter) -> StoreResult<Vec<TxRecord>> {
        bounded("list", filter.limit, MAX_PAGE)?;
        let (state, _) = self.lock();
        let wanted = |tx: &&TxRecord| {
            filter.submitter.as_ref().is_none_or(|s| *s == tx.request.submitter)
                && (filter.states.is_empty() || filter.states.contains(&tx.facts.state))
                && filter.after.is_none_or(|after| tx.order > after)
        };
        Ok(state.in_order().filter(wanted).take(filter.limit).cloned().collect())
    }

    async fn attempts(
        &self,
        submitter: &SubmitterId,
        from: Nonce,
        to: Nonce,
    ) -> StoreResult<Vec<StoredAttempt>> {
        let (state, _) = self.lock();
        let Some(lane) = state.lanes.get(submitter) else { return Ok(Vec::new()) };
        Ok(lane.attempts.range((from, 0)..(to.max(from), 0)).map(|(_, a)| a.clone()).collect())
    }

    async fn allocations(
        &self,
        submitter: &SubmitterId,
        from: Nonce,
        to: Nonce,
    ) -> StoreResult<Vec<Allocation>> {
        let (state, _) = self.lock();
        let Some(lane) = state.lanes.get(submitter) else { return Ok(Vec::new()) };
        Ok(lane.allocations.range(from..to.max(from)).map(|(_, a)| a.clone()).collect())
    }

    async fn tx_events(&self, tx_id: TxId) -> StoreResult<Vec<Event>> {
        let (state, _) = self.lock();
        let of_tx = |event: &Event| event.tx_id == Some(tx_id);
        Ok(state.outbox.iter().cloned().flat_map(EventRow::unfold).filter(of_tx).collect())
    }

    async fn events_after(&self, cursor: Option<EventCursor>, limit: usize) -> StoreResult<EventPage> {
        bounded("events", limit, MAX_PAGE)?;
        let (state, _) = self.lock();
        let cursor = cursor.unwrap_or(EventCursor::start(state.epoch));
        if cursor.epoch != state.epoch {
            return Err(StoreError::CursorExpired);
        }
        let later = state.outbox.iter().filter(|row| (row.commit, row.row) >= (cursor.commit, cursor.row));
        Ok(EventPage::of(cursor, limit, later.cloned()))
    }
}

fn accept_one(state: &mut State, item: &NewTx, now: Timestamp) -> Accepted {
    let key = (item.scope.clone(), item.request_id.clone());
    if let Some(known) = state.requests.get(&key).and_then(|tx_id| state.txs.get(tx_id)) {
        return if known.request.digest == item.digest {
            Accepted::Known(Box::new(known.clone()))
        } else {
            Accepted::Mismatch { tx_id: known.tx_id() }
        };
    }
    if !state.lanes.contains_key(&item.submitter) {
        return Accepted::UnknownSubmitter;
    }
    state.orders += 1;
    let order = Order(state.orders);
    state.txs.insert(item.tx_id, TxRecord::accepted(item.clone(), order, now));
    state.by_order.insert(order, item.tx_id);
    state.requests.insert(key, item.tx_id);
    let told = Told::plain(EventKind::TxAccepted);
    let event = StoredEvent { kind: told.kind, tx_id: Some(item.tx_id), seq: Seq(1), data: told.data };
    state.tell(&item.submitter, vec![event], now);
    Accepted::New { order, at: now }
}

fn grant_of(submitter: &SubmitterId, row: &LeaseRow) -> Grant {
    Grant::issued_by_store(submitter.clone(), row.owner.clone(), row.token, row.expires_at)
}

fn acquire_one(
    lane: &mut Lane,
    submitter: &SubmitterId,
    owner: &Owner,
    now: Timestamp,
    terms: &LeaseTerms,
    raise: bool,
) -> Acquired {
    let found = lane.lease.as_ref().map(|lease| &lease.row);
    let kind = match lease::decide(found, owner, now, terms) {
        Some(AcquireKind::Renew) if raise => AcquireKind::Takeover,
        Some(kind) => kind,
        None => {
            return found.map_or(Acquired::Busy, |row| Acquired::NotOwner {
                owner: row.owner.clone(),
                expires_at: row.expires_at,
            });
        }
    };
    let last = found.map_or(FencingToken(0), |row| row.token);
    let token = if kind == AcquireKind::Renew { last } else { last.next() };
    let row = LeaseRow { owner: owner.clone(), token, expires_at: now.plus(terms.duration()) };
    let grant = grant_of(submitter, &row);
    lane.lease = Some(Lease { row, idle: false });
    Acquired::Held { kind, grant }
}
