//! Domain values for tests: named once, so that a test shows only what it is about.

mod clock;
mod lane;

pub use clock::TestClock;
pub use lane::{Lane, after, attempt, mined};

use std::time::Duration;

use alloy_primitives::{Address, U256};
use gapless_core::fees::Wei;
use gapless_core::ids::{IdError, RequestId, Scope, TxId};
use gapless_core::intent::{Intent, IntentError, Payload};
use gapless_core::lease::{LeaseTerms, Owner, TermsError};
use gapless_core::record::NewTx;
use gapless_core::submitter::SubmitterId;
use uuid::Uuid;

/// The n-th submitter of the local chain.
#[must_use]
pub fn submitter(n: u64) -> SubmitterId {
    let mut bytes = [0; 20];
    bytes[12..].copy_from_slice(&n.to_be_bytes());
    SubmitterId::evm(31337, Address::from(bytes))
}

/// A process of a node.
pub fn owner(node: &str, process: u128) -> Result<Owner, IdError> {
    Owner::new(node, Uuid::from_u128(process))
}

/// Ten seconds, one second of allowance.
pub fn terms() -> Result<LeaseTerms, TermsError> {
    LeaseTerms::new(Duration::from_secs(10), Duration::from_secs(1))
}

/// A transfer of `value` under a request id and a proposed transaction id.
#[must_use]
pub fn request(submitter: &SubmitterId, request_id: &str, tx_id: Uuid, value: u64) -> NewTx {
    let scope = Scope::from(submitter);
    checked(scope, submitter, request_id, tx_id, value)
        .unwrap_or_else(|error| panic!("a fixture is wrong: {error}"))
}

#[derive(Debug, thiserror::Error)]
enum FixtureError {
    #[error(transparent)]
    Id(#[from] IdError),
    #[error(transparent)]
    Intent(#[from] IntentError),
}

fn checked(
    scope: Scope,
    submitter: &SubmitterId,
    request_id: &str,
    tx_id: Uuid,
    value: u64,
) -> Result<NewTx, FixtureError> {
    let payload =
        Payload { to: Some(Address::repeat_byte(0xee)), value: Wei(U256::from(value)), ..Default::default() };
    let intent = Intent { payload, ..Default::default() };
    Ok(NewTx::new(TxId(tx_id), scope, submitter.clone(), RequestId::parse(request_id)?, intent, None)?)
}
