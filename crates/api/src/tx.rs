//! Submitting transactions and looking at them.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use gapless_core::ids::{RequestId, Seq};
use gapless_core::ports::store::TxFilter;
use gapless_core::record::TxRecord;
use gapless_engine::Refusal;
use gapless_engine::explain::Explanation;
use gapless_engine::handle::{Request, Submitted};
use gapless_engine::view::{AttemptView, OperatorView, TxView};
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

/// A view, and what operators see beside it.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    #[serde(flatten)]
    view: TxView,
    #[serde(flatten)]
    operator: Option<OperatorView>,
}

/// Who looks, and how much of it they want to see.
struct Looker {
    caller: Caller,
    params: Params,
    operator: bool,
}

impl Looker {
    /// Reads the query; `view=operator` needs its own scope.
    fn read(state: &ApiState, uri: &Uri, headers: &HeaderMap, known: &[&str]) -> Result<Self, Problem> {
        state.caller_with(headers, &[KeyScope::Read, KeyScope::Operate])?;
        let params = Params::read(uri, &[known, &["view"]].concat())?;
        let operator = match params.one("view")? {
            None => false,
            Some("operator") => true,
            Some(_) => return Err(Problem::invalid("`view` is `operator` or absent")),
        };
        let caller = state.caller(headers, if operator { KeyScope::Operate } else { KeyScope::Read })?;
        Ok(Self { caller, params, operator })
    }

    /// A view, if it is the caller's business. What is not does not exist.
    async fn shown(&self, state: &ApiState, view: TxView) -> Result<Json<Shown>, Problem> {
        if !self.caller.sees(&view.submitter) {
            return Err(Refusal::UnknownTransaction.into());
        }
        let operator = match self.operator {
            true => Some(state.handle.operator_view(&state.handle.record(view.tx_id).await?).await?),
            false => None,
        };
        Ok(Json(Shown { view, operator }))
    }
}

/// A transaction of a path, if it is the caller's business. What is not does not exist.
pub(crate) async fn record(state: &ApiState, caller: &Caller, tx_id: &str) -> Result<TxRecord, Problem> {
    let tx = state.handle.record(parse::tx_id(tx_id)?).await?;
    if caller.sees(&tx.request.submitter) { Ok(tx) } else { Err(Refusal::UnknownTransaction.into()) }
}

/// `GET /tx/{txId}`
pub(crate) async fn one(
    State(state): State<ApiState>,
    Path(tx_id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Shown>, Problem> {
    let looker = Looker::read(&state, &uri, &headers, &["wait", "after"])?;
    let tx_id = parse::tx_id(&tx_id)?;
    let after = looker.params.one("after")?.map(str::parse).transpose();
    let after = after.map_err(|_| Problem::invalid("`after` is the `seq` of an earlier view"))?.map(Seq);
    let Some(wait) = looker.params.one("wait")? else {
        return looker.shown(&state, state.handle.tx(tx_id).await?).await;
    };
    let wait = duration::parse(wait).map_err(|error| Problem::invalid(format!("wait: {error}")))?;
    let waited = tokio::select! {
        waited = state.handle.wait(tx_id, after, wait.min(MOST_WAIT)) => waited,
        () = state.stopping.cancelled() => state.handle.tx(tx_id).await,
    };
    looker.shown(&state, waited?).await
}

/// `GET /tx/by-request`
pub(crate) async fn by_request(
    State(state): State<ApiState>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Shown>, Problem> {
    let looker = Looker::read(&state, &uri, &headers, &["submitter", "requestId"])?;
    let submitter = resolve::submitter(&state.handle, looker.params.required("submitter")?).await?;
    let request_id = RequestId::parse(looker.params.required("requestId")?);
    let request_id = request_id.map_err(|error| Problem::invalid(error.to_string()))?;
    looker.shown(&state, state.handle.by_request(&submitter, &request_id).await?).await
}

/// `GET /tx/by-hash/{hash}`
pub(crate) async fn by_hash(
    State(state): State<ApiState>,
    Path(hash): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Shown>, Problem> {
    let looker = Looker::read(&state, &uri, &headers, &[])?;
    looker.shown(&state, state.handle.by_hash(parse::hash(&hash)?).await?).await
}

/// `GET /tx/{txId}/attempts`
pub(crate) async fn attempts(
    State(state): State<ApiState>,
    Path(tx_id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Vec<AttemptView>>, Problem> {
    let caller = state.caller(&headers, KeyScope::Read)?;
    let tx = record(&state, &caller, &tx_id).await?;
    Ok(Json(state.handle.attempts(&tx).await?))
}

/// `GET /tx/{txId}/explain`
pub(crate) async fn explain(
    State(state): State<ApiState>,
    Path(tx_id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Explanation>, Problem> {
    let caller = state.caller(&headers, KeyScope::Read)?;
    let tx = record(&state, &caller, &tx_id).await?;
    Ok(Json(state.handle.explain(&tx).await?))
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
