//! Permission rules of users and tenants.

use crate::http::{call as call_of, principal, respond, set_header, whole};
use crate::scripts::step_of;
use crate::stage::Stage;
use edge_harness::agent::Settings;
use edge_harness::http::{
    Body,
    session::{call::SessionRequest, socket::command},
};
use edge_harness::platform::in_memory::{
    ScriptedModels,
    models::{ScriptedResponse, answer, call},
};
use edge_harness::types::{
    Category, ModelRequest, Part, PatternRule, Policy, Principal, Problem, Rules, SessionStatus, TenantPolicy,
};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;

/// A request of a caller whose tenant has these rules.
fn under(rules: &Rules, route: &str, body: Value) -> SessionRequest {
    under_version(0, rules, route, body)
}

fn under_version(version: u64, rules: &Rules, route: &str, body: Value) -> SessionRequest {
    let policy = TenantPolicy { rules: rules.clone(), version, ..TenantPolicy::default() };
    let principal = Principal { policy, key: Some("key_1".into()), ..principal() };
    SessionRequest { principal, ..call_of(route, "", &body) }
}

fn ask(stage: &Stage, call: &SessionRequest) -> Result<Value, Problem> {
    respond(stage, call).map(whole)
}

fn set(stage: &Stage, permissions: Value) -> Result<Value, Problem> {
    let patch = under(&Rules::default(), "PATCH /v1/sessions/s", json!({"permissions": permissions}));
    ask(stage, &patch).map(|session| session["permissions"].clone())
}

/// Posts a message of a caller whose tenant has these rules.
fn say(stage: &Stage, rules: &Rules) {
    let mut call = under(rules, "POST /messages", json!({"content": "go"}));
    set_header(&mut call, "prefer", "respond-async");
    ask(stage, &call).unwrap();
    stage.run();
}

fn denies(tool: &str) -> Rules {
    Rules { tools: [(tool.to_owned(), Policy::Deny)].into(), ..Rules::default() }
}

/// Writes once in each turn, then replies.
fn writes(request: &ModelRequest) -> ScriptedResponse {
    match step_of(request) {
        0 => answer(vec![call("w", "write_it", json!({"key": "a"}))]),
        _ => answer(vec![Part::text("done")]),
    }
}

fn writing(rules: Rules) -> (Stage, Rc<ScriptedModels>) {
    Stage::scripted(writes, move |builder| {
        builder.settings(Settings { permissions: rules.clone(), ..Settings::default() })
    })
}

fn offered(models: &ScriptedModels) -> Vec<bool> {
    let requests = models.requests();
    requests.iter().map(|request| request.tools.iter().any(|tool| tool.name == "write_it")).collect()
}

fn last_outcome(stage: &Stage) -> String {
    let ended = stage.records().into_iter().rfind(|record| record["type"] == "tool.completed").unwrap();
    ended["reason"].as_str().or(ended["outcome"].as_str()).unwrap().to_owned()
}

#[test]
fn permissions_are_patched_member_by_member() {
    let stage = Stage::demo();
    let made =
        json!({"permissions": {"tools": {"echo": "ask"}, "patterns": [{"pattern": "a", "policy": "deny"}]}});
    let made = ask(&stage, &under(&Rules::default(), "POST /v1/sessions", made)).unwrap();
    assert_eq!(
        made["permissions"],
        json!({"categories": {}, "tools": {"echo": "ask"}, "patterns": [{"pattern": "a", "policy": "deny"}],
               "yolo": false, "grants": {}})
    );
    let patch = json!({"default": "deny", "tools": {"read_it": "allow"}, "categories": {"edit": "ask"}, "yolo": true,
        "grants": {"tools": ["echo"]}, "unknown": 1});
    let patched = set(&stage, patch).unwrap();
    let expected = json!({"default": "deny", "categories": {"edit": "ask"}, "tools": {"echo": "ask", "read_it": "allow"},
        "patterns": [{"pattern": "a", "policy": "deny"}], "yolo": true, "grants": {"tools": ["echo"]}});
    assert_eq!(patched, expected);
    let updated = stage.records().pop().unwrap();
    assert_eq!(
        (&updated["type"], &updated["changed"]),
        (&json!("session.updated"), &json!({"permissions": expected}))
    );
    let patch = json!({"default": null, "tools": {"echo": null}, "categories": null, "patterns": [], "grants": {"tools": []}});
    let left =
        json!({"categories": {}, "tools": {"read_it": "allow"}, "patterns": [], "yolo": true, "grants": {}});
    assert_eq!(set(&stage, patch.clone()).unwrap(), left);
    let events = stage.records().len();
    assert_eq!(set(&stage, patch).unwrap(), left);
    assert_eq!(stage.records().len(), events, "no event without a change");

    let long = "x".repeat(501);
    for (patch, pointer) in [
        (json!("deny"), "/permissions"),
        (json!({"default": "never"}), "/permissions/default"),
        (json!({"tools": {"echo": "never"}}), "/permissions/tools/echo"),
        (json!({"tools": ["echo"]}), "/permissions/tools"),
        (json!({"tools": {"": "ask"}}), "/permissions/tools"),
        (json!({"categories": {"edit": 1}}), "/permissions/categories/edit"),
        (json!({"categories": {"web": "ask"}}), "/permissions/categories/web"),
        (json!({"yolo": "yes"}), "/permissions/yolo"),
        (json!({"patterns": [{"policy": "ask"}]}), "/permissions/patterns/0"),
        (json!({"patterns": [{"pattern": "[a", "policy": "ask"}]}), "/permissions/patterns/0/pattern"),
        (json!({"patterns": [{"pattern": long, "policy": "ask"}]}), "/permissions/patterns/0/pattern"),
        (json!({"patterns": vec![json!({"pattern": "a", "policy": "ask"}); 201]}), "/permissions/patterns"),
        (json!({"grants": {"tools": [1]}}), "/permissions/grants/tools/0"),
    ] {
        let problem = set(&stage, patch.clone()).unwrap_err();
        assert_eq!(
            (problem.code.status(), problem.errors[0].pointer.as_str()),
            (422, pointer),
            "{patch}: {problem}"
        );
    }
    assert_eq!(
        set(&stage, Value::Null).unwrap(),
        json!({"categories": {}, "tools": {}, "patterns": [], "yolo": false, "grants": {}})
    );
}

#[test]
fn a_denied_tool_is_neither_offered_nor_run() {
    for (rules, is_offered, outcome) in [
        (Rules::default(), true, "a person"),
        (denies("write_it"), false, "a rule of the deployment forbids write_it"),
        (
            Rules { default: Some(Policy::Deny), ..Rules::default() },
            false,
            "the rules of the deployment do not allow write_it",
        ),
        (
            Rules { categories: [(Category::Other, Policy::Deny)].into(), ..Rules::default() },
            false,
            "a rule of the deployment forbids all other tools",
        ),
        (
            Rules {
                default: Some(Policy::Allow),
                patterns: vec![PatternRule { tool: None, pattern: "**".into(), policy: Policy::Deny }],
                ..Rules::default()
            },
            true,
            "result",
        ),
    ] {
        let (stage, models) = writing(rules);
        stage.post("t1", "write it");
        stage.run();
        let waits = stage.session().state().status() == SessionStatus::Waiting;
        assert_eq!(offered(&models)[0], is_offered, "{outcome}");
        if outcome == "a person" {
            assert!(waits);
            continue;
        }
        stage.settle();
        stage.check();
        assert!(last_outcome(&stage).starts_with(outcome), "{}", last_outcome(&stage));
        assert_eq!(stage.runs.borrow().is_empty(), outcome != "result");
    }
}

#[test]
fn the_tenants_rules_apply_from_the_first_message_and_follow_the_latest_request() {
    let (stage, models) = writing(Settings::default().permissions);
    let current = Rules::default();
    say(&stage, &denies("write_it"));
    stage.settle();
    assert_eq!(last_outcome(&stage), "a rule of the tenant forbids write_it");
    assert!(stage.runs.borrow().is_empty());
    say(&stage, &current);
    stage.settle();
    assert_eq!((last_outcome(&stage).as_str(), stage.runs.borrow().len()), ("result", 1));
    assert_eq!(offered(&models), [false, false, true, true]);
    // No session can override a denial, and it survives evictions.
    set(&stage, json!({"yolo": true, "tools": {"write_it": "allow"}, "grants": {"tools": ["write_it"]}}))
        .unwrap();
    say(&stage, &denies("write_it"));
    stage.settle();
    stage.crash();
    stage.post("t9", "go");
    stage.settle();
    stage.check();
    assert_eq!(last_outcome(&stage), "a rule of the tenant forbids write_it");
}

#[test]
fn a_request_with_older_rules_of_the_tenant_changes_nothing() {
    let (stage, _) = writing(Settings::default().permissions);
    let show = |version, rules: &Rules| {
        ask(&stage, &under_version(version, rules, "GET /v1/sessions/s", json!({}))).unwrap();
    };
    // An object keeps the newest rules before it has a session, too.
    let (none, denial) = (Rules::default(), denies("write_it"));
    ask(&stage, &under_version(7, &denial, "GET /v1/sessions/s", json!({}))).unwrap_err();
    ask(&stage, &under_version(6, &none, "POST /v1/sessions", json!({}))).unwrap();
    stage.post("t1", "go");
    stage.settle();
    assert_eq!(last_outcome(&stage), "a rule of the tenant forbids write_it");
    show(6, &none);
    stage.crash();
    show(5, &none);
    stage.post("t2", "go");
    stage.settle();
    assert_eq!(last_outcome(&stage), "a rule of the tenant forbids write_it");
    show(8, &none);
    stage.post("t3", "go");
    stage.settle();
    assert_eq!((last_outcome(&stage).as_str(), stage.runs.borrow().len()), ("result", 1));
}

#[test]
fn a_session_created_without_a_message_has_its_tenants_rules() {
    let (stage, _) = writing(Settings::default().permissions);
    ask(&stage, &under(&denies("write_it"), "POST /v1/sessions", json!({}))).unwrap();
    stage.post("t1", "go");
    stage.settle();
    assert_eq!(last_outcome(&stage), "a rule of the tenant forbids write_it");
}

#[test]
fn a_socket_stores_no_rules_but_is_subject_to_them() {
    let (stage, _) = writing(Settings::default().permissions);
    ask(&stage, &under(&Rules::default(), "POST /v1/sessions", json!({}))).unwrap();
    let mut opening = under(&denies("write_it"), "GET /ws", json!({}));
    set_header(&mut opening, "upgrade", "websocket");
    let Body::WebSocket(upgrade) = respond(&stage, &opening).unwrap().into_body() else {
        panic!("no socket")
    };
    let socket = upgrade.state;
    let stored = serde_json::to_string(&socket.stored()).unwrap();
    assert!(stored.len() < 300 && !stored.contains("write_it"), "a socket's state is bounded: {stored}");
    let text = json!({"type": "message", "content": "go"}).to_string();
    block_on(command(&stage.host(), &socket, &text, &"req_1".into())).unwrap();
    stage.settle();
    assert_eq!(last_outcome(&stage), "a rule of the tenant forbids write_it");
}

#[test]
fn a_tenants_rule_added_during_an_approval_applies() {
    let asks = Rules { tools: [("write_it".to_owned(), Policy::Ask)].into(), ..Rules::default() };
    let (stage, _) = writing(asks);
    say(&stage, &Rules::default());
    assert_eq!(stage.session().state().status(), SessionStatus::Waiting);
    let mut approve = under(&denies("write_it"), "POST /approvals/w", json!({"decision": "approve"}));
    set_header(&mut approve, "prefer", "respond-async");
    let answered = ask(&stage, &approve);
    stage.settle();
    stage.check();
    assert!(stage.runs.borrow().is_empty(), "{answered:?}");
    let decided = stage.records().into_iter().find(|record| record["type"] == "approval.decided");
    assert_eq!(decided.unwrap()["by"], json!({"key": "key_1"}));
}

#[test]
fn a_session_is_not_affected_by_other_tenants_rules() {
    let (stage, _) = writing(Settings::default().permissions);
    say(&stage, &denies("write_it"));
    stage.settle();
    let mut stranger = under(&Rules::default(), "POST /messages", json!({"content": "go"}));
    stranger.principal.tenant = "other".into();
    assert_eq!(ask(&stage, &stranger).unwrap_err().code.status(), 404);
    assert_eq!(stage.session().state().guidance.tenant_policy.rules, denies("write_it"));
}
