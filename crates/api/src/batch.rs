//! Many requests in one call: read one by one, accepted together, and each answered in its place.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use gapless_core::limits::MAX_ACCEPT_BATCH;
use gapless_engine::handle::Submitted;
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

impl From<Problem> for Answer {
    fn from(problem: Problem) -> Self {
        Self::Refused(Box::new(problem))
    }
}

impl From<Submitted> for Answer {
    fn from(Submitted { new, view }: Submitted) -> Self {
        Self::Accepted { status: if new { 202 } else { 200 }, view: Box::new(view) }
    }
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
    let (mut places, mut requests) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
    for (place, raw) in items.iter().enumerate() {
        match read_item(&state, &caller, place, raw).await {
            Ok(request) => {
                places.push(place);
                requests.push(request);
            }
            Err(problem) => answers[place] = Some(problem.into()),
        }
    }
    for (place, answer) in places.into_iter().zip(state.handle.submit_many(requests).await) {
        answers[place] = Some(match answer {
            Ok(submitted) => submitted.into(),
            Err(refusal) => Problem::from(refusal).on_write().into(),
        });
    }
    Ok(Json(Answers { items: answers.into_iter().flatten().collect() }))
}

async fn read_item(
    state: &ApiState,
    caller: &Caller,
    place: usize,
    raw: &RawValue,
) -> Result<gapless_engine::handle::Request, Problem> {
    let (text, limit) = (raw.get().as_bytes(), state.limits.single);
    if text.len() > limit {
        let detail = format!("items[{place}] is longer than {limit} bytes");
        return Err(Problem::new(Code::PayloadTooLarge, detail));
    }
    let item: TxBody = body::decode(text, &format!("items[{place}]"))?;
    tx::request(state, caller, item, None).await
}
