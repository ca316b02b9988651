//! The HTTP surface over the engine's [`Handle`]: it reads requests, asks, and words the answers.
//!
//! Nothing is decided here but what a request says and who may say it. A request that cannot be read is refused
//! before the engine hears of it; whatever the engine answers has a code, a status and advice ([`problem`]). No
//! answer ever claims more than is known: a lost answer of the store is *outcome unknown*, not *failed*.

pub mod auth;
mod batch;
mod body;
mod commands;
pub mod duration;
mod events;
mod health;
mod near;
pub mod openapi;
mod operate;
mod pages;
mod parse;
pub mod problem;
mod query;
mod resolve;
mod stuck;
mod submitters;
mod tx;
mod wire;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use gapless_core::ports::clock::Clock;
use gapless_engine::Handle;
use tokio_util::sync::CancellationToken;

pub use crate::near::nearest;

use crate::auth::Keys;
use crate::problem::{Code, Problem};

/// Renders the metrics in Prometheus' text format.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// How much a caller may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimits {
    /// One request, in bytes.
    pub single: usize,
    /// A batch, in bytes.
    pub batch: usize,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self { single: 262_144, batch: 16_777_216 }
    }
}

/// What the handlers need. Cheap to clone.
#[derive(Clone)]
pub struct ApiState {
    /// The engine.
    pub handle: Handle,
    /// Time, for measuring and for keys that expire.
    pub clock: Arc<dyn Clock>,
    /// Who may do what; no keys at all: everybody, everything.
    pub keys: Arc<Keys>,
    /// Renders the metrics.
    pub metrics: Render,
    /// How much a caller may send.
    pub limits: BodyLimits,
    /// Cancelled when the server stops: whoever waits for a transaction is answered at once.
    pub stopping: CancellationToken,
}

impl fmt::Debug for ApiState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiState")
            .field("keys", &self.keys)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// All routes.
pub fn router(state: ApiState) -> Router {
    let api = Router::new()
        .route("/tx", post(tx::submit).get(tx::list))
        .route("/tx/batch", post(batch::submit))
        .route("/tx/by-request", get(tx::by_request))
        .route("/tx/by-hash/{hash}", get(tx::by_hash))
        .route("/tx/{txId}", get(tx::one))
        .route("/tx/{txId}/events", get(events::of_tx))
        .route("/tx/{txId}/attempts", get(tx::attempts))
        .route("/tx/{txId}/explain", get(tx::explain))
        .route("/tx/{txId}/cancel", post(commands::cancel))
        .route("/tx/{txId}/replace", post(commands::replace))
        .route("/tx/{txId}/resolve", post(commands::resolve))
        .route("/commands/{id}", get(commands::one))
        .route("/events", get(events::stream))
        .route("/stuck/plan", get(stuck::plan))
        .route("/submitters", get(submitters::list).post(submitters::register))
        .route("/submitters/{id}", get(submitters::one))
        .route("/submitters/{id}/nonces", get(operate::nonces))
        .route("/submitters/{id}/report", get(operate::report))
        .route("/submitters/{id}/pause", post(operate::pause))
        .route("/submitters/{id}/resume", post(operate::resume))
        .route("/submitters/{id}/unprotect", post(operate::unprotect))
        .route("/submitters/{id}/reset-nonce", post(operate::reset_nonce))
        .route("/submitters/{id}/drain", post(operate::drain));
    Router::new()
        .nest("/api/v1", api)
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(openapi::document))
        .route("/docs/errors/{code}", get(pages::error))
        .fallback(|| async { Problem::new(Code::NotFound, "there is nothing at this address") })
        .method_not_allowed_fallback(|| async {
            Problem::new(Code::MethodNotAllowed, "this address does not answer that method")
        })
        // Bodies are bounded where they are read, with an answer of our own.
        .layer(DefaultBodyLimit::disable())
        .with_state(state)
}
