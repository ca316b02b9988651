//! Promises of the file that this version does not keep yet.
//!
//! A limit that the operator believes in and nobody enforces is refused; the rest is named at start.

use anyhow::ensure;

use super::file::{Config, Confirmations, Fees, Policy};
use super::settings::EVERY_BLOCK;

/// Written sections and keys that nothing acts on.
pub(super) fn keys(fees: &Fees, confirmations: &Confirmations, policy: &Policy) -> Vec<&'static str> {
    let Policy { receivers, methods, max_value, max_gas_limit, spend_per_hour, spend_per_day, private } =
        policy;
    let amounts = [max_value, max_gas_limit, spend_per_hour, spend_per_day];
    let restricts = receivers.is_some() || methods.is_some() || amounts.iter().any(|amount| amount.is_some());
    let named = [
        (restricts || private.unwrap_or(false), "policy"),
        // Prices are read once per block, which is what the default says.
        (fees.refresh.as_deref().is_some_and(|refresh| refresh != EVERY_BLOCK), "fees.refresh"),
        (confirmations.receipt_workers.is_some(), "confirmations.receipt_workers"),
    ];
    named.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect()
}

impl Config {
    /// Where the file asks for something that nothing acts on, and for what.
    pub(crate) fn idle(&self) -> Vec<(String, &'static str)> {
        let of = |place: &str, idle: Vec<&'static str>| {
            let place = place.to_owned();
            idle.into_iter().map(move |what| (place.clone(), what))
        };
        let file = [
            (self.events.broker_url.is_some(), "events.broker_url"),
            (self.retention.finished != "off", "retention.finished"),
            (self.retention.events != "7d", "retention.events"),
            (self.rpc.client_nonce != "ignore", "rpc.client_nonce"),
            (self.rpc.send_timeout.0.as_secs() != 8, "rpc.send_timeout"),
        ];
        let file = file.into_iter().filter(|(set, _)| *set).map(|(_, what)| what).collect();
        of("file", file)
            .chain(of("file", self.overrides().idle))
            .chain(self.chains.iter().flat_map(|chain| of(&chain.id, chain.overrides().idle)))
            .chain(self.submitters.iter().flat_map(|found| of(&found.address, found.overrides().idle)))
            .collect()
    }

    /// Refuses limits that nobody would enforce.
    pub(super) fn refuse_unkept_limits(&self) -> anyhow::Result<()> {
        let places = self.chains.iter().map(|chain| chain.overrides());
        let all =
            places.chain(self.submitters.iter().map(|found| found.overrides())).chain([self.overrides()]);
        for overrides in all {
            ensure!(
                !overrides.idle.contains(&"policy"),
                "[policy] is not enforced by this version; remove it to go on without"
            );
        }
        Ok(())
    }
}
