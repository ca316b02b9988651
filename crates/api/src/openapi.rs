//! The API as an OpenAPI document, kept by hand beside the routes; a test compares the two.

use axum::http::header;
use axum::response::IntoResponse;

/// The document, as JSON text.
pub const DOCUMENT: &str = include_str!("../openapi.json");

/// `GET /openapi.json`
pub(crate) async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT)
}
