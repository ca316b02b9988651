//! `gapless doctor`: looks at everything a node needs, and says what is wrong.

use std::path::Path;
use std::sync::Arc;

use anyhow::{bail, ensure};
use gapless_core::ports::clock::Clock;
use gapless_evm::{Call, EvmChain, EvmOptions};
use gapless_store::clock::SystemClock;
use serde::Serialize;
use serde_json::json;

use crate::config::{self, Config};
use crate::wiring;

/// One thing looked at.
#[derive(Debug, Serialize)]
struct Finding {
    what: String,
    ok: bool,
    detail: String,
}

impl Finding {
    fn of(what: impl Into<String>, found: anyhow::Result<String>) -> Self {
        let (ok, detail) = match found {
            Ok(detail) => (true, detail),
            Err(error) => (false, format!("{error:#}")),
        };
        Self { what: what.into(), ok, detail }
    }
}

/// Checks everything; fails if anything is wrong.
pub(crate) async fn run(file: Option<&Path>, as_json: bool) -> anyhow::Result<()> {
    let findings = match config::load(file) {
        Ok(config) => look(&config).await,
        Err(error) => vec![Finding::of("configuration", Err(error))],
    };
    let ok = findings.iter().all(|finding| finding.ok);
    if as_json {
        println!("{}", json!({ "ok": ok, "findings": findings }));
    } else {
        for Finding { what, ok, detail } in &findings {
            println!("{}  {what}: {detail}", if *ok { "ok  " } else { "FAIL" });
        }
    }
    ensure!(ok, "something needs mending");
    Ok(())
}

async fn look(config: &Config) -> Vec<Finding> {
    let mut findings = vec![Finding::of("configuration", Ok("reads well".to_owned()))];
    findings.push(Finding::of("store", store(config).await));
    for chain in &config.chains {
        for (place, url) in chain.rpc.iter().chain(&chain.private_rpc).enumerate() {
            // The address may carry a key: its place is named instead.
            findings.push(Finding::of(
                format!("chain {} endpoint {}", chain.id, place + 1),
                endpoint(chain, url).await,
            ));
        }
    }
    for submitter in &config.submitters {
        let name = format!("signer of {} on {}", submitter.address, submitter.chain);
        let loaded = wiring::signer(submitter).await.map(|signer| match signer {
            Some(_) => "loads".to_owned(),
            None => "none is configured; its transactions will be rejected".to_owned(),
        });
        findings.push(Finding::of(name, loaded));
    }
    findings.push(Finding::of(
        "api keys",
        wiring::keys(config).map(|keys| format!("{} configured", keys.0.len())),
    ));
    findings
}

async fn store(config: &Config) -> anyhow::Result<String> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = wiring::store(config, clock.clone()).await?;
    let (there, here) = (store.now().await?, clock.now());
    let apart = there.since(here).max(here.since(there));
    ensure!(
        apart <= config.lease.clock_skew_allowance.0,
        "its clock is {apart:?} away from ours; lease.clock_skew_allowance is {:?}",
        config.lease.clock_skew_allowance.0
    );
    Ok(format!("answers; its clock is {apart:?} away from ours"))
}

async fn endpoint(chain: &config::ChainConfig, url: &str) -> anyhow::Result<String> {
    let (id, options) = wiring::chain_options(chain)?;
    let options = EvmOptions { endpoints: vec![url.to_owned()], private_endpoints: Vec::new(), ..options };
    let evm = EvmChain::new(&options)?;
    let replies = evm.batch(&[Call::new("eth_chainId", json!([]))]).await?;
    match replies.first() {
        Some(Ok(_)) => Ok(format!("answers as {id}")),
        Some(Err(error)) => bail!("it refuses: {error}"),
        None => bail!("no answer"),
    }
}
