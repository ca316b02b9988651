//! The Chain and Signer ports of one node: every call goes over the wire.

use alloy_primitives::{Address, B256, Bytes};
use async_trait::async_trait;
use gapless_core::attempt::StoredAttempt;
use gapless_core::fees::{Fees, GasPrice, Wei};
use gapless_core::ids::Nonce;
use gapless_core::intent::{Options, Payload};
use gapless_core::intrinsic;
use gapless_core::outcome::SendOutcome;
use gapless_core::ports::chain::{
    Block, Chain, ChainError, ChainResult, Contents, Counts, EndpointStatus, Estimate, Quote, Receipt,
    Sighting, Signed, Unsigned,
};
use gapless_core::ports::signer::{SignError, Signer};
use gapless_core::submitter::SubmitterId;
use gapless_core::text::NodeText;

use super::{SimChain, SimTx, View, base_fee};
use crate::wire::{Lost, Wire};

/// The chain and the signer as one node reaches them.
pub(crate) struct NodeChain(pub(crate) Wire);

fn unavailable(words: &str) -> ChainError {
    ChainError::Unavailable(NodeText::new(words))
}

fn address(account: &SubmitterId) -> ChainResult<Address> {
    account.address().ok_or_else(|| unavailable("not an account of this chain"))
}

impl NodeChain {
    /// Reads at one head: the present one, or the one before if a backend lags.
    async fn read<T: Send + 'static>(
        &self,
        what: &'static str,
        read: impl FnOnce(&SimChain, View) -> T + Send + 'static,
    ) -> ChainResult<T> {
        let world = self.0.world.clone();
        let effect = async move {
            let stale = world.goes_wrong(world.scenario.rates.stale);
            let view = if stale { View::Previous } else { View::Current };
            (read(&world.chain(), view), stale)
        };
        match self.0.ask(what, effect).await {
            Ok((answer, stale)) => {
                if stale {
                    self.0.note(what, "answered at the previous head");
                }
                Ok(answer)
            }
            Err(Lost::NotSent) => Err(unavailable("connection refused")),
            Err(Lost::Unknown) => Err(unavailable("time-out")),
        }
    }
}

#[async_trait]
impl Chain for NodeChain {
    async fn send(&self, attempts: &[&StoredAttempt]) -> Vec<SendOutcome> {
        let raws: Vec<_> = attempts.iter().map(|attempt| attempt.raw.clone()).collect();
        let (world, node) = (self.0.world.clone(), self.0.node.clone());
        let effect = async move {
            let mut outcomes = Vec::with_capacity(raws.len());
            for raw in &raws {
                outcomes.push(world.receive(&node, raw).await);
            }
            outcomes
        };
        match self.0.ask("chain.send", effect).await {
            Ok(outcomes) => outcomes,
            Err(Lost::NotSent) => {
                vec![SendOutcome::Unavailable(NodeText::new("connection refused")); attempts.len()]
            }
            Err(Lost::Unknown) => vec![SendOutcome::TimedOut; attempts.len()],
        }
    }

    async fn receipts(&self, hashes: &[B256]) -> ChainResult<Vec<Option<Receipt>>> {
        let hashes = hashes.to_vec();
        self.read("chain.receipts", move |chain, view| {
            hashes.iter().map(|hash| chain.receipt(view, *hash)).collect()
        })
        .await
    }

    async fn head(&self) -> ChainResult<Block> {
        let found = self.read("chain.head", SimChain::head_at).await?;
        found.ok_or_else(|| unavailable("no head"))
    }

    async fn block_at(&self, number: u64) -> ChainResult<Option<Block>> {
        self.read("chain.block_at", move |chain, view| chain.block_at(view, number)).await
    }

    async fn block_by_hash(&self, hash: B256) -> ChainResult<Option<Block>> {
        self.read("chain.block_by_hash", move |chain, _| chain.by_hash(hash)).await
    }

    async fn counts(&self, account: &SubmitterId) -> ChainResult<Counts> {
        let account = address(account)?;
        let found = self.read("chain.counts", move |chain, view| chain.counts(view, account)).await?;
        found.ok_or_else(|| unavailable("no head"))
    }

    async fn count_at(&self, account: &SubmitterId, block: B256) -> ChainResult<Nonce> {
        let account = address(account)?;
        let found = self.read("chain.count_at", move |chain, _| chain.count_at(account, block)).await?;
        found.ok_or_else(|| unavailable("no such block"))
    }

    async fn sighting(&self, account: &SubmitterId, nonce: Nonce, block: B256) -> ChainResult<Sighting> {
        let account = address(account)?;
        self.read("chain.sighting", move |chain, _| chain.sighting(account, nonce, block)).await
    }

    async fn balance(&self, _: &SubmitterId) -> ChainResult<Wei> {
        self.read("chain.balance", |_, _| Wei(alloy_primitives::U256::MAX)).await
    }

    async fn estimate(&self, _: &SubmitterId, payload: &Payload) -> ChainResult<Estimate> {
        let gas = intrinsic::gas(payload);
        self.read("chain.estimate", move |_, _| Estimate::Gas(gas)).await
    }

    async fn quote(&self, _: &Options) -> ChainResult<Quote> {
        let head = self.read("chain.quote", SimChain::head_at).await?;
        let base_fee = base_fee(head.map_or(0, |head| head.this.number));
        let max_fee_per_gas = GasPrice(base_fee.0 * 2);
        let fees = Fees::Dynamic { max_fee_per_gas, max_priority_fee_per_gas: GasPrice(1) };
        Ok(Quote { fees, base_fee: Some(base_fee) })
    }

    async fn pooled(&self, hashes: &[B256]) -> ChainResult<Vec<bool>> {
        let hashes = hashes.to_vec();
        self.read("chain.pooled", move |chain, view| {
            hashes.iter().map(|hash| chain.knows(view, *hash)).collect()
        })
        .await
    }

    fn contents(&self, raw: &Bytes) -> Option<Contents> {
        let SimTx { to, mark: data, .. } = SimTx::decode(raw)?;
        let payload = Payload { to, data, ..Payload::default() };
        let gas_limit = intrinsic::gas(&payload);
        Some(Contents { payload, gas_limit })
    }

    async fn genesis(&self) -> ChainResult<B256> {
        let found = self.read("chain.genesis", |chain, view| chain.block_at(view, 0)).await?;
        found.map(|block| block.this.hash).ok_or_else(|| unavailable("no genesis"))
    }

    fn endpoints(&self) -> Vec<EndpointStatus> {
        Vec::new()
    }
}

#[async_trait]
impl Signer for NodeChain {
    async fn sign(&self, unsigned: &[Unsigned]) -> (Vec<Signed>, Option<SignError>) {
        let asked = unsigned.to_vec();
        let effect = async move { asked.iter().map_while(SimTx::sign).collect::<Vec<_>>() };
        match self.0.ask("signer.sign", effect).await {
            Ok(signed) => (signed, None),
            Err(_) => (Vec::new(), Some(SignError::Unavailable(NodeText::new("time-out")))),
        }
    }

    fn can_fill_slots(&self) -> bool {
        true
    }
}
