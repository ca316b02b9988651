//! Batches as bytes. Pure, so that a fuzzer can feed it: whatever comes back, every call gets exactly
//! one answer, and nothing panics.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Call, NodeError, Reply, RpcError, Trouble, TroubleKind};

/// Nodes refuse longer bodies (geth at 5 MiB); a call that is longer by itself goes alone.
pub(crate) const MAX_BODY_BYTES: usize = 2 << 20;

/// The body of one HTTP request: an object for one call, an array for more. Ids are positions.
pub(crate) fn encode(calls: &[Call]) -> Vec<u8> {
    let one = |id: usize, call: &Call, body: &mut Vec<u8>| {
        body.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        body.extend_from_slice(id.to_string().as_bytes());
        body.extend_from_slice(br#","method":""#);
        body.extend_from_slice(call.method.as_bytes());
        body.extend_from_slice(br#"","params":"#);
        body.extend_from_slice(call.params.to_string().as_bytes());
        body.push(b'}');
    };
    let mut body = Vec::with_capacity(calls.len() * 128);
    if let [call] = calls {
        one(0, call, &mut body);
        return body;
    }
    body.push(b'[');
    for (id, call) in calls.iter().enumerate() {
        if id > 0 {
            body.push(b',');
        }
        one(id, call, &mut body);
    }
    body.push(b']');
    body
}

/// Cuts items into runs of at most `most` items and about [`MAX_BODY_BYTES`], in order.
pub(crate) fn chunks<T>(items: &[T], most: usize, bytes_of: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let mut runs = Vec::new();
    let (mut start, mut bytes) = (0, 0_usize);
    for (at, item) in items.iter().enumerate() {
        let more = bytes_of(item);
        if at > start && (at - start >= most || bytes.saturating_add(more) > MAX_BODY_BYTES) {
            runs.push(&items[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes = bytes.saturating_add(more);
    }
    if start < items.len() {
        runs.push(&items[start..]);
    }
    runs
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(default)]
    id: Value,
    /// Told apart: `null` is a result, absence is none.
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Value,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The replies to `calls` calls, by position. The outer error: not an answer to this request at all.
pub(crate) fn decode(body: &[u8], calls: usize) -> Result<Vec<Reply>, Trouble> {
    let not_json = |error: serde_json::Error| Trouble::malformed(format!("not a JSON-RPC answer: {error}"));
    let first = body.iter().find(|b| !b.is_ascii_whitespace());
    if first != Some(&b'[') {
        let answer: Answer<'_> = serde_json::from_slice(body).map_err(not_json)?;
        return alone(&answer, calls);
    }
    let answers: Vec<Answer<'_>> = serde_json::from_slice(body).map_err(not_json)?;
    let mut replies: Vec<Option<Reply>> = vec![None; calls];
    for answer in &answers {
        let place = answer.id.as_u64().and_then(|id| usize::try_from(id).ok());
        if let Some(reply) = place.and_then(|place| replies.get_mut(place))
            && reply.is_none()
        {
            *reply = Some(reply_of(answer));
        }
    }
    // An error about the batch as a whole comes under a null id.
    let stray =
        answers.iter().find(|answer| answer.id.is_null()).and_then(|answer| node_error(&answer.error));
    let missing = || match &stray {
        Some(error) => Err(RpcError::Node(error.clone())),
        None => Err(Trouble::malformed("the node left this call unanswered").into()),
    };
    Ok(replies.into_iter().map(|reply| reply.unwrap_or_else(missing)).collect())
}

/// One object: the answer to one call, or an error about all of them.
fn alone(answer: &Answer<'_>, calls: usize) -> Result<Vec<Reply>, Trouble> {
    if calls == 1 && (answer.id == 0 || answer.id.is_null()) {
        return Ok(vec![reply_of(answer)]);
    }
    match node_error(&answer.error) {
        Some(error) => Ok(vec![Err(RpcError::Node(error)); calls]),
        None => Err(Trouble::malformed("the answer belongs to another request")),
    }
}

fn reply_of(answer: &Answer<'_>) -> Reply {
    match (node_error(&answer.error), answer.result) {
        (Some(error), _) => Err(RpcError::Node(error)),
        (None, Some(result)) => Ok(result.to_owned()),
        (None, None) => Err(Trouble::malformed("the answer holds neither a result nor an error").into()),
    }
}

/// An error in whatever shape servers give it.
fn node_error(error: &Value) -> Option<NodeError> {
    match error {
        Value::Null => None,
        Value::Object(fields) => {
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Some(NodeError {
                code: fields.get("code").and_then(Value::as_i64).unwrap_or_default(),
                message: fields.get("message").map(text).unwrap_or_default(),
                data: fields.get("data").filter(|data| !data.is_null()).cloned(),
            })
        }
        Value::String(message) => Some(NodeError { code: 0, message: message.clone(), data: None }),
        other => Some(NodeError { code: 0, message: other.to_string(), data: None }),
    }
}

/// Whether a node does not know a method, or does not offer it.
pub(crate) fn is_unknown_method(error: &NodeError) -> bool {
    let text = error.message.to_ascii_lowercase();
    let words = ["method not found", "does not exist", "not available", "unsupported", "not supported"];
    error.code == -32601 || words.iter().any(|words| text.contains(words))
}

/// Whether a node asks for patience in words instead of by HTTP status.
pub(crate) fn is_throttled(error: &NodeError) -> bool {
    const WORDS: [&str; 7] = [
        "rate limit",
        "too many requests",
        "request limit",
        "requests per second",
        "compute units",
        "quota",
        "throttl",
    ];
    let text = error.message.to_ascii_lowercase();
    // A contract may revert with such words, for ever.
    let reverted = error.code == 3 || text.contains("revert");
    error.code == 429 || !reverted && WORDS.iter().any(|words| text.contains(words))
}

/// A refusal where a read needs an answer. Throttling is a trouble of the line; the rest is the node's.
pub(crate) fn refusal(error: &NodeError, doing: &str) -> Trouble {
    let text = format!("{doing}: {error}");
    if is_throttled(error) {
        Trouble::new(TroubleKind::Status { status: 429, retry_after: None }, text)
    } else {
        Trouble::malformed(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn call() -> Call {
        Call::new("eth_chainId", json!([]))
    }

    #[test]
    fn one_call_is_an_object_and_more_are_an_array_with_positions_as_ids() {
        let one: Value = serde_json::from_slice(&encode(&[call()])).unwrap();
        assert_eq!(one, json!({"jsonrpc": "2.0", "id": 0, "method": "eth_chainId", "params": []}));
        let two: Value = serde_json::from_slice(&encode(&[call(), call()])).unwrap();
        assert_eq!(two[1]["id"], 1);
    }

    #[test]
    fn answers_in_any_order_find_their_calls_and_null_is_a_result() {
        let body =
            br#"[{"id":1,"result":null},{"id":0,"error":{"code":-1,"message":"no"}}, {"id":9,"result":1}]"#;
        let replies = decode(body, 3).unwrap();
        assert!(matches!(&replies[0], Err(RpcError::Node(error)) if error.message == "no"));
        assert_eq!(replies[1].as_ref().unwrap().get(), "null");
        assert!(matches!(&replies[2], Err(RpcError::Trouble(_))));
    }

    #[test]
    fn an_error_about_the_batch_is_everybodys() {
        for body in
            [r#"{"id":null,"error":{"code":-1,"message":"no batches"}}"#, r#"[{"error":"no batches"}]"#]
        {
            for reply in decode(body.as_bytes(), 2).unwrap() {
                assert!(matches!(reply, Err(RpcError::Node(error)) if error.message == "no batches"));
            }
        }
        assert!(decode(br#"{"id":7,"result":"0x1"}"#, 1).is_err());
        assert!(decode(br#"{"id":0,"result":"0x1"}"#, 2).is_err());
        assert!(decode(b"<html>", 1).is_err());
        assert!(matches!(decode(br#"{"id":0}"#, 1).unwrap()[0], Err(RpcError::Trouble(_))));
    }

    #[test]
    fn chunks_respect_count_and_bytes_and_keep_the_order() {
        let items: Vec<usize> = (0..250).collect();
        let lengths = |bytes| chunks(&items, 100, |_| bytes).iter().map(|c| c.len()).collect::<Vec<_>>();
        assert_eq!(lengths(10), [100, 100, 50]);
        assert_eq!(lengths(MAX_BODY_BYTES + 1), [1; 250]);
        assert_eq!(lengths(MAX_BODY_BYTES / 50), [50; 5]);
        assert_eq!(chunks(&items, 100, |_| 10).concat(), items);
    }

    fn arbitrary_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
            Just(json!("0x1")),
        ];
        let key =
            prop_oneof![Just("id"), Just("result"), Just("error"), Just("code"), Just("message"), Just("x")];
        leaf.prop_recursive(4, 32, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((key.clone(), inner), 0..5).prop_map(|pairs| Value::Object(
                    pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
                )),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_json_gives_one_reply_per_call_or_a_trouble(value in arbitrary_json(), calls in 1usize..5) {
            if let Ok(replies) = decode(value.to_string().as_bytes(), calls) {
                prop_assert_eq!(replies.len(), calls);
            }
        }

        #[test]
        fn any_bytes_give_one_reply_per_call_or_a_trouble(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(replies) = decode(&bytes, 2) {
                prop_assert_eq!(replies.len(), 2);
            }
        }
    }
}
