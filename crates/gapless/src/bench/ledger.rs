//! What the chain itself says, read without any of our own parts.

use alloy_primitives::{Address, B256, Bytes, U64};
use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Calls in one request.
const BATCH: usize = 100;

/// A chain's JSON-RPC.
pub(super) struct Ledger {
    http: reqwest::Client,
    url: String,
}

/// A transaction in a block.
pub(super) struct Mined {
    pub(super) block: u64,
    pub(super) from: Address,
    pub(super) nonce: u64,
    pub(super) input: Bytes,
    pub(super) succeeded: bool,
}

#[derive(Deserialize)]
struct Answer<T> {
    id: usize,
    result: Option<T>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Block {
    transactions: Vec<BlockTx>,
}

#[derive(Deserialize)]
struct BlockHashes {
    transactions: Vec<B256>,
}

#[derive(Deserialize)]
struct BlockTx {
    from: Address,
    nonce: U64,
    input: Bytes,
}

#[derive(Deserialize)]
struct Receipt {
    status: U64,
}

impl Ledger {
    pub(super) fn new(url: String) -> anyhow::Result<Self> {
        Ok(Self { http: reqwest::Client::builder().no_proxy().build()?, url })
    }

    pub(super) async fn call<T: DeserializeOwned>(&self, method: &str, params: Value) -> anyhow::Result<T> {
        let mut answers = self.batch(&[(method, params)]).await?;
        answers.pop().with_context(|| format!("{method}: no answer"))
    }

    /// Asks many things; the answers come in the order of the questions.
    pub(super) async fn batch<T: DeserializeOwned>(&self, calls: &[(&str, Value)]) -> anyhow::Result<Vec<T>> {
        let mut results = Vec::with_capacity(calls.len());
        for chunk in calls.chunks(BATCH) {
            let one = |(id, (method, params)): (usize, &(&str, Value))| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
            let body: Vec<Value> = chunk.iter().enumerate().map(one).collect();
            let response = self.http.post(&self.url).json(&body).send().await.context("asking the node")?;
            let mut answers: Vec<Answer<T>> = response.json().await.context("reading the node's answer")?;
            ensure!(answers.len() == chunk.len(), "{} answers to {} calls", answers.len(), chunk.len());
            answers.sort_by_key(|answer| answer.id);
            for (answer, (method, _)) in answers.into_iter().zip(chunk) {
                if let Some(error) = answer.error {
                    bail!("{method}: {error}");
                }
                // `null` is an answer as well, to whoever expects it.
                let result = answer.result.map_or_else(|| serde_json::from_value(Value::Null), Ok);
                results.push(result.with_context(|| format!("{method}: an answer without a result"))?);
            }
        }
        Ok(results)
    }

    /// The chain's CAIP-2 id.
    pub(super) async fn chain(&self) -> anyhow::Result<String> {
        Ok(format!("eip155:{}", self.call::<U64>("eth_chainId", json!([])).await?))
    }

    pub(super) async fn height(&self) -> anyhow::Result<u64> {
        Ok(self.call::<U64>("eth_blockNumber", json!([])).await?.to())
    }

    /// How many transactions of these accounts are in blocks.
    pub(super) async fn mined_of(&self, accounts: &[Address]) -> anyhow::Result<u64> {
        let calls: Vec<_> =
            accounts.iter().map(|account| ("eth_getTransactionCount", json!([account, "latest"]))).collect();
        Ok(self.batch::<U64>(&calls).await?.iter().map(|count| count.to::<u64>()).sum())
    }

    /// The hashes of everything in the blocks above one.
    pub(super) async fn hashes_above(&self, block: u64) -> anyhow::Result<Vec<B256>> {
        let mut mined = Vec::new();
        for height in block + 1..=self.height().await? {
            let block: BlockHashes =
                self.call("eth_getBlockByNumber", json!([format!("{height:#x}"), false])).await?;
            mined.extend(block.transactions);
        }
        Ok(mined)
    }

    /// Everything in the blocks above one.
    pub(super) async fn mined_above(&self, block: u64) -> anyhow::Result<Vec<Mined>> {
        let mut mined = Vec::new();
        for height in block + 1..=self.height().await? {
            let number = format!("{height:#x}");
            let block: Block = self.call("eth_getBlockByNumber", json!([number, true])).await?;
            let receipts: Vec<Receipt> = self.call("eth_getBlockReceipts", json!([number])).await?;
            let transactions = block.transactions;
            ensure!(receipts.len() == transactions.len(), "block {height} lacks receipts");
            mined.extend(transactions.into_iter().zip(receipts).map(|(tx, receipt)| Mined {
                block: height,
                from: tx.from,
                nonce: tx.nonce.to(),
                input: tx.input,
                succeeded: receipt.status == U64::from(1),
            }));
        }
        Ok(mined)
    }
}
