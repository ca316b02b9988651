//! Mined, by all we know, and yet no receipt that can be believed: a block names it and nobody has its receipt, or the receipt
//! names a block that is not in our chain. Nothing follows from that (a slot is consumed by a receipt in a canonical block and
//! by nothing else), but it is a reason to wait, and not that no pool holds it.

use std::collections::HashMap;

use alloy_primitives::B256;
use gapless_core::change::TxWrite;
use gapless_core::ids::Nonce;
use gapless_core::ports::chain::BlockRef;
use gapless_core::text::NodeText;
use gapless_core::wait::WaitReason;

use super::memory::Memory;
use super::{Lane, Stop};

/// What came of asking for receipts, where that was none to be believed. In words; none if nobody knows of the transaction.
#[derive(Default)]
pub(super) struct Unread(HashMap<B256, Option<String>>);

impl Unread {
    /// Not mined, as far as anybody says.
    pub(super) fn unheard_of(&mut self, hash: B256) {
        self.0.insert(hash, None);
    }

    /// In a block, and nobody has its receipt.
    pub(super) fn missing(&mut self, hash: B256, block: BlockRef) {
        let words = format!("block {} holds it, and no endpoint has its receipt", block.number);
        self.0.insert(hash, Some(words));
    }

    /// Its receipt names a block that is not in our chain, or of which nothing is known yet.
    pub(super) fn elsewhere(&mut self, hash: B256, block: BlockRef, known: bool) {
        let why = if known { "is not in the chain" } else { "nobody has shown yet" };
        self.0.insert(
            hash,
            Some(format!("its receipt names block {} {}, which {why}", block.number, block.hash)),
        );
    }
}

impl Lane {
    /// Says so, if it has been so for longer than lag explains.
    pub(super) async fn note_unread(&self, memory: &mut Memory, unread: &Unread) -> Result<(), Stop> {
        let now = self.tick();
        let slots: Vec<(Nonce, Vec<B256>)> = memory
            .open()
            .map(|(nonce, attempts)| (nonce, attempts.iter().map(|attempt| attempt.hash).collect()))
            .collect();
        for (nonce, hashes) in slots {
            let asked: Vec<_> = hashes.iter().filter_map(|hash| unread.0.get(hash)).collect();
            if asked.is_empty() {
                continue;
            }
            let words = asked.iter().find_map(|words| words.as_ref());
            let notes = memory.notes(nonce);
            notes.unread_since = words.map(|_| notes.unread_since.unwrap_or(now));
            let long =
                notes.unread_since.is_some_and(|at| now.since(at) >= self.submitter.settings.reconcile);
            let stale = self.submitter.settings.stale_receipts;
            if notes.unread_since.is_some_and(|at| now.since(at) >= stale) && !notes.missed {
                notes.missed = true;
                self.missed_receipt(nonce);
            }
            let Some(tx) = memory.tx_of_current(nonce).filter(|tx| tx.facts.state.is_bound()) else {
                continue;
            };
            // Nothing else holds back what is bound.
            let said = matches!(tx.facts.wait, Some(WaitReason::Held { .. }));
            let wait = match words {
                Some(words) if long && !said => Some(WaitReason::Held { reason: NodeText::new(words) }),
                None if said => None,
                _ => continue,
            };
            let write = TxWrite::new(tx.tx_id(), &tx.facts, &[], vec![], |facts| facts.wait = wait);
            self.write_one(memory, write).await?;
        }
        Ok(())
    }
}
