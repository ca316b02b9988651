//! Who is at the other end? Chain id and block 0 are compared before an endpoint is believed in
//! anything. One that serves another chain would let us take a stranger's counts for our own.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use alloy_primitives::B256;
use serde_json::json;
use tokio::time::Instant;

use super::endpoint::Endpoint;
use super::health::Quarantine;
use super::{Call, Reply, RpcError, Trouble, wire};
use crate::decode::{self, BlockHash};
use crate::quantity::Quantity;

/// What every endpoint must agree with.
#[derive(Debug)]
pub(crate) struct Identity {
    chain_id: u64,
    /// Configured, or else as the first verified endpoint said.
    genesis: Mutex<Option<B256>>,
    recheck: Duration,
}

impl Identity {
    pub(crate) const fn new(chain_id: u64, genesis: Option<B256>, recheck: Duration) -> Self {
        Self { chain_id, genesis: Mutex::new(genesis), recheck }
    }

    pub(crate) const fn chain_id(&self) -> u64 {
        self.chain_id
    }

    pub(crate) const fn recheck(&self) -> Duration {
        self.recheck
    }

    /// The genesis all must have, once it is known.
    pub(crate) fn genesis(&self) -> Option<B256> {
        *self.genesis.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The genesis all must have; the first to ask without one sets it.
    fn agree(&self, found: B256) -> B256 {
        *self.genesis.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(found)
    }
}

/// Whether an endpoint may decline to tell. Private relays often take transactions and answer nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strictness {
    MustTell,
    MayDecline,
}

impl Endpoint {
    /// Checks who it is, unless somebody just did.
    pub(crate) async fn verify(&self, identity: &Identity, strictness: Strictness, in_need: bool) {
        let _one_at_a_time = self.checking.lock().await;
        if !self.health().is_due(Instant::now(), in_need) {
            return;
        }
        let calls =
            [Call::new("eth_chainId", json!([])), Call::new("eth_getBlockByNumber", json!(["0x0", false]))];
        let Ok(replies) = self.ask(&calls).await else { return };
        match judge(&replies, identity, strictness) {
            Ok(None) => self.health().verified(),
            Ok(Some(reason)) => self.put_aside(reason, identity),
            Err(trouble) => self.stumbled(&trouble),
        }
    }

    /// Takes it out of use for a while.
    pub(crate) fn put_aside(&self, reason: Quarantine, identity: &Identity) {
        let mut health = self.health();
        health.quarantine(reason, Instant::now() + identity.recheck());
        tracing::warn!(endpoint = self.http.name(), reason = health.detail(), "an endpoint is quarantined");
    }
}

fn judge(
    replies: &[Reply],
    identity: &Identity,
    strictness: Strictness,
) -> Result<Option<Quarantine>, Trouble> {
    let [chain_id, genesis] = replies else { return Err(Trouble::malformed("two answers were expected")) };
    if let Some(Quantity(found)) = told::<Quantity<u64>>(chain_id, strictness, "its chain id")?
        && found != identity.chain_id
    {
        return Ok(Some(Quarantine::ChainId { found, wanted: identity.chain_id }));
    }
    if let Some(BlockHash { hash: found }) = told::<BlockHash>(genesis, strictness, "its block 0")? {
        let wanted = identity.agree(found);
        if found != wanted {
            return Ok(Some(Quarantine::Genesis { found, wanted }));
        }
    }
    Ok(None)
}

fn told<T: serde::de::DeserializeOwned>(
    reply: &Reply,
    strictness: Strictness,
    what: &str,
) -> Result<Option<T>, Trouble> {
    match reply {
        Ok(raw) => match decode::optional(raw)? {
            Some(found) => Ok(Some(found)),
            None if strictness == Strictness::MayDecline => Ok(None),
            None => Err(Trouble::malformed(format!("it does not tell {what}"))),
        },
        Err(RpcError::Trouble(trouble)) => Err(trouble.clone()),
        Err(RpcError::Node(error)) if strictness == Strictness::MayDecline && !wire::is_throttled(error) => {
            Ok(None)
        }
        Err(RpcError::Node(error)) => Err(wire::refusal(error, &format!("it does not tell {what}"))),
    }
}
