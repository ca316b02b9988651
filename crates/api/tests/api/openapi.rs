//! The OpenAPI document says what the router does, and what the answers look like.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::hand::{Hand, accepted};
use crate::support::{ACCOUNT, Node};

fn document() -> Value {
    serde_json::from_str(gapless_api::openapi::DOCUMENT).unwrap()
}

/// Paths and methods as the router's source declares them.
fn declared() -> BTreeMap<String, BTreeSet<&'static str>> {
    let source = include_str!("../../src/lib.rs");
    let body = &source[source.find("pub fn router").unwrap()..];
    let nested = body.find(".nest(").unwrap();
    let mut found = BTreeMap::new();
    for (at, _) in body.match_indices(".route(\"") {
        let rest = &body[at + ".route(\"".len()..];
        let (path, rest) = rest.split_once('"').unwrap();
        let handlers = rest.split(".route(").next().unwrap().split('\n').next().unwrap();
        let methods: BTreeSet<&str> =
            ["get", "post", "put", "delete", "patch"].into_iter().filter(|m| has(handlers, m)).collect();
        assert!(!methods.is_empty(), "{path}: {handlers}");
        let prefix = if at < nested { "/api/v1" } else { "" };
        found.insert(format!("{prefix}{path}"), methods);
    }
    found
}

fn has(handlers: &str, method: &str) -> bool {
    handlers.contains(&format!(" {method}(")) || handlers.contains(&format!(".{method}("))
}

#[test]
fn every_route_is_in_the_document_and_nothing_else_is() {
    let document = document();
    let paths = document["paths"].as_object().unwrap();
    let written: BTreeMap<String, BTreeSet<&str>> = paths
        .iter()
        .map(|(path, item)| (path.clone(), item.as_object().unwrap().keys().map(String::as_str).collect()))
        .collect();
    assert_eq!(written, declared());
}

#[test]
fn every_reference_points_at_something_and_every_name_is_used() {
    fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document = document();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    for reference in &found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} points nowhere");
    }
    for kind in ["schemas", "parameters", "responses"] {
        for name in document["components"][kind].as_object().unwrap().keys() {
            let reference = format!("#/components/{kind}/{name}");
            assert!(found.contains(reference.as_str()), "{reference} is not used");
        }
    }
}

/// The names that a schema requires.
fn required(document: &Value, schema: &str) -> BTreeSet<String> {
    let names = &document["components"]["schemas"][schema]["required"];
    names.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

fn fields(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

#[tokio::test]
async fn answers_have_the_fields_that_the_document_promises() {
    let (document, node) = (document(), Node::start().await);
    let ids = accepted(&node, &["a"]).await;
    Hand::on(&node).await.bind(1).await;
    let tx = format!("/api/v1/tx/{}", ids[0]);
    let get = async |path: &str| node.get(path).await.body;
    assert_eq!(fields(&get(&tx).await), required(&document, "TxView"));
    let operator = fields(&get(&format!("{tx}?view=operator")).await);
    assert_eq!(operator, fields(&document["components"]["schemas"]["TxView"]["properties"]));
    assert_eq!(fields(&get(&format!("{tx}/attempts")).await[0]), required(&document, "Attempt"));
    assert_eq!(fields(&get(&format!("{tx}/explain")).await), required(&document, "Explanation"));
    let submitter = format!("/api/v1/submitters/{ACCOUNT}");
    assert_eq!(fields(&get(&submitter).await), required(&document, "Submitter"));
    let nonces = get(&format!("{submitter}/nonces")).await;
    assert_eq!(fields(&nonces["items"][0]), required(&document, "NonceEntry"));
    let report = get(&format!("{submitter}/report")).await;
    assert_eq!(fields(&report), required(&document, "Report"));
    assert_eq!(report["violations"], serde_json::json!([]), "{report}");
    assert_eq!(fields(&get("/api/v1/nothing").await), required(&document, "Problem"));
    assert_eq!(get("/openapi.json").await, document);
}
