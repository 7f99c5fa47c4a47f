//! The tools that `tools.json` of the shared layer keeps.

use crate::scripts::step_of;
use crate::stage::{Stage, ms};
use edge_harness::platform::in_memory::{
    ScriptedModels,
    models::{answer, call},
};
use edge_harness::ports::filesystem::Precondition;
use edge_harness::types::{FilePath, ModelRequest, Part};
use edge_harness::workspace::Layer;
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::json;
use std::{rc::Rc, time::Duration};

/// How long files are used without reading them again.
const FRESH: Duration = ms(1_000);

/// A stage whose model calls `echo` once in each turn.
fn stage() -> (Stage, Rc<ScriptedModels>) {
    let script = |request: &ModelRequest| {
        answer(vec![match step_of(request) {
            0 => call("c1", "echo", json!({"text": "hi"})),
            _ => Part::text("done"),
        }])
    };
    Stage::scripted(script, |builder| builder)
}

fn put(stage: &Stage, layer: Layer, text: &str) {
    put_at(stage, layer, "tools.json", text);
}

/// Stores a shared file.
pub fn put_shared(stage: &Stage, path: &str, text: &str) {
    put_at(stage, Layer::Shared, path, text);
}

fn put_at(stage: &Stage, layer: Layer, path: &str, text: &str) {
    let workspace = stage.workspaces().open(&"t".into(), &"default".into(), &"u".into(), None);
    let (path, bytes) = (FilePath::parse(path).unwrap(), text.as_bytes().to_vec().into());
    block_on(workspace.layer(layer).write(&path, bytes, &Precondition::Any)).unwrap();
}

/// Runs a turn; returns what became of its call, the tools of its last request, and its failed sub-steps.
fn run(stage: &Stage, models: &ScriptedModels, turn: &str) -> (String, Vec<String>, Vec<String>) {
    stage.post(turn, "go");
    stage.settle();
    stage.check();
    let own =
        stage.records().into_iter().find(|r| r["type"] == "tool.completed" && r["turn"] == turn).unwrap();
    let request = models.requests().into_iter().rfind(|request| !request.tools.is_empty()).unwrap();
    let offered = request.tools.iter().map(|tool| tool.name.clone()).collect();
    let fate = own["denied"].as_str().or(own["outcome"].as_str()).unwrap_or_default().to_owned();
    (fate, offered, stage.end(turn).sub_steps_failed)
}

#[test]
fn what_the_shared_file_denies_is_not_offered_and_does_not_run() {
    let (stage, models) = stage();
    // A user's own file restricts nothing, and allows nothing.
    put(&stage, Layer::User, r#"{"deny": ["echo"]}"#);
    let (fate, all, failed) = run(&stage, &models, "t1");
    assert_eq!((fate.as_str(), failed), ("result", vec![]));
    assert!(all.contains(&"echo".to_owned()));
    put(&stage, Layer::Shared, r#"{"deny": ["echo", "no_such_tool"], "allow": ["echo", "recall"]}"#);
    stage.tick(FRESH);
    let (fate, offered, failed) = run(&stage, &models, "t2");
    assert_eq!((fate.as_str(), failed), ("permission", vec![]));
    assert!(
        offered.contains(&"recall".to_owned()) && offered.contains(&"ask_user".to_owned()),
        "{offered:?}"
    );
    assert!(!offered.contains(&"echo".to_owned()) && offered.len() < all.len(), "{offered:?}");
    put(&stage, Layer::Shared, "{\"deny\": [\"echo\"");
    stage.tick(FRESH);
    let (fate, offered, failed) = run(&stage, &models, "t3");
    assert_eq!((fate.as_str(), offered), ("result", all));
    assert_eq!(failed, ["tools.json"]);
}

#[test]
fn the_file_holds_after_an_eviction_and_during_an_outage() {
    let (stage, models) = stage();
    put(&stage, Layer::Shared, r#"{"deny": ["echo"]}"#);
    run(&stage, &models, "t1");
    stage.crash();
    assert_eq!(run(&stage, &models, "t2").0, "permission");
    stage.tick(ms(61_000));
    stage.files.down.set(true);
    assert_eq!(run(&stage, &models, "t3").0, "permission", "the last known file");
    // An instance that has never read the file knows of no restriction, and says so.
    stage.crash();
    stage.files.down.set(true);
    let (fate, _, failed) = run(&stage, &models, "t4");
    assert_eq!((fate.as_str(), failed), ("result", vec!["workspace_context".to_owned()]));
}
