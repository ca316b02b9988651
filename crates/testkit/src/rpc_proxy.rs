//! A JSON-RPC proxy that lies, stalls and hangs up, before a node that does none of this by itself.
//!
//! What a client may conclude from a failed call depends on whether the node got it, so each [`Fault`] says
//! whether the call is forwarded. Rules apply to each item of a batch by itself.

mod answer;
mod rules;
mod serve;

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::net::TcpListener;

pub use rules::{Fault, Invention, Judgement, Luck, Rule, RuleId, Transform};

use crate::{Error, Result, background::Background, json_rpc};
use rules::Rules;

/// A proxy on a loopback port. Dropping it closes everything.
#[derive(Debug)]
pub struct RpcProxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _background: Background,
}

/// What the test steers and the calls read.
#[derive(Debug)]
struct Shared {
    upstream: Mutex<String>,
    client: reqwest::Client,
    rules: Rules,
    requests: AtomicU64,
    calls: Mutex<HashMap<String, u64>>,
}

impl RpcProxy {
    /// Starts a proxy before the node at `upstream` (an `http://` URL), without rules.
    pub fn start(upstream: impl Into<String>) -> Result<Self> {
        let client = json_rpc::client()
            .map_err(|source| Error::Http { doing: "making a client for the proxy".into(), source })?;
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream.into()),
            client,
            rules: Rules::default(),
            requests: AtomicU64::new(0),
            calls: Mutex::default(),
        });
        let for_thread = Arc::clone(&shared);
        let (addr, background) = Background::start("rpc-proxy", move || {
            let listening = || -> std::io::Result<_> {
                let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                listener.set_nonblocking(true)?;
                Ok((listener.local_addr()?, TcpListener::from_std(listener)?))
            };
            let (addr, listener) = listening().map_err(Error::io("listening on a loopback port"))?;
            Ok((addr, serve::run(listener, for_thread)))
        })?;
        Ok(Self { addr, shared, _background: background })
    }

    /// Where clients connect to.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Calls that come from now on go to another node.
    pub fn point_at(&self, upstream: impl Into<String>) {
        *self.shared.upstream.lock().unwrap_or_else(PoisonError::into_inner) = upstream.into();
    }

    /// Breaks every call of `method` (`*`: of any method) in this way, until removed.
    pub fn rule(&self, method: &str, fault: Fault) -> RuleId {
        self.add(Rule::new(method, fault))
    }

    /// Adds a rule. The oldest rule that is due for a call decides.
    pub fn add(&self, rule: Rule) -> RuleId {
        self.shared.rules.add(rule)
    }

    /// Removes a rule; one that is gone already is no error.
    pub fn remove(&self, id: RuleId) {
        self.shared.rules.remove(id);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.shared.rules.clear();
    }

    /// How often a rule has been applied; nothing if it was removed.
    pub fn fired(&self, id: RuleId) -> u32 {
        self.shared.rules.fired(id)
    }

    /// How many calls of `method` (`*`: of all methods) have come in, broken or not, batched or not.
    pub fn calls(&self, method: &str) -> u64 {
        let calls = self.shared.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if method == "*" { calls.values().sum() } else { calls.get(method).copied().unwrap_or_default() }
    }

    /// How many HTTP requests have come in.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }
}
