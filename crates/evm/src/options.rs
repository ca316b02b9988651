//! How to reach a chain. Wrong options are found here, before anything is asked of anybody.

use std::fmt;
use std::time::Duration;

use alloy_primitives::B256;
use thiserror::Error;

/// Most calls in one HTTP request: public providers refuse longer batches.
pub(crate) const MAX_BATCH: usize = 100;

/// How to reach a chain.
#[derive(Clone)]
pub struct EvmOptions {
    /// The chain's EIP-155 number; an endpoint that answers another is never used.
    pub chain_id: u64,
    /// Public endpoints, the preferred first. Requests go to `http://` and `https://` addresses; `ws://` and `wss://`
    /// addresses are listened to for hints of new heads, and where there are no others, requests go to them over HTTP.
    pub endpoints: Vec<String>,
    /// Endpoints for attempts on the private route. Those go nowhere else.
    pub private_endpoints: Vec<String>,
    /// How long one HTTP request may take.
    pub timeout: Duration,
    /// Most HTTP requests under way per endpoint.
    pub max_in_flight: usize,
    /// Most calls per HTTP request, at most 100.
    pub max_batch: usize,
    /// Whether a broadcast goes to every usable endpoint instead of the first.
    pub broadcast_to_all: bool,
    /// Hash of block 0, if known beforehand. Otherwise the first endpoint that verifies decides.
    pub expected_genesis: Option<B256>,
    /// How long a quarantined endpoint rests before it is asked again.
    pub recheck: Duration,
}

impl EvmOptions {
    /// Defaults for a chain: ten seconds, a hundred requests in flight, batches of a hundred.
    #[must_use]
    pub fn new(chain_id: u64, endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            chain_id,
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            private_endpoints: Vec::new(),
            timeout: Duration::from_secs(10),
            max_in_flight: 100,
            max_batch: MAX_BATCH,
            broadcast_to_all: false,
            expected_genesis: None,
            recheck: Duration::from_secs(10),
        }
    }

    /// Where requests go, and where hints of heads come from.
    pub(crate) fn by_use(&self) -> (Vec<Placed>, Vec<Placed>) {
        let (mut requests, mut sockets) = (Vec::new(), Vec::new());
        for (place, address) in (1..).zip(&self.endpoints) {
            match socket_over_http(address) {
                Some(address) => sockets.push(Placed { place, address }),
                None => requests.push(Placed { place, address: address.clone() }),
            }
        }
        (if requests.is_empty() { sockets.clone() } else { requests }, sockets)
    }

    /// Where private bytes go.
    pub(crate) fn private(&self) -> Vec<Placed> {
        let places = 1 + self.endpoints.len()..;
        places.zip(&self.private_endpoints).map(|(place, it)| Placed { place, address: it.clone() }).collect()
    }

    pub(crate) fn check(&self) -> Result<(), EvmError> {
        if self.endpoints.is_empty() {
            return Err(EvmError::NoEndpoint);
        }
        let positive = [
            ("chain_id", self.chain_id > 0),
            ("timeout", !self.timeout.is_zero()),
            ("max_in_flight", self.max_in_flight > 0),
            ("max_batch", (1..=MAX_BATCH).contains(&self.max_batch)),
            ("recheck", !self.recheck.is_zero()),
        ];
        match positive.iter().find(|(_, fits)| !fits) {
            Some((option, _)) => Err(EvmError::OutOfRange { option }),
            None => Ok(()),
        }
    }
}

/// An HTTP address, and its place from 1 among all that are configured. Not to be shown: it may carry a key.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub(crate) struct Placed {
    pub(crate) place: usize,
    pub(crate) address: String,
}

/// A socket's address as the HTTP address of the same server.
fn socket_over_http(address: &str) -> Option<String> {
    let (scheme, rest) = address.split_once("://")?;
    match scheme.to_ascii_lowercase().as_str() {
        "ws" => Some(format!("http://{rest}")),
        "wss" => Some(format!("https://{rest}")),
        _ => None,
    }
}

/// Addresses may carry keys, so only their number is shown.
impl fmt::Debug for EvmOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EvmOptions")
            .field("chain_id", &self.chain_id)
            .field("endpoints", &self.endpoints.len())
            .field("private_endpoints", &self.private_endpoints.len())
            .field("timeout", &self.timeout)
            .field("max_in_flight", &self.max_in_flight)
            .field("max_batch", &self.max_batch)
            .field("broadcast_to_all", &self.broadcast_to_all)
            .field("expected_genesis", &self.expected_genesis)
            .field("recheck", &self.recheck)
            .finish()
    }
}

/// Why a chain cannot be set up. An endpoint that does not answer is no such reason.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EvmError {
    /// None given.
    #[error("no endpoint is configured")]
    NoEndpoint,
    /// Not an address. Its text may hold a key, so its place is named instead.
    #[error("endpoint number {place} is not an http://, https://, ws:// or wss:// address")]
    Address {
        /// From 1, in the order configured.
        place: usize,
    },
    /// A number that makes no sense.
    #[error("{option} is out of range")]
    OutOfRange {
        /// Which.
        option: &'static str,
    },
    /// The HTTP client could not be made.
    #[error("cannot make an HTTP client for {endpoint}: {reason}")]
    Client {
        /// For whom.
        endpoint: String,
        /// Why.
        reason: String,
    },
}

impl EvmError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoEndpoint | Self::Address { .. } | Self::OutOfRange { .. } => "config-invalid",
            Self::Client { .. } => "http-client",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_give_hints_and_take_requests_only_where_nobody_else_does() {
        let place = |place, address: &str| Placed { place, address: address.to_owned() };
        let mixed = EvmOptions::new(1, ["http://a", "WSS://b/k?x=ws://c", "https://d"]);
        let sockets = vec![place(2, "https://b/k?x=ws://c")];
        assert_eq!(mixed.by_use(), (vec![place(1, "http://a"), place(3, "https://d")], sockets));
        let alone = EvmOptions::new(1, ["ws://a:1"]);
        assert_eq!(alone.by_use(), (vec![place(1, "http://a:1")], vec![place(1, "http://a:1")]));
    }
}
