//! From the file's sections to a lane's settings: the submitter's word over its chain's over the file's.

use anyhow::{Context, ensure};
use gapless_core::fees::GasPrice;
use gapless_core::ids::Nonce;
use gapless_core::plan::{Mode, ReleaseAt};
use gapless_core::submitter::SubmitterId;
use gapless_engine::LaneSettings;

use super::check::one_of;
use super::file::{Config, Overrides};

/// The settings of a submitter, or the defaults for one that is not configured.
pub(crate) fn lane_settings(
    config: &Config,
    submitter: Option<&SubmitterId>,
) -> anyhow::Result<LaneSettings> {
    let mut settings = LaneSettings::default();
    apply(&mut settings, &config.overrides())?;
    let Some(id) = submitter else { return Ok(settings) };
    let chain = id.chain();
    for found in config.chains.iter().filter(|found| found.id == chain.as_str()) {
        apply(&mut settings, &found.overrides())?;
    }
    for found in &config.submitters {
        if found.id()? == *id {
            apply(&mut settings, &found.overrides())?;
        }
    }
    Ok(settings)
}

fn apply(settings: &mut LaneSettings, from: &Overrides) -> anyhow::Result<()> {
    let nonce = &from.nonce;
    if let Some(mode) = &nonce.mode {
        settings.rules.mode = Mode::named(mode)
            .with_context(|| format!("nonce.mode = \"{mode}\": use \"strict\" or \"pipelined\""))?;
    }
    if let Some(release) = &nonce.release_at {
        settings.rules.release_at = ReleaseAt::named(release)
            .with_context(|| format!("nonce.release_at = \"{release}\": use \"mined\" or \"confirmed\""))?;
    }
    if let Some(most) = nonce.max_in_flight {
        ensure!(most > 0, "nonce.max_in_flight must be above zero");
        settings.rules.max_in_flight = most;
    }
    settings.start_from = nonce.start_from.map(Nonce).or(settings.start_from);
    if let Some(every) = nonce.reconcile_interval {
        ensure!(!every.0.is_zero(), "nonce.reconcile_interval must be above zero");
        settings.reconcile = every.0;
    }
    if let Some(every) = from.resubmit.interval {
        ensure!(!every.0.is_zero(), "resubmit.interval must be above zero");
        settings.resubmit = Some(every.0);
    }
    match from.resubmit.enabled {
        Some(false) => settings.resubmit = None,
        Some(true) => settings.resubmit = settings.resubmit.or(LaneSettings::default().resubmit),
        None => {}
    }
    if let Some(kind) = &from.fees.r#type {
        one_of("fees.type", kind, &["auto"])?;
    }
    if let Some(cap) = &from.fees.max_fee_per_gas {
        settings.caps.max_fee_per_gas = Some(price("fees.max_fee_per_gas", cap)?);
    }
    if let Some(cap) = &from.fees.max_priority_fee_per_gas {
        settings.caps.max_priority_fee_per_gas = Some(price("fees.max_priority_fee_per_gas", cap)?);
    }
    if let Some(rule) = &from.confirmations.rule {
        one_of("confirmations.rule", rule, &["depth"])?;
    }
    settings.confirmations = from.confirmations.required.unwrap_or(settings.confirmations);
    if let Some(after) = from.confirmations.stale_receipt_timeout {
        ensure!(!after.0.is_zero(), "confirmations.stale_receipt_timeout must be above zero");
        settings.stale_receipts = after.0;
    }
    Ok(())
}

/// Wei, decimal or 0x-hex.
fn price(key: &str, text: &str) -> anyhow::Result<GasPrice> {
    let json = serde_json::Value::from(text);
    serde_json::from_value(json)
        .with_context(|| format!("{key} = \"{text}\": write wei, decimal or 0x-hex, as a text"))
}
