//! The node by itself: signed transactions fired at it, as fast as it takes them. Nothing on top of the node can be faster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use alloy_primitives::{Address, B256, hex};
use anyhow::{Context, ensure};
use gapless_core::fees::{Fees, Gas, GasPrice};
use gapless_core::ids::Nonce;
use gapless_core::intent::Payload;
use gapless_core::ports::chain::Unsigned;
use gapless_core::ports::signer::Signer;
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::accounts::{self, Account};
use super::ledger::Ledger;
use super::options::BenchOptions;
use super::parts::Chain;
use super::proof::{self, GAS, SINK, mark};

/// Transactions in a JSON-RPC batch, and connections that carry such batches.
const BATCH: usize = 100;
const CONNECTIONS: usize = 4;
/// How often the accounts' counts are read.
const LOOK: Duration = Duration::from_millis(50);
/// Far above what the chain asks for.
const FEES: Fees = Fees::Dynamic {
    max_fee_per_gas: GasPrice(100_000_000_000),
    max_priority_fee_per_gas: GasPrice(1_000_000_000),
};

/// How a try went.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawTry {
    pub(super) senders: u64,
    pub(super) transactions: u64,
    /// From the first batch until the last transaction was in a block.
    pub(super) seconds: f64,
    pub(super) mined_per_second: f64,
    /// Of the node; none if it is not ours to look at.
    pub(super) node_cpu_ms_per_tx: Option<f64>,
}

/// Fires `count` transactions of so many senders at a fresh node.
pub(super) async fn measure(
    options: &BenchOptions,
    word: &str,
    senders: u64,
    bar: &ProgressBar,
) -> anyhow::Result<RawTry> {
    let count = options.count;
    let chain = Chain::start(options).await?;
    let ledger = Ledger::new(chain.url())?;
    let id = ledger.chain().await?;
    let accounts = accounts::make(&format!("{word} raw {senders}"), senders, &ledger).await?;
    let addresses: Vec<Address> = accounts.iter().map(|account| account.address).collect();
    let (hashes, raw): (Vec<B256>, Vec<String>) = signed(&id, &accounts, count).await?.into_iter().unzip();
    let bodies = bodies(&raw);
    let before = ledger.height().await?;

    let (cpu_before, began) = (chain.cpu()?, Instant::now());
    let deadline = began + Duration::from_secs(options.seconds);
    fire(&chain.url(), bodies).await?;
    loop {
        let mined = ledger.mined_of(&addresses).await?;
        bar.set_position(mined);
        if mined >= count {
            break;
        }
        ensure!(Instant::now() < deadline, "{mined} of {count} are mined after {} s", options.seconds);
        tokio::time::sleep(LOOK).await;
    }
    let (seconds, cpu_after) = (began.elapsed().as_secs_f64(), chain.cpu()?);
    // A node may tell an account's new count a moment before it shows the block.
    let mut shown = ledger.hashes_above(before).await?;
    while shown.len() < hashes.len() && Instant::now() < deadline {
        tokio::time::sleep(LOOK).await;
        shown = ledger.hashes_above(before).await?;
    }
    proof::each_once(hashes, shown)?;
    let cpu = cpu_before.zip(cpu_after).map(|(before, after)| after.saturating_sub(before));
    Ok(RawTry {
        senders,
        transactions: count,
        seconds,
        mined_per_second: count as f64 / seconds,
        node_cpu_ms_per_tx: cpu.map(|cpu| cpu.as_secs_f64() * 1e3 / count as f64),
    })
}

/// Hash and bytes of every request, in order; nonces in order within each account.
async fn signed(chain: &str, accounts: &[Account], count: u64) -> anyhow::Result<Vec<(B256, String)>> {
    let step = accounts.len();
    let mut raw = vec![(B256::ZERO, String::new()); usize::try_from(count)?];
    for (at, account) in accounts.iter().enumerate() {
        let submitter: gapless_core::submitter::SubmitterId =
            format!("{chain}:{}", account.address).parse()?;
        let unsigned: Vec<Unsigned> = (at as u64..count)
            .step_by(step)
            .enumerate()
            .map(|(nonce, request)| Unsigned {
                submitter: submitter.clone(),
                nonce: Nonce(nonce as u64),
                payload: Payload { to: Some(SINK), data: mark(request), ..Payload::default() },
                gas_limit: Gas(GAS),
                fees: FEES,
            })
            .collect();
        let (done, error) = account.signer.sign(&unsigned).await;
        ensure!(error.is_none() && done.len() == unsigned.len(), "signing failed: {error:?}");
        for (place, signed) in raw.iter_mut().skip(at).step_by(step).zip(done) {
            *place = (signed.hash, hex::encode_prefixed(&signed.raw));
        }
    }
    Ok(raw)
}

fn bodies(raw: &[String]) -> Vec<String> {
    let one = |(id, raw): (usize, &String)| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_sendRawTransaction","params":["{raw}"]}}"#)
    };
    let body = |chunk: &[String]| {
        let calls: Vec<String> = chunk.iter().enumerate().map(one).collect();
        format!("[{}]", calls.join(","))
    };
    raw.chunks(BATCH).map(body).collect()
}

async fn fire(url: &str, bodies: Vec<String>) -> anyhow::Result<()> {
    let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(CONNECTIONS).build()?;
    let (bodies, next) = (Arc::new(bodies), Arc::new(AtomicUsize::new(0)));
    let mut firing = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (http, url, bodies, next) = (http.clone(), url.to_owned(), bodies.clone(), next.clone());
        firing.spawn(async move {
            while let Some(body) = bodies.get(next.fetch_add(1, Ordering::Relaxed)) {
                let request = http.post(&url).header("content-type", "application/json").body(body.clone());
                let answers: Vec<Value> = request.send().await?.json().await?;
                let refused = answers.iter().find(|answer| answer.get("error").is_some_and(|e| !e.is_null()));
                ensure!(
                    refused.is_none(),
                    "the node refused a transaction: {}",
                    refused.unwrap_or(&Value::Null)
                );
            }
            Ok(())
        });
    }
    while let Some(done) = firing.join_next().await {
        done?.context("firing at the node")?;
    }
    Ok(())
}
