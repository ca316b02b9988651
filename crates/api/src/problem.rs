//! Errors as RFC 9457 problems: a stable code, a page, and what to do next.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gapless_core::ports::store::StoreError;
use gapless_engine::Refusal;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Declares the codes with their status, title and whether repeating the same request can help.
macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $status:ident, $title:literal, $retryable:literal;)+) => {
        /// Every way a call can be refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $($(#[$doc])* $variant),+
        }

        impl Code {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The stable name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The HTTP status.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status),+ }
            }

            /// A title that never changes.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),+ }
            }

            /// Whether repeating the same request can help.
            #[must_use]
            pub const fn retryable(self) -> bool {
                match self { $(Self::$variant => $retryable),+ }
            }

            /// The page that `type` points at. A code without one does not compile.
            #[must_use]
            pub const fn page(self) -> &'static str {
                match self { $(Self::$variant => include_str!(concat!("../../../docs/errors/", $name, ".md"))),+ }
            }

            /// The code of this name.
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|code| code.name() == name)
            }
        }
    };
}

codes! {
    /// It cannot be read, or contradicts itself.
    InvalidRequest = "invalid-request", BAD_REQUEST, "The request is invalid", false;
    /// No key, or a wrong or expired one.
    Unauthorized = "unauthorized", UNAUTHORIZED, "A valid API key is needed", false;
    /// The key may not do this.
    Forbidden = "forbidden", FORBIDDEN, "The API key does not allow this", false;
    /// No such address.
    NotFound = "not-found", NOT_FOUND, "There is nothing here", false;
    /// No such submitter.
    UnknownSubmitter = "unknown-submitter", NOT_FOUND, "The submitter is not registered", false;
    /// No such transaction.
    UnknownTransaction = "unknown-transaction", NOT_FOUND, "There is no such transaction", false;
    /// Wrong method.
    MethodNotAllowed = "method-not-allowed", METHOD_NOT_ALLOWED, "The method is not supported here", false;
    /// Somebody else used the key.
    SubmitterProtected = "submitter-protected", CONFLICT, "The submitter is protected", false;
    /// An operator paused it.
    SubmitterPaused = "submitter-paused", CONFLICT, "The submitter is paused", true;
    /// Another node leads the submitter.
    NotLeader = "not-leader", CONFLICT, "Another node leads the submitter", true;
    /// Another nonce is meant.
    NonceMismatch = "nonce-mismatch", CONFLICT, "The nonce is not the expected one", false;
    /// Nothing to acknowledge.
    NotProtected = "not-protected", CONFLICT, "The submitter is not protected", false;
    /// Nothing changes it any more.
    AlreadyFinal = "already-final", CONFLICT, "The transaction has ended", false;
    /// Bytes that could still be mined are in the way.
    AttemptsOutstanding = "attempts-outstanding", CONFLICT, "Stored attempts could still be mined", true;
    /// The lane said no.
    CommandRefused = "command-refused", CONFLICT, "The lane refused the command", false;
    /// The cursor's history is gone.
    CursorExpired = "cursor-expired", GONE, "The cursor is outdated", false;
    /// Too long.
    PayloadTooLarge = "payload-too-large", PAYLOAD_TOO_LARGE, "The request is too large", false;
    /// Not JSON.
    UnsupportedMediaType = "unsupported-media-type", UNSUPPORTED_MEDIA_TYPE, "The content type is not supported", false;
    /// The id belongs to another request.
    RequestMismatch = "request-mismatch", UNPROCESSABLE_ENTITY, "The requestId belongs to another request", false;
    /// No node would take it in the place of what was sent.
    FeeTooLow = "fee-too-low", UNPROCESSABLE_ENTITY, "The fees do not outbid what was sent before", false;
    /// Too much waits already.
    QueueFull = "queue-full", TOO_MANY_REQUESTS, "The submitter's queue is full", true;
    /// Something is stored that cannot be read.
    StoreCorrupt = "store-corrupt", INTERNAL_SERVER_ERROR, "The store holds something unreadable", false;
    /// The store has trouble.
    StoreUnavailable = "store-unavailable", SERVICE_UNAVAILABLE, "The store does not answer", true;
    /// A part does not answer.
    NotReady = "not-ready", SERVICE_UNAVAILABLE, "This node is not ready", true;
}

/// Seconds after which a busy part may be asked again.
const RETRY_AFTER: u64 = 1;

/// A refusal as the caller gets it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Problem {
    #[serde(rename = "type")]
    page: String,
    title: &'static str,
    status: u16,
    code: &'static str,
    detail: String,
    retryable: bool,
    #[serde(flatten)]
    more: Map<String, Value>,
    #[serde(skip)]
    kind: Code,
}

impl Problem {
    /// A problem in words.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            page: format!("/docs/errors/{}", code.name()),
            title: code.title(),
            status: code.status().as_u16(),
            code: code.name(),
            detail: detail.into(),
            retryable: code.retryable(),
            more: Map::new(),
            kind: code,
        }
    }

    /// Something in the request is wrong.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, detail)
    }

    /// With one more member.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.more.insert(name.to_owned(), value);
        self
    }

    /// Which.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.kind
    }

    /// The same, said to somebody who wanted a transaction: nobody knows whether it was accepted.
    #[must_use]
    pub fn on_write(self) -> Self {
        self.in_doubt("repeat the call with the same requestId, it is accepted at most once")
    }

    /// The same, said to somebody who wanted a change that happens once however often it is asked for.
    #[must_use]
    pub fn on_command(self) -> Self {
        self.in_doubt("repeat the call, that does no harm")
    }

    fn in_doubt(mut self, advice: &str) -> Self {
        if self.kind == Code::StoreUnavailable {
            self.detail.push_str("; the outcome is unknown: ");
            self.detail.push_str(advice);
        }
        self
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            Refusal::Intent(error) if error.code() == Code::PayloadTooLarge.name() => {
                Self::new(Code::PayloadTooLarge, detail)
            }
            Refusal::Intent(_) | Refusal::Id(_) | Refusal::Poison(_) => Self::invalid(detail),
            Refusal::UnknownSubmitter => Self::new(
                Code::UnknownSubmitter,
                format!(
                    "{detail}; configure it under [[submitters]] or register it with POST /api/v1/submitters"
                ),
            ),
            Refusal::UnknownTransaction => Self::new(Code::UnknownTransaction, detail),
            Refusal::Mismatch(tx_id) => {
                Self::new(Code::RequestMismatch, detail).with("txId", json!(tx_id.to_string()))
            }
            Refusal::AlreadyFinal(state) => Self::new(Code::AlreadyFinal, detail).with("state", json!(state)),
            Refusal::FeeTooLow { total, tip } => {
                let needed = json!({ "maxFeePerGas": total, "maxPriorityFeePerGas": tip });
                Self::new(Code::FeeTooLow, detail).with("needed", needed)
            }
            Refusal::Protected => Self::new(Code::SubmitterProtected, detail),
            Refusal::Paused => Self::new(Code::SubmitterPaused, detail),
            Refusal::NotLeader { owner } => {
                Self::new(Code::NotLeader, detail).with("ownerNode", json!(owner))
            }
            Refusal::QueueFull { limit } => Self::new(Code::QueueFull, detail).with("limit", json!(limit)),
            Refusal::Store(error) => Self::from(error),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let code = match error {
            StoreError::Unavailable(_) | StoreError::OutcomeUnknown(_) => Code::StoreUnavailable,
            StoreError::Corrupt(_) => Code::StoreCorrupt,
            StoreError::TooMany { .. } => Code::InvalidRequest,
            StoreError::CursorExpired => Code::CursorExpired,
        };
        if code != Code::InvalidRequest && code != Code::CursorExpired {
            tracing::warn!(%error, "the store failed a call");
        }
        Self::new(code, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.kind.status();
        let body = serde_json::to_string(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_named_once_and_its_status_is_an_error() {
        let mut names: Vec<_> = Code::ALL.iter().map(|code| code.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
        assert!(Code::ALL.iter().all(|code| code.status().as_u16() >= 400));
    }

    #[test]
    fn a_writer_hears_that_the_outcome_is_unknown() {
        let lost = || Problem::from(StoreError::OutcomeUnknown("gone".into()));
        assert!(lost().on_write().detail.contains("same requestId"));
        assert!(!lost().detail.contains("same requestId"));
        assert!(!Problem::invalid("no").on_write().detail.contains("same requestId"));
    }
}
