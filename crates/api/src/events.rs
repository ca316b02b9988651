//! What happened: of one transaction, and of everything.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use gapless_core::event::{Event, EventCursor};

use crate::auth::KeyScope;
use crate::problem::{Code, Problem};
use crate::query::Params;
use crate::tx::Page;
use crate::{ApiState, parse};

/// `GET /tx/{txId}/events`
pub(crate) async fn of_tx(
    State(state): State<ApiState>,
    Path(tx_id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Page<Event>>, Problem> {
    let caller = state.caller(&headers, KeyScope::Read)?;
    let items = state.handle.tx_events(parse::tx_id(&tx_id)?).await?;
    // An accepted transaction has an event; what is not the caller's business does not exist.
    if !items.first().is_some_and(|event| caller.sees(&event.submitter)) {
        return Err(Problem::new(Code::UnknownTransaction, "no such transaction"));
    }
    Ok(Json(Page { items, next_cursor: None }))
}

/// `GET /events`: `nextCursor` is always there, so that a reader at the end knows where to go on.
pub(crate) async fn stream(
    State(state): State<ApiState>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Page<Event>>, Problem> {
    let caller = state.caller(&headers, KeyScope::Read)?;
    let params = Params::read(&uri, &["after", "limit"])?;
    let wrong = || Problem::invalid("`after` is not a cursor that this API gave out");
    let after = params.one("after")?.map(|text| EventCursor::decode(text).ok_or_else(wrong)).transpose()?;
    let page = state.handle.events(after, params.limit()?).await?;
    let items = page.events.into_iter().filter(|event| caller.sees(&event.submitter)).collect();
    Ok(Json(Page { items, next_cursor: Some(page.next.encode()) }))
}
