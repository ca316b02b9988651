//! Receipts that nobody has to be asked for.
//!
//! A block's header names the root of the trie of its receipts. Where a block holds nothing but plain transfers that went out
//! from here, we can write their receipts down ourselves: done, at their intrinsic gas, without a log. If what we wrote has the
//! header's root, it is what the block holds, to the letter; if it has not (something reverted, ran code, is somebody
//! else's), a node is asked as ever. So a guess can cost a little work and never a wrong receipt.
//!
//! It pays where a block is full of payouts of ours, and most where a node's work for one receipt grows with its block.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use alloy_consensus::proofs::calculate_receipt_root;
use alloy_consensus::{Eip658Value, Receipt as PlainReceipt, ReceiptEnvelope, ReceiptWithBloom, TxType};
use alloy_primitives::{B256, Bloom, Log};
use gapless_core::attempt::StoredAttempt;
use gapless_core::fees::{Fees, Gas, GasPrice};
use gapless_core::intent::Payload;
use gapless_core::intrinsic;
use gapless_core::ports::chain::{BlockRef, Receipt};

use crate::signer::tx;

/// Transfers remembered until their block is seen. Of older ones the node is asked.
const MOST_SENT: usize = 1 << 16;

/// Blocks remembered.
const MOST_BLOCKS: usize = 8;

/// What a header says about its receipts.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(crate) this: BlockRef,
    pub(crate) base_fee: Option<GasPrice>,
    pub(crate) gas_used: Gas,
    pub(crate) receipts_root: B256,
    pub(crate) transactions: Vec<B256>,
}

/// A transfer that, all being well, uses its intrinsic gas and nothing more.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    kind: TxType,
    gas: Gas,
    /// The same where call data has a floor price (EIP-7623).
    floored: Gas,
    fees: Fees,
}

impl Transfer {
    fn of(attempt: &StoredAttempt) -> Option<Self> {
        let payload = tx::contents(&attempt.raw)?.payload;
        payload.to?;
        let kind = match *attempt.raw.first()? {
            legacy if legacy >= 0xc0 => TxType::Legacy,
            kind => TxType::try_from(kind).ok()?,
        };
        let gas = intrinsic::gas(&payload);
        Some(Self { kind, gas, floored: gas.max(floor(&payload)), fees: attempt.fees })
    }
}

/// EIP-7623: a zero byte of call data is one token, another four; each costs at least ten gas.
fn floor(payload: &Payload) -> Gas {
    let tokens: u64 = payload.data.iter().map(|byte| if *byte == 0 { 1 } else { 4 }).sum();
    Gas(21_000 + 10 * tokens)
}

/// Transfers that went out and blocks that came in.
#[derive(Debug, Default)]
pub(crate) struct Proofs {
    sent: Mutex<Sent>,
    blocks: Mutex<VecDeque<Header>>,
}

#[derive(Debug, Default)]
struct Sent {
    transfers: HashMap<B256, Transfer>,
    /// Oldest first; some may be gone already.
    order: VecDeque<B256>,
}

/// A block whose receipts can be written down, and perhaps have its root.
pub(crate) struct Claim {
    header: Header,
    /// In the block's order, with the gas each uses.
    transfers: Vec<(Transfer, Gas)>,
}

impl Proofs {
    /// Remembers what goes out.
    pub(crate) fn going_out(&self, attempts: &[&StoredAttempt]) {
        let mut sent = lock(&self.sent);
        for attempt in attempts {
            let Some(transfer) = Transfer::of(attempt) else { continue };
            if sent.transfers.insert(attempt.hash, transfer).is_none() {
                sent.order.push_back(attempt.hash);
            }
        }
        while sent.order.len() > MOST_SENT {
            let oldest = sent.order.pop_front();
            oldest.and_then(|hash| sent.transfers.remove(&hash));
        }
    }

    /// Remembers what a block says of its receipts.
    pub(crate) fn came_in(&self, header: Header) {
        let mut blocks = lock(&self.blocks);
        if blocks.iter().any(|known| known.this.hash == header.this.hash) {
            return;
        }
        blocks.push_back(header);
        while blocks.len() > MOST_BLOCKS {
            blocks.pop_front();
        }
    }

    /// What can be claimed of a block, if all of it went out from here and its gas fits. Cheap; the proof is not.
    pub(crate) fn claim(&self, block: B256) -> Option<Claim> {
        let header = lock(&self.blocks).iter().find(|known| known.this.hash == block)?.clone();
        let sent = lock(&self.sent);
        let known = header.transactions.iter().map(|hash| sent.transfers.get(hash).copied());
        let transfers: Vec<Transfer> = known.collect::<Option<_>>()?;
        drop(sent);
        let by = |gas: fn(&Transfer) -> Gas| {
            let used: u64 = transfers.iter().map(|transfer| gas(transfer).0).sum();
            (used == header.gas_used.0).then(|| transfers.iter().map(|t| (*t, gas(t))).collect())
        };
        let transfers = by(|transfer| transfer.floored).or_else(|| by(|transfer| transfer.gas))?;
        Some(Claim { header, transfers })
    }

    /// Transfers whose receipts are known need not be remembered. If their block vanishes, they go out again.
    pub(crate) fn forget(&self, receipts: &[Receipt]) {
        let mut sent = lock(&self.sent);
        for receipt in receipts {
            sent.transfers.remove(&receipt.hash);
        }
    }
}

impl Claim {
    /// The block's receipts, if its root says so.
    pub(crate) fn prove(self) -> Option<Vec<Receipt>> {
        let mut cumulative_gas_used = 0;
        let written: Vec<ReceiptEnvelope<Log>> = self
            .transfers
            .iter()
            .map(|(transfer, gas)| {
                cumulative_gas_used += gas.0;
                let status = Eip658Value::success();
                let receipt = PlainReceipt { status, cumulative_gas_used, logs: Vec::new() };
                ReceiptEnvelope::from_typed(transfer.kind, ReceiptWithBloom::new(receipt, Bloom::ZERO))
            })
            .collect();
        if calculate_receipt_root(&written) != self.header.receipts_root {
            return None;
        }
        let (block, base_fee) = (self.header.this, self.header.base_fee);
        let receipt = |(hash, (transfer, gas)): (B256, (Transfer, Gas))| Receipt {
            hash,
            block,
            succeeded: true,
            gas_used: gas,
            effective_gas_price: paid(transfer.fees, base_fee),
            contract_address: None,
        };
        Some(self.header.transactions.into_iter().zip(self.transfers).map(receipt).collect())
    }
}

fn paid(fees: Fees, base_fee: Option<GasPrice>) -> GasPrice {
    match fees {
        Fees::Legacy { gas_price } => gas_price,
        Fees::Dynamic { max_fee_per_gas, max_priority_fee_per_gas } => {
            let base = base_fee.map_or(0, |fee| fee.0);
            GasPrice(max_fee_per_gas.0.min(base.saturating_add(max_priority_fee_per_gas.0)))
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
