//! What the outside sees of a transaction, as the contract names it. The nonce is not in the plain view.
//! A submitter's view is in [`submitter`].

mod attempt;
mod operator;
mod submitter;

use gapless_core::fees::{Gas, GasPrice};
use gapless_core::ids::{RequestId, Seq, TxId};
use gapless_core::record::{Failure, Mined, MinedAs, TxRecord};
use gapless_core::state::{SubState, TxState};
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use gapless_core::wait::WaitReason;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::heads::Ring;

pub use attempt::{AttemptView, OutcomeView};
pub use operator::OperatorView;
pub(crate) use submitter::Surroundings;
pub use submitter::{ProtectView, SubmitterView, WindowView};

/// A receipt as shown.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReceiptView {
    transaction_hash: alloy_primitives::B256,
    block_number: Gas,
    block_hash: alloy_primitives::B256,
    status: Gas,
    gas_used: Gas,
    effective_gas_price: GasPrice,
    contract_address: Option<alloy_primitives::Address>,
}

/// A block that confirms.
#[derive(Debug, Clone, Serialize)]
pub struct BlockView {
    number: Gas,
    hash: alloy_primitives::B256,
}

/// Confirmations as shown: counted when read, not stored.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfirmationsView {
    count: u64,
    required: u64,
    new_fork: bool,
    blocks: Vec<BlockView>,
}

/// A transaction as shown.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TxView {
    /// Its id.
    pub tx_id: TxId,
    /// Its account.
    pub submitter: SubmitterId,
    /// The caller's name for it.
    pub request_id: RequestId,
    /// Where it stands.
    pub state: TxState,
    /// Where exactly.
    pub sub_state: Option<SubState>,
    /// Number of its last event.
    pub seq: Seq,
    /// Hash of what was mined, or of the current attempt.
    pub tx_hash: Option<alloy_primitives::B256>,
    /// What was mined, seen from the request.
    pub mined_as: Option<MinedAs>,
    /// The receipt.
    pub receipt: Option<ReceiptView>,
    /// Its confirmations.
    pub confirmations: Option<ConfirmationsView>,
    /// Why it ended badly.
    pub failure: Option<Failure>,
    /// Why it waits.
    pub wait_reason: Option<WaitReason>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When bytes were first stored.
    pub submitted_at: Option<Timestamp>,
    /// When it was first seen in a block.
    pub mined_at: Option<Timestamp>,
    /// When it ended.
    pub finalized_at: Option<Timestamp>,
    /// The caller's notes.
    pub metadata: Option<Box<RawValue>>,
}

/// Most confirming blocks listed.
const LISTED: u64 = 64;

impl TxView {
    /// The view of a record, against a view of its chain and the confirmations it needs.
    #[must_use]
    pub fn of(tx: &TxRecord, ring: Option<&Ring>, required: u64) -> Self {
        let (request, facts) = (&tx.request, &tx.facts);
        let mined = facts.mined.as_ref();
        let number = |n: u64| Gas(n);
        let confirmations = mined.map(|m| confirmations(m, ring, required));
        // A lane does not write what the head tells; the rest of a wait is told where one transaction is asked for.
        let wait_reason = match &confirmations {
            _ if facts.state.is_terminal() => None,
            Some(seen) => Some(WaitReason::Confirming { count: seen.count, required }),
            None => facts.wait.clone(),
        };
        Self {
            tx_id: tx.tx_id(),
            submitter: request.submitter.clone(),
            request_id: request.request_id.clone(),
            state: facts.state,
            sub_state: facts.sub_state,
            seq: facts.seq,
            tx_hash: mined.map(|m| m.hash).or(facts.tx_hash),
            mined_as: mined.map(|m| m.mined_as),
            receipt: mined.map(|m| ReceiptView {
                transaction_hash: m.hash,
                block_number: number(m.block_number),
                block_hash: m.block_hash,
                status: Gas(u64::from(m.succeeded)),
                gas_used: m.gas_used,
                effective_gas_price: m.effective_gas_price,
                contract_address: m.contract_address,
            }),
            confirmations,
            failure: facts.failure.clone(),
            wait_reason,
            created_at: tx.created_at,
            updated_at: tx.updated_at,
            submitted_at: facts.bound_at,
            mined_at: mined.map(|m| m.at),
            finalized_at: facts.ended_at,
            metadata: request
                .metadata
                .as_ref()
                .and_then(|m| RawValue::from_string(m.as_str().to_owned()).ok()),
        }
    }
}

/// The blocks after inclusion, as far as they are kept. A block that was replaced has none.
fn confirmations(mined: &Mined, ring: Option<&Ring>, required: u64) -> ConfirmationsView {
    let block = mined.block_number;
    let stands = ring.and_then(|ring| ring.hash_at(block)).is_none_or(|hash| hash == mined.block_hash);
    let head = ring.filter(|_| stands).and_then(|ring| ring.head()).map_or(block, |head| head.this.number);
    let count = head.saturating_sub(block);
    let last = block.saturating_add(count.min(LISTED));
    let listed = (block + 1..=last).filter_map(|n| ring.and_then(|r| r.hash_at(n)).map(|hash| (n, hash)));
    let blocks = listed.map(|(n, hash)| BlockView { number: Gas(n), hash }).collect();
    ConfirmationsView { count, required, new_fork: true, blocks }
}
