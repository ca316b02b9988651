//! A chain: accounts with counts, a pool ordered by nonce, blocks linked by parent hash, forks. Plain state; what
//! travels to it and what gets lost on the way is the [`crate::wire`]'s business.
//!
//! Everything read from it is read at one head, so an answer is never a mixture of two views.

mod port;

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256, Bytes, keccak256};
use gapless_core::fees::{Gas, GasPrice};
use gapless_core::ids::Nonce;
use gapless_core::outcome::SendOutcome;
use gapless_core::ports::chain::{Block, BlockRef, Counts, Receipt, Sighting, Signed, Unsigned};
use gapless_core::text::NodeText;
use serde::{Deserialize, Serialize};

pub(crate) use port::NodeChain;

use crate::dice::Dice;

/// A transaction's bytes are these, as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Body {
    from: Address,
    to: Option<Address>,
    nonce: u64,
    mark: Bytes,
    price: u128,
}

/// A transaction as pools and blocks hold it.
#[derive(Debug, Clone)]
pub(crate) struct SimTx {
    pub(crate) hash: B256,
    pub(crate) from: Address,
    pub(crate) nonce: u64,
    to: Option<Address>,
    /// What it does: calldata that names its request; nothing for a placeholder.
    pub(crate) mark: Bytes,
    price: u128,
}

impl SimTx {
    pub(crate) fn decode(raw: &[u8]) -> Option<Self> {
        let Body { from, to, nonce, mark, price } = serde_json::from_slice(raw).ok()?;
        Some(Self { hash: keccak256(raw), from, to, nonce, mark, price })
    }

    /// Signed bytes; none for what this chain cannot hold.
    pub(crate) fn sign(unsigned: &Unsigned) -> Option<Signed> {
        let body = Body {
            from: unsigned.submitter.address()?,
            to: unsigned.payload.to,
            nonce: unsigned.nonce.0,
            mark: unsigned.payload.data.clone(),
            price: unsigned.fees.ceiling().0,
        };
        let raw = serde_json::to_vec(&body).ok()?;
        Some(Signed { hash: keccak256(&raw), raw: raw.into() })
    }
}

#[derive(Debug)]
struct SimBlock {
    this: BlockRef,
    parent: B256,
    txs: Vec<SimTx>,
    /// Counts after it.
    counts: BTreeMap<Address, u64>,
}

/// Where a transaction stands on the canonical chain.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub(crate) tx: SimTx,
    pub(crate) block: BlockRef,
}

pub(crate) struct SimChain {
    blocks: BTreeMap<B256, SimBlock>,
    head: B256,
    /// The head before the last change: what a backend that lags still shows.
    previous: B256,
    pool: BTreeMap<(Address, u64), SimTx>,
    drawn: u64,
}

/// Which head a read is answered at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Current,
    Previous,
}

impl SimChain {
    pub(crate) fn new() -> Self {
        let this = BlockRef { number: 0, hash: keccak256(b"genesis") };
        let genesis = SimBlock { this, parent: B256::ZERO, txs: Vec::new(), counts: BTreeMap::new() };
        let blocks = BTreeMap::from([(this.hash, genesis)]);
        Self { blocks, head: this.hash, previous: this.hash, pool: BTreeMap::new(), drawn: 0 }
    }

    fn at(&self, view: View) -> B256 {
        match view {
            View::Current => self.head,
            View::Previous => self.previous,
        }
    }

    /// From a head down to block 0.
    fn line(&self, from: B256) -> impl Iterator<Item = &SimBlock> {
        std::iter::successors(self.blocks.get(&from), |block| self.blocks.get(&block.parent))
    }

    fn count(&self, head: B256, account: Address) -> u64 {
        self.blocks.get(&head).and_then(|block| block.counts.get(&account)).copied().unwrap_or(0)
    }

    pub(crate) fn head(&self) -> BlockRef {
        self.line(self.head).next().map_or(BlockRef { number: 0, hash: self.head }, |block| block.this)
    }

    /// Every transaction of the canonical chain, newest block first.
    pub(crate) fn canonical(&self) -> impl Iterator<Item = Placed> + '_ {
        self.line(self.head)
            .flat_map(|block| block.txs.iter().map(|tx| Placed { tx: tx.clone(), block: block.this }))
    }

    /// A transaction comes to the pool.
    pub(crate) fn offer(&mut self, raw: &[u8]) -> SendOutcome {
        let Some(tx) = SimTx::decode(raw) else {
            return SendOutcome::Invalid(NodeText::new("not a transaction"));
        };
        if tx.nonce < self.count(self.head, tx.from) {
            return SendOutcome::NonceTooLow;
        }
        match self.pool.get(&(tx.from, tx.nonce)) {
            Some(held) if held.hash == tx.hash => SendOutcome::AlreadyKnown,
            Some(held) if tx.price < held.price + held.price / 10 => SendOutcome::ReplacementUnderpriced,
            _ => {
                self.pool.insert((tx.from, tx.nonce), tx);
                SendOutcome::Accepted
            }
        }
    }

    /// The pool forgets one transaction, any.
    pub(crate) fn forget_one(&mut self, dice: &Dice) -> Option<SimTx> {
        if self.pool.is_empty() {
            return None;
        }
        let key = *self.pool.keys().nth(dice.index(self.pool.len()))?;
        self.pool.remove(&key)
    }

    /// A block on the head: of each account what comes next, as far as the dice let it.
    pub(crate) fn mine(&mut self, dice: &Dice) -> BlockRef {
        self.previous = self.head;
        self.mine_on(self.head, dice)
    }

    fn mine_on(&mut self, parent: B256, dice: &Dice) -> BlockRef {
        let (number, mut counts) = match self.blocks.get(&parent) {
            Some(block) => (block.this.number + 1, block.counts.clone()),
            None => (0, BTreeMap::new()),
        };
        let mut txs = Vec::new();
        for (key, tx) in &self.pool {
            let count = counts.entry(tx.from).or_insert(0);
            if key.1 == *count && dice.chance(800) {
                *count += 1;
                txs.push(tx.clone());
            }
        }
        self.pool.retain(|(from, nonce), _| counts.get(from).is_none_or(|count| nonce >= count));
        self.drawn += 1;
        let hash = keccak256(format!("block {number} after {parent}, the {}th", self.drawn));
        let this = BlockRef { number, hash };
        self.blocks.insert(hash, SimBlock { this, parent, txs, counts });
        self.head = hash;
        this
    }

    /// Replaces the last blocks by others. What stood in them goes back to the pool, unless it is lost on the way.
    pub(crate) fn reorg(
        &mut self,
        depth: usize,
        dice: &Dice,
        lost_per_mille: u64,
    ) -> Option<(BlockRef, BlockRef)> {
        let gone: Vec<_> =
            self.line(self.head).take(depth).map(|b| (b.this, b.parent, b.txs.clone())).collect();
        let (head, (lowest, mut parent, _)) = (gone.first()?.0, gone.last()?.clone());
        if gone.len() < depth || lowest.number == 0 {
            return None;
        }
        for tx in gone.into_iter().rev().flat_map(|(_, _, txs)| txs) {
            if !dice.chance(lost_per_mille) {
                self.pool.entry((tx.from, tx.nonce)).or_insert(tx);
            }
        }
        self.previous = head.hash;
        for _ in 0..depth {
            parent = self.mine_on(parent, dice).hash;
        }
        Some((head, self.head()))
    }

    fn shown(&self, block: &SimBlock) -> Block {
        Block {
            this: block.this,
            parent: block.parent,
            base_fee: Some(base_fee(block.this.number)),
            gas_limit: Gas(30_000_000),
            transactions: block.txs.iter().map(|tx| tx.hash).collect(),
        }
    }

    fn block_at(&self, view: View, number: u64) -> Option<Block> {
        self.line(self.at(view)).find(|block| block.this.number == number).map(|block| self.shown(block))
    }

    fn head_at(&self, view: View) -> Option<Block> {
        self.line(self.at(view)).next().map(|block| self.shown(block))
    }

    fn by_hash(&self, hash: B256) -> Option<Block> {
        self.blocks.get(&hash).map(|block| self.shown(block))
    }

    fn receipt(&self, view: View, hash: B256) -> Option<Receipt> {
        let block = self.line(self.at(view)).find(|block| block.txs.iter().any(|tx| tx.hash == hash))?;
        Some(Receipt {
            hash,
            block: block.this,
            succeeded: true,
            gas_used: Gas(21_000),
            effective_gas_price: base_fee(block.this.number),
            contract_address: None,
        })
    }

    /// Whether a transaction is in the pool or in the chain.
    fn knows(&self, view: View, hash: B256) -> bool {
        self.pool.values().any(|tx| tx.hash == hash) || self.receipt(view, hash).is_some()
    }

    fn counts(&self, view: View, account: Address) -> Option<Counts> {
        let head = self.line(self.at(view)).next()?;
        let latest = self.count(head.this.hash, account);
        let pending = (latest..).find(|nonce| !self.pool.contains_key(&(account, *nonce))).unwrap_or(latest);
        Some(Counts { at: head.this, latest: Nonce(latest), pending: Nonce(pending) })
    }

    /// None for a block this chain never had.
    fn count_at(&self, account: Address, block: B256) -> Option<Nonce> {
        self.blocks.contains_key(&block).then(|| Nonce(self.count(block, account)))
    }

    fn sighting(&self, account: Address, nonce: Nonce, block: B256) -> Sighting {
        let ours =
            || self.blocks.get(&block).into_iter().flat_map(|b| &b.txs).filter(|tx| tx.from == account);
        let hash = ours().find(|tx| tx.nonce == nonce.0).map(|tx| tx.hash);
        let used = || ours().map(|tx| Nonce(tx.nonce));
        Sighting { hash, span: used().min().zip(used().max()) }
    }
}

/// Prices move with the height, so that signing again at another head gives other bytes.
fn base_fee(number: u64) -> GasPrice {
    GasPrice(1_000_000_000 + u128::from(number % 7) * 50_000_000)
}
