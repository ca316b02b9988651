//! What cannot work is refused before anything starts.

use std::collections::BTreeSet;

use anyhow::{Context, bail, ensure};
use gapless_core::lease::LeaseTerms;
use gapless_core::submitter::{ChainId, SubmitterId, parse_evm_address};
use gapless_store::StoreUrl;

use super::file::Config;
use super::settings::{chain_settings, lane_settings};

/// Checks values against each other.
pub(super) fn check(config: &Config) -> anyhow::Result<()> {
    let lease = &config.lease;
    LeaseTerms::new(lease.duration.0, lease.clock_skew_allowance.0)?;
    ensure!(
        !lease.renew_interval.0.is_zero() && lease.renew_interval.0 * 2 < lease.duration.0,
        "lease.renew_interval ({:?}) must be below half of lease.duration ({:?}): one lost renewal must not lose the lease",
        lease.renew_interval.0,
        lease.duration.0
    );
    ensure!(!config.node.drain_timeout.0.is_zero(), "node.drain_timeout must be above zero");
    ensure!(config.store.pool > 0, "store.pool must be above zero");
    ensure!(
        config.limits.body_bytes > 0 && config.limits.batch_bytes > 0,
        "limits.*_bytes must be above zero"
    );
    config.store.url.parse::<StoreUrl>().context("store.url")?;
    ensure!(config.limits.queued_per_submitter > 0, "limits.queued_per_submitter must be above zero");
    one_of("events.mode", &config.events.mode, &["poll"])?;
    one_of("events.confirmations", &config.events.confirmations, &["final", "all"])?;
    if !config.http.listen.ip().is_loopback() && config.api_keys.is_empty() {
        bail!(
            "http.listen = \"{}\" can be reached from other machines, and no [[api_keys]] are configured; add a key or \
             listen on 127.0.0.1",
            config.http.listen
        );
    }
    config.refuse_unkept_limits()?;
    chains_and_submitters(config)
}

fn chains_and_submitters(config: &Config) -> anyhow::Result<()> {
    let mut chains = BTreeSet::new();
    for chain in &config.chains {
        let id: ChainId = chain.id.parse().with_context(|| format!("chains: id = \"{}\"", chain.id))?;
        ensure!(id.evm().is_some(), "chains: `{id}` is not an EVM chain; write eip155:NUMBER");
        ensure!(!chain.rpc.is_empty(), "chains: {id} has no rpc address");
        ensure!(chains.insert(id.clone()), "chains: {id} is there twice");
        chain_settings(config, &id).with_context(|| format!("chains: {id}"))?;
    }
    let mut submitters = BTreeSet::new();
    for submitter in &config.submitters {
        let id = submitter.id()?;
        ensure!(
            chains.contains(&id.chain()),
            "submitters: {id} is on a chain that has no [[chains]] entry; add one with id = \"{}\"",
            id.chain()
        );
        ensure!(submitters.insert(id.clone()), "submitters: {id} is there twice");
        lane_settings(config, Some(&id)).with_context(|| format!("submitters: {id}"))?;
    }
    lane_settings(config, None)?;
    Ok(())
}

pub(super) fn one_of(key: &str, value: &str, allowed: &[&str]) -> anyhow::Result<()> {
    ensure!(
        allowed.contains(&value),
        "{key} = \"{value}\" is not supported by this version; use {}",
        allowed.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(" or ")
    );
    Ok(())
}

impl super::file::SubmitterConfig {
    /// Its canonical id.
    pub(crate) fn id(&self) -> anyhow::Result<SubmitterId> {
        let chain: ChainId =
            self.chain.parse().with_context(|| format!("submitters: chain = \"{}\"", self.chain))?;
        let number = chain.evm().with_context(|| format!("submitters: `{chain}` is not an EVM chain"))?;
        let address = parse_evm_address(&self.address).context("submitters: address")?;
        Ok(SubmitterId::evm(number, address))
    }
}
