//! The settings for what does not go well: dearer attempts, stuck transactions, accounts in need.

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use gapless_core::bump::{BumpRules, Multiplier};
use gapless_core::govern::{Finding, Step};
use gapless_engine::{HealthRules, LaneSettings};

use super::file::{GasBump, Health, Span, Stuck};
use super::settings::quantity;

/// What a node wants more for a replacement, at least, and what nobody can mean any more.
const MULTIPLIERS: std::ops::RangeInclusive<f64> = 1.1..=10.0;
/// Most attempts that only differ in price. Each is signed and stored.
const MOST_BUMPS: u32 = 100;

/// When and how much dearer attempts are made.
pub(super) fn gas_bump(rules: &mut BumpRules, from: &GasBump) -> anyhow::Result<()> {
    rules.enabled = from.enabled.unwrap_or(rules.enabled);
    if let Some(every) = from.min_interval {
        rules.min_interval = above_zero("gas_bump.min_interval", every)?;
    }
    if let Some(most) = from.max_attempts {
        ensure!(
            (1..=MOST_BUMPS).contains(&most),
            "gas_bump.max_attempts = {most}: write 1 to {MOST_BUMPS}, or enabled = false for none"
        );
        rules.max_attempts = most;
    }
    if let Some(by) = from.multiplier {
        ensure!(
            MULTIPLIERS.contains(&by),
            "gas_bump.multiplier = {by}: write 1.1 to 10; nodes refuse a replacement that pays less than a tenth more"
        );
        let millionths = format!("{by:.6}").replace('.', "");
        rules.multiplier = Multiplier(millionths.parse().context("gas_bump.multiplier")?);
    }
    Ok(())
}

/// What is done about transactions that do not move. Steps are taken over whole: their numbers would mean nothing else.
pub(super) fn stuck(settings: &mut LaneSettings, from: &Stuck) {
    let rules = Arc::make_mut(&mut settings.stuck);
    rules.stall_after = from.stall_after.map_or(rules.stall_after, |after| after.0);
    rules.max_attempts = from.max_attempts.unwrap_or(rules.max_attempts);
    rules.max_age = from.max_age.map_or(rules.max_age, |age| age.0);
    if let Some(steps) = &from.steps {
        let read = steps.iter().map(|step| Step {
            after: step.after.0,
            action: step.action,
            max: step.max.unwrap_or(Step::default_max(step.action)),
            when: step.when.clone(),
        });
        rules.steps = read.collect();
    }
}

/// How the account's health is watched.
pub(super) fn health(rules: &mut HealthRules, from: &Health) -> anyhow::Result<()> {
    if let Some(every) = from.balance_refresh {
        rules.balance_refresh = above_zero("health.balance_refresh", every)?;
    }
    if let Some(every) = from.retry {
        rules.retry = above_zero("health.retry", every)?;
    }
    if let Some(least) = &from.min_balance {
        rules.min_balance = Some(quantity("health.min_balance", least)?);
    }
    Ok(())
}

/// Refuses rules for the stuck that come to no end, or whose conditions nothing could meet.
pub(super) fn check(settings: &LaneSettings) -> anyhow::Result<()> {
    if let Err(error) = settings.stuck.check() {
        bail!("stuck: {error} ({})", error.code());
    }
    if settings.diagnose {
        return Ok(());
    }
    for (at, step) in settings.stuck.steps.iter().enumerate() {
        let met = step.when.as_ref().is_none_or(|wanted| wanted.contains(&Finding::Unknown));
        ensure!(
            met,
            "stuck: steps[{at}].when would never hold: nobody looks into pools without mempool.diagnose = true \
             (policy-invalid)"
        );
    }
    Ok(())
}

fn above_zero(key: &str, span: Span) -> anyhow::Result<std::time::Duration> {
    ensure!(!span.0.is_zero(), "{key} must be above zero");
    Ok(span.0)
}
