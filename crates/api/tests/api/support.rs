//! One node without a chain, and a client for it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use gapless_api::auth::Keys;
use gapless_api::{ApiState, BodyLimits, router};
use gapless_core::lease::{LeaseTerms, Owner};
use gapless_core::ports::clock::Clock;
use gapless_core::ports::store::Store;
use gapless_core::submitter::SubmitterId;
use gapless_engine::points::Points;
use gapless_engine::{
    AcceptRules, Engine, EngineOptions, Handle, LaneSettings, Policies, Registry, Submitter,
};
use gapless_evm::{EvmChain, EvmOptions};
use gapless_store::clock::SystemClock;
use gapless_store::memory::MemoryStore;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub(crate) const ADDRESS: &str = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";
pub(crate) const ACCOUNT: &str = "eip155:31337:0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";
pub(crate) const TO: &str = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Answer {
    /// Fails unless it is this problem, in full.
    pub(crate) fn is_problem(&self, status: u16, code: &str) -> &str {
        assert_eq!((self.status.as_u16(), self.body["code"].as_str()), (status, Some(code)), "{}", self.text);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(self.body["status"], status);
        assert!(self.body["type"].as_str().unwrap().ends_with(&format!("docs/errors/{code}")));
        assert!(self.body["title"].is_string() && self.body["retryable"].is_boolean());
        self.body["detail"].as_str().unwrap()
    }
}

/// A node whose engine runs until it is dropped.
pub(crate) struct Node {
    pub(crate) router: Router,
    pub(crate) handle: Handle,
    stop: CancellationToken,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What a node is made of, where it is not the usual.
pub(crate) struct Make {
    pub(crate) name: &'static str,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) keys: Keys,
    pub(crate) rules: AcceptRules,
    /// With a chain that does not answer: enough to hold leases and to run lanes.
    pub(crate) chain: bool,
}

impl Default for Make {
    fn default() -> Self {
        let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
        Self { name: "a", store, keys: Keys::default(), rules: AcceptRules::default(), chain: false }
    }
}

impl Node {
    pub(crate) async fn start() -> Self {
        Self::made(Make::default()).await
    }

    /// A node whose engine is gone while its API still answers.
    pub(crate) async fn stopped() -> Self {
        let (node, engine) = Self::build(Make::default()).await;
        drop(engine);
        node.stop.cancel();
        node
    }

    /// A node that answers and runs nothing, with policies of its own.
    pub(crate) async fn answering(make: Make, policies: Policies) -> Self {
        let (node, engine) = Self::build(make).await;
        drop(engine.with_policies(policies));
        node
    }

    pub(crate) async fn with(store: Arc<dyn Store>, keys: Keys) -> Self {
        Self::made(Make { store, keys, ..Make::default() }).await
    }

    pub(crate) async fn made(make: Make) -> Self {
        let (node, engine) = Self::build(make).await;
        tokio::spawn(engine.run(node.stop.clone()));
        node
    }

    async fn build(make: Make) -> (Self, Engine) {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let registry = Registry::new(LaneSettings::default());
        let id: SubmitterId = ACCOUNT.parse().unwrap();
        if make.chain {
            let nobody = EvmChain::new(&EvmOptions::new(31_337, ["http://127.0.0.1:1"])).unwrap();
            registry.add_chain(id.chain(), Arc::new(nobody));
        }
        registry.add_submitter(Submitter { id, settings: LaneSettings::default(), signer: None });
        let options = EngineOptions {
            owner: Owner::new(make.name, clock.draw()).unwrap(),
            terms: LeaseTerms::new(Duration::from_secs(3), Duration::from_millis(300)).unwrap(),
            renew: Duration::from_millis(800),
            sweep: Duration::from_millis(300),
            idle_release: Duration::from_secs(30),
            poll: Duration::from_millis(100),
            guard: true,
            points: Points::default(),
        };
        let (engine, handle) = Engine::build(options, make.store, clock.clone(), registry).await.unwrap();
        let handle = handle.accepting(make.rules);
        let stop = CancellationToken::new();
        let state = ApiState {
            handle: handle.clone(),
            clock,
            keys: Arc::new(make.keys),
            metrics: Arc::new(|| "gapless_up 1\n".to_owned()),
            limits: BodyLimits::default(),
            stopping: stop.clone(),
        };
        (Self { router: router(state), handle, stop }, engine)
    }

    pub(crate) async fn call(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Answer { status: parts.status, headers: parts.headers, body, text }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn post_text(&self, path: &str, body: impl Into<Body>) -> Answer {
        let request = Request::post(path).header("content-type", "application/json");
        self.call(request.body(body.into()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.post_text(path, body.to_string()).await
    }
}

/// A transfer under a name.
pub(crate) fn transfer(request_id: &str) -> Value {
    json!({ "submitter": ACCOUNT, "requestId": request_id, "payload": { "to": TO, "value": "0x1" } })
}
