//! Several endpoints, used as one. Reads go to the first that is verified, cooled down, answering and not behind
//! the others, and move on when it fails; when nobody is left they wait for the first to cool down.
//!
//! Who is behind can only be told of endpoints whose heads are known, and reads alone would ask the preferred one and
//! never learn that it stands still: so the others are asked for theirs every now and then.
//!
//! Identities are checked in the foreground only while nobody is verified; after that in the
//! background, so that a dead endpoint slows nobody.

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::ports::chain::{ChainError, ChainResult, EndpointStatus};
use gapless_core::text::NodeText;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until};

use super::endpoint::Endpoint;
use super::health::{Quarantine, Standing};
use super::verify::{Identity, Strictness};
use super::{Call, NodeError, Reply, RpcError, Trouble, wire};

/// Why one endpoint's answer does not do.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// Nothing was learnt; the same endpoint may answer later.
    Trouble(Trouble),
    /// It does not keep this history; another may.
    Pruned(NodeText),
    /// It refuses this read; another may not.
    Refused(NodeError),
}

impl From<Trouble> for ReadError {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

#[derive(Debug)]
pub(crate) struct Pool {
    endpoints: Vec<Arc<Endpoint>>,
    identity: Arc<Identity>,
    strictness: Strictness,
    /// How long a call waits for somebody to cool down.
    patience: Duration,
}

/// How often endpoints that are not read from are asked for their head.
const COMPARE: Duration = Duration::from_secs(2);

impl Pool {
    pub(crate) const fn new(
        endpoints: Vec<Arc<Endpoint>>,
        identity: Arc<Identity>,
        strictness: Strictness,
        patience: Duration,
    ) -> Self {
        Self { endpoints, identity, strictness, patience }
    }

    pub(crate) fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn status(&self) -> impl Iterator<Item = EndpointStatus> {
        self.endpoints.iter().map(|endpoint| {
            let health = endpoint.health();
            EndpointStatus {
                name: endpoint.http.name().to_owned(),
                healthy: health.looks_healthy(),
                detail: health.detail(),
            }
        })
    }

    /// Asks one endpoint after another until `decode` is content with an answer.
    pub(crate) async fn read<T>(
        &self,
        calls: &[Call],
        decode: impl Fn(&Endpoint, &[Reply]) -> Result<T, ReadError>,
    ) -> ChainResult<T> {
        let mut turns = self.turns();
        let mut answer: Option<ChainError> = None;
        let mut trouble: Option<Trouble> = None;
        loop {
            // Who has given a definite answer is not asked again, and a wait would only repeat the rest.
            let turn = if answer.is_some() { turns.now() } else { turns.next().await };
            let Some((place, endpoint)) = turn else {
                return Err(answer.unwrap_or_else(|| self.nobody(trouble.as_ref())));
            };
            let failed = match endpoint.ask(calls).await {
                Ok(replies) => match decode(endpoint, &replies) {
                    Ok(value) => return Ok(value),
                    Err(ReadError::Trouble(found)) => {
                        endpoint.stumbled(&found);
                        found
                    }
                    Err(ReadError::Pruned(text)) => {
                        turns.strike(place);
                        answer.get_or_insert(ChainError::Pruned(text));
                        continue;
                    }
                    Err(ReadError::Refused(error)) => {
                        turns.strike(place);
                        answer = Some(ChainError::Unavailable(error.text()));
                        continue;
                    }
                },
                Err(found) => found,
            };
            trouble = Some(Trouble { text: format!("{}: {failed}", endpoint.http.name()), ..failed });
        }
    }

    pub(crate) fn nobody(&self, trouble: Option<&Trouble>) -> ChainError {
        let text = match trouble {
            Some(trouble) => trouble.text.clone(),
            None if self.endpoints.is_empty() => "no such endpoint is configured".to_owned(),
            None => {
                let shown = self.status().map(|status| format!("{}: {}", status.name, status.detail));
                shown.collect::<Vec<_>>().join("; ")
            }
        };
        ChainError::Unavailable(NodeText::new(&text))
    }

    /// The highest block that an endpoint names now.
    pub(crate) fn best_head(&self) -> u64 {
        self.endpoints.iter().filter_map(|endpoint| endpoint.health().head()).max().unwrap_or_default()
    }

    /// Asks those that are not read from for their heads, in the background.
    pub(crate) fn compare_heads(&self) {
        let now = Instant::now();
        for (_, endpoint) in self.ready().into_iter().skip(1) {
            if endpoint.health().head_is_older_than(COMPARE, now)
                && let Ok(asking) = Arc::clone(&endpoint.comparing).try_lock_owned()
            {
                let endpoint = Arc::clone(endpoint);
                tokio::spawn(async move {
                    endpoint.name_head().await;
                    drop(asking);
                });
            }
        }
    }

    /// Another block 0 than agreed, if that is what keeps every endpoint out of use.
    pub(crate) fn changed_genesis(&self) -> Option<B256> {
        let standing = |endpoint: &Arc<Endpoint>| endpoint.health().standing.clone();
        let mut changed = None;
        for endpoint in &self.endpoints {
            match standing(endpoint) {
                Standing::Verified => return None,
                Standing::Quarantined(Quarantine::Genesis { found, .. }) => changed = changed.or(Some(found)),
                _ => {}
            }
        }
        changed
    }

    pub(crate) fn turns(&self) -> Turns<'_> {
        let nobody = vec![false; self.endpoints.len()];
        Turns { pool: self, struck: nobody.clone(), asked: nobody, deadline: Instant::now() + self.patience }
    }

    /// Whoever may be asked now, the preferred first.
    pub(crate) fn ready(&self) -> Vec<(usize, &Arc<Endpoint>)> {
        let (now, best) = (Instant::now(), self.best_head());
        let mut ready: Vec<((bool, bool), usize, &Arc<Endpoint>)> = Vec::with_capacity(self.endpoints.len());
        for (place, endpoint) in self.endpoints.iter().enumerate() {
            let mut health = endpoint.health();
            if health.is_ready(now) {
                let behind = (health.is_failing(now), health.is_lagging(best, now));
                ready.push((behind, place, endpoint));
            }
        }
        ready.sort_by_key(|(behind, place, _)| (*behind, *place));
        ready.into_iter().map(|(_, place, endpoint)| (place, endpoint)).collect()
    }

    /// Whoever may be asked now, once everybody whose identity is due was checked.
    pub(crate) async fn all_ready(&self) -> Vec<(usize, &Arc<Endpoint>)> {
        for endpoint in &self.endpoints {
            if endpoint.health().is_due(Instant::now(), false) {
                endpoint.verify(&self.identity, self.strictness, false).await;
            }
        }
        self.ready()
    }

    /// Checks identities that are due: in the background if somebody is ready, else until somebody is.
    pub(crate) async fn verify_due(&self) {
        let mut in_need = self.ready().is_empty();
        for endpoint in &self.endpoints {
            if !endpoint.health().is_due(Instant::now(), in_need) {
                continue;
            }
            if in_need {
                endpoint.verify(&self.identity, self.strictness, true).await;
                in_need = !endpoint.health().is_ready(Instant::now());
            } else if endpoint.checking.try_lock().is_ok() {
                let (endpoint, identity) = (Arc::clone(endpoint), Arc::clone(&self.identity));
                let strictness = self.strictness;
                tokio::spawn(async move { endpoint.verify(&identity, strictness, false).await });
            }
        }
    }
}

/// What nodes say of blocks and states they no longer keep, or never had.
const GONE: [&str; 12] = [
    "missing trie node",
    "header not found",
    "header for hash not found",
    "block not found",
    "blocknotfound",
    "unknown block",
    "state not available",
    "state is not available",
    "no state available",
    "historical state",
    "pruned",
    "resource not found",
];

/// The result at a place of a batch; `null` counts as one.
pub(crate) fn value(replies: &[Reply], at: usize) -> Result<&RawValue, ReadError> {
    match replies.get(at) {
        Some(Ok(raw)) => Ok(raw),
        Some(Err(RpcError::Trouble(trouble))) => Err(trouble.clone().into()),
        Some(Err(RpcError::Node(error))) if wire::is_throttled(error) => {
            Err(wire::refusal(error, "it asks for patience").into())
        }
        Some(Err(RpcError::Node(error))) => {
            let text = error.message.to_ascii_lowercase();
            let gone = GONE.iter().any(|words| text.contains(words));
            Err(if gone { ReadError::Pruned(error.text()) } else { ReadError::Refused(error.clone()) })
        }
        None => Err(Trouble::malformed("an answer is missing").into()),
    }
}

/// Whose turn it is within one call.
pub(crate) struct Turns<'a> {
    pool: &'a Pool,
    struck: Vec<bool>,
    asked: Vec<bool>,
    /// After this, only who was not asked yet.
    deadline: Instant,
}

impl<'a> Turns<'a> {
    /// Gives an endpoint no further turn in this call.
    pub(crate) fn strike(&mut self, place: usize) {
        self.struck[place] = true;
    }

    /// Whether it was struck.
    pub(crate) fn is_struck(&self, place: usize) -> bool {
        self.struck[place]
    }

    /// Whoever may be asked at once.
    pub(crate) fn now(&mut self) -> Option<(usize, &'a Arc<Endpoint>)> {
        let late = Instant::now() > self.deadline;
        let ready = self.pool.ready();
        let (place, endpoint) =
            ready.into_iter().find(|(place, _)| !(self.struck[*place] || late && self.asked[*place]))?;
        self.asked[place] = true;
        Some((place, endpoint))
    }

    /// Whoever may be asked first; waits for that, within the pool's patience.
    pub(crate) async fn next(&mut self) -> Option<(usize, &'a Arc<Endpoint>)> {
        loop {
            self.pool.verify_due().await;
            if let Some(turn) = self.now() {
                return Some(turn);
            }
            let now = Instant::now();
            let left = self.pool.endpoints.iter().zip(&self.struck).filter(|(_, struck)| !**struck);
            let chance = left.map(|(endpoint, _)| endpoint.health().next_chance(now)).min()?;
            if chance.max(now) > self.deadline {
                return None;
            }
            // A millisecond more: timers are that coarse, and an early look would spin.
            sleep_until(chance + Duration::from_millis(1)).await;
        }
    }
}
