//! How long the queues are.

use std::collections::HashMap;

use gapless_core::state::TxState;
use gapless_core::submitter::SubmitterId;

use super::state::State;

pub(super) fn queue_depths(state: &State, submitters: &[SubmitterId]) -> Vec<u64> {
    let mut depths: HashMap<&SubmitterId, u64> = HashMap::new();
    for tx in state.txs.values().filter(|tx| tx.facts.state == TxState::Queued) {
        *depths.entry(&tx.request.submitter).or_default() += 1;
    }
    submitters.iter().map(|submitter| depths.get(submitter).copied().unwrap_or_default()).collect()
}
