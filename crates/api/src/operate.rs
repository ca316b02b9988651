//! Operating submitters: commands to their lanes, and the timeline of their nonces.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use gapless_core::command::Verb;
use gapless_engine::Refusal;
use gapless_engine::nonces::{MAX_NONCES, NonceRange, NonceView};
use gapless_engine::report::{MAX_REPORTED, Report};
use serde_json::json;

use crate::auth::KeyScope;
use crate::problem::{Code, Problem};
use crate::query::Params;
use crate::submitters::named;
use crate::tx::Page;
use crate::wire::{ResetBody, UnprotectBody};
use crate::{ApiState, body, commands, parse};

/// How long a call waits for the lane whose answer is what the caller came for.
const PATIENCE: Duration = Duration::from_secs(30);

/// `POST /submitters/{id}/pause`
pub(crate) async fn pause(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    plain(&state, &id, &uri, &headers, body, (Verb::Pause, Duration::ZERO)).await
}

/// `POST /submitters/{id}/resume`
pub(crate) async fn resume(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    plain(&state, &id, &uri, &headers, body, (Verb::Resume, Duration::ZERO)).await
}

/// `POST /submitters/{id}/drain`
pub(crate) async fn drain(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    plain(&state, &id, &uri, &headers, body, (Verb::Drain, PATIENCE)).await
}

/// A command without figures.
async fn plain(
    state: &ApiState,
    id: &str,
    uri: &Uri,
    headers: &HeaderMap,
    body: Body,
    (verb, patience): (Verb, Duration),
) -> Result<Response, Problem> {
    let caller = state.caller(headers, KeyScope::Operate)?;
    let wait = commands::wait(uri, patience)?;
    body::nothing(headers, body, state.limits.single).await?;
    let id = named(&state.handle, &caller, id).await?;
    commands::to_lane(state, &caller, &id, (verb, json!({})), wait).await
}

/// `POST /submitters/{id}/reset-nonce`
pub(crate) async fn reset_nonce(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let caller = state.caller(&headers, KeyScope::Operate)?;
    let wait = commands::wait(&uri, PATIENCE)?;
    let ResetBody { force } = body::optional(&headers, body, state.limits.single).await?.unwrap_or_default();
    let id = named(&state.handle, &caller, &id).await?;
    commands::to_lane(&state, &caller, &id, (Verb::ResetNonce, json!({ "force": force })), wait).await
}

/// `POST /submitters/{id}/unprotect`: a wrong nonce is seen at once; what the lane finds besides, by whoever waits.
pub(crate) async fn unprotect(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let caller = state.caller(&headers, KeyScope::Operate)?;
    let wait = commands::wait(&uri, Duration::ZERO)?;
    let bytes = body::read(&headers, body, state.limits.single).await?;
    let body: UnprotectBody = body::decode(&bytes, "")?;
    let acknowledged = body.acknowledged_nonce.get();
    let id = named(&state.handle, &caller, &id).await?;
    let info = state.handle.store().submitter(&id).await?.ok_or(Refusal::UnknownSubmitter)?;
    match info.cursor.cursor.conditions.protect {
        None => return Err(Problem::new(Code::NotProtected, "there is no foreign use to acknowledge")),
        Some(protect) if protect.nonce.0 != acknowledged => {
            let detail =
                format!("the highest foreign nonce is {}; look at it before acknowledging it", protect.nonce);
            return Err(Problem::new(Code::NonceMismatch, detail).with("expected", json!(protect.nonce)));
        }
        Some(_) => {}
    }
    let args = json!({ "acknowledgedNonce": acknowledged });
    commands::to_lane(&state, &caller, &id, (Verb::Unprotect, args), wait).await
}

/// `GET /submitters/{id}/nonces`
pub(crate) async fn nonces(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Page<NonceView>>, Problem> {
    let caller = state.caller(&headers, KeyScope::Operate)?;
    let params = Params::read(&uri, &["from", "to"])?;
    let bound = |name: &str| params.one(name)?.map(|text| parse::nonce(name, text)).transpose();
    let range = NonceRange { from: bound("from")?, to: bound("to")? };
    let id = named(&state.handle, &caller, &id).await?;
    let items = state.handle.nonces(&id, range).await?.ok_or_else(|| {
        Problem::invalid(format!("`from` must not be above `to`, and at most {MAX_NONCES} are shown at once"))
    })?;
    Ok(Json(Page { items, next_cursor: None }))
}

/// `GET /submitters/{id}/report`
pub(crate) async fn report(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Report>, Problem> {
    let caller = state.caller(&headers, KeyScope::Operate)?;
    let params = Params::read(&uri, &["from", "to"])?;
    let bound = |name: &str| params.one(name)?.map(|text| parse::nonce(name, text)).transpose();
    let id = named(&state.handle, &caller, &id).await?;
    let report = state.handle.report(&id, bound("from")?, bound("to")?).await?.ok_or_else(|| {
        let words = "`from` must not be above `to`, and at most";
        Problem::invalid(format!("{words} {MAX_REPORTED} are looked at at once"))
    })?;
    Ok(Json(report))
}
