//! Definitions of agents: versions, checks and rollback.

use crate::stage::{ADMIN, Answer, Request, Stage, delete, get, post, request};
use edge_harness::ports::AgentStore;
use edge_harness::ports::Directory;
use edge_harness::types::AuditQuery;
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;

const AGENT: &str = "/v1/agents/support";

fn with_keys() -> (Stage, String, String) {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, admin) = stage.key("acme", json!({"scopes": ["chat", "read", "admin"]}));
    let (_, user) = stage.key("acme", json!({}));
    (stage, admin, user)
}

fn put(target: &str) -> Request {
    request("PUT", target)
}

fn push(stage: &Stage, key: &str, definition: &Value) -> Answer {
    stage.answer(put(AGENT).bearer(key).json(definition))
}

fn pointers(answer: &Answer) -> Vec<String> {
    let errors = answer.body["errors"].as_array().cloned().unwrap_or_default();
    errors.iter().map(|error| error["pointer"].as_str().unwrap_or_default().to_owned()).collect()
}

fn version(answer: &Answer) -> u64 {
    answer.body["version"].as_u64().unwrap_or_default()
}

#[test]
fn each_push_is_a_version_and_an_earlier_one_can_be_activated() {
    let (stage, admin, user) = with_keys();
    let first = push(&stage, &admin, &json!({"instructions": "Be brief.", "metadata": {"team": 7}}));
    assert_eq!((first.status, version(&first)), (201, 1));
    assert_eq!(first.body["metadata"]["team"], 7);
    assert_eq!(first.header("etag"), Some("\"1\""));
    let second = push(&stage, &admin, &json!({"name": "Support", "instructions": "Be kind."}));
    assert_eq!((second.status, version(&second)), (200, 2));
    // The same definition again makes no version; `null` is an absent field.
    let same = push(&stage, &admin, &json!({"name": "Support", "instructions": "Be kind.", "model": null}));
    assert_eq!((same.status, version(&same)), (200, 2));
    let shown = stage.answer(get(AGENT).bearer(&user));
    assert_eq!((version(&shown), &shown.body["name"]), (2, &json!("Support")));
    assert!(same.body.get("model").is_none(), "{}", same.body);
    assert!(shown.body.get("instructions").is_none(), "instructions are not for users: {}", shown.body);
    let deployment = stage.answer(get("/v1/agents/default").bearer(&user)).body;
    let modes = deployment["modes"].as_array().unwrap();
    assert_eq!(
        (&modes[0]["id"], &modes[0]["default"], &modes[1]["id"]),
        (&json!("build"), &json!(true), &json!("plan"))
    );
    assert!(
        modes.iter().all(|mode| mode.get("instructions").is_none()),
        "nor are those of a mode: {deployment}"
    );
    let old = stage.answer(get("/v1/agents/support?version=1").bearer(&admin));
    assert_eq!((version(&old), &old.body["instructions"]), (1, &json!("Be brief.")));
    let back = stage.answer(post("/v1/agents/support/versions/1/activate").bearer(&admin));
    assert_eq!((back.status, version(&back)), (200, 1));
    let versions = stage.answer(get("/v1/agents/support/versions").bearer(&user)).body;
    let listed: Vec<_> =
        versions["data"].as_array().unwrap().iter().map(|one| (&one["version"], &one["active"])).collect();
    assert_eq!(listed, [(&json!(2), &json!(false)), (&json!(1), &json!(true))]);
    // A new version has a new number, also after a rollback.
    assert_eq!(version(&push(&stage, &admin, &json!({"instructions": "Be bold."}))), 3);
    let list = stage.answer(get("/v1/agents").bearer(&user)).body;
    let ids: Vec<_> =
        list["data"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["default", "other", "support"]);
}

#[test]
fn every_fault_has_its_place_and_a_bad_definition_changes_nothing() {
    let (stage, admin, _) = with_keys();
    let shapes =
        push(&stage, &admin, &json!({"instructions": 7, "color": "red", "modes": [{"id": 1}], "name": "x"}));
    assert_eq!(
        (shapes.status, pointers(&shapes)),
        (422, vec!["/color".into(), "/instructions".into(), "/modes/0/id".into()])
    );
    let refused = push(
        &stage,
        &admin,
        &json!({
            "model": "nowhere/gpt",
            "tools": {"allow": ["read_file", "fly", "mcp_get_prompt"]},
            "external_tools": [{"name": "read_file", "description": ""}, {"name": "ok", "parameters": {"type": "array"}}, {"name": "call_tool"}, {"name": "mcp_read_resource"}],
            "subagents": [{"id": "a b", "description": ""}, {"id": "r", "description": "", "tools": ["swim", "crm__find"],
                "workspace": {"mode": "isolated"}, "skills": {"allow": ["ok-*"], "deny": ["ok", "{a,b"]}}],
            "mcp_servers": {"crm": {"url": "https://10.0.0.1/", "timeout_s": 0}, "C": {"url": "https://example.com/"}},
            "modes": [{"id": "plan", "transitions_to": ["nowhere"]}],
            "budget": {"defaults": {"max_steps": 0}, "ceilings": {"timeout_s": 100_000}},
            "permissions": {"patterns": [{"pattern": "", "policy": "deny"}]},
            "judges": [{"name": "j", "instructions": "?", "sample": 2}],
            "state_schema": {"properties": {"a": {"$ref": "x"}}},
            "output_schema": {"properties": {"b": {"$ref": "x"}}},
            "skills": {"deny": ["{a,b", "ok-*"]},
            "context": {"file_tokens": 5, "compact_at_messages": 4, "keep_messages": 4},
        }),
    );
    assert_eq!(refused.status, 422);
    let mut found = pointers(&refused);
    found.sort();
    let expected = [
        "/budget/ceilings/timeout_s",
        "/budget/defaults/max_steps",
        "/context/file_tokens",
        "/context/keep_messages",
        "/external_tools/0/name",
        "/external_tools/1/parameters",
        "/external_tools/2",
        "/external_tools/3",
        "/judges/0",
        "/mcp_servers/C",
        "/mcp_servers/crm/timeout_s",
        "/mcp_servers/crm/url",
        "/model",
        "/modes/0",
        "/output_schema/properties/b/$ref",
        "/permissions/patterns/0/pattern",
        "/skills/deny/0",
        "/state_schema",
        "/subagents/0",
        "/subagents/1/skills/deny/1",
        "/subagents/1/tools/0",
        "/tools/allow/1",
    ];
    assert_eq!(found, expected);
    assert_eq!(stage.answer(get(AGENT).bearer(&admin)).status, 404);
}

#[test]
fn preconditions_protect_the_changes_of_others() {
    let (stage, admin, _) = with_keys();
    let create = |tag: &str| {
        stage.answer(put(AGENT).bearer(&admin).header("if-none-match", "*").json(&json!({"name": tag})))
    };
    assert_eq!(create("one").status, 201);
    assert_eq!(create("two").status, 412);
    let replace = |tag: &str| {
        stage.answer(put(AGENT).bearer(&admin).header("if-match", tag).json(&json!({"name": tag})))
    };
    assert_eq!(replace("\"7\"").status, 412);
    assert_eq!(version(&replace("\"1\"")), 2);
    assert_eq!(stage.answer(delete(AGENT).bearer(&admin).header("if-match", "\"1\"")).status, 412);
}

#[test]
fn an_agent_of_the_deployment_has_its_settings_as_first_version() {
    let (stage, admin, user) = with_keys();
    let first = stage.answer(get("/v1/agents/default").bearer(&user));
    assert_eq!((first.status, version(&first), &first.body["name"]), (200, 1, &json!("default")));
    // What is shown can be sent back.
    let mut own = first.body.clone();
    for field in ["id", "version"] {
        own.as_object_mut().unwrap().remove(field);
    }
    let sent = stage.answer(put("/v1/agents/default").bearer(&admin).json(&own));
    assert_eq!((sent.status, version(&sent)), (200, 2), "{:?}", sent.body);
    let refused = stage.answer(delete("/v1/agents/default").bearer(&admin));
    assert_eq!((refused.status, &refused.body["code"]), (409, &json!("agent_required")));
    let back = stage.answer(post("/v1/agents/default/versions/1/activate").bearer(&admin));
    assert_eq!((back.status, version(&back)), (200, 1));
}

#[test]
fn only_administrators_of_the_tenant_change_its_agents() {
    let (stage, admin, user) = with_keys();
    assert_eq!(push(&stage, &user, &json!({})).status, 403);
    assert_eq!(push(&stage, &admin, &json!({"name": "Ours"})).status, 201);
    stage.tenant("globex", Value::Null);
    let (_, other) = stage.key("globex", json!({"scopes": ["chat", "read", "admin"]}));
    assert_eq!(stage.answer(get(AGENT).bearer(&other)).status, 404);
    assert_eq!(stage.answer(delete(AGENT).bearer(&other)).status, 404);
    let ids = stage.answer(get("/v1/agents").bearer(&other)).body.to_string();
    assert!(!ids.contains("support"), "{ids}");
    // Requests may name an agent only if their tenant has it.
    let asks = |key: &str| stage.answer(get("/v1/workspace/files?agent=support").bearer(key)).status;
    assert_eq!((asks(&user), asks(&other)), (200, 404));
    // A change is in the audit trail.
    let trail =
        block_on(stage.directory.audit(&"acme".into(), &AuditQuery { limit: 10, ..AuditQuery::default() }))
            .unwrap();
    let row = trail.iter().find(|row| row.action.to_string() == "agent.updated").expect("a row");
    assert_eq!((&*row.object, &row.details["version"]), ("support", &json!(1)));
}

#[test]
fn a_definition_names_only_models_that_the_tenant_may_use() {
    let (stage, admin, _) = with_keys();
    let definition = json!({ "model": "demo/echo", "modes": [{"id": "m", "default_model": "demo/echo"}] });
    let limits = json!({ "limits": { "models": ["openai/*"] } });
    stage.answer(request("PATCH", "/v1/admin/tenants/acme").bearer(ADMIN).json(&limits));
    stage.clock.advance(Duration::from_mins(2));
    let refused = push(&stage, &admin, &definition);
    assert_eq!(
        (refused.status, pointers(&refused)),
        (422, vec!["/model".into(), "/modes/0/default_model".into()])
    );
    stage.answer(request("PATCH", "/v1/admin/tenants/acme").bearer(ADMIN).json(&json!({ "limits": null })));
    stage.clock.advance(Duration::from_mins(2));
    assert_eq!(push(&stage, &admin, &definition).status, 201);
}

#[test]
fn a_deleted_agent_is_gone_until_it_is_stored_again() {
    let (stage, admin, user) = with_keys();
    push(&stage, &admin, &json!({"name": "One"}));
    push(&stage, &admin, &json!({"name": "Two"}));
    assert_eq!(stage.answer(delete(AGENT).bearer(&admin)).status, 204);
    let gone = stage.answer(get(AGENT).bearer(&user));
    assert_eq!((gone.status, &gone.body["code"]), (409, &json!("agent_gone")));
    assert_eq!(stage.answer(delete(AGENT).bearer(&admin)).status, 404);
    let again = push(&stage, &admin, &json!({"name": "Three"}));
    assert_eq!((again.status, version(&again)), (201, 3));
}

#[test]
fn an_isolate_asks_for_the_active_versions_once_a_minute() {
    let (stage, admin, user) = with_keys();
    push(&stage, &admin, &json!({"name": "One"}));
    let asks = || {
        let before = stage.agents.calls.get();
        stage.answer(get("/v1/workspace/files?agent=support").bearer(&user));
        stage.agents.calls.get() - before
    };
    assert!(asks() > 0);
    assert_eq!(asks(), 0);
    stage.clock.advance(Duration::from_secs(61));
    assert_eq!(asks(), 1);
}

#[test]
fn the_files_of_the_active_version_are_shared_files() {
    let (stage, admin, user) = with_keys();
    push(&stage, &admin, &json!({"files": {"knowledge/faq.md": "Ask Ann."}}));
    let read = || stage.answer(get("/v1/workspace/files/knowledge/faq.md?agent=support").bearer(&user));
    assert_eq!((read().status, read().body), (200, json!("Ask Ann.")));
    // A stored shared file hides it.
    let own = put("/v1/workspace/files/knowledge/faq.md?agent=support&layer=shared").bearer(&admin);
    assert_eq!(stage.answer(own.body("Ask Bob.")).status, 200);
    assert_eq!(read().body, json!("Ask Bob."));
    let refused = push(&stage, &admin, &json!({"files": {"../up.md": ""}}));
    assert_eq!((refused.status, pointers(&refused)), (422, vec!["/files/..~1up.md".into()]));
}

#[test]
fn the_erasure_of_a_tenant_erases_its_agents() {
    let (stage, admin, _) = with_keys();
    push(&stage, &admin, &json!({"name": "One"}));
    assert_eq!(stage.answer(delete("/v1/admin/tenants/acme").bearer(crate::stage::ADMIN)).status, 204);
    for _ in 1..30 {
        stage.clock.advance(Duration::from_secs(60));
        block_on(edge_harness::http::erasure::sweep(&stage.gateway)).unwrap();
    }
    assert_eq!(block_on(stage.agents.list(&"acme".into())).unwrap(), []);
}
