//! Bodies: bounded, JSON, and without a field nobody asked for.

use axum::body::Body;
use axum::http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use crate::near::nearest;
use crate::problem::{Code, Problem};
use crate::wire::NothingBody;

/// Reads a JSON body of at most `limit` bytes.
pub(crate) async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Vec<u8>, Problem> {
    check_type(headers)?;
    match Limited::new(body, limit).collect().await {
        Ok(read) => Ok(read.to_bytes().into()),
        Err(error) if error.is::<LengthLimitError>() => {
            let detail = format!("the body is longer than {limit} bytes");
            Err(Problem::new(Code::PayloadTooLarge, detail).with("limit", limit.into()))
        }
        Err(error) => Err(Problem::invalid(format!("the body could not be read: {error}"))),
    }
}

/// Reads a JSON body that may be absent or empty.
pub(crate) async fn optional<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<Option<T>, Problem> {
    if !headers.contains_key(header::CONTENT_TYPE) {
        return Ok(None);
    }
    let bytes = read(headers, body, limit).await?;
    if bytes.is_empty() { Ok(None) } else { decode(&bytes, "").map(Some) }
}

/// Reads a body that says nothing: absent, empty, or an empty object.
pub(crate) async fn nothing(headers: &HeaderMap, body: Body, limit: usize) -> Result<(), Problem> {
    optional::<NothingBody>(headers, body, limit).await.map(drop)
}

fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let json =
        essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"));
    if json {
        return Ok(());
    }
    let was = if given.is_empty() { "none was given".to_owned() } else { format!("`{given}` was given") };
    Err(Problem::new(Code::UnsupportedMediaType, format!("send `content-type: application/json`; {was}")))
}

/// Decodes JSON; `at` names where in the request it stands.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8], at: &str) -> Result<T, Problem> {
    // The second reading, slower, is only for the error's place.
    serde_json::from_slice(bytes).map_err(|_| {
        let mut json = serde_json::Deserializer::from_slice(bytes);
        match serde_path_to_error::deserialize::<_, T>(&mut json) {
            Ok(_) => match json.end() {
                Err(error) => Problem::invalid(format!("the body is not one JSON value: {error}")),
                Ok(()) => Problem::invalid("the body is not JSON"),
            },
            Err(error) => explain(at, &error.path().to_string(), &error.into_inner().to_string()),
        }
    })
}

/// Words a decoding error, with the nearest name where one is unknown.
fn explain(at: &str, path: &str, message: &str) -> Problem {
    let place = match (at, path) {
        ("", "." | "") => String::new(),
        (at, "." | "") => format!("{at}: "),
        ("", path) => format!("{path}: "),
        (at, path) => format!("{at}.{path}: "),
    };
    let hint = unknown_name(message)
        .and_then(|(name, known)| nearest(name, known))
        .map(|near| format!("; did you mean `{near}`?"))
        .unwrap_or_default();
    Problem::invalid(format!("{place}{message}{hint}"))
}

/// The name and the candidates of serde's "unknown field `a`, expected one of `b`, `c`".
fn unknown_name(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest =
        message.strip_prefix("unknown field `").or_else(|| message.strip_prefix("unknown variant `"))?;
    let (name, rest) = rest.split_once("`, expected ")?;
    Some((name, rest.split('`').skip(1).step_by(2).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_known_name_is_suggested() {
        let message = "unknown field `gass`, expected one of `to`, `gasLimit`, `data` at line 1 column 9";
        assert_eq!(unknown_name(message), Some(("gass", vec!["to", "gasLimit", "data"])));
        assert_eq!(unknown_name("missing field `x`"), None);
    }
}
