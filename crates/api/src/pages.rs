//! The pages that problems point at: a `type` is an address of this very node.

use axum::extract::Path;
use axum::http::header;
use axum::response::IntoResponse;

use crate::problem::{Code, Problem};

/// `GET /docs/errors/{code}`
pub(crate) async fn error(Path(name): Path<String>) -> Result<impl IntoResponse, Problem> {
    let code = Code::named(&name);
    let code = code.ok_or_else(|| Problem::new(Code::NotFound, "there is no problem of this code"))?;
    Ok(([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], code.page()))
}
