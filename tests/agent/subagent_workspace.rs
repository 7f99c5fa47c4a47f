//! Kinds of subagents with a workspace of their own, and with some of the skills.

use crate::scripts::step_of;
use crate::stage::Stage;
use edge_harness::agent::settings::SkillSettings;
use edge_harness::platform::in_memory::{
    ScriptedModels,
    models::{answer, call},
};
use edge_harness::ports::filesystem::Precondition;
use edge_harness::types::{FilePath, ModelRequest, Part, Role, SubagentKind};
use edge_harness::workspace::Layer;
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;

/// A stage with these kinds, whose model makes the calls that a message has, each as `NAME {arguments}` in a line.
fn stage(kinds: Value) -> (Stage, Rc<ScriptedModels>) {
    let script = |request: &ModelRequest| {
        let said = request.messages.iter().rfind(|message| message.role == Role::User).unwrap().text();
        let lines = said.lines().filter(|_| step_of(request) == 0);
        let calls = lines.filter_map(|line| line.split_once(' ')).enumerate();
        let calls =
            calls.map(|(n, (name, args))| call(&format!("c{n}"), name, serde_json::from_str(args).unwrap()));
        let calls: Vec<Part> = calls.collect();
        answer(if calls.is_empty() { vec![Part::text("done")] } else { calls })
    };
    let (stage, models) = Stage::scripted(script, |builder| builder);
    let kinds: Vec<SubagentKind> = serde_json::from_value(kinds).unwrap();
    stage.subagents.replace(Some(kinds));
    stage.crash();
    (stage, models)
}

fn isolated() -> (Stage, Rc<ScriptedModels>) {
    stage(json!([{"id": "guest", "description": "d", "workspace": {"mode": "isolated"}}]))
}

fn put(stage: &Stage, layer: Layer, at: &str, text: &str) {
    let workspace = stage.workspaces().open(&"t".into(), &"default".into(), &"u".into(), None);
    let (path, bytes) = (FilePath::parse(at).unwrap(), text.as_bytes().to_vec().into());
    block_on(workspace.layer(layer).write(&path, bytes, &Precondition::Any)).unwrap();
}

fn read(stage: &Stage, at: &str) -> Option<String> {
    let workspace = stage.workspaces().open(&"t".into(), &"default".into(), &"u".into(), None);
    let file = block_on(workspace.read(&FilePath::parse(at).unwrap())).ok();
    file.map(|(file, _)| String::from_utf8(file.bytes.to_vec()).unwrap())
}

fn skill(stage: &Stage, layer: Layer, name: &str) {
    let text = format!("---\nname: {name}\ndescription: Of {name}.\n---\n\nDo it.\n");
    put(stage, layer, &format!("skills/{name}/SKILL.md"), &text);
}

/// Lets a subagent of this kind make calls, and returns its session and the outcomes.
fn delegate(stage: &Stage, turn: &str, kind: &str, calls: &[(&str, Value)]) -> (String, Vec<String>) {
    let task: Vec<String> = calls.iter().map(|(name, args)| format!("{name} {args}")).collect();
    let args = json!({"agent": kind, "task": task.join("\n")});
    stage.post(turn, &format!("subagent {args}"));
    stage.settle();
    stage.check();
    let started = stage.records().into_iter().rfind(|record| record["type"] == "subagent.started").unwrap();
    let child = started["session"].as_str().unwrap().to_owned();
    let log = stage.others.disk(&child).log();
    let records = log.iter().map(|record| serde_json::from_str::<Value>(&record.json).unwrap());
    let outcome = |r: Value| r["result"].as_str().or(r["reason"].as_str()).unwrap_or_default().to_owned();
    (child, records.filter(|record| record["type"] == "tool.completed").map(outcome).collect())
}

/// The prompt of the last request of a subagent.
fn prompt(models: &ScriptedModels) -> String {
    let mut requests = models.requests().into_iter();
    requests.rfind(|request| request.system.contains("You are a subagent")).unwrap().system.to_string()
}

fn scopes(stage: &Stage) -> Vec<String> {
    block_on(stage.workspaces().scopes(&"t".into(), None, None, 100)).unwrap()
}

#[test]
fn an_isolated_subagent_works_on_files_of_its_own_over_the_shared_ones() {
    let (stage, models) = isolated();
    put(&stage, Layer::User, "notes.md", "private");
    put(&stage, Layer::User, "AGENTS.md", "Call me Ann.");
    put(&stage, Layer::Shared, "guide.md", "Of all users.");
    skill(&stage, Layer::User, "mine");
    skill(&stage, Layer::Shared, "ours");
    let file = |path: &str| json!({"path": path});
    let write = json!({"path": "notes.md", "content": "of the subagent"});
    let (child, seen) = delegate(
        &stage,
        "t1",
        "guest",
        &[
            ("read_file", file("notes.md")),
            ("read_file", file("guide.md")),
            ("load_skill", json!({"name": "mine"})),
        ],
    );
    assert!(seen[0].contains("no such file"), "{seen:?}");
    assert!(seen[1].contains("Of all users."), "{seen:?}");
    assert_eq!(seen[2], "no such skill: `mine`; the skills are: ours");
    let system = prompt(&models);
    assert!(system.contains("- ours: Of ours.") && !system.contains("- mine:"), "{system}");
    assert!(!system.contains("Call me Ann."), "{system}");

    let (other, _) = delegate(&stage, "t2", "guest", &[("write_file", write)]);
    assert_eq!(read(&stage, "notes.md").as_deref(), Some("private"));
    let own = format!("agents/default+{other}/users/u");
    assert!(scopes(&stage).contains(&own), "{:?}", scopes(&stage));
    let (_, seen) =
        delegate(&stage, "t3", "guest", &[("list_files", json!({})), ("read_file", file("notes.md"))]);
    assert!(seen[1].contains("no such file"), "each has its own: {seen:?}");
    assert_ne!(child, other);
    // The parent still works on the user's files.
    assert!(models.requests().last().unwrap().system.contains("Call me Ann."));
}

#[test]
fn the_files_of_an_isolated_subagent_are_erased_with_its_session() {
    let (stage, _) = isolated();
    put(&stage, Layer::User, "a.md", "x");
    let before = scopes(&stage);
    let write = json!({"path": "b.md", "content": "x"});
    delegate(&stage, "t1", "guest", &[("write_file", write)]);
    assert_eq!(scopes(&stage).len(), before.len() + 1);
    block_on(stage.host().erase(&"t".into(), &"s".into())).unwrap();
    assert_eq!(scopes(&stage), before);
}

#[test]
fn an_isolated_subagent_neither_reads_nor_adds_to_what_is_known_of_the_user() {
    let (stage, _) = isolated();
    stage.skills.replace(SkillSettings { drafts: true, ..SkillSettings::default() });
    stage.crash();
    put(&stage, Layer::User, "MEMORY.md", "likes tea");
    let calls = [
        ("memory_get", json!({"path": "MEMORY.md"})),
        ("memory_search", json!({"query": "tea"})),
        ("memory_save", json!({"text": "likes coffee"})),
        ("session_search", json!({"query": "tea"})),
        ("session_list", json!({})),
        ("session_history", json!({"session": "s"})),
        ("propose_skill", json!({"name": "tea", "description": "d", "body": "Make tea."})),
    ];
    let (_, seen) = delegate(&stage, "t1", "guest", &calls);
    let refused = seen.iter().filter(|seen| seen.contains("a subagent with a workspace of its own"));
    assert_eq!(refused.count(), calls.len(), "{seen:?}");
}

#[test]
fn other_subagents_share_the_files_of_their_user() {
    for kinds in [json!([]), json!([{"id": "guest", "workspace": {"mode": "shared"}}])] {
        let kind = if kinds == json!([]) { "general-purpose" } else { "guest" };
        let (stage, _) = stage(kinds);
        delegate(&stage, "t1", kind, &[("write_file", json!({"path": "b.md", "content": "x"}))]);
        assert_eq!(read(&stage, "b.md").as_deref(), Some("x"));
    }
}

#[test]
fn a_kind_of_subagent_has_only_its_skills() {
    let (stage, models) =
        stage(json!([{"id": "guest", "description": "d", "skills": {"allow": ["pdf*"], "deny": ["pdf-a"]}}]));
    for name in ["mail", "pdf", "pdf-a"] {
        skill(&stage, Layer::Shared, name);
    }
    let load = |name: &str| ("load_skill", json!({"name": name}));
    let (_, seen) = delegate(&stage, "t1", "guest", &[load("pdf"), load("mail"), load("pdf-a")]);
    assert!(seen[0].ends_with("Do it."), "{seen:?}");
    assert_eq!(seen[1], "no such skill: `mail`; the skills are: pdf");
    assert_eq!(seen[2], "no such skill: `pdf-a`; the skills are: pdf");
    let listed = |system: &str| system.matches("\n- ").count();
    assert!(prompt(&models).contains("\n- pdf: ") && listed(&prompt(&models)) == 1, "{}", prompt(&models));
    assert_eq!(listed(&models.requests().last().unwrap().system), 3, "the parent has all");
}
