//! The commands that ask a running node over its API.

pub(crate) mod stuck;
pub(crate) mod submitter;
mod table;
pub(crate) mod tx;

use anyhow::{Context, bail};
use reqwest::{Method, RequestBuilder, Url};
use serde_json::Value;

/// Where the key comes from: never from a flag, which other users of the machine could read.
const KEY: &str = "GAPLESS_API_KEY";

/// A client of one node.
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    json: bool,
}

impl Client {
    /// For the node at an address.
    pub(crate) fn new(url: &str, json: bool) -> anyhow::Result<Self> {
        let base: Url = url.parse().with_context(|| format!("`{url}` is not an address"))?;
        if base.cannot_be_a_base() || !matches!(base.scheme(), "http" | "https") {
            bail!("`{url}` is not an http:// or https:// address");
        }
        // A node of ours is spoken to directly, whatever proxy the machine uses for the rest of the world.
        let http = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self { http, base, json })
    }

    fn request(&self, method: Method, path: &[&str]) -> anyhow::Result<RequestBuilder> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        let request = self.http.request(method, url);
        Ok(match std::env::var(KEY) {
            Ok(key) => request.bearer_auth(key),
            Err(_) => request,
        })
    }

    async fn answer(&self, request: RequestBuilder) -> anyhow::Result<Value> {
        let response = request.send().await.with_context(|| format!("no node answers at {}", self.base))?;
        let status = response.status();
        let text = response.text().await.context("the answer broke off")?;
        let body: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        if status.is_success() {
            return Ok(body);
        }
        match (body["code"].as_str(), body["detail"].as_str()) {
            (Some(code), Some(detail)) => bail!("{detail} ({code}, HTTP {})", status.as_u16()),
            _ => bail!("HTTP {status}"),
        }
    }

    /// Asks.
    pub(crate) async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> anyhow::Result<Value> {
        let mut request = self.request(Method::GET, path)?.build()?;
        if !query.is_empty() {
            request.url_mut().query_pairs_mut().extend_pairs(query);
        }
        self.answer(RequestBuilder::from_parts(self.http.clone(), request)).await
    }

    /// Tells.
    pub(crate) async fn post(&self, path: &[&str], body: &Value) -> anyhow::Result<Value> {
        self.answer(self.request(Method::POST, path)?.json(body)).await
    }

    /// Whether data is wanted as JSON.
    pub(crate) const fn wants_json(&self) -> bool {
        self.json
    }

    /// Writes data to stdout: JSON if asked for, a line per field otherwise.
    pub(crate) fn show(&self, data: &Value) {
        if self.json {
            println!("{data}");
            return;
        }
        let Some(fields) = data.as_object() else { return println!("{data}") };
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            println!("{name:<16} {}", plain(value));
        }
    }

    /// Writes a page: JSON as it came, or one line per item and the way to the next page on stderr.
    pub(crate) fn show_page(&self, page: &Value, columns: &[&str]) {
        if self.json {
            println!("{page}");
            return;
        }
        for item in page["items"].as_array().into_iter().flatten() {
            let cells: Vec<String> = columns.iter().map(|name| plain(&item[*name])).collect();
            println!("{}", cells.join("  "));
        }
        if let Some(next) = page["nextCursor"].as_str() {
            eprintln!("there is more: --cursor {next}");
        }
    }
}

/// A value without the quotes.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}
