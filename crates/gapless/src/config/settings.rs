//! From the file's sections to a lane's settings: the submitter's word over its chain's over the file's.

use anyhow::{Context, bail, ensure};
use gapless_api::duration;
use gapless_core::fees::{GasPrice, Wei};
use gapless_core::ids::Nonce;
use gapless_core::plan::{Mode, ReleaseAt};
use gapless_core::ports::chain::Tag;
use gapless_core::submitter::{ChainId, SubmitterId};
use gapless_engine::{FinalityRule, LaneSettings, finality_floor};
use serde::de::DeserializeOwned;

use super::check::one_of;
use super::file::{Config, Confirmations, Fees, Overrides};
use super::trouble;

/// How often prices are read unless the file says otherwise.
pub(super) const EVERY_BLOCK: &str = "1 block";

/// The settings of a submitter, or the defaults for one that is not configured.
pub(crate) fn lane_settings(
    config: &Config,
    submitter: Option<&SubmitterId>,
) -> anyhow::Result<LaneSettings> {
    let Some(id) = submitter else { return finished(layered(config, None)?) };
    let mut settings = layered(config, Some(&id.chain()))?;
    for found in &config.submitters {
        if found.id()? == *id {
            apply(&mut settings, &found.overrides())?;
        }
    }
    finished(settings)
}

/// The settings of a chain's submitters that say nothing of their own.
pub(super) fn chain_settings(config: &Config, chain: &ChainId) -> anyhow::Result<LaneSettings> {
    finished(layered(config, Some(chain))?)
}

fn layered(config: &Config, chain: Option<&ChainId>) -> anyhow::Result<LaneSettings> {
    let mut settings = LaneSettings {
        diagnose: config.mempool.diagnose,
        tell_confirmations: config.events.confirmations == "all",
        ..LaneSettings::default()
    };
    apply(&mut settings, &config.overrides())?;
    let Some(id) = chain else { return Ok(settings) };
    for found in config.chains.iter().filter(|found| found.id == id.as_str()) {
        if let Some(depth) = found.finality_depth {
            let floor = finality_floor(id);
            ensure!(
                depth >= floor,
                "finality_depth = {depth} is below {floor}, which no setting can lower: a transaction moves to another \
                 nonce only when its old one cannot come back"
            );
            settings.finality_depth = Some(depth);
        }
        apply(&mut settings, &found.overrides())?;
    }
    Ok(settings)
}

/// What only the sum of all layers can tell.
fn finished(settings: LaneSettings) -> anyhow::Result<LaneSettings> {
    trouble::check(&settings)?;
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
    settings.recycle_hold = nonce.recycle_hold.map_or(settings.recycle_hold, |hold| hold.0);
    if let Some(most) = nonce.reservation_timeout {
        ensure!(!most.0.is_zero(), "nonce.reservation_timeout must be above zero");
        settings.reservation_timeout = most.0;
    }
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
    fees(settings, &from.fees)?;
    confirmations(settings, &from.confirmations)?;
    trouble::gas_bump(&mut settings.bump, &from.gas_bump)?;
    trouble::stuck(settings, &from.stuck);
    trouble::health(&mut settings.health, &from.health)
}

fn fees(settings: &mut LaneSettings, from: &Fees) -> anyhow::Result<()> {
    if let Some(kind) = &from.r#type {
        one_of("fees.type", kind, &["auto"])?;
    }
    if let Some(refresh) = from.refresh.as_deref().filter(|refresh| *refresh != EVERY_BLOCK) {
        let every = duration::parse(refresh).with_context(|| {
            format!("fees.refresh = \"{refresh}\": write \"{EVERY_BLOCK}\" or a duration")
        })?;
        ensure!(!every.is_zero(), "fees.refresh must be above zero");
    }
    if let Some(cap) = &from.max_fee_per_gas {
        settings.caps.max_fee_per_gas = Some(quantity::<GasPrice>("fees.max_fee_per_gas", cap)?);
    }
    if let Some(cap) = &from.max_priority_fee_per_gas {
        let key = "fees.max_priority_fee_per_gas";
        settings.caps.max_priority_fee_per_gas = Some(quantity::<GasPrice>(key, cap)?);
    }
    if let Some(cap) = &from.max_cost {
        let most: Wei = quantity("fees.max_cost", cap)?;
        ensure!(most > Wei::default(), "fees.max_cost must be above zero: nothing could ever be sent");
        settings.caps.max_cost = Some(most);
    }
    Ok(())
}

fn confirmations(settings: &mut LaneSettings, from: &Confirmations) -> anyhow::Result<()> {
    if let Some(rule) = &from.rule {
        settings.finality = match (rule.as_str(), Tag::named(rule)) {
            ("depth", _) => FinalityRule::Depth,
            (_, Some(tag)) => FinalityRule::Tag(tag),
            _ => bail!("confirmations.rule = \"{rule}\": use \"depth\", \"safe\" or \"finalized\""),
        };
    }
    settings.confirmations = from.required.unwrap_or(settings.confirmations);
    if let Some(after) = from.stale_receipt_timeout {
        ensure!(!after.0.is_zero(), "confirmations.stale_receipt_timeout must be above zero");
        settings.stale_receipts = after.0;
    }
    Ok(())
}

/// Wei, decimal or 0x-hex.
pub(super) fn quantity<T: DeserializeOwned>(key: &str, text: &str) -> anyhow::Result<T> {
    let json = serde_json::Value::from(text);
    serde_json::from_value(json)
        .with_context(|| format!("{key} = \"{text}\": write wei, decimal or 0x-hex, as a text"))
}
