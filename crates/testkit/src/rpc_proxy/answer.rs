//! The answer to one HTTP request: strike each call with its rule, forward what is to be forwarded in one go,
//! and put the answer together again.

use std::{sync::PoisonError, time::Duration};

use hyper::StatusCode;
use serde_json::{Value, json};

use super::{Fault, Shared, serve::Outcome};

/// One call and what happens to it.
struct Item {
    call: Value,
    fault: Option<Fault>,
}

pub(super) async fn to(body: &[u8], shared: &Shared) -> Outcome {
    let (batched, calls) = match serde_json::from_slice(body) {
        Ok(Value::Array(calls)) => (true, calls),
        Ok(call @ Value::Object(_)) => (false, vec![call]),
        _ => return refusal(StatusCode::BAD_REQUEST, "not a JSON-RPC request"),
    };
    let items: Vec<Item> = calls.into_iter().map(|call| strike(call, shared)).collect();

    let forwarded: Vec<&Value> = items.iter().filter(|item| item.forwards()).map(|item| &item.call).collect();
    let mut from_node = Vec::new();
    if !forwarded.is_empty() {
        let request = if batched { json!(forwarded) } else { json!(forwarded[0]) };
        match forward(&request, shared).await {
            Ok(Value::Array(answers)) => from_node = answers,
            Ok(answer) => from_node = vec![answer],
            // What the rules say of the whole request is said even if the node failed.
            Err(failure) => return whole(&items).unwrap_or(failure),
        }
    }
    if let Some(outcome) = whole(&items) {
        return outcome;
    }

    let slowest = items.iter().filter_map(Item::delay).max();
    if let Some(slowest) = slowest {
        tokio::time::sleep(slowest).await;
    }
    if !batched && matches!(items[..], [Item { fault: Some(Fault::Lose), .. }]) {
        return Outcome::HangUp;
    }
    let mut answers: Vec<Value> = items.iter().filter_map(|item| item.answer(&mut from_node)).collect();
    let answer = if batched {
        // What the node said beyond the calls we know of, such as an error about the batch itself.
        answers.append(&mut from_node);
        Value::Array(answers)
    } else {
        answers.pop().unwrap_or_default()
    };
    Outcome::Answer(StatusCode::OK, answer.to_string().into_bytes())
}

fn strike(call: Value, shared: &Shared) -> Item {
    let method = call["method"].as_str().unwrap_or_default();
    *shared.calls.lock().unwrap_or_else(PoisonError::into_inner).entry(method.to_owned()).or_default() += 1;
    let fault = shared.rules.strike(method, &call);
    Item { call, fault }
}

/// Asks the node; its refusals become the proxy's.
async fn forward(request: &Value, shared: &Shared) -> Result<Value, Outcome> {
    let gone = |error: reqwest::Error| refusal(StatusCode::BAD_GATEWAY, &error.to_string());
    let upstream = shared.upstream.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let response = shared.client.post(upstream).json(request).send().await.map_err(gone)?;
    let status = StatusCode::from_u16(response.status().as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
    let bytes = response.bytes().await.map_err(gone)?;
    match serde_json::from_slice(&bytes) {
        Ok(answer) if status.is_success() => Ok(answer),
        _ => Err(Outcome::Answer(status, bytes.to_vec())),
    }
}

/// The outcome that one of the calls forces upon the whole request, if any does.
fn whole(items: &[Item]) -> Option<Outcome> {
    items.iter().find_map(|item| match item.fault {
        Some(Fault::DropAnswer) => Some(Outcome::HangUp),
        Some(Fault::Hang) => Some(Outcome::Silence),
        Some(Fault::HttpStatus(status)) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Some(Outcome::Answer(status, Vec::new()))
        }
        _ => None,
    })
}

fn refusal(status: StatusCode, why: &str) -> Outcome {
    Outcome::Answer(status, json!({ "proxy": why }).to_string().into_bytes())
}

impl Item {
    fn forwards(&self) -> bool {
        self.fault.as_ref().is_none_or(Fault::forwards)
    }

    fn delay(&self) -> Option<Duration> {
        if let Some(Fault::Delay(by)) = &self.fault { Some(*by) } else { None }
    }

    /// The answer to this call; takes the node's, matched by id, out of `from_node`. None to a notification.
    fn answer(&self, from_node: &mut Vec<Value>) -> Option<Value> {
        let id = &self.call["id"];
        let own = |key: &str, value: Value| json!({"jsonrpc": "2.0", "id": id, key: value});
        let at = from_node.iter().position(|answer| answer["id"] == *id);
        let said = at.filter(|_| self.forwards()).map(|at| from_node.remove(at));
        match &self.fault {
            Some(
                Fault::ErrorWithoutForward { code, message } | Fault::ErrorAfterForward { code, message },
            ) => Some(own("error", json!({"code": code, "message": message}))),
            Some(Fault::FixedResult(result)) => Some(own("result", result.clone())),
            Some(Fault::Answer(invent)) => Some(own("result", invent(&self.call))),
            Some(Fault::Result(change)) => said.map(|said| change(&self.call, said)),
            _ => said,
        }
    }
}
