//! Repeated requests with an idempotency key.

use crate::stage::{ADMIN, Answer, DEV, Request, Stage, get, ids, post};
use edge_harness::ports::Directory;
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;

fn tenant(key: &str, body: &Value) -> Request {
    post("/v1/admin/tenants").bearer(ADMIN).header("idempotency-key", key).json(body)
}

#[test]
fn the_first_response_is_repeated_including_its_secret() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let ask = || post("/v1/admin/tenants/acme/keys").bearer(ADMIN).header("idempotency-key", "k");
    let [first, second] = [(); 2].map(|()| stage.answer(ask()));
    assert_eq!((first.status, first.header("idempotent-replayed")), (201, None));
    assert_eq!((second.status, second.header("idempotent-replayed")), (201, Some("true")));
    assert_eq!(first.body, second.body);
    assert_eq!(ids(&stage.answer(get("/v1/admin/tenants/acme/keys").bearer(ADMIN))).len(), 1);
    let scope = r#"["POST","/v1/admin/tenants/{tenant}/keys",["acme"],"operator"]"#;
    let kept = block_on(stage.directory.claim(None, scope, "k", &hash(""), crate::stage::NOW)).unwrap();
    assert!(!format!("{kept:?}").contains(&first.text("key")), "the stored response is encrypted");
}

fn hash(body: &str) -> String {
    edge_harness::http::idempotency::body_hash(body.as_bytes())
}

#[test]
fn another_body_under_the_same_key_is_refused() {
    let stage = Stage::new();
    assert_eq!(stage.answer(tenant("k", &json!({ "id": "a" }))).status, 201);
    let other = stage.answer(tenant("k", &json!({ "id": "b" })));
    assert_eq!(other.code(), (422, "idempotency_key_reused"));
    stage.clock.advance(Duration::from_hours(24));
    assert_eq!(stage.answer(tenant("k", &json!({ "id": "b" }))).status, 201, "a day later the key is free");
}

#[test]
fn a_repeated_request_is_refused_while_the_first_runs() {
    let stage = Stage::new();
    let body = json!({ "id": "a" });
    let scope = r#"["POST","/v1/admin/tenants",[],"operator"]"#;
    block_on(stage.directory.claim(None, scope, "k", &hash(&body.to_string()), crate::stage::NOW)).unwrap();
    let answer = stage.answer(tenant("k", &body));
    assert_eq!(answer.code(), (409, "idempotency_in_progress"));
    assert!(answer.header("retry-after").is_some());
    stage.clock.advance(Duration::from_mins(1));
    assert_eq!(stage.answer(tenant("k", &body)).status, 201, "the first request has crashed");
}

#[test]
fn a_refusal_frees_the_key() {
    let stage = Stage::new();
    assert_eq!(stage.answer(tenant("k", &json!({ "id": "a/b" }))).status, 422);
    assert_eq!(stage.answer(tenant("k", &json!({ "id": "a" }))).status, 201);
    for bad in ["", "with space", "ü", &"x".repeat(256)] {
        assert_eq!(stage.answer(tenant(bad, &json!({}))).code(), (400, "invalid_request"), "{bad}");
    }
}

#[test]
fn a_users_stored_response_is_not_returned_to_others() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, narrow) = stage.key("acme", json!({ "scopes": ["chat"] }));
    let (_, wide) = stage.key("acme", json!({}));
    let ask = |key: &str| {
        let body = json!({ "facts": [{ "text": "likes tea" }] });
        stage.answer(post("/v1/memory").bearer(key).header("idempotency-key", "k").json(&body))
    };
    let answers = [&wide, &narrow, &DEV.to_owned()].map(|key| ask(key));
    let is_first = |answer: &Answer| answer.status < 300 && answer.header("idempotent-replayed").is_none();
    assert!(answers.iter().all(is_first), "{answers:?}");
    assert_eq!(ask(&narrow).header("idempotent-replayed"), Some("true"));
}

#[test]
fn a_large_response_is_replayed_as_its_status() {
    let stage = Stage::new();
    let facts: Vec<Value> = (0..100).map(|n| json!({ "text": "x", "id": format!("{n:0>200}") })).collect();
    let ask = |facts: &[Value]| {
        let body = json!({ "facts": facts });
        let key = format!("k{}", facts.len());
        stage.answer(post("/v1/memory").bearer(DEV).header("idempotency-key", &key).json(&body))
    };
    for (count, is_whole) in [(50, true), (100, false)] {
        let [first, second] = [(); 2].map(|()| ask(&facts[..count]));
        assert_eq!((first.status, second.status), (201, 201));
        assert_eq!(second.header("idempotent-replayed"), Some("true"));
        assert_eq!(first.body == second.body, is_whole, "{count}");
        assert_eq!(second.body.get("truncated").is_none(), is_whole, "{}", second.body);
    }
}
