//! Probes for whoever runs this process, and the metrics.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde::Serialize;
use serde_json::json;

use crate::ApiState;
use crate::problem::{Code, Problem};

/// A store that takes longer to tell the time is not ready.
const STORE_PATIENCE: Duration = Duration::from_secs(2);

/// `GET /livez`: the process answers.
pub(crate) async fn live() -> impl IntoResponse {
    Json(json!({ "status": "alive" }))
}

/// What work needs, part by part.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Parts {
    store: StorePart,
    chains: Vec<ChainPart>,
}

#[derive(Debug, Serialize)]
struct StorePart {
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

#[derive(Debug, Serialize)]
struct ChainPart {
    id: String,
    ready: bool,
    head: Option<u64>,
    endpoints: Vec<EndpointPart>,
}

#[derive(Debug, Serialize)]
struct EndpointPart {
    name: String,
    ready: bool,
    detail: String,
}

/// `GET /readyz`: 200, or 503 with what is not ready.
pub(crate) async fn ready(State(state): State<ApiState>) -> Result<impl IntoResponse, Problem> {
    let answer = tokio::time::timeout(STORE_PATIENCE, state.handle.store().now()).await;
    let detail = match answer {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(format!("the store did not answer within {STORE_PATIENCE:?}")),
    };
    let store = StorePart { ready: detail.is_none(), detail };
    let mut chains: Vec<ChainPart> = state.handle.chains().into_iter().map(chain).collect();
    chains.sort_by(|a, b| a.id.cmp(&b.id));
    let mut waiting: Vec<String> =
        chains.iter().filter(|c| !c.ready).map(|c| format!("chain {}", c.id)).collect();
    if !store.ready {
        waiting.push("the store".to_owned());
    }
    if state.stopping.is_cancelled() {
        waiting.push("this node, which is stopping".to_owned());
    }
    let parts = Parts { store, chains };
    if waiting.is_empty() {
        return Ok(Json(json!({ "status": "ready", "store": parts.store, "chains": parts.chains })));
    }
    let problem = Problem::new(Code::NotReady, format!("not ready: {}", waiting.join(", ")));
    Err(problem.with("store", json!(parts.store)).with("chains", json!(parts.chains)))
}

type Chain = (gapless_core::submitter::ChainId, Option<u64>, Vec<gapless_core::ports::chain::EndpointStatus>);

fn chain((id, head, endpoints): Chain) -> ChainPart {
    let endpoints: Vec<EndpointPart> = endpoints
        .into_iter()
        .map(|endpoint| EndpointPart {
            name: endpoint.name,
            ready: endpoint.healthy,
            detail: endpoint.detail,
        })
        .collect();
    let ready = head.is_some() && endpoints.iter().any(|endpoint| endpoint.ready);
    ChainPart { id: id.to_string(), ready, head, endpoints }
}

/// `GET /metrics`
pub(crate) async fn metrics(State(state): State<ApiState>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], (state.metrics)())
}
