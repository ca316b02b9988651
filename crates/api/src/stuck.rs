//! What the policy for the stuck would do: looking ahead, changing nothing.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use gapless_core::submitter::SubmitterId;
use gapless_engine::Refusal;
use gapless_engine::stuck::{Outlook, StuckPlan};
use serde::Serialize;

use crate::auth::KeyScope;
use crate::problem::Problem;
use crate::query::Params;
use crate::{ApiState, resolve};

/// The plan as shown.
#[derive(Debug, Serialize)]
pub(crate) struct PlanView {
    items: Vec<Outlook>,
    /// Whether there are more than are listed; name a submitter to see its own.
    more: bool,
}

/// `GET /stuck/plan`
pub(crate) async fn plan(
    State(state): State<ApiState>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<PlanView>, Problem> {
    let caller = state.caller(&headers, KeyScope::Operate)?;
    let params = Params::read(&uri, &["submitter"])?;
    let is_asked_for = params.one("submitter")?.is_some();
    let which: Vec<Option<SubmitterId>> = match (params.one("submitter")?, caller.limits()) {
        (Some(text), _) => {
            let id = resolve::submitter(&state.handle, text).await?;
            caller.about(&id)?;
            vec![Some(id)]
        }
        (None, Some(allowed)) => allowed.iter().cloned().map(Some).collect(),
        (None, None) => vec![None],
    };
    let now = state.handle.store().now().await?;
    let mut shown = PlanView { items: Vec::new(), more: false };
    for submitter in &which {
        let StuckPlan { items, more } = match state.handle.stuck_plan(now, submitter.as_ref()).await {
            // A key may be for accounts that are not registered yet.
            Err(Refusal::UnknownSubmitter) if !is_asked_for => continue,
            plan => plan?,
        };
        shown.items.extend(items);
        shown.more |= more;
    }
    Ok(Json(shown))
}
