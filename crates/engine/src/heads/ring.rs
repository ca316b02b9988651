//! The last blocks of one chain, linked by parent hash. Pure: the tracker puts blocks in, everybody else reads.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use alloy_primitives::B256;
use gapless_core::ports::chain::{Block, BlockRef};

/// Blocks kept. A reorg deeper than this is answered by asking the chain.
pub(super) const KEPT: usize = 256;

struct Kept {
    block: Block,
    transactions: HashSet<B256>,
}

/// The last blocks of the canonical chain, as this process sees it.
#[derive(Clone, Default)]
pub struct Ring {
    blocks: BTreeMap<u64, Arc<Kept>>,
}

/// How one view of the chain differs from an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The head before; none if this is the first view.
    pub was: Option<BlockRef>,
    /// The head now.
    pub now: BlockRef,
    /// The highest block that stands in both; none if no kept block does.
    pub ancestor: Option<BlockRef>,
}

impl Change {
    /// How many blocks are gone: none if the chain only grew. Unknown if the views share no kept block.
    #[must_use]
    pub fn depth(&self) -> Option<u64> {
        match (self.was, self.ancestor) {
            (None, _) => Some(0),
            (Some(was), Some(ancestor)) => Some(was.number - ancestor.number),
            (Some(_), None) => None,
        }
    }
}

impl Ring {
    /// The head, if any block was seen.
    #[must_use]
    pub fn head(&self) -> Option<&Block> {
        self.blocks.last_key_value().map(|(_, kept)| &kept.block)
    }

    /// The lowest block that is kept.
    #[must_use]
    pub fn lowest(&self) -> Option<&Block> {
        self.blocks.first_key_value().map(|(_, kept)| &kept.block)
    }

    /// Hash of the canonical block at a height, if it is kept.
    #[must_use]
    pub fn hash_at(&self, number: u64) -> Option<B256> {
        self.blocks.get(&number).map(|kept| kept.block.this.hash)
    }

    /// The kept block that holds a transaction, among those above `above`.
    #[must_use]
    pub fn holds(&self, transaction: B256, above: u64) -> Option<BlockRef> {
        let mut later = self.blocks.range(above.saturating_add(1)..).map(|(_, kept)| kept);
        later.find(|kept| kept.transactions.contains(&transaction)).map(|kept| kept.block.this)
    }

    /// How many transactions a kept block has.
    #[must_use]
    pub fn size_at(&self, number: u64) -> Option<usize> {
        self.blocks.get(&number).map(|kept| kept.block.transactions.len())
    }

    /// The kept blocks above a height, lowest first. They begin right above it unless that lies below the ring.
    #[must_use]
    pub fn blocks_after(&self, number: u64) -> Vec<BlockRef> {
        self.blocks.range(number.saturating_add(1)..).map(|(_, kept)| kept.block.this).collect()
    }

    /// How this view differs from one that its holder acted on before, however many changes lie between; none if the
    /// head is the same.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Change> {
        let now = self.head()?.this;
        let was = earlier.head().map(|head| head.this);
        (was != Some(now)).then(|| Change { was, now, ancestor: self.common(earlier) })
    }

    fn common(&self, other: &Self) -> Option<BlockRef> {
        let mut down = self.blocks.values().rev().map(|kept| kept.block.this);
        down.find(|block| other.hash_at(block.number) == Some(block.hash))
    }

    /// The ring with `branch` (oldest first, linked) put where it belongs; everything above it goes, and below it what
    /// it does not stand on.
    pub(super) fn with(&self, branch: Vec<Block>) -> Self {
        let Some(first) = branch.first() else { return self.clone() };
        let number = first.this.number;
        let stands_on_us = number > 0 && self.hash_at(number - 1) == Some(first.parent);
        let mut blocks = if stands_on_us { self.blocks.clone() } else { BTreeMap::new() };
        blocks.split_off(&number);
        for block in branch {
            let transactions = block.transactions.iter().copied().collect();
            blocks.insert(block.this.number, Arc::new(Kept { block, transactions }));
        }
        while blocks.len() > KEPT {
            blocks.pop_first();
        }
        Self { blocks }
    }
}

#[cfg(test)]
mod tests {
    use gapless_core::fees::{Gas, GasPrice};

    use super::*;

    fn hash(number: u64, fork: u8) -> B256 {
        let mut hash = B256::repeat_byte(fork);
        hash.0[..8].copy_from_slice(&number.to_be_bytes());
        hash
    }

    /// Blocks `from..=to` of a fork that leaves fork 0 above `from - 1`.
    fn branch(fork: u8, from: u64, to: u64) -> Vec<Block> {
        let block = |number: u64| Block {
            this: BlockRef { number, hash: hash(number, fork) },
            parent: if number == from { hash(number.wrapping_sub(1), 0) } else { hash(number - 1, fork) },
            base_fee: Some(GasPrice(u128::from(number))),
            gas_limit: Gas(1),
            transactions: vec![hash(number, 0xff)],
        };
        (from..=to).map(block).collect()
    }

    fn at(number: u64, fork: u8) -> BlockRef {
        BlockRef { number, hash: hash(number, fork) }
    }

    #[test]
    fn a_chain_that_grows_took_nothing_back() {
        let short = Ring::default().with(branch(0, 0, 5));
        let long = short.with(branch(0, 6, 7));
        let change = long.since(&short).unwrap();
        assert_eq!(change, Change { was: Some(at(5, 0)), now: at(7, 0), ancestor: Some(at(5, 0)) });
        assert_eq!(change.depth(), Some(0));
        assert_eq!(long.since(&long), None);
        assert_eq!(short.since(&Ring::default()).unwrap().depth(), Some(0));
        assert_eq!(Ring::default().since(&short), None);
        assert_eq!(long.head().unwrap().base_fee, Some(GasPrice(7)));
    }

    #[test]
    fn changes_that_nobody_looked_at_add_up() {
        let first = Ring::default().with(branch(0, 0, 9));
        let second = first.with(branch(1, 8, 10));
        let third = second.with(branch(2, 5, 11));
        assert_eq!(second.since(&first).unwrap().depth(), Some(2));
        let change = third.since(&first).unwrap();
        assert_eq!((change.ancestor, change.depth()), (Some(at(4, 0)), Some(5)));
        assert_eq!(third.since(&second).unwrap().depth(), Some(6));
    }

    #[test]
    fn blocks_after_a_height_come_in_order_and_belong_to_this_chain() {
        let ring = Ring::default().with(branch(0, 0, 9)).with(branch(1, 8, 10));
        assert_eq!(ring.blocks_after(6), [at(7, 0), at(8, 1), at(9, 1), at(10, 1)]);
        assert_eq!(ring.blocks_after(10), []);
        assert_eq!(ring.blocks_after(u64::MAX), []);
        assert_eq!(ring.holds(hash(9, 0xff), 8), Some(at(9, 1)));
    }

    #[test]
    fn what_a_branch_does_not_stand_on_is_not_kept_below_it() {
        let ring = Ring::default().with(branch(0, 0, 9));
        let mut far = branch(1, 20, 25);
        far[0].parent = hash(19, 1);
        let jumped = ring.with(far.clone());
        assert_eq!(jumped.lowest().unwrap().this, at(20, 1));
        assert_eq!(jumped.since(&ring).unwrap().depth(), None);
        let mut unlinked = branch(1, 5, 12);
        unlinked[0].parent = hash(4, 1);
        assert_eq!(ring.with(unlinked).hash_at(4), None);
    }

    #[test]
    fn a_ring_is_bounded() {
        let many = KEPT as u64 + 10;
        let ring = Ring::default().with(branch(0, 0, many));
        assert_eq!(ring.blocks_after(0).len(), KEPT);
        assert_eq!(ring.lowest().unwrap().this.number, 11);
    }
}
