//! Fenced commits in memory: check everything first, then write everything.

use std::collections::BTreeSet;

use gapless_core::attempt::StoredAttempt;
use gapless_core::change::{LaneChange, Verdict};
use gapless_core::cursor::VersionedCursor;
use gapless_core::text::NodeText;
use gapless_core::time::Timestamp;

use super::state::{Lane, State};

pub(super) fn commit(state: &mut State, changes: &[LaneChange], now: Timestamp) -> Vec<Verdict> {
    let mut lanes = BTreeSet::new();
    let mut verdicts = Vec::with_capacity(changes.len());
    for change in changes {
        verdicts.push(if lanes.insert(change.submitter()) {
            one(state, change, now)
        } else {
            Verdict::Retry
        });
    }
    state.commits += 1;
    verdicts
}

fn one(state: &mut State, change: &LaneChange, now: Timestamp) -> Verdict {
    let Some(lane) = state.lanes.get(change.submitter()) else { return Verdict::Fenced };
    if state.fenced && !passes_fence(lane, change, now) {
        return Verdict::Fenced;
    }
    if let Err(reason) = check(state, lane, change, now) {
        return Verdict::Refused { reason: NodeText::new(&reason) };
    }
    write(state, change, now);
    Verdict::Applied { version: change.expected().next() }
}

fn passes_fence(lane: &Lane, change: &LaneChange, now: Timestamp) -> bool {
    let Some(lease) = &lane.lease else { return false };
    lease.row.owner == *change.owner()
        && lease.row.token == change.token()
        && lease.row.expires_at > now
        && lane.cursor.version == change.expected()
}

/// Whether every row is as the plan expects.
fn check(state: &State, lane: &Lane, change: &LaneChange, now: Timestamp) -> Result<(), String> {
    let writes = change.writes();
    for write in &writes.txs {
        let row = state.txs.get(&write.tx_id()).filter(|tx| tx.request.submitter == *change.submitter());
        if row.map(|tx| (tx.facts.state, tx.facts.seq)) != Some((write.from(), write.from_seq())) {
            return Err(format!(
                "transaction {} is not {} at {}",
                write.tx_id(),
                write.from(),
                write.from_seq()
            ));
        }
    }
    let known = |nonce, n| lane.attempts.contains_key(&(nonce, n));
    let mut hashes = BTreeSet::new();
    for attempt in &writes.attempts {
        if known(attempt.nonce, attempt.n) {
            return Err(format!("slot {} has attempt {} already", attempt.nonce, attempt.n));
        }
        let elsewhere = state.lanes.values().flat_map(|lane| lane.attempts.values());
        if !hashes.insert(attempt.hash) || elsewhere.into_iter().any(|stored| stored.hash == attempt.hash) {
            return Err(format!("hash {} is stored already", attempt.hash));
        }
    }
    if let Some(nonce) = writes.unbound.iter().find(|nonce| !known(**nonce, 0)) {
        return Err(format!("slot {nonce} has nothing to unbind"));
    }
    let named =
        (writes.resends.iter().map(|r| (r.nonce, r.n))).chain(writes.refusals.iter().map(|r| (r.nonce, r.n)));
    if let Some((nonce, n)) = named.into_iter().find(|(nonce, n)| !known(*nonce, *n)) {
        return Err(format!("slot {nonce} has no attempt {n}"));
    }
    for write in &writes.allocations {
        write.apply(lane.allocations.get(&write.nonce()), now).map_err(|error| error.to_string())?;
    }
    for end in &writes.commands {
        if !lane.waiting_commands().any(|command| command.command.id == end.id) {
            return Err(format!("command {} does not wait here", end.id));
        }
    }
    Ok(())
}

fn write(state: &mut State, change: &LaneChange, now: Timestamp) {
    let writes = change.writes();
    for write in &writes.txs {
        if let Some(tx) = state.txs.get_mut(&write.tx_id()) {
            tx.facts = write.facts().clone();
            tx.updated_at = now;
            tx.fencing_token = Some(change.token());
        }
    }
    if let Some(lane) = state.lanes.get_mut(change.submitter()) {
        lane.attempts.retain(|(nonce, _), _| !writes.unbound.contains(nonce));
        for new in &writes.attempts {
            let stored = StoredAttempt::read_from_store(new.clone(), now, 0, None);
            lane.attempts.insert((new.nonce, new.n), stored);
        }
        for claim in &writes.resends {
            if let Some(found) = lane.attempts.get_mut(&(claim.nonce, claim.n)) {
                found.claimed(claim.next_send_at, claim.sends);
            }
        }
        for note in &writes.refusals {
            if let Some(found) = lane.attempts.get_mut(&(note.nonce, note.n)) {
                found.refusal = Some(note.refusal.clone());
            }
        }
        for write in &writes.allocations {
            match write.apply(lane.allocations.get(&write.nonce()), now) {
                Ok(Some(row)) => lane.allocations.insert(write.nonce(), row),
                Ok(None) => lane.allocations.remove(&write.nonce()),
                Err(_) => None,
            };
        }
        for end in &writes.commands {
            for (command, slot) in &mut lane.commands {
                if command.command.id == end.id {
                    *slot = Some(end.clone());
                }
            }
        }
        lane.cursor = VersionedCursor { cursor: change.cursor().clone(), version: change.expected().next() };
    }
    state.tell(change.submitter(), change.events(), now);
}
