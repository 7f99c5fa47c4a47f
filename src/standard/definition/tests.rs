use super::{AgentConfig, Definition};
use crate::standard::{Config, ContextSettings};
use crate::types::{Thinking, WorkspaceKind};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

fn definition(json: Value) -> Definition {
    Definition::parse(json.as_object().expect("an object").clone()).expect("a definition")
}

fn config(variables: &[(&str, &str)]) -> Config {
    let find = |name: &str| {
        let own = variables.iter().find(|(own, _)| *own == name);
        own.map(|(_, value)| (*value).to_owned())
    };
    let (config, errors) = Config::read(&find);
    assert!(errors.is_empty(), "{errors:?}");
    config
}

#[test]
fn absent_fields_have_the_deployments_values() {
    let config = config(&[("INSTRUCTIONS", "Be kind."), ("THINK", "high"), ("COMPACT_AT_MESSAGES", "60")]);
    let own = definition(json!({"context": {"compact_at_tokens": 9_000}}));
    let own = AgentConfig::of(&config, own).expect("tools");
    assert_eq!(own.instructions.as_deref(), Some("Be kind."));
    assert_eq!(own.settings.think, Thinking::High);
    let ContextSettings::Compaction(compaction) = own.context else { panic!("another strategy") };
    let kept = (compaction.at_messages, compaction.at_tokens, compaction.keep_messages);
    assert_eq!(kept, (60, 9_000, 20));
    let own = definition(json!({"context": {"compact_at_messages": 10}}));
    let ContextSettings::Compaction(compaction) = AgentConfig::of(&config, own).expect("tools").context
    else {
        panic!("another strategy")
    };
    assert_eq!((compaction.at_messages, compaction.keep_messages), (10, 5));
}

#[test]
fn the_workspace_is_on_the_server_unless_the_definition_says_so() {
    let kind = |json| AgentConfig::of(&config(&[]), definition(json)).expect("tools").settings.workspace;
    assert_eq!(kind(json!({})), WorkspaceKind::Server);
    assert_eq!(kind(json!({"workspace": {}})), WorkspaceKind::Server);
    assert_eq!(kind(json!({"workspace": {"kind": "runner"}})), WorkspaceKind::Runner);
    let unknown = json!({"workspace": {"kind": "cloud"}});
    let faults = Definition::parse(unknown.as_object().expect("an object").clone()).expect_err("a fault");
    assert_eq!(faults[0].pointer, "/workspace/kind");
}

#[test]
fn a_schema_of_its_own_replaces_the_initial_state() {
    let config = config(&[("INITIAL_STATE", r#"{"step": 0}"#)]);
    let state = |json: Value| {
        let own = AgentConfig::of(&config, definition(json)).expect("tools");
        Value::Object(own.settings.initial_state)
    };
    assert_eq!(state(json!({})), json!({"step": 0}));
    let own = json!({"state_schema": {"required": ["page"]}, "initial_state": {"page": 1}});
    assert_eq!(state(own), json!({"page": 1}));
    assert_eq!(state(json!({"state_schema": {}})), json!({}));
}

#[test]
fn the_settings_of_a_deployment_are_a_definition() {
    let config = config(&[
        ("INSTRUCTIONS", "Be kind."),
        ("MODES", r#"[{"id": "ask", "tools": ["ask_user"]}]"#),
        ("SUBAGENTS", r#"[{"id": "r", "description": "Reads."}]"#),
        ("PERMISSIONS", r#"{"tools": {"write_file": "deny"}}"#),
        ("EXTERNAL_TOOLS", r#"[{"name": "photo", "description": "Takes one."}]"#),
        ("CONTEXT_STRATEGY", "observation"),
    ]);
    let json = serde_json::to_value(Definition::of_deployment(&config)).expect("JSON");
    let own = AgentConfig::of(&config, definition(json)).expect("tools");
    assert_eq!(own.settings.modes, config.agent.modes);
    assert_eq!(own.settings.subagents, config.agent.subagents);
    assert_eq!(own.settings.own_permissions, config.agent.permissions);
    assert_eq!(own.external_tools.len(), 1);
    assert_eq!(own.context, config.context());
}

#[test]
fn each_fault_of_the_form_is_found() {
    let json = json!({"a/b": 1, "budget": {"defaults": {"max_steps": "x"}}, "thinking": "hard"});
    let faults = Definition::parse(json.as_object().expect("an object").clone()).expect_err("faults");
    let pointers: Vec<_> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
    assert_eq!(pointers, ["/a~1b", "/budget/defaults/max_steps", "/thinking"]);
}
