//! Strangers send anything. Nothing they send is our failure.

use axum::body::Body;
use axum::http::Request;
use proptest::prelude::*;
use serde_json::{Map, Value};
use tokio::runtime::Runtime;

use crate::support::{Node, transfer};

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        "0x[0-9a-fA-F]{0,66}".prop_map(Value::from),
        "eip155:[0-9]{0,20}:0x[0-9a-f]{38,42}".prop_map(Value::from),
    ];
    let name = prop_oneof![
        "[a-zA-Z]{0,12}",
        prop::sample::select(vec![
            "submitter",
            "requestId",
            "payload",
            "fees",
            "speed",
            "validUntil",
            "onExpiry",
            "metadata",
            "to",
            "value",
            "data",
            "gasLimit",
            "accessList",
            "gasPrice",
            "items",
        ])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// A right request with up to three of its fields replaced.
fn nearly_right() -> impl Strategy<Value = Value> {
    let place = prop::sample::select(vec![
        "/submitter",
        "/requestId",
        "/payload",
        "/payload/to",
        "/payload/value",
        "/payload/data",
        "/payload/gasLimit",
        "/payload/accessList",
        "/fees",
        "/speed",
        "/validUntil",
        "/onExpiry",
        "/metadata",
    ]);
    prop::collection::vec((place, anything()), 0..3).prop_map(|changes| {
        let mut body = transfer("order-1");
        for (place, value) in changes {
            let (parent, name) = place.rsplit_once('/').unwrap();
            if let Some(object) = body.pointer_mut(parent).and_then(Value::as_object_mut) {
                object.insert(name.to_owned(), value);
            }
        }
        body
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_body_is_answered_with_500(
        bodies in prop::collection::vec(prop_oneof![anything(), nearly_right()], 1..12),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let node = Node::start().await;
            for path in ["/api/v1/tx", "/api/v1/tx/batch", "/api/v1/submitters"] {
                let texts = bodies.iter().map(|body| body.to_string().into_bytes()).chain([bytes.clone()]);
                for text in texts {
                    let request = Request::post(path).header("content-type", "application/json");
                    let answer = node.call(request.body(Body::from(text)).unwrap()).await;
                    assert!(answer.status.as_u16() < 500, "{path}: {}", answer.text);
                    assert!(answer.status.is_success() || answer.body["code"].is_string(), "{}", answer.text);
                }
            }
        });
    }

    #[test]
    fn no_query_is_answered_with_500(query in "[ -~]{0,60}", path in "[a-z0-9:/%-]{0,40}") {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let node = Node::start().await;
            for target in [format!("/api/v1/tx/{path}"), format!("/api/v1/tx?{query}"), format!("/api/v1/submitters/{path}")] {
                let Ok(request) = Request::get(&target).body(Body::empty()) else { continue };
                let answer = node.call(request).await;
                assert!(answer.status.as_u16() < 500, "{target}: {}", answer.text);
            }
        });
    }
}
