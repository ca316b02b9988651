//! From a caller's spelling of a submitter to the one canonical id.

use std::collections::BTreeSet;

use gapless_core::submitter::{SubmitterId, parse_evm_address};
use gapless_engine::{Handle, Refusal};

use crate::problem::Problem;

/// Reads a submitter: its CAIP-10 id, or a bare address where only one chain knows it.
pub(crate) async fn submitter(handle: &Handle, text: &str) -> Result<SubmitterId, Problem> {
    if text.contains(':') {
        return text.parse().map_err(|error| Problem::invalid(format!("submitter: {error}")));
    }
    let address = parse_evm_address(text).map_err(|error| {
        Problem::invalid(format!(
            "submitter: {error}; write eip155:CHAIN:0x… or a registered account's address"
        ))
    })?;
    let registry = handle.registry();
    let configured: BTreeSet<SubmitterId> = registry.submitters().into_iter().map(|s| s.id).collect();
    let mut chains: BTreeSet<u64> = registry.chains().iter().filter_map(|(id, _)| id.evm()).collect();
    chains.extend(configured.iter().filter_map(|id| id.chain().evm()));
    let mut found = Vec::new();
    for chain in &chains {
        let id = SubmitterId::evm(*chain, address);
        // With one chain there is nothing to choose; whether it is registered is seen where it is used.
        let known =
            configured.contains(&id) || chains.len() == 1 || handle.store().submitter(&id).await?.is_some();
        if known {
            found.push(id);
        }
    }
    match (found.pop(), found.as_slice()) {
        (None, _) => Err(Refusal::UnknownSubmitter.into()),
        (Some(only), []) => Ok(only),
        (Some(last), others) => {
            let names: Vec<String> = others.iter().chain([&last]).map(ToString::to_string).collect();
            Err(Problem::invalid(format!(
                "submitter: this address is ambiguous; write {}",
                names.join(" or ")
            )))
        }
    }
}
