//! Strict mode against one block a second: the best there can be is a transaction per block and submitter.

use std::time::Duration;

use alloy_primitives::Address;
use anyhow::{Context, bail, ensure};
use gapless_core::ports::clock::Clock;
use gapless_store::clock::SystemClock;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};

use super::accounts::{self, Account};
use super::ledger::{Ledger, Mined, contiguous};
use crate::anvil::Anvil;
use crate::args::StrictOptions;
use crate::client::Client;
use crate::config::{self, Config, LogFormat};
use crate::logs;
use crate::node::{Node, told_to_stop};

const CHAIN: &str = "eip155:31337";
/// Where the coins go.
const SINK: &str = "0x000000000000000000000000000000000000dEaD";
/// Items of one call of the batch endpoint.
const BATCH: usize = 1_000;
/// Blocks that one transaction may take on average before the run is given up.
const PATIENCE: u64 = 10;

/// How one run went.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    submitters: usize,
    transactions: usize,
    /// Transactions per block of a submitter, from its first block to its last: the mean over submitters.
    per_block_mean: f64,
    /// The same for the slowest.
    per_block_least: f64,
    seconds: f64,
}

/// Runs once per number of submitters and shows a line for each.
pub(super) async fn run(options: &StrictOptions, json: bool) -> anyhow::Result<()> {
    logs::start(LogFormat::Text, "error");
    ensure!(
        options.store.is_none() || options.submitters.len() == 1,
        "a store that is given serves one run: name one number of --submitters"
    );
    let stop = told_to_stop();
    tokio::pin!(stop);
    let measured = async {
        let mut outcomes = Vec::new();
        for submitters in &options.submitters {
            outcomes.push(measure(*submitters, options).await?);
        }
        anyhow::Ok(outcomes)
    };
    let outcomes = tokio::select! {
        outcomes = measured => outcomes?,
        told = &mut stop => return told,
    };
    if json {
        println!("{}", json!({ "scenario": "strict", "blockSeconds": 1, "runs": outcomes }));
        return Ok(());
    }
    println!("submitters  transactions  per block (mean)  per block (least)  seconds");
    for Outcome { submitters, transactions, per_block_mean, per_block_least, seconds } in &outcomes {
        println!(
            "{submitters:>10}  {transactions:>12}  {per_block_mean:>16.3}  {per_block_least:>17.3}  {seconds:>7.1}"
        );
    }
    Ok(())
}

async fn measure(submitters: u16, options: &StrictOptions) -> anyhow::Result<Outcome> {
    let each = u64::from(options.each);
    let folder = tempfile::Builder::new().prefix("gapless-bench-").tempdir().context("a temporary folder")?;
    let keys =
        tempfile::Builder::new().prefix("gapless-bench-keys-").tempdir().context("a temporary folder")?;
    let chain = Anvil::start(folder.path()).await?;
    let ledger = Ledger::new(chain.url())?;
    let accounts = accounts::make(keys.path(), submitters, &ledger).await?;
    let node = Node::start(&configuration(keys.path(), &chain.url(), &accounts, options)?).await?;
    let client = Client::new(&format!("http://{}", node.address()), true)?;

    let (began, before) = (SystemClock.tick(), ledger.height().await?);
    submit(&client, &accounts, each).await?;
    let addresses: Vec<Address> = accounts.iter().map(|account| account.address).collect();
    let mined = follow(&ledger, before, &addresses, each).await?;
    let seconds = SystemClock.tick().since(began).as_secs_f64();
    contiguous(&mined, each)?;
    all_confirmed(&client, &accounts, each).await?;
    node.stop().await;

    let rates: Vec<f64> = mined.values().map(|found| per_block(found)).collect();
    Ok(Outcome {
        submitters: accounts.len(),
        transactions: accounts.len() * usize::from(options.each),
        per_block_mean: rates.iter().sum::<f64>() / rates.len() as f64,
        per_block_least: rates.iter().copied().fold(f64::INFINITY, f64::min),
        seconds,
    })
}

/// Transactions per block, over the blocks from the first to the last of them.
fn per_block(found: &[(u64, u64)]) -> f64 {
    match (found.first(), found.last()) {
        (Some((first, _)), Some((last, _))) => found.len() as f64 / (last - first + 1) as f64,
        _ => 0.0,
    }
}

fn configuration(
    folder: &std::path::Path,
    rpc: &str,
    accounts: &[Account],
    options: &StrictOptions,
) -> anyhow::Result<Config> {
    let sqlite = || format!("sqlite://{}", folder.join("gapless.db").display());
    let store = options.store.clone().unwrap_or_else(sqlite);
    let mut text = format!(
        "[node]\nid = \"bench\"\ndrain_timeout = \"5s\"\n[http]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{store}\"\n\
         [confirmations]\nrequired = 2\n[[chains]]\nid = \"{CHAIN}\"\nrpc = [\"{rpc}\"]\n"
    );
    for Account { address, key_file } in accounts {
        text.push_str(&format!(
            "[[submitters]]\nchain = \"{CHAIN}\"\naddress = \"{address}\"\nsigner = {{ private_key_file = \"{}\" }}\n",
            key_file.display()
        ));
    }
    config::parse(&text, [])
}

async fn submit(client: &Client, accounts: &[Account], each: u64) -> anyhow::Result<()> {
    let item = |account: &Account, number: u64| {
        json!({
            "submitter": format!("{CHAIN}:{}", account.address),
            "requestId": format!("bench-{number}"),
            "payload": { "to": SINK, "value": "1" },
        })
    };
    let all: Vec<Value> =
        (0..each).flat_map(|number| accounts.iter().map(move |account| item(account, number))).collect();
    for items in all.chunks(BATCH) {
        let answer = client.post(&["tx", "batch"], &json!({ "items": items })).await?;
        for answer in answer["items"].as_array().context("the batch endpoint answers items")? {
            if answer["status"] != 202 {
                bail!("a request was not accepted: {answer}");
            }
        }
    }
    Ok(())
}

/// Waits until everything is mined.
async fn follow(ledger: &Ledger, before: u64, addresses: &[Address], each: u64) -> anyhow::Result<Mined> {
    let total = addresses.len() as u64 * each;
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} mined, {elapsed}") {
        bar.set_style(style);
    }
    loop {
        let mined = ledger.mined_above(before, addresses).await?;
        let count = mined.values().map(Vec::len).sum::<usize>() as u64;
        bar.set_position(count);
        if count >= total {
            bar.finish_and_clear();
            return Ok(mined);
        }
        let height = ledger.height().await?;
        ensure!(height < before + PATIENCE * (each + 10), "{count} of {total} mined after {height} blocks");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Waits until the API says so too.
async fn all_confirmed(client: &Client, accounts: &[Account], each: u64) -> anyhow::Result<()> {
    for account in accounts {
        let submitter = format!("{CHAIN}:{}", account.address);
        let limit = each.to_string();
        let query = [("submitter", submitter.as_str()), ("state", "CONFIRMED"), ("limit", limit.as_str())];
        let mut tries = 0;
        loop {
            let page = client.get(&["tx"], &query).await?;
            let confirmed = page["items"].as_array().map_or(0, Vec::len) as u64;
            if confirmed == each {
                break;
            }
            tries += 1;
            ensure!(tries < 60, "{confirmed} of {each} transactions of {submitter} are CONFIRMED");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_without_a_transaction_count_against_the_rate() {
        assert_eq!(per_block(&[(5, 0), (6, 1), (8, 2)]), 0.75);
        assert_eq!(per_block(&[]), 0.0);
    }
}
