//! Confirmations as they grow, for whoever wants every one of them told.
//!
//! They belong to blocks and are counted, not stored. A consumer rebuilds the list from the events alone: `newFork` replaces
//! what it has, anything else is appended. The first notice after a load is always a full one, for what was told before may
//! have been told by another process.

use gapless_core::change::TxWrite;
use gapless_core::event::{EventKind, Told};
use gapless_core::ids::TxId;
use gapless_core::ports::chain::BlockRef;
use gapless_core::record::TxRecord;
use gapless_core::wait::WaitReason;
use serde_json::{Value, json};

use super::memory::Memory;
use super::{Lane, Stop};
use crate::heads::Ring;

impl Lane {
    /// Tells each transaction's confirmations, if they have changed and somebody wants to know.
    pub(super) async fn tell_confirmations(&self, memory: &mut Memory, ring: &Ring) -> Result<(), Stop> {
        let required = self.submitter.settings.confirmations;
        if !self.submitter.settings.tell_confirmations || required == 0 {
            return Ok(());
        }
        let mut draft = self.draft(memory)?;
        let mut lists: Vec<(TxId, Vec<BlockRef>)> = Vec::new();
        for tx in memory.txs.values().filter(|tx| tx.facts.state.is_bound()) {
            let Some(list) = confirming(tx, ring, required) else { continue };
            let Some(notice) = notice(memory.told_blocks.get(&tx.tx_id()), &list, required) else { continue };
            let told = vec![Told::with(EventKind::TxConfirmations, notice)];
            let count = list.len() as u64;
            let write = TxWrite::new(tx.tx_id(), &tx.facts, &[], told, |facts| {
                facts.wait = Some(WaitReason::Confirming { count, required });
            });
            draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
            lists.push((tx.tx_id(), list));
        }
        if lists.is_empty() {
            return Ok(());
        }
        self.commit(memory, draft).await?;
        memory.told_blocks.extend(lists);
        Ok(())
    }
}

/// The blocks that confirm a mined transaction, as many as it needs; none if its block does not stand in the ring.
fn confirming(tx: &TxRecord, ring: &Ring, required: u64) -> Option<Vec<BlockRef>> {
    let mined = tx.facts.mined?;
    if ring.hash_at(mined.block_number) != Some(mined.block_hash) {
        return None;
    }
    let head = ring.head()?.this.number;
    let last = mined.block_number.saturating_add(required).min(head);
    let block = |number| ring.hash_at(number).map(|hash| BlockRef { number, hash });
    (mined.block_number + 1..=last).map(block).collect()
}

/// What to tell after a list was told: all of it if its beginning changed, else what was added; nothing if nothing was.
fn notice(told: Option<&Vec<BlockRef>>, list: &[BlockRef], required: u64) -> Option<Value> {
    let shown = |blocks: &[BlockRef]| -> Vec<Value> {
        blocks.iter().map(|block| json!({"number": block.number, "hash": block.hash})).collect()
    };
    let (new_fork, blocks) = match told {
        Some(told) if list.starts_with(told) && list.len() == told.len() => return None,
        Some(told) if list.starts_with(told) => (false, shown(&list[told.len()..])),
        None if list.is_empty() => return None,
        _ => (true, shown(list)),
    };
    Some(json!({"newFork": new_fork, "blocks": blocks, "count": list.len(), "required": required}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::B256;

    fn blocks(hashes: &[u8]) -> Vec<BlockRef> {
        let numbered = hashes.iter().enumerate();
        numbered.map(|(i, hash)| BlockRef { number: i as u64, hash: B256::repeat_byte(*hash) }).collect()
    }

    #[test]
    fn a_changed_beginning_tells_all_and_growth_tells_the_rest() {
        let told = |before: Option<&[u8]>, after: &[u8]| {
            let notice = notice(before.map(blocks).as_ref(), &blocks(after), 5)?;
            Some((notice["newFork"].as_bool()?, notice["blocks"].as_array()?.len()))
        };
        assert_eq!(told(None, &[]), None);
        assert_eq!(told(None, &[1, 2]), Some((true, 2)));
        assert_eq!(told(Some(&[1, 2]), &[1, 2]), None);
        assert_eq!(told(Some(&[1, 2]), &[1, 2, 3, 4]), Some((false, 2)));
        assert_eq!(told(Some(&[1, 2]), &[1, 9, 3]), Some((true, 3)));
        assert_eq!(told(Some(&[1, 2]), &[1]), Some((true, 1)), "a shorter list is another list");
    }
}
