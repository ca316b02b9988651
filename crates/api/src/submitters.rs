//! Submitters: looking at them, registering them, and commands to their lanes.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use gapless_core::command::Verb;
use gapless_core::ids::CommandId;
use gapless_core::ports::store::Registered;
use gapless_core::submitter::SubmitterId;
use gapless_engine::view::SubmitterView;
use gapless_engine::{Handle, Refusal};
use serde::Serialize;
use serde_json::{Value, json};

use crate::auth::{Caller, KeyScope};
use crate::problem::{Code, Problem};
use crate::query::Params;
use crate::tx::Page;
use crate::wire::{NothingBody, RegisterBody, UnprotectBody};
use crate::{ApiState, body, resolve};

/// `GET /submitters`
pub(crate) async fn list(
    State(state): State<ApiState>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Page<SubmitterView>>, Problem> {
    let caller = state.caller(&headers, KeyScope::Read)?;
    let params = Params::read(&uri, &["limit", "cursor"])?;
    let limit = params.limit()?;
    let wrong = |_| Problem::invalid("`cursor` is not one that this API gave out");
    let after: Option<SubmitterId> = params.one("cursor")?.map(str::parse).transpose().map_err(wrong)?;
    let found = state.handle.submitters(after.as_ref(), limit).await?;
    let full = found.len() == limit;
    let next_cursor = found.last().filter(|_| full).map(|last| last.submitter.to_string());
    let items = found.into_iter().filter(|view| caller.sees(&view.submitter)).collect();
    Ok(Json(Page { items, next_cursor }))
}

/// `GET /submitters/{id}`
pub(crate) async fn one(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<SubmitterView>, Problem> {
    let caller = state.caller(&headers, KeyScope::Read)?;
    let id = named(&state.handle, &caller, &id).await?;
    Ok(Json(state.handle.submitter(&id).await?))
}

/// `POST /submitters`
pub(crate) async fn register(
    State(state): State<ApiState>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let caller = state.caller(&headers, KeyScope::Admin)?;
    let bytes = body::read(&headers, body, state.limits.single).await?;
    let RegisterBody { submitter } = body::decode(&bytes, "")?;
    let id: SubmitterId =
        submitter.parse().map_err(|error| Problem::invalid(format!("submitter: {error}")))?;
    caller.about(&id)?;
    let registered = state.handle.register(&id).await.map_err(|error| Problem::from(error).on_command())?;
    let view = Json(state.handle.submitter(&id).await?);
    Ok(match registered {
        Registered::New => {
            let location = format!("/api/v1/submitters/{id}");
            (StatusCode::CREATED, [(header::LOCATION, location)], view).into_response()
        }
        Registered::Known => view.into_response(),
    })
}

/// A command that its lane will execute.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Commanded {
    command_id: CommandId,
    submitter: SubmitterId,
    command: Verb,
}

type Answer = Result<(StatusCode, Json<Commanded>), Problem>;

/// `POST /submitters/{id}/pause`
pub(crate) async fn pause(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    plain(&state, &id, &headers, body, Verb::Pause).await
}

/// `POST /submitters/{id}/resume`
pub(crate) async fn resume(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    plain(&state, &id, &headers, body, Verb::Resume).await
}

/// `POST /submitters/{id}/unprotect`
pub(crate) async fn unprotect(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let caller = state.caller(&headers, KeyScope::Operate)?;
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
    command(&state, &caller, &id, Verb::Unprotect, json!({ "acknowledgedNonce": acknowledged })).await
}

/// A command without figures: its body is absent or empty.
async fn plain(state: &ApiState, id: &str, headers: &HeaderMap, body: Body, verb: Verb) -> Answer {
    let caller = state.caller(headers, KeyScope::Operate)?;
    if headers.contains_key(header::CONTENT_TYPE) {
        let bytes = body::read(headers, body, state.limits.single).await?;
        if !bytes.is_empty() {
            let NothingBody {} = body::decode(&bytes, "")?;
        }
    }
    let id = named(&state.handle, &caller, id).await?;
    command(state, &caller, &id, verb, json!({})).await
}

async fn command(state: &ApiState, caller: &Caller, id: &SubmitterId, verb: Verb, args: Value) -> Answer {
    let sent = state.handle.command(id, None, verb, args, caller.name()).await;
    let command_id = sent.map_err(|refusal| Problem::from(refusal).on_command())?;
    Ok((StatusCode::ACCEPTED, Json(Commanded { command_id, submitter: id.clone(), command: verb })))
}

async fn named(handle: &Handle, caller: &Caller, text: &str) -> Result<SubmitterId, Problem> {
    let id = resolve::submitter(handle, text).await?;
    caller.about(&id)?;
    Ok(id)
}
