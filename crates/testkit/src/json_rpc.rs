//! A JSON-RPC call over plain HTTP, with a connection of its own: kept ones would belong to one test's runtime,
//! and would be dead after a node's restart.

use serde_json::{Value, json};

use crate::{Error, Result};

/// Calls one method and returns its result.
pub async fn call(url: &str, method: &str, params: Value) -> Result<Value> {
    let failed = |source| Error::Http { doing: format!("calling {method} at {url}"), source };
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let answer = client().map_err(failed)?.post(url).json(&body).send().await;
    let answer = answer.and_then(|answer| answer.error_for_status()).map_err(failed)?;
    let mut answer: Value = answer.json().await.map_err(failed)?;
    match answer.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => Err(Error::Rpc { method: method.to_owned(), answer: answer["error"].take() }),
    }
}

/// A client that neither keeps connections nor sends loopback calls through a proxy of the environment's.
pub(crate) fn client() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build()
}
