//! Every critical write is said once, with who wrote and under which token: an applied change that touches a
//! transaction, be it its facts, its bytes, or when they are sent again.

use std::collections::BTreeMap;

use gapless_core::change::{LaneChange, Writes};
use gapless_core::ids::{TxId, Version};
use gapless_core::record::TxFacts;
use tracing::{Level, enabled, info};

use super::memory::Memory;

/// One line per transaction that an applied change touched. `memory` is as it was before the change.
pub(super) fn written(memory: &Memory, change: &LaneChange, version: Version) {
    if !enabled!(Level::INFO) {
        return;
    }
    let submitter = change.submitter().to_string();
    let (node_id, fencing_token) = (change.owner().node(), change.token().0);
    for (tx_id, facts) in touched(memory, change.writes()) {
        let (state, seq) = (facts.map(|facts| facts.state.to_string()), facts.map(|facts| facts.seq.0));
        info!(submitter, %tx_id, node_id, fencing_token, version = version.0, state, seq, "written");
    }
}

/// The transactions of a change, with their facts after it as far as they are known.
fn touched<'a>(memory: &'a Memory, writes: &'a Writes) -> BTreeMap<TxId, Option<&'a TxFacts>> {
    let of_attempts = writes.attempts.iter().filter_map(|attempt| attempt.tx_id);
    let unbound = writes.unbound.iter().copied();
    let resent = writes.resends.iter().map(|claim| claim.nonce);
    let refused = writes.refusals.iter().map(|note| note.nonce);
    let of_slots = unbound
        .chain(resent)
        .chain(refused)
        .filter_map(|nonce| memory.slots.get(&nonce))
        .flatten()
        .filter_map(|attempt| attempt.tx_id);
    let known = |tx_id: &TxId| memory.txs.get(tx_id).map(|tx| &tx.facts);
    let mut touched: BTreeMap<TxId, Option<&TxFacts>> =
        of_attempts.chain(of_slots).map(|tx_id| (tx_id, known(&tx_id))).collect();
    touched.extend(writes.txs.iter().map(|write| (write.tx_id(), Some(write.facts()))));
    touched
}
