//! Many requests in one call: each is accepted or refused by itself, and answered in its place.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use futures::future::join_all;
use gapless_core::limits::MAX_ACCEPT_BATCH;
use gapless_engine::view::TxView;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::auth::{Caller, KeyScope};
use crate::problem::{Code, Problem};
use crate::wire::TxBody;
use crate::{ApiState, body, tx};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchBody {
    items: Vec<Box<RawValue>>,
}

/// The answers, in the order of the questions.
#[derive(Debug, Serialize)]
pub(crate) struct Answers {
    items: Vec<Answer>,
}

/// What would have been the answer to the item alone: its status beside the view, or the problem (which has one).
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Answer {
    Accepted {
        status: u16,
        #[serde(flatten)]
        view: Box<TxView>,
    },
    Refused(Box<Problem>),
}

/// `POST /tx/batch`
pub(crate) async fn submit(
    State(state): State<ApiState>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Answers>, Problem> {
    let caller = state.caller(&headers, KeyScope::Submit)?;
    if headers.contains_key("idempotency-key") {
        return Err(Problem::invalid("a batch takes no Idempotency-Key: give each item its own requestId"));
    }
    let bytes = body::read(&headers, body, state.limits.batch).await?;
    let BatchBody { items } = body::decode(&bytes, "")?;
    if items.len() > MAX_ACCEPT_BATCH {
        let detail = format!("{} items were given, at most {MAX_ACCEPT_BATCH} are allowed", items.len());
        return Err(Problem::invalid(detail));
    }
    let mut answers: Vec<Option<Answer>> = items.iter().map(|_| None).collect();
    // Items of one submitter go one after the other, so that they are accepted in the order they were written.
    let mut lanes: BTreeMap<String, Vec<(usize, TxBody)>> = BTreeMap::new();
    for (place, raw) in items.iter().enumerate() {
        match read_item(place, raw, state.limits.single) {
            Ok(item) => lanes.entry(item.submitter.to_lowercase()).or_default().push((place, item)),
            Err(problem) => answers[place] = Some(Answer::Refused(Box::new(problem))),
        }
    }
    let lanes = lanes.into_values().map(|items| accept_lane(&state, &caller, items));
    for (place, answer) in join_all(lanes).await.into_iter().flatten() {
        answers[place] = Some(answer);
    }
    Ok(Json(Answers { items: answers.into_iter().flatten().collect() }))
}

fn read_item(place: usize, raw: &RawValue, limit: usize) -> Result<TxBody, Problem> {
    let text = raw.get().as_bytes();
    if text.len() > limit {
        let detail = format!("items[{place}] is longer than {limit} bytes");
        return Err(Problem::new(Code::PayloadTooLarge, detail));
    }
    body::decode(text, &format!("items[{place}]"))
}

async fn accept_lane(state: &ApiState, caller: &Caller, items: Vec<(usize, TxBody)>) -> Vec<(usize, Answer)> {
    let mut answers = Vec::with_capacity(items.len());
    for (place, item) in items {
        let answer = match tx::accept(state, caller, item, None).await {
            Ok(accepted) => {
                let status = if accepted.new { 202 } else { 200 };
                Answer::Accepted { status, view: Box::new(accepted.view) }
            }
            Err(problem) => Answer::Refused(Box::new(problem)),
        };
        answers.push((place, answer));
    }
    answers
}
