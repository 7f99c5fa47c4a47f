//! Servers of MCP in the shared file `tools.json`.

use super::*;
use edge_harness::ports::filesystem::Precondition;
use edge_harness::types::{AgentRef, FilePath};
use edge_harness::workspace::Layer;
use pretty_assertions::assert_eq;

fn put_in(stage: &Stage, layer: Layer, file: &Value) {
    let workspace = stage.workspaces().open(&"t".into(), &"support".into(), &"u".into(), None);
    let path = FilePath::parse("tools.json").expect("a path");
    let bytes = file.to_string().into_bytes().into();
    block_on(workspace.layer(layer).write(&path, bytes, &Precondition::Any)).expect("a store that works");
}

fn put(stage: &Stage, file: &Value) {
    put_in(stage, Layer::Shared, file);
}

/// The file adds the server `crm`.
fn crm() -> Value {
    json!({"mcpServers": {"crm": {"url": "https://crm.example.com/mcp"}}})
}

fn faults(stage: &Stage) -> Vec<(String, String)> {
    let text = |record: &Value, name: &str| record[name].as_str().expect("a text").to_owned();
    let all = records(stage, "turn.sub_step_failed");
    all.iter().map(|record| (text(record, "step"), text(record, "reason"))).collect()
}

#[test]
fn the_file_adds_servers_to_all_versions() {
    let (stage, server, _) = stage(&json!({}), &["add", "sub"]);
    let mut file = crm();
    file["deny"] = json!(["crm__sub"]);
    put(&stage, &file);
    assert_eq!(reply(&stage), "crm__add");
    assert_eq!(records(&stage, "tool.completed")[0]["result"], json!({"n": 1}));
    assert_eq!(*server.asked.borrow(), ["server/discover", "tools/list", "tools/call"]);
    assert_eq!(faults(&stage), []);
    stage.check();
}

#[test]
fn a_change_of_the_file_counts_a_minute_later() {
    let (stage, server, _) = stage(&json!({}), &["add"]);
    assert_eq!(reply(&stage), "");
    put(&stage, &crm());
    stage.tick(Duration::from_secs(59));
    assert_eq!(reply(&stage), "");
    // No turn waits for the file.
    stage.tick(Duration::from_secs(1));
    assert_eq!(reply(&stage), "");
    assert_eq!(reply(&stage), "crm__add");
    // Another server of this name has its own connection.
    put(&stage, &json!({"mcpServers": {"crm": {"url": "https://other.example.com/mcp"}}}));
    stage.tick(Duration::from_mins(1));
    reply(&stage);
    reply(&stage);
    let listed = server.asked.borrow().iter().filter(|method| *method == "tools/list").count();
    assert_eq!(listed, 2);
    put(&stage, &json!({}));
    stage.tick(Duration::from_mins(1));
    reply(&stage);
    assert_eq!(reply(&stage), "");
    assert_eq!(faults(&stage), []);
    stage.check();
}

#[test]
fn what_does_not_fit_is_left_out_and_the_rest_stays() {
    let definition = json!({
        "mcp_servers": {"own": {"url": "https://crm.example.com/mcp"}},
        "external_tools": [{"name": "echo__add", "description": "Of the operator."}],
    });
    let (stage, ..) = stage(&definition, &["add"]);
    put(
        &stage,
        &json!({"mcpServers": {
            "crm": {"url": "https://crm.example.com/mcp"},
            "own": {"url": "https://other.example.com/mcp"},
            "inside": {"url": "https://10.0.0.1/mcp"},
            "odd": {"address": "https://crm.example.com/mcp"},
            "secret": {"url": "https://crm.example.com/mcp", "headers": "Bearer abc"},
            "Bad": {"url": "https://crm.example.com/mcp"},
        }}),
    );
    assert_eq!(reply(&stage), "crm__add echo__add own__add");
    let faults = faults(&stage);
    let reason = |name: &str| {
        let own = faults.iter().find(|(step, _)| *step == format!("mcp:{name}"));
        own.map(|(_, reason)| reason.as_str()).unwrap_or_default()
    };
    assert!(reason("own").contains("the version of the agent has a server of this name"), "{faults:?}");
    assert!(reason("inside").contains("/inside/url"), "{faults:?}");
    assert!(reason("odd").contains("unknown field `address`"), "{faults:?}");
    assert!(reason("secret").ends_with("a field has another type"), "{faults:?}");
    assert!(reason("Bad").contains("expected a name"), "{faults:?}");
    stage.check();
}

#[test]
fn a_malformed_file_and_that_of_a_user_add_nothing() {
    let (stage, server, _) = stage(&json!({}), &["add"]);
    put_in(&stage, Layer::User, &crm());
    put(&stage, &json!({"mcpServers": "crm"}));
    assert_eq!(reply(&stage), "");
    assert_eq!(server.asked.borrow().len(), 0);
    let faults = faults(&stage);
    assert_eq!(faults[0].0, "tools.json");
    assert!(faults[0].1.contains("mcpServers"), "{faults:?}");
    stage.check();
}

#[test]
fn a_server_that_needs_consent_reaches_all_users() {
    let (stage, ..) = stage(&json!({}), &["add"]);
    let versions = stage.versions.borrow().clone().expect("the agents");
    let of = AgentRef { id: "support".into(), version: AgentVersion::FIRST };
    let tools = |user: &str| {
        let (tenant, user) = ("t".into(), user.into());
        if let Some(work) = Rc::clone(&versions).refresh(&tenant, &user, &of) {
            block_on(work);
        }
        let current = versions.current(&tenant, &user, &of);
        let agent =
            current.unwrap_or_else(|| block_on(versions.version(&tenant, &user, &of)).expect("a version"));
        ["crm__add", "crm__connect"].map(|name| agent.toolkit().spec(name).is_some())
    };
    assert_eq!([tools("u"), tools("v")], [[false; 2]; 2]);
    let mut file = crm();
    file["mcpServers"]["crm"]["auth"] = json!("oauth");
    put(&stage, &file);
    stage.tick(Duration::from_mins(1));
    assert_eq!([tools("u"), tools("v"), tools("u")], [[true; 2]; 3]);
    put(&stage, &crm());
    stage.tick(Duration::from_mins(1));
    assert_eq!([tools("u"), tools("v")], [[true, false]; 2]);
}

#[test]
fn an_answer_reaches_no_other_server() {
    let (stage, server, _) = stage(&json!({}), &["add", "pay"]);
    put(&stage, &crm());
    start(&stage);
    assert_eq!(pending(&stage).payload["question"], "Which account?");
    let calls = server.calls.borrow().len();
    put(&stage, &json!({"mcpServers": {"crm": {"url": "https://other.example.com/mcp"}}}));
    stage.tick(Duration::from_mins(1));
    let versions = stage.versions.borrow().clone().expect("the agents");
    let of = AgentRef { id: "support".into(), version: AgentVersion::FIRST };
    block_on(versions.refresh(&"t".into(), &"u".into(), &of).expect("a refresh that is due"));
    stage.crash();
    assert_eq!(say(&stage, json!("main")), Ok(()));
    stage.settle();
    let last = records(&stage, "tool.completed").pop().expect("an outcome");
    assert!(last["reason"].as_str().is_some_and(|why| why.contains("another server")), "{last}");
    assert_eq!(server.calls.borrow().len(), calls);
}
