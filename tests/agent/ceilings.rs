//! The limits that a tenant's turns have at most.

use crate::http::{ask, call, respond, set_header};
use crate::stage::Stage;
use edge_harness::types::{Budget, Problem, TenantLimits, TenantPolicy};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

fn limit(stage: &Stage, version: u64, limits: TenantLimits) {
    let policy = TenantPolicy { limits, version, ..TenantPolicy::default() };
    stage.host().apply_tenant_policy(&"t".into(), &policy).unwrap();
}

fn limits() -> TenantLimits {
    TenantLimits {
        max_steps: Some(5),
        max_tool_calls: Some(2),
        timeout_s: Some(60),
        max_cost_usd: Some(0.5),
        ..TenantLimits::default()
    }
}

fn post(stage: &Stage, body: &Value) -> Result<(), Problem> {
    let mut post = call("POST /messages", "", body);
    set_header(&mut post, "prefer", "respond-async");
    respond(stage, &post).map(drop)
}

fn budget(stage: &Stage) -> Budget {
    stage.session().state().activity.turn.as_ref().expect("a turn").budget
}

#[test]
fn a_request_for_more_is_refused_with_the_highest_value() {
    let stage = Stage::demo();
    limit(&stage, 1, limits());
    for (name, value, detail) in [
        ("max_steps", json!(6), "expected 1 to 5"),
        ("max_tool_calls", json!(3), "expected 0 to 2"),
        ("timeout_s", json!(61), "expected 1 to 60"),
        ("max_cost_usd", json!(0.6), "expected 0 to 0.5"),
    ] {
        let budget = json!({ "budget": { name: value }, "content": "hi" });
        for answer in [ask(&stage, "POST /v1/sessions", "", &budget).map(drop), post(&stage, &budget)] {
            let error = answer.unwrap_err().errors.remove(0);
            assert_eq!((error.pointer, error.detail.as_str()), (format!("/budget/{name}"), detail));
        }
    }
    post(&stage, &json!({"content": "/slow 10 5", "budget": {"max_steps": 5, "max_tool_calls": 1}})).unwrap();
    let own = budget(&stage);
    assert_eq!((own.max_steps, own.max_tool_calls, own.timeout_s), (5, 1, 60));
}

#[test]
fn defaults_are_lowered_when_a_turn_starts_and_the_turn_shows_them() {
    let stage = Stage::demo();
    ask(&stage, "POST /v1/sessions", "", &json!({"budget": {"max_steps": 200}})).unwrap();
    post(&stage, &json!({"content": "/slow 10 5"})).unwrap();
    assert_eq!(budget(&stage).max_steps, 200);
    // Queued before the operator set limits.
    post(&stage, &json!({"content": "/say queued"})).unwrap();
    limit(&stage, 1, limits());
    let queued = stage.session().state().activity.queue[0].clone();
    stage.settle();
    let turn = serde_json::to_value(stage.session().turn(&queued).unwrap().unwrap()).unwrap();
    let shown =
        ["max_steps", "max_tool_calls", "timeout_s", "max_cost_usd"].map(|name| turn["budget"][name].clone());
    assert_eq!(shown, [json!(5), json!(2), json!(60), json!(0.5)]);
}
