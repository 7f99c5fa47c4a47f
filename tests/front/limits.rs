//! Limits of tenants: set by the operator, and sent to sessions with each request.

use crate::stage::{ADMIN, Stage, get, post, request};
use edge_harness::types::{ModelList, TenantLimits};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const PATH: &str = "/v1/admin/tenants/acme";

fn patch(stage: &Stage, limits: Value) -> Value {
    let answer = stage.answer(request("PATCH", PATH).bearer(ADMIN).json(&json!({ "limits": limits })));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body["limits"].clone()
}

#[test]
fn the_operator_sets_shows_and_removes_limits() {
    let stage = Stage::new();
    let limits = json!({"models": ["openai/*", "anthropic/claude-haiku-4-5"], "max_steps": 20,
        "max_tool_calls": 0, "timeout_s": 60, "max_cost_usd": 0.5});
    let made = json!({"id": "acme", "limits": limits});
    let made = stage.answer(post("/v1/admin/tenants").bearer(ADMIN).json(&made));
    assert_eq!((made.status, &made.body["limits"]), (201, &limits));
    assert_eq!(stage.answer(get(PATH).bearer(ADMIN)).body["limits"], limits);
    assert_eq!(patch(&stage, json!({})), limits, "absent limits are kept");
    let rest = json!({"max_steps": 30, "max_tool_calls": 0, "max_cost_usd": 0.5});
    assert_eq!(patch(&stage, json!({"models": null, "max_steps": 30, "timeout_s": null})), rest);
    assert_eq!(patch(&stage, Value::Null), Value::Null);
}

#[test]
fn invalid_limits_are_named() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    for (limits, pointer) in [
        (json!([]), "/limits"),
        (json!({"models": "openai/*"}), "/limits/models"),
        (json!({"max_steps": 0}), "/limits/max_steps"),
        (json!({"max_tool_calls": 10_001}), "/limits/max_tool_calls"),
        (json!({"timeout_s": "1h"}), "/limits/timeout_s"),
        (json!({"max_cost_usd": -1}), "/limits/max_cost_usd"),
        (json!({"models": []}), "/limits/models"),
        (json!({"models": ["openai/*", 1]}), "/limits/models/1"),
        (json!({"models": ["openai/*", "gpt-5"]}), "/limits/models/1"),
    ] {
        for ask in [request("PATCH", PATH), post("/v1/admin/tenants")] {
            let answer = stage.answer(ask.bearer(ADMIN).json(&json!({ "limits": limits })));
            assert_eq!((answer.status, &answer.body["errors"][0]["pointer"]), (422, &json!(pointer)));
        }
    }
}

#[test]
fn limits_are_sent_with_each_request_and_narrow_the_list_of_models() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, key) = stage.key("acme", json!({}));
    let sent =
        || stage.forward(post("/v1/sessions/s1/messages").bearer(&key).json(&json!({"content": "hi"})));
    let listed = || stage.answer(get("/v1/models").bearer(&key)).body["data"].as_array().unwrap().len();
    assert_eq!((sent().principal.policy.limits, listed()), (TenantLimits::default(), 1));
    patch(&stage, json!({"models": ["openai/*"]}));
    let limits = TenantLimits { models: Some(ModelList(vec!["openai/*".into()])), ..TenantLimits::default() };
    assert_eq!((sent().principal.policy.limits, listed()), (limits, 0));
}
