//! One endpoint: one HTTP client for the life of the process, its connections kept alive, and what is
//! known of its health. A client per call costs more than everything else together.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::health::Health;
use super::{Call, Reply, RpcError, Trouble, TroubleKind, wire};
use crate::decode;
use crate::options::EvmError;
use crate::quantity::Quantity;

/// No honest answer is longer.
const MAX_ANSWER_BYTES: usize = 128 << 20;
/// As much of an HTTP error's body as a reader wants to see.
const MAX_SHOWN: usize = 300;

/// An address and the client for it; also what a remote signer is reached with.
#[derive(Debug)]
pub(crate) struct Http {
    pub(super) url: Url,
    name: String,
    pub(super) client: Client,
    pub(super) timeout: Duration,
    in_flight: Semaphore,
}

impl Http {
    pub(crate) fn new(
        address: &str,
        place: usize,
        timeout: Duration,
        max_in_flight: usize,
    ) -> Result<Self, EvmError> {
        let url = Url::parse(address).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let url = url.ok_or(EvmError::Address { place })?;
        let name = shown(&url);
        let mut builder = Client::builder()
            // A redirect would carry private bytes to a door nobody configured.
            .redirect(redirect::Policy::none())
            .connect_timeout(timeout)
            .pool_max_idle_per_host(max_in_flight)
            .tcp_nodelay(true);
        if is_loopback(&url) {
            builder = builder.no_proxy();
        }
        if url.scheme() == "http" {
            // No certificates are needed, so a machine without any will do.
            builder = builder.tls_certs_only([]);
        }
        let client = builder.build().map_err(|error| EvmError::Client {
            endpoint: name.clone(),
            reason: with_sources(&error.without_url()),
        })?;
        Ok(Self { url, name, client, timeout, in_flight: Semaphore::new(max_in_flight) })
    }

    /// Its address without credentials, path and query, all of which may hold keys.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Calls in one HTTP request; one reply each, in order.
    pub(crate) async fn exchange(&self, calls: &[Call]) -> Result<Vec<Reply>, Trouble> {
        let deadline = Instant::now() + self.timeout;
        let busy = || Trouble::new(TroubleKind::Busy, "too many requests are under way already");
        let permit = timeout_at(deadline, self.in_flight.acquire()).await;
        let _permit = permit.map_err(|_| busy())?.map_err(|_| busy())?;
        let request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        let answer = async { read(request.body(wire::encode(calls)).send().await.map_err(trouble)?).await };
        let late = |_| Trouble::new(TroubleKind::TimedOut, format!("no answer within {:?}", self.timeout));
        let (status, retry_after, body) = timeout_at(deadline, answer).await.map_err(late)??;
        if matches!(status.as_u16(), 408 | 429 | 502..=504) {
            return Err(bad_status(status, retry_after, &body));
        }
        // Some servers send JSON-RPC errors under an HTTP error's status.
        let decoded = wire::decode(&body, calls.len());
        if status.is_success() {
            decoded
        } else {
            decoded.map_err(|_| bad_status(status, retry_after, &body))
        }
    }
}

const REQUESTS: &str = "gapless_rpc_requests_total";
const CALLS: &str = "gapless_rpc_calls_total";

/// Both are there from the start, at zero.
fn announce() {
    metrics::describe_counter!(REQUESTS, "HTTP requests to nodes.");
    metrics::describe_counter!(CALLS, "RPC calls that these requests carried.");
    metrics::counter!(REQUESTS).absolute(0);
    metrics::counter!(CALLS).absolute(0);
}

/// One exchange counts once under each method it carried; methods are words of this crate, so they are few.
fn measure(calls: &[Call], took: Duration) {
    metrics::counter!(REQUESTS).increment(1);
    metrics::counter!(CALLS).increment(calls.len() as u64);
    let methods: BTreeSet<&'static str> = calls.iter().map(|call| call.method).collect();
    for method in methods {
        metrics::histogram!("gapless_rpc_seconds", "method" => method).record(took.as_secs_f64());
    }
}

fn throttled(reply: &Reply) -> Option<Trouble> {
    let Err(RpcError::Node(error)) = reply else { return None };
    wire::is_throttled(error).then(|| wire::refusal(error, "it asks for patience"))
}

async fn read(mut response: Response) -> Result<(StatusCode, Option<Duration>, Vec<u8>), Trouble> {
    let status = response.status();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    // The form with a date would need a clock; the pause of our own does as well.
    let retry_after = retry_after.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(trouble)? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Err(Trouble::malformed("the answer is too long"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((status, retry_after, body))
}

fn bad_status(status: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> Trouble {
    let said: String = String::from_utf8_lossy(body).chars().take(MAX_SHOWN).collect();
    let text =
        if said.trim().is_empty() { format!("HTTP {status}") } else { format!("HTTP {status}: {said}") };
    Trouble::new(TroubleKind::Status { status: status.as_u16(), retry_after }, text)
}

pub(super) fn trouble(error: reqwest::Error) -> Trouble {
    let kind = if error.is_connect() || error.is_builder() {
        TroubleKind::NotSent
    } else if error.is_timeout() {
        TroubleKind::TimedOut
    } else {
        TroubleKind::Broken
    };
    Trouble::new(kind, with_sources(&error.without_url()))
}

/// reqwest's own words say little; the cause is further down.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}

fn shown(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port_or_known_default() {
        Some(port) => format!("{}://{host}:{port}", url.scheme()),
        None => format!("{}://{host}", url.scheme()),
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// An endpoint of the chain.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) http: Http,
    health: Mutex<Health>,
    /// One check of its identity at a time.
    pub(super) checking: tokio::sync::Mutex<()>,
    /// One look at its head besides other reads at a time.
    pub(super) comparing: Arc<tokio::sync::Mutex<()>>,
}

impl Endpoint {
    pub(crate) fn new(http: Http) -> Self {
        announce();
        Self {
            http,
            health: Mutex::new(Health::new()),
            checking: Default::default(),
            comparing: Arc::default(),
        }
    }

    pub(crate) fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, and remembers how it went.
    pub(crate) async fn ask(&self, calls: &[Call]) -> Result<Vec<Reply>, Trouble> {
        let began = Instant::now();
        let mut owed = Owed::by(self);
        let result = self.http.exchange(calls).await;
        owed.answered = result.is_ok();
        drop(owed);
        measure(calls, began.elapsed());
        match &result {
            Ok(replies) => match replies.iter().find_map(throttled) {
                Some(trouble) => self.stumbled(&trouble),
                None => self.health().answered(),
            },
            Err(trouble) => self.stumbled(trouble),
        }
        result
    }

    /// Remembers the head it named.
    pub(crate) fn saw_head(&self, head: u64) {
        self.health().saw_head(head, Instant::now());
    }

    /// Asks for its head, to know whether it is behind.
    pub(crate) async fn name_head(&self) {
        let Ok(replies) = self.ask(&[Call::new("eth_blockNumber", json!([]))]).await else { return };
        match replies.first() {
            Some(Ok(raw)) => match decode::required::<Quantity<u64>>(raw) {
                Ok(head) => self.saw_head(head.0),
                Err(trouble) => self.stumbled(&trouble),
            },
            _ => self.stumbled(&Trouble::malformed("it does not name its head")),
        }
    }

    /// Remembers a failure that only the reader of an answer could see.
    pub(crate) fn stumbled(&self, trouble: &Trouble) {
        tracing::debug!(endpoint = self.http.name(), %trouble, "an RPC exchange failed");
        self.health().failed(trouble, Instant::now(), fastrand::f64());
    }
}

/// An exchange under way, however it ends.
struct Owed<'a> {
    endpoint: &'a Endpoint,
    answered: bool,
}

impl<'a> Owed<'a> {
    fn by(endpoint: &'a Endpoint) -> Self {
        endpoint.health().asked(Instant::now());
        Self { endpoint, answered: false }
    }
}

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        self.endpoint.health().over(self.answered, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(address: &str) -> Result<Http, EvmError> {
        Http::new(address, 1, Duration::from_secs(1), 1)
    }

    #[test]
    fn a_name_shows_no_secret() {
        let name = |address| http(address).unwrap().name().to_owned();
        assert_eq!(name("https://user:secret@rpc.example/v3/key?k=secret"), "https://rpc.example:443");
        assert_eq!(name("http://127.0.0.1:8545/key"), "http://127.0.0.1:8545");
        assert_eq!(name("http://[::1]:1"), "http://[::1]:1");
    }

    #[test]
    fn only_http_addresses_are_taken_and_a_wrong_one_is_not_repeated() {
        for bad in ["", "rpc.example", "ws://rpc.example/secret", "http://", "file:///secret"] {
            let error = http(bad).unwrap_err();
            assert_eq!(error, EvmError::Address { place: 1 });
            assert!(!error.to_string().contains("secret"));
        }
    }

    #[tokio::test]
    async fn nobody_listening_means_not_sent_and_the_text_hides_the_path() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let trouble = http(&format!("http://{free}/secret")).unwrap().exchange(&[]).await.unwrap_err();
        assert_eq!(trouble.kind, TroubleKind::NotSent);
        assert!(!trouble.text.contains("secret"), "{trouble}");
    }
}
