//! The maps behind the memory store.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gapless_core::allocation::{Allocation, AllocationStatus};
use gapless_core::attempt::StoredAttempt;
use gapless_core::command::{Command, CommandEnd};
use gapless_core::cursor::VersionedCursor;
use gapless_core::event::{EventRow, StoredEvent};
use gapless_core::ids::{CommandId, Epoch, Nonce, Order, RequestId, Scope, TxId};
use gapless_core::lease::{Grant, LeaseRow};
use gapless_core::ports::store::{LaneSnapshot, LeaseInfo, SubmitterInfo};
use gapless_core::record::TxRecord;
use gapless_core::state::TxState;
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;

pub(super) struct Lease {
    pub(super) row: LeaseRow,
    pub(super) idle: bool,
}

pub(super) struct Lane {
    pub(super) settings: String,
    pub(super) created_at: Timestamp,
    pub(super) lease: Option<Lease>,
    pub(super) cursor: VersionedCursor,
    pub(super) attempts: BTreeMap<(Nonce, u32), StoredAttempt>,
    pub(super) allocations: BTreeMap<Nonce, Allocation>,
    pub(super) commands: Vec<(Command, Option<CommandEnd>)>,
}

impl Lane {
    pub(super) fn new(settings: String, now: Timestamp) -> Self {
        Self {
            settings,
            created_at: now,
            lease: None,
            cursor: VersionedCursor::default(),
            attempts: BTreeMap::new(),
            allocations: BTreeMap::new(),
            commands: Vec::new(),
        }
    }

    pub(super) fn waiting_commands(&self) -> impl Iterator<Item = Command> + '_ {
        self.commands.iter().filter(|(_, end)| end.is_none()).map(|(command, _)| command.clone())
    }

    pub(super) fn info(&self, submitter: &SubmitterId) -> SubmitterInfo {
        SubmitterInfo {
            submitter: submitter.clone(),
            settings: self.settings.clone(),
            cursor: self.cursor.clone(),
            lease: self.lease.as_ref().map(|lease| LeaseInfo {
                owner: lease.row.owner.clone(),
                token: lease.row.token,
                expires_at: lease.row.expires_at,
            }),
            created_at: self.created_at,
        }
    }
}

/// Foreign use below what a lane watches is history.
fn is_current(allocation: &Allocation, watched_from: Option<Nonce>) -> bool {
    allocation.status != AllocationStatus::Foreign || watched_from.is_none_or(|from| allocation.nonce >= from)
}

pub(super) struct State {
    pub(super) epoch: Epoch,
    pub(super) lanes: BTreeMap<SubmitterId, Lane>,
    pub(super) txs: HashMap<TxId, TxRecord>,
    pub(super) by_order: BTreeMap<Order, TxId>,
    pub(super) requests: HashMap<(Scope, RequestId), TxId>,
    pub(super) command_ids: BTreeSet<CommandId>,
    pub(super) outbox: Vec<EventRow>,
    pub(super) orders: u64,
    pub(super) commits: u64,
    /// Off only where a test wants to see what the fence is good for.
    pub(super) fenced: bool,
}

impl State {
    pub(super) fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            lanes: BTreeMap::new(),
            txs: HashMap::new(),
            by_order: BTreeMap::new(),
            requests: HashMap::new(),
            command_ids: BTreeSet::new(),
            outbox: Vec::new(),
            orders: 0,
            commits: 1,
            fenced: true,
        }
    }

    pub(super) fn in_order(&self) -> impl Iterator<Item = &TxRecord> {
        self.by_order.values().filter_map(|tx_id| self.txs.get(tx_id))
    }

    pub(super) fn queue<'a>(&'a self, submitter: &'a SubmitterId) -> impl Iterator<Item = &'a TxRecord> {
        self.in_order()
            .filter(move |tx| tx.request.submitter == *submitter && tx.facts.state == TxState::Queued)
    }

    pub(super) fn lease_of(&mut self, grant: &Grant) -> Option<&mut Lease> {
        let lease = self.lanes.get_mut(grant.submitter())?.lease.as_mut()?;
        (lease.row.owner == *grant.owner() && lease.row.token == grant.token()).then_some(lease)
    }

    pub(super) fn tell(&mut self, submitter: &SubmitterId, events: Vec<StoredEvent>, at: Timestamp) {
        if !events.is_empty() {
            let row = self.outbox.len() as u64 + 1;
            self.outbox.push(EventRow {
                commit: self.commits,
                row,
                submitter: submitter.clone(),
                at,
                events,
            });
        }
    }

    pub(super) fn snapshot(&self, submitter: &SubmitterId) -> Option<LaneSnapshot> {
        let lane = self.lanes.get(submitter)?;
        let from = lane.cursor.cursor.run.map(|run| run.watched_from());
        let attempts: Vec<_> = from
            .map(|from| lane.attempts.range((from, 0)..).map(|(_, a)| a.clone()).collect())
            .unwrap_or_default();
        let ids: BTreeSet<TxId> = (attempts.iter().filter_map(|a: &StoredAttempt| a.tx_id))
            .chain(lane.allocations.values().filter(|a| is_current(a, from)).filter_map(|a| a.tx_id))
            .collect();
        let mut txs: Vec<_> = ids.iter().filter_map(|tx_id| self.txs.get(tx_id)).cloned().collect();
        txs.sort_by_key(|tx| tx.order);
        Some(LaneSnapshot {
            cursor: lane.cursor.clone(),
            attempts,
            txs,
            allocations: lane.allocations.values().filter(|a| is_current(a, from)).cloned().collect(),
            commands: lane.waiting_commands().collect(),
        })
    }
}
