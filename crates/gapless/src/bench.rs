//! `gapless bench`: what this machine does with a chain of its own, measured and then checked on that chain.
//!
//! A figure counts only if the chain agrees: every request is mined once, and the nonces of every account have no hole.

mod accounts;
mod ledger;
mod strict;

use crate::args::BenchScenario;

/// Runs a scenario; fails if the chain shows anything but every request once.
pub(crate) async fn run(scenario: &BenchScenario, json: bool) -> anyhow::Result<()> {
    match scenario {
        BenchScenario::Strict(options) => strict::run(options, json).await,
    }
}
