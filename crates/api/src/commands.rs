//! Doors for commands: what is asked becomes a row for the lane, and the answer says that it is there, or, for whoever
//! waits, what the lane made of it. A lane's word is passed on as it is; nothing is guessed while it has not spoken.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use gapless_core::command::{CommandEnd, CommandOutcome, Verb};
use gapless_core::ids::{CommandId, TxId};
use gapless_core::text::NodeText;
use gapless_engine::Refusal;
use serde::Serialize;
use serde_json::{Value, json};

use crate::auth::{Caller, KeyScope};
use crate::problem::{Code, Problem};
use crate::query::Params;
use crate::wire::{ReplaceBody, ResolveBody};
use crate::{ApiState, body, duration, parse, tx};

/// Longest wait for a lane; whoever wants more asks for the command.
const MOST_WAIT: Duration = Duration::from_secs(60);

/// Whoever submits may withdraw; operators may too.
const TX_SCOPES: [KeyScope; 2] = [KeyScope::Submit, KeyScope::Operate];

/// A command about a transaction that its lane will execute.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TxCommanded {
    command_id: CommandId,
    tx_id: TxId,
    command: Verb,
}

type Answer = Result<(StatusCode, Json<TxCommanded>), Problem>;

/// `POST /tx/{txId}/cancel`
pub(crate) async fn cancel(
    State(state): State<ApiState>,
    Path(tx_id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let caller = state.caller_with(&headers, &TX_SCOPES)?;
    body::nothing(&headers, body, state.limits.single).await?;
    let tx = tx::record(&state, &caller, &tx_id).await?;
    accepted(tx.tx_id(), Verb::Cancel, state.handle.cancel(&tx, caller.name()).await)
}

/// `POST /tx/{txId}/replace`
pub(crate) async fn replace(
    State(state): State<ApiState>,
    Path(tx_id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let caller = state.caller_with(&headers, &TX_SCOPES)?;
    let bytes = body::read(&headers, body, state.limits.single).await?;
    let (payload, fees) = body::decode::<ReplaceBody>(&bytes, "")?.into_parts()?;
    let tx = tx::record(&state, &caller, &tx_id).await?;
    let sent = state.handle.replace(&tx, payload, fees, caller.name()).await;
    accepted(tx.tx_id(), Verb::Replace, sent)
}

/// `POST /tx/{txId}/resolve`
pub(crate) async fn resolve(
    State(state): State<ApiState>,
    Path(tx_id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let caller = state.caller_with(&headers, &TX_SCOPES)?;
    let bytes = body::read(&headers, body, state.limits.single).await?;
    let ResolveBody { action } = body::decode(&bytes, "")?;
    let tx = tx::record(&state, &caller, &tx_id).await?;
    accepted(tx.tx_id(), Verb::Resolve, state.handle.resolve(&tx, action, caller.name()).await)
}

fn accepted(tx_id: TxId, command: Verb, sent: Result<CommandId, Refusal>) -> Answer {
    let command_id = sent.map_err(|refusal| Problem::from(refusal).on_command())?;
    Ok((StatusCode::ACCEPTED, Json(TxCommanded { command_id, tx_id, command })))
}

/// A command as it stands.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommandView {
    command_id: CommandId,
    outcome: &'static str,
    code: Option<NodeText>,
    result: Option<Value>,
}

/// `GET /commands/{id}`: whoever knows a command's id has it from the answer that made it, so a key that is limited to
/// submitters may ask too. The store does not tell an id that nobody knows from a command that waits.
pub(crate) async fn one(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<CommandView>, Problem> {
    state.caller(&headers, KeyScope::Operate)?;
    let command_id = parse::command_id(&id)?;
    Ok(Json(match state.handle.command_end(command_id).await? {
        Some(end) => {
            CommandView { command_id, outcome: end.outcome.name(), code: end.code, result: end.result }
        }
        None => CommandView { command_id, outcome: "pending", code: None, result: None },
    }))
}

/// How long the caller wants to wait for the lane.
pub(crate) fn wait(uri: &Uri, default: Duration) -> Result<Duration, Problem> {
    let params = Params::read(uri, &["wait"])?;
    let Some(text) = params.one("wait")? else { return Ok(default) };
    let wait = duration::parse(text).map_err(|error| Problem::invalid(format!("wait: {error}")))?;
    Ok(wait.min(MOST_WAIT))
}

/// Hands a submitter's lane a command and waits for its word: 200 with what the lane tells, its refusal, or 202 if it
/// has not spoken in time.
pub(crate) async fn to_lane(
    state: &ApiState,
    caller: &Caller,
    submitter: &gapless_core::submitter::SubmitterId,
    (verb, args): (Verb, Value),
    wait: Duration,
) -> Result<Response, Problem> {
    let sent = state.handle.command(submitter, None, verb, args, caller.name()).await;
    let command_id = sent.map_err(|refusal| Problem::from(refusal).on_command())?;
    let commanded = json!({ "commandId": command_id, "submitter": submitter, "command": verb });
    let end = if wait.is_zero() {
        None
    } else {
        tokio::select! {
            end = state.handle.command_ended(command_id, wait) => end?,
            () = state.stopping.cancelled() => None,
        }
    };
    match end {
        None => Ok((StatusCode::ACCEPTED, Json(commanded)).into_response()),
        Some(CommandEnd { outcome: CommandOutcome::Done, result, .. }) => {
            Ok(Json(result.unwrap_or(commanded)).into_response())
        }
        Some(end) => Err(refused(end)),
    }
}

/// A lane's refusal under its own code, where that has a page.
fn refused(end: CommandEnd) -> Problem {
    let code = end.code.as_ref().map_or("", NodeText::as_str);
    let known = Code::named(code);
    let detail = match known {
        Some(known) => format!("the lane refused the command: {}", known.title()),
        None => format!("the lane refused the command: {code}"),
    };
    let mut problem = Problem::new(known.unwrap_or(Code::CommandRefused), detail)
        .with("commandId", json!(end.id))
        .with("outcome", json!(end.outcome))
        .with("reason", json!(end.code));
    if let Some(result) = end.result {
        problem = problem.with("result", result);
    }
    problem
}
