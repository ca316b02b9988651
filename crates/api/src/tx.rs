//! Submitting transactions and looking at them.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use gapless_core::ids::{RequestId, Seq};
use gapless_core::ports::store::TxFilter;
use gapless_engine::handle::{Request, Submitted};
use gapless_engine::view::TxView;
use serde::Serialize;

use crate::auth::{Caller, KeyScope};
use crate::problem::{Code, Problem};
use crate::query::Params;
use crate::wire::TxBody;
use crate::{ApiState, body, duration, parse, resolve};

/// A page of anything.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next_cursor: Option<String>,
}

/// Longest wait for a change; whoever wants more asks again.
const MOST_WAIT: Duration = Duration::from_secs(60);

/// Reads one request of a caller.
pub(crate) async fn request(
    state: &ApiState,
    caller: &Caller,
    body: TxBody,
    alias: Option<&str>,
) -> Result<Request, Problem> {
    let parts = body.into_parts()?;
    let request_id = match (parts.request_id.as_deref(), alias) {
        (Some(given), Some(alias)) if given != alias => {
            return Err(Problem::invalid(
                "requestId and the Idempotency-Key header differ; send one of them",
            ));
        }
        (Some(given), _) => given,
        (None, Some(alias)) => alias,
        (None, None) => {
            let detail = "requestId is missing: choose a name of your own for this request, and use it again when repeating it";
            return Err(Problem::invalid(detail));
        }
    };
    let request_id = RequestId::parse(request_id).map_err(|error| Problem::invalid(error.to_string()))?;
    let submitter = resolve::submitter(&state.handle, &parts.submitter).await.map_err(Problem::on_write)?;
    caller.about(&submitter)?;
    Ok(Request { submitter, request_id, intent: parts.intent, metadata: parts.metadata })
}

/// The request id in the header.
fn alias(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let text = std::str::from_utf8(value.as_bytes());
    text.map(Some).map_err(|_| Problem::invalid("the Idempotency-Key header is not UTF-8"))
}

/// `POST /tx`
pub(crate) async fn submit(
    State(state): State<ApiState>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let caller = state.caller(&headers, KeyScope::Submit)?;
    let bytes = body::read(&headers, body, state.limits.single).await?;
    let request = request(&state, &caller, body::decode(&bytes, "")?, alias(&headers)?).await?;
    let submitted = state.handle.submit(request).await;
    let Submitted { new, view } = submitted.map_err(|refusal| Problem::from(refusal).on_write())?;
    Ok(if new {
        let location = format!("/api/v1/tx/{}", view.tx_id);
        (StatusCode::ACCEPTED, [(header::LOCATION, location)], Json(view)).into_response()
    } else {
        (StatusCode::OK, Json(view)).into_response()
    })
}

/// A view, if it is the caller's business. What is not does not exist.
fn shown(caller: &Caller, view: TxView) -> Result<Json<TxView>, Problem> {
    if caller.sees(&view.submitter) {
        return Ok(Json(view));
    }
    Err(Problem::new(Code::UnknownTransaction, "no such transaction"))
}

/// `GET /tx/{txId}`
pub(crate) async fn one(
    State(state): State<ApiState>,
    Path(tx_id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<TxView>, Problem> {
    let caller = state.caller(&headers, KeyScope::Read)?;
    let params = Params::read(&uri, &["wait", "after"])?;
    let tx_id = parse::tx_id(&tx_id)?;
    let after = params.one("after")?.map(str::parse).transpose();
    let after = after.map_err(|_| Problem::invalid("`after` is the `seq` of an earlier view"))?.map(Seq);
    let Some(wait) = params.one("wait")? else {
        return shown(&caller, state.handle.tx(tx_id).await?);
    };
    let wait = duration::parse(wait).map_err(|error| Problem::invalid(format!("wait: {error}")))?;
    let waited = tokio::select! {
        waited = state.handle.wait(tx_id, after, wait.min(MOST_WAIT)) => waited,
        () = state.stopping.cancelled() => state.handle.tx(tx_id).await,
    };
    shown(&caller, waited?)
}

/// `GET /tx/by-request`
pub(crate) async fn by_request(
    State(state): State<ApiState>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<TxView>, Problem> {
    let caller = state.caller(&headers, KeyScope::Read)?;
    let params = Params::read(&uri, &["submitter", "requestId"])?;
    let submitter = resolve::submitter(&state.handle, params.required("submitter")?).await?;
    let request_id = RequestId::parse(params.required("requestId")?);
    let request_id = request_id.map_err(|error| Problem::invalid(error.to_string()))?;
    shown(&caller, state.handle.by_request(&submitter, &request_id).await?)
}

/// `GET /tx/by-hash/{hash}`
pub(crate) async fn by_hash(
    State(state): State<ApiState>,
    Path(hash): Path<String>,
    headers: HeaderMap,
) -> Result<Json<TxView>, Problem> {
    let caller = state.caller(&headers, KeyScope::Read)?;
    shown(&caller, state.handle.by_hash(parse::hash(&hash)?).await?)
}

/// `GET /tx`
pub(crate) async fn list(
    State(state): State<ApiState>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Page<TxView>>, Problem> {
    let caller = state.caller(&headers, KeyScope::Read)?;
    let params = Params::read(&uri, &["submitter", "state", "limit", "cursor"])?;
    let submitter = match params.one("submitter")? {
        Some(text) => Some(resolve::submitter(&state.handle, text).await?),
        None => None,
    };
    match &submitter {
        Some(submitter) => caller.about(submitter)?,
        None if caller.limits().is_some() => {
            return Err(Problem::new(Code::Forbidden, "this API key must name a submitter: add ?submitter="));
        }
        None => {}
    }
    let states =
        params.all("state").flat_map(|names| names.split(',')).map(parse::state).collect::<Result<_, _>>()?;
    let after = params.one("cursor")?.map(parse::order).transpose()?;
    let filter = TxFilter { submitter, states, after, limit: params.limit()? };
    let (items, next) = state.handle.list(&filter).await?;
    Ok(Json(Page { items, next_cursor: next.map(parse::order_text) }))
}
