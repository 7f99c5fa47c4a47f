//! The usage of learned skills: counted after the turn, and what it changes in the prompt.

use crate::scripts::step_of;
use crate::stage::{NOW, Stage, ms};
use edge_harness::platform::in_memory::{
    ScriptedModels,
    models::{answer, call},
};
use edge_harness::ports::{Clock, filesystem::Precondition};
use edge_harness::types::{FilePath, ModelRequest, Part, Role, SubagentKind};
use edge_harness::workspace::{Layer, Workspace};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{rc::Rc, time::Duration};

const DAY: Duration = Duration::from_hours(24);

/// A stage whose model makes the calls that the user writes, each as `NAME {arguments}` in a line.
fn stage() -> (Stage, Rc<ScriptedModels>) {
    let script = |request: &ModelRequest| {
        let said = request.messages.iter().rfind(|message| message.role == Role::User).unwrap().text();
        let calls = said.lines().filter_map(|line| line.split_once(' ')).enumerate();
        let calls =
            calls.map(|(n, (name, args))| call(&format!("c{n}"), name, serde_json::from_str(args).unwrap()));
        let calls: Vec<Part> = calls.filter(|_| step_of(request) == 0).collect();
        answer(if calls.is_empty() { vec![Part::text("done")] } else { calls })
    };
    Stage::scripted(script, |builder| builder)
}

fn workspace(stage: &Stage, user: &str) -> Workspace {
    stage.workspaces().open(&"t".into(), &"default".into(), &user.into(), None)
}

fn put(stage: &Stage, layer: Layer, at: &str, text: &str) {
    let (path, bytes) = (FilePath::parse(at).unwrap(), text.as_bytes().to_vec().into());
    block_on(workspace(stage, "u").layer(layer).write(&path, bytes, &Precondition::Any)).unwrap();
}

/// Writes a skill, as the agent proposes one or as people do.
fn skill(stage: &Stage, layer: Layer, name: &str, learned: bool) {
    let metadata = if learned { "metadata: {learned: \"true\"}\n" } else { "" };
    let text = format!("---\nname: {name}\ndescription: Of {name}.\n{metadata}---\n\nDo it.\n");
    put(stage, layer, &format!("skills/{name}/SKILL.md"), &text);
}

/// The stored usage; null if there is none.
fn usage(stage: &Stage, layer: Layer) -> Value {
    let path = FilePath::parse("skills/_usage.json").unwrap();
    let file = block_on(workspace(stage, "u").layer(layer).read(&path));
    file.map_or(Value::Null, |file| serde_json::from_slice(&file.bytes).unwrap())
}

/// Runs a turn and its follow-ups.
fn run(stage: &Stage, turn: &str, said: &str) {
    stage.post(turn, said);
    stage.settle();
    stage.follow_up();
    stage.check();
}

/// The list of skills in the prompt of the last turn.
fn listed(models: &ScriptedModels) -> String {
    let request = models.requests().into_iter().rfind(|request| !request.tools.is_empty()).unwrap();
    let (_, rest) = request.system.split_once("\n\n<available_skills>\n").unwrap_or(("", ""));
    rest.split_once("</available_skills>").unwrap_or(("", "")).0.to_owned()
}

fn days(stage: &Stage, days: u32) {
    stage.tick(DAY * days);
}

const LOAD: &str = r#"load_skill {"name": "a"}"#;

#[test]
fn turns_that_load_a_learned_skill_are_counted_once() {
    let (stage, _) = stage();
    for (name, learned) in [("a", true), ("b", true), ("pushed", false)] {
        skill(&stage, Layer::User, name, learned);
    }
    run(&stage, "t1", "hi");
    assert_eq!(usage(&stage, Layer::User), Value::Null, "a turn without skills writes nothing");
    run(&stage, "t2", r#"load_skill {"name": "pushed"}"#);
    assert_eq!(usage(&stage, Layer::User), Value::Null, "people's skills are not counted");

    let start = stage.clock.now();
    run(&stage, "t3", &format!("{LOAD}\nload_skill {{\"name\": \"a\", \"path\": \"b.md\"}}"));
    let counted = usage(&stage, Layer::User);
    assert_eq!((&counted["a"]["uses"], &counted["a"]["last_used"]), (&json!(1), &json!(start)));
    assert_eq!(counted["b"]["uses"], 0, "its clock has started");
    assert_eq!(counted.as_object().unwrap().len(), 2);
    days(&stage, 1);
    run(&stage, "t4", LOAD);
    assert_eq!(usage(&stage, Layer::User)["a"]["uses"], 2);
    assert_eq!(usage(&stage, Layer::User)["b"], counted["b"]);
}

#[test]
fn an_unused_skill_comes_last_and_then_leaves_the_prompt_until_it_is_loaded() {
    let (stage, models) = stage();
    for (name, learned) in [("a", true), ("b", false), ("c", true)] {
        skill(&stage, Layer::Shared, name, learned);
    }
    let line = |name: &str| format!("- {name}: Of {name}.\n");
    let list = |names: &[&str]| names.iter().map(|name| line(name)).collect::<String>();
    // Their last use is unknown, so their clock starts now.
    days(&stage, 200);
    run(&stage, "t1", LOAD);
    assert_eq!(listed(&models), list(&["a", "b", "c"]));
    days(&stage, 30);
    run(&stage, "t2", r#"load_skill {"name": "c"}"#);
    assert_eq!(listed(&models), list(&["b", "a", "c"]), "both are stale, in the order of their names");
    days(&stage, 1);
    run(&stage, "t3", "hi");
    assert_eq!(listed(&models), list(&["b", "c", "a"]));
    days(&stage, 60);
    run(&stage, "t4", LOAD);
    assert_eq!(listed(&models), list(&["b", "c"]), "archived");
    let loaded = stage.records().into_iter().rfind(|record| record["type"] == "tool.completed").unwrap();
    assert!(loaded["result"].as_str().unwrap().ends_with("Do it."), "{loaded}");
    days(&stage, 1);
    run(&stage, "t5", "hi");
    assert_eq!(listed(&models), list(&["a", "b", "c"]), "active again");
}

#[test]
fn a_count_adds_to_those_of_other_sessions() {
    let (stage, _) = stage();
    skill(&stage, Layer::User, "a", true);
    stage.post("t1", LOAD);
    stage.settle();
    // Another session has counted in the meantime.
    let other = json!({"a": {"uses": 6, "learned_at": NOW}, "gone": {"uses": 1, "learned_at": NOW}});
    put(&stage, Layer::User, "skills/_usage.json", &other.to_string());
    stage.follow_up();
    let counted = usage(&stage, Layer::User);
    assert_eq!((&counted["a"]["uses"], counted.get("gone")), (&json!(7), None));
}

#[test]
fn a_store_that_is_down_delays_the_count() {
    let (stage, _) = stage();
    skill(&stage, Layer::User, "a", true);
    stage.post("t1", LOAD);
    stage.settle();
    stage.files.down.set(true);
    stage.follow_up();
    assert_eq!(stage.end("t1").sub_steps_failed, [""; 0]);
    stage.files.down.set(false);
    stage.live(ms(60_000));
    assert_eq!(usage(&stage, Layer::User)["a"]["uses"], 1);
}

#[test]
fn what_a_user_writes_changes_only_that_users_skills() {
    let (stage, models) = stage();
    skill(&stage, Layer::Shared, "a", true);
    skill(&stage, Layer::User, "b", true);
    let old = json!({"uses": 9, "learned_at": "2020-01-01T00:00:00.000Z"});
    put(&stage, Layer::User, "skills/_usage.json", &json!({"a": old, "b": old}).to_string());
    run(&stage, "t1", LOAD);
    assert_eq!(listed(&models), "- a: Of a.\n");
    assert_eq!(usage(&stage, Layer::Shared)["a"]["uses"], 1);
}

#[test]
fn the_turns_of_subagents_are_counted() {
    let (stage, _) = stage();
    skill(&stage, Layer::User, "a", true);
    stage
        .subagents
        .replace(Some(vec![SubagentKind { id: "general-purpose".into(), ..SubagentKind::default() }]));
    stage.crash();
    run(&stage, "t1", &format!("subagent {}", json!({"agent": "general-purpose", "task": LOAD})));
    days(&stage, 1);
    assert_eq!(usage(&stage, Layer::User)["a"]["uses"], 1);
}
