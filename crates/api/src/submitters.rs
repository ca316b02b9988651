//! Submitters: looking at them and registering them.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use gapless_core::ports::store::Registered;
use gapless_core::submitter::SubmitterId;
use gapless_engine::Handle;
use gapless_engine::view::SubmitterView;

use crate::auth::{Caller, KeyScope};
use crate::problem::Problem;
use crate::query::Params;
use crate::tx::Page;
use crate::wire::RegisterBody;
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

/// A submitter by a caller's spelling, if it is the caller's business.
pub(crate) async fn named(handle: &Handle, caller: &Caller, text: &str) -> Result<SubmitterId, Problem> {
    let id = resolve::submitter(handle, text).await?;
    caller.about(&id)?;
    Ok(id)
}
