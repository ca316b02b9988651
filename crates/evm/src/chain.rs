//! The chain port over the pool. Each method is one batch to one endpoint, so that what is read
//! together was true together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use alloy_primitives::{Address, B256, Bytes, U256};
use async_trait::async_trait;
use futures::future::{join, try_join_all};
use gapless_core::attempt::{Route, StoredAttempt};
use gapless_core::fees::Wei;
use gapless_core::ids::Nonce;
use gapless_core::intent::{Options, Payload};
use gapless_core::outcome::SendOutcome;
use gapless_core::ports::chain::{
    Block, BlockRef, Chain, ChainError, ChainResult, Contents, Counts, EndpointStatus, Estimate, Opened,
    Quote, Receipt, Sighting, Tag,
};
use gapless_core::submitter::SubmitterId;
use gapless_core::text::NodeText;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::decode::{self, BlockHash, BlockName, WireBlock, WireBody};
use crate::estimate::{estimate, estimates};
use crate::newest::Newest;
use crate::options::{EvmError, EvmOptions, Placed};
use crate::proven::Proofs;
use crate::quantity::{Quantity, hex};
use crate::quote::{MarketCache, quote};
use crate::rpc::endpoint::{Endpoint, Http};
use crate::rpc::feed::Feed;
use crate::rpc::pool::{Pool, ReadError, value};
use crate::rpc::{Call, Identity, Quarantine, Reply, RpcError, Strictness, Trouble, wire};
use crate::send::{Manner, send};
use crate::tags;
use crate::unknown::UnknownTexts;

/// How often counts are read again when a block came in between.
const COUNT_READS: usize = 3;

/// An EVM chain behind one or more endpoints.
#[derive(Debug)]
pub struct EvmChain {
    public: Pool,
    private: Pool,
    feed: Feed,
    manner: Manner,
    market: MarketCache,
    unknown: UnknownTexts,
    /// Whether nobody gives receipts by block.
    no_block_receipts: AtomicBool,
    proofs: Proofs,
    newest: Newest,
}

impl EvmChain {
    /// Sets a chain up. Asks nobody yet: an endpoint that is down shows in [`Chain::endpoints`].
    pub fn new(options: &EvmOptions) -> Result<Self, EvmError> {
        options.check()?;
        let identity = Arc::new(Identity::new(options.chain_id, options.expected_genesis, options.recheck));
        let http = |at: &Placed| Http::new(&at.address, at.place, options.timeout, options.max_in_flight);
        let pool = |addresses: &[Placed], strictness| {
            let endpoint = |at| Ok(Arc::new(Endpoint::new(http(at)?)));
            let endpoints = addresses.iter().map(endpoint).collect::<Result<_, EvmError>>()?;
            Ok(Pool::new(endpoints, Arc::clone(&identity), strictness, options.timeout))
        };
        let (requests, sockets) = options.by_use();
        Ok(Self {
            public: pool(&requests, Strictness::MustTell)?,
            private: pool(&options.private(), Strictness::MayDecline)?,
            feed: Feed::new(
                sockets.iter().map(|at| http(at).map(Arc::new)).collect::<Result<_, EvmError>>()?,
            ),
            manner: Manner {
                max_batch: options.max_batch,
                to_all: options.broadcast_to_all,
                take_gaps: AtomicBool::new(true),
            },
            market: MarketCache::default(),
            unknown: UnknownTexts::default(),
            no_block_receipts: AtomicBool::new(false),
            proofs: Proofs::default(),
            newest: Newest::default(),
        })
    }

    /// Asks whatever else somebody wants to know, of one endpoint in one request.
    pub async fn batch(&self, calls: &[Call]) -> ChainResult<Vec<Reply>> {
        self.public.read(calls, |_, replies| Ok(replies.to_vec())).await
    }

    /// Refusals that nobody could read so far.
    #[must_use]
    pub const fn unknown_texts(&self) -> &UnknownTexts {
        &self.unknown
    }

    /// One call, one result that must be there.
    async fn one<T: DeserializeOwned>(&self, method: &'static str, params: Value) -> ChainResult<T> {
        self.public
            .read(&[Call::new(method, params)], |_, replies| Ok(decode::required(value(replies, 0)?)?))
            .await
    }

    /// A block, if the endpoint has one and it is the one asked for.
    async fn block(
        &self,
        method: &'static str,
        which: Value,
        fits: impl Fn(&Block) -> bool,
    ) -> ChainResult<Option<Block>> {
        self.public
            .read(&[Call::new(method, json!([which, false]))], |_, replies| {
                let block: Option<WireBlock> = decode::optional(value(replies, 0)?)?;
                match block.map(|block| self.came_in(block)) {
                    Some(block) if !fits(&block) => {
                        Err(Trouble::malformed("another block than asked for").into())
                    }
                    block => Ok(block),
                }
            })
            .await
    }

    async fn head_number(&self) -> ChainResult<u64> {
        self.public
            .read(&[Call::new("eth_blockNumber", json!([]))], |endpoint, replies| {
                let Quantity(number) = decode::required(value(replies, 0)?)?;
                endpoint.saw_head(number);
                Ok(number)
            })
            .await
    }

    /// A block, and what it says of its receipts kept.
    fn came_in(&self, block: WireBlock) -> Block {
        if let Some(header) = block.header() {
            self.proofs.came_in(header);
        }
        block.into()
    }

    fn address(&self, account: &SubmitterId) -> ChainResult<Address> {
        let ours = account.chain().evm() == Some(self.public.identity().chain_id());
        account.address().filter(|_| ours).ok_or_else(|| {
            ChainError::Unavailable(NodeText::new(&format!("{account} is not an account of this chain")))
        })
    }

    /// Counts and whether the head stood still while they were read.
    async fn counts_once(&self, address: Address) -> ChainResult<(Counts, bool)> {
        self.public.read(&count_calls(address), |endpoint, replies| self.counts_in(endpoint, replies)).await
    }

    fn counts_in(&self, endpoint: &Endpoint, replies: &[Reply]) -> Result<(Counts, bool), ReadError> {
        let head: BlockName = decode::required(value(replies, 0)?)?;
        let latest: Quantity<u64> = decode::required(value(replies, 1)?)?;
        let pending: Quantity<u64> = decode::required(value(replies, 2)?)?;
        let after: Quantity<u64> = decode::required(value(replies, 3)?)?;
        let at = head.named();
        endpoint.saw_head(at.number);
        let counts = Counts { at, latest: Nonce(latest.0), pending: Nonce(pending.0) };
        Ok((counts, after.0 == at.number))
    }
}

fn count_calls(address: Address) -> [Call; 4] {
    [
        Call::new("eth_getBlockByNumber", json!(["latest", false])),
        Call::new("eth_getTransactionCount", json!([address, "latest"])),
        Call::new("eth_getTransactionCount", json!([address, "pending"])),
        Call::new("eth_blockNumber", json!([])),
    ]
}

#[async_trait]
impl Chain for EvmChain {
    async fn send(&self, attempts: &[&StoredAttempt]) -> Vec<SendOutcome> {
        self.proofs.going_out(attempts);
        let on = |route| -> Vec<&StoredAttempt> {
            attempts.iter().copied().filter(|attempt| attempt.route == route).collect()
        };
        let (public, private) = (on(Route::Public), on(Route::Private));
        let (public, private) = join(
            send(&self.public, &self.unknown, &self.manner, &public),
            send(&self.private, &self.unknown, &self.manner, &private),
        )
        .await;
        let (mut public, mut private) = (public.into_iter(), private.into_iter());
        let outcome = |attempt: &&StoredAttempt| match attempt.route {
            Route::Public => public.next(),
            Route::Private => private.next(),
        };
        let nothing = || SendOutcome::Unavailable(NodeText::new("not sent"));
        attempts.iter().map(outcome).map(|outcome| outcome.unwrap_or_else(nothing)).collect()
    }

    async fn receipts(&self, hashes: &[B256]) -> ChainResult<Vec<Option<Receipt>>> {
        let chunks = hashes.chunks(self.manner.max_batch).map(|chunk| async move {
            let call = |hash| Call::new("eth_getTransactionReceipt", json!([hash]));
            let calls: Vec<Call> = chunk.iter().map(call).collect();
            let decode = |_: &Endpoint, replies: &[Reply]| {
                let one = |(at, hash): (usize, &B256)| Ok(decode::receipt(value(replies, at)?, *hash)?);
                chunk.iter().enumerate().map(one).collect::<Result<Vec<_>, ReadError>>()
            };
            self.public.read(&calls, decode).await
        });
        Ok(try_join_all(chunks).await?.concat())
    }

    async fn proven_receipts(&self, block: B256) -> Option<Vec<Receipt>> {
        let claim = self.proofs.claim(block)?;
        // Hashes by the thousand do not belong on a thread that others wait for.
        let receipts = tokio::task::spawn_blocking(move || claim.prove()).await.ok()??;
        self.proofs.forget(&receipts);
        Some(receipts)
    }

    async fn block_receipts(&self, block: B256) -> ChainResult<Option<Vec<Receipt>>> {
        if self.no_block_receipts.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let calls = [Call::new("eth_getBlockReceipts", json!([{ "blockHash": block }]))];
        self.public
            .read(&calls, |_, replies| {
                if let Some(Err(RpcError::Node(error))) = replies.first()
                    && !wire::is_throttled(error)
                {
                    // Not every node knows this method, nor every provider sells it.
                    let unknown = wire::is_unknown_method(error);
                    self.no_block_receipts.fetch_or(unknown, Ordering::Relaxed);
                    return Ok(None);
                }
                Ok(decode::block_receipts(value(replies, 0)?, block)?)
            })
            .await
    }

    async fn head(&self) -> ChainResult<Block> {
        self.public.compare_heads();
        if let Some(known) = self.newest.fresh()
            && self.head_number().await? == known.this.number
        {
            return Ok(known);
        }
        let head = self
            .public
            .read(&[Call::new("eth_getBlockByNumber", json!(["latest", false]))], |endpoint, replies| {
                let block = self.came_in(decode::required(value(replies, 0)?)?);
                endpoint.saw_head(block.this.number);
                Ok(block)
            })
            .await?;
        self.newest.note(&head);
        Ok(head)
    }

    async fn block_at(&self, number: u64) -> ChainResult<Option<Block>> {
        self.block("eth_getBlockByNumber", json!(hex(number)), |block| block.this.number == number).await
    }

    async fn block_by_hash(&self, hash: B256) -> ChainResult<Option<Block>> {
        self.block("eth_getBlockByHash", json!(hash), |block| block.this.hash == hash).await
    }

    async fn counts(&self, account: &SubmitterId) -> ChainResult<Counts> {
        let address = self.address(account)?;
        let (mut counts, mut still) = self.counts_once(address).await?;
        for _ in 1..COUNT_READS {
            if still {
                break;
            }
            (counts, still) = self.counts_once(address).await?;
        }
        Ok(counts)
    }

    async fn counts_of_all(&self, account: &SubmitterId) -> ChainResult<Vec<Counts>> {
        let calls = count_calls(self.address(account)?);
        let mut found = Vec::new();
        for (_, endpoint) in self.public.all_ready().await {
            if let Ok(replies) = endpoint.ask(&calls).await
                && let Ok((counts, _)) = self.counts_in(endpoint, &replies)
            {
                found.push(counts);
            }
        }
        match found.is_empty() {
            // Nobody is ready: the ordinary way waits for somebody, or tells why not.
            true => Ok(vec![self.counts(account).await?]),
            false => Ok(found),
        }
    }

    async fn count_at(&self, account: &SubmitterId, block: B256) -> ChainResult<Nonce> {
        let params = json!([self.address(account)?, { "blockHash": block }]);
        let count: Quantity<u64> = self.one("eth_getTransactionCount", params).await?;
        Ok(Nonce(count.0))
    }

    async fn sighting(&self, account: &SubmitterId, nonce: Nonce, block: B256) -> ChainResult<Sighting> {
        let address = self.address(account)?;
        self.public
            .read(&[Call::new("eth_getBlockByHash", json!([block, true]))], |_, replies| {
                let body: Option<WireBody> = decode::optional(value(replies, 0)?)?;
                let Some(body) = body else {
                    return Err(ReadError::Pruned(NodeText::new(&format!("nobody holds block {block}"))));
                };
                if body.hash != block {
                    return Err(Trouble::malformed("another block than asked for").into());
                }
                let ours = body.transactions.iter().filter(|sent| sent.from == address);
                let ours = || ours.clone().filter_map(|sent| Some((Nonce(sent.nonce?.0), sent.hash)));
                let hash = ours().find(|(used, _)| *used == nonce).map(|(_, hash)| hash);
                let used = || ours().map(|(used, _)| used);
                Ok(Sighting { hash, span: used().min().zip(used().max()) })
            })
            .await
    }

    async fn balance(&self, account: &SubmitterId) -> ChainResult<Wei> {
        let params = json!([self.address(account)?, "latest"]);
        let balance: Quantity<U256> = self.one("eth_getBalance", params).await?;
        Ok(Wei(balance.0))
    }

    async fn estimate(&self, account: &SubmitterId, payload: &Payload) -> ChainResult<Estimate> {
        estimate(&self.public, self.address(account)?, payload).await
    }

    async fn estimates(&self, account: &SubmitterId, payloads: &[&Payload]) -> Vec<ChainResult<Estimate>> {
        match self.address(account) {
            Ok(from) => estimates(&self.public, from, payloads, self.manner.max_batch).await,
            Err(error) => vec![Err(error); payloads.len()],
        }
    }

    async fn quote(&self, options: &Options) -> ChainResult<Quote> {
        let market = self.market.market(&self.public, self.public.best_head()).await?;
        Ok(quote(market, options))
    }

    async fn tagged(&self, tag: Tag) -> ChainResult<Option<BlockRef>> {
        let calls = [
            Call::new("eth_getBlockByNumber", json!([tag.name(), false])),
            Call::new("eth_blockNumber", json!([])),
        ];
        self.public
            .read(&calls, |endpoint, replies| {
                let head: Quantity<u64> = decode::required(value(replies, 1)?)?;
                endpoint.saw_head(head.0);
                if let Some(Err(RpcError::Node(error))) = replies.first()
                    && tags::is_unknown(error)
                {
                    return Ok(None);
                }
                let block: Option<BlockName> = decode::optional(value(replies, 0)?)?;
                Ok(block.map(|block| block.named()))
            })
            .await
    }

    async fn pooled(&self, hashes: &[B256]) -> ChainResult<Vec<bool>> {
        let calls: Vec<Call> =
            hashes.iter().map(|hash| Call::new("eth_getTransactionByHash", json!([hash]))).collect();
        let known = |at: usize, replies: &[Reply]| -> Result<bool, ReadError> {
            let found: Option<Value> = decode::optional(value(replies, at)?)?;
            Ok(found.is_some())
        };
        self.public.read(&calls, |_, replies| (0..calls.len()).map(|at| known(at, replies)).collect()).await
    }

    fn contents(&self, raw: &Bytes) -> Option<Contents> {
        crate::signer::tx::contents(raw)
    }

    fn opened(&self, raw: &Bytes) -> Option<Opened> {
        crate::signer::tx::opened(raw)
    }

    async fn head_hint(&self) {
        self.feed.hint().await;
    }

    async fn genesis(&self) -> ChainResult<B256> {
        let calls = [Call::new("eth_getBlockByNumber", json!(["0x0", false]))];
        let read = self.public.read(&calls, |endpoint, replies| {
            let found: BlockHash = decode::required(value(replies, 0)?)?;
            let wanted = self.public.identity().genesis().unwrap_or(found.hash);
            if found.hash != wanted && self.public.ready().len() > 1 {
                // The others still serve the chain we know; this one has been given another.
                endpoint.put_aside(Quarantine::Genesis { found: found.hash, wanted }, self.public.identity());
                return Err(Trouble::malformed("its block 0 has changed").into());
            }
            Ok(found.hash)
        });
        match read.await {
            Ok(hash) => Ok(hash),
            // If all that is left serves another chain, that is the answer.
            Err(error) => self.public.changed_genesis().ok_or(error),
        }
    }

    fn endpoints(&self) -> Vec<EndpointStatus> {
        let private = self.private.status();
        let private =
            private.map(|status| EndpointStatus { detail: format!("private; {}", status.detail), ..status });
        self.public.status().chain(private).collect()
    }
}
