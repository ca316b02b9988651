//! The chain. Contract: *not found* is an answer, an error is an error; sending stored bytes again is
//! harmless; a time-out means *possibly sent*.

use alloy_primitives::{Address, B256, Bytes};
use async_trait::async_trait;
use thiserror::Error;

use crate::attempt::StoredAttempt;
use crate::fees::{Fees, Gas, GasPrice, Wei};
use crate::ids::Nonce;
use crate::intent::{Options, Payload};
use crate::named::named_enum;
use crate::outcome::SendOutcome;
use crate::submitter::{ChainId, SubmitterId};
use crate::text::NodeText;

/// A block by height and hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockRef {
    /// Height.
    pub number: u64,
    /// Hash.
    pub hash: B256,
}

/// A block with what the tracker needs of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Itself.
    pub this: BlockRef,
    /// Its parent's hash.
    pub parent: B256,
    /// Base fee, where the chain has one.
    pub base_fee: Option<GasPrice>,
    /// Gas it may hold.
    pub gas_limit: Gas,
    /// Transactions in it.
    pub transactions: Vec<B256>,
}

/// An account's counts, read with the head in one batch from one endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// The head they were read at.
    pub at: BlockRef,
    /// In the chain.
    pub latest: Nonce,
    /// With what the node would mine next.
    pub pending: Nonce,
}

/// A receipt, as found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Transaction.
    pub hash: B256,
    /// Block.
    pub block: BlockRef,
    /// Whether it succeeded.
    pub succeeded: bool,
    /// Gas used.
    pub gas_used: Gas,
    /// Price paid.
    pub effective_gas_price: GasPrice,
    /// Contract created.
    pub contract_address: Option<alloy_primitives::Address>,
}

/// Outcome of a gas estimate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Estimate {
    /// It would run with this much.
    Gas(Gas),
    /// The account cannot pay for it at this head.
    Unaffordable {
        /// The endpoint's words.
        reason: NodeText,
    },
    /// It would revert, at this head.
    Reverts {
        /// Decoded reason.
        reason: NodeText,
        /// The head it was tried on.
        at: BlockRef,
    },
}

/// Why the chain could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChainError {
    /// No endpoint answers; try later.
    #[error("no endpoint answers: {0}")]
    Unavailable(NodeText),
    /// The endpoint does not keep this history.
    #[error("the history asked for is pruned: {0}")]
    Pruned(NodeText),
}

/// Short for results of this port.
pub type ChainResult<T> = Result<T, ChainError>;

/// A sender and nonce found in a block body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    /// The transaction with this sender and nonce; none if the block holds none.
    pub hash: Option<B256>,
    /// The lowest and the highest nonce of this sender in the block; none if it holds none. Counts at the block and at its
    /// parent that do not enclose them are false.
    pub span: Option<(Nonce, Nonce)>,
}

named_enum! {
    /// A name the chain has for a block that it will not, or hardly, take back.
    pub enum Tag {
        /// Unlikely to go.
        Safe = "safe",
        /// Never to go.
        Finalized = "finalized",
    }
}

/// What signed bytes carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// What would happen.
    pub payload: Payload,
    /// With at most so much gas.
    pub gas_limit: Gas,
}

/// Signed bytes that somebody else made, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Their hash.
    pub hash: B256,
    /// The chain they are for; none if they do not say so.
    pub chain: Option<ChainId>,
    /// Who signed them; none if the signature is nobody's.
    pub sender: Option<Address>,
    /// For which slot.
    pub nonce: Nonce,
    /// What they carry.
    pub contents: Contents,
    /// What they pay.
    pub fees: Fees,
}

/// The chain.
#[async_trait]
pub trait Chain: Send + Sync {
    /// Broadcasts stored bytes on their route; one outcome each, in order.
    async fn send(&self, attempts: &[&StoredAttempt]) -> Vec<SendOutcome>;

    /// Receipts by hash; `None` is *not found*.
    async fn receipts(&self, hashes: &[B256]) -> ChainResult<Vec<Option<Receipt>>>;

    /// All receipts of a block, as far as that is certain without asking anybody for them.
    async fn proven_receipts(&self, block: B256) -> Option<Vec<Receipt>> {
        let _ = block;
        None
    }

    /// All receipts of a block; `None` where nobody gives them like that, or holds that block.
    async fn block_receipts(&self, block: B256) -> ChainResult<Option<Vec<Receipt>>> {
        let _ = block;
        Ok(None)
    }

    /// The head.
    async fn head(&self) -> ChainResult<Block>;

    /// A canonical block by height.
    async fn block_at(&self, number: u64) -> ChainResult<Option<Block>>;

    /// A block by hash, canonical or not.
    async fn block_by_hash(&self, hash: B256) -> ChainResult<Option<Block>>;

    /// An account's counts at the head.
    async fn counts(&self, account: &SubmitterId) -> ChainResult<Counts>;

    /// The same of every endpoint that answers, where there are several; at least one did.
    async fn counts_of_all(&self, account: &SubmitterId) -> ChainResult<Vec<Counts>> {
        Ok(vec![self.counts(account).await?])
    }

    /// An account's count at a block, by hash.
    async fn count_at(&self, account: &SubmitterId, block: B256) -> ChainResult<Nonce>;

    /// Looks in a block's body for a sender and nonce.
    async fn sighting(&self, account: &SubmitterId, nonce: Nonce, block: B256) -> ChainResult<Sighting>;

    /// Balance at the head.
    async fn balance(&self, account: &SubmitterId) -> ChainResult<Wei>;

    /// Estimates gas on the pending state.
    async fn estimate(&self, account: &SubmitterId, payload: &Payload) -> ChainResult<Estimate>;

    /// Estimates gas for several payloads, each by itself on the pending state; one answer each, in order.
    async fn estimates(&self, account: &SubmitterId, payloads: &[&Payload]) -> Vec<ChainResult<Estimate>> {
        let mut answers = Vec::with_capacity(payloads.len());
        for payload in payloads {
            answers.push(self.estimate(account, payload).await);
        }
        answers
    }

    /// Quotes fees from the market, for these wishes. Caps are the caller's business.
    async fn quote(&self, options: &Options) -> ChainResult<Quote>;

    /// The block a tag names now; none where the chain has no such tag.
    async fn tagged(&self, _tag: Tag) -> ChainResult<Option<BlockRef>> {
        Ok(None)
    }

    /// Which of these transactions some endpoint holds in its pool or chain.
    async fn pooled(&self, hashes: &[B256]) -> ChainResult<Vec<bool>>;

    /// What signed bytes carry; none if they cannot be read. Asks nobody.
    fn contents(&self, raw: &Bytes) -> Option<Contents>;

    /// Everything signed bytes say; none if they cannot be read, or this chain takes none from outside. Asks nobody.
    fn opened(&self, _raw: &Bytes) -> Option<Opened> {
        None
    }

    /// Waits for a hint that there is a new head. Where nobody gives hints it waits for ever; heads are polled anyway.
    async fn head_hint(&self) {
        std::future::pending().await
    }

    /// Hash of block 0: a chain that restarted under the same id has another.
    async fn genesis(&self) -> ChainResult<B256>;

    /// How the endpoints are doing, for readiness and doctor. Asks nobody.
    fn endpoints(&self) -> Vec<EndpointStatus>;
}

/// What the market asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quote {
    /// Fees that should be mined soon.
    pub fees: Fees,
    /// Base fee of the head, where the chain has one.
    pub base_fee: Option<GasPrice>,
}

/// One endpoint as seen from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointStatus {
    /// Its address without credentials.
    pub name: String,
    /// Whether it is used for reads now.
    pub healthy: bool,
    /// Why not, or its head.
    pub detail: String,
}

/// What a signer is asked to sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsigned {
    /// Sender.
    pub submitter: SubmitterId,
    /// Slot.
    pub nonce: Nonce,
    /// What.
    pub payload: Payload,
    /// Gas limit, decided.
    pub gas_limit: Gas,
    /// Fees, decided.
    pub fees: Fees,
}

/// Signed bytes and their hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// Hash.
    pub hash: B256,
    /// Bytes.
    pub raw: Bytes,
}
