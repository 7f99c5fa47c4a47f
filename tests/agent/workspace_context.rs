//! Workspace files in the prompt.

use crate::scripts::step_of;
use crate::stage::{Stage, ms};
use edge_harness::agent::{OnBusy, Settings};
use edge_harness::platform::in_memory::{
    MemoryFiles, ScriptedModels,
    models::{answer, call},
};
use edge_harness::ports::filesystem::Precondition;
use edge_harness::types::{BudgetPatch, FilePath, ModelRequest, Part, PatternRule, Policy, Rules};
use edge_harness::workspace::Layer;
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::json;
use std::{
    cell::{OnceCell, RefCell},
    rc::Rc,
    time::Duration,
};

/// A stage whose model overwrites AGENTS.md with the user's text in its first step, and then reads.
fn stage() -> (Stage, Rc<ScriptedModels>) {
    let script = |request: &ModelRequest| {
        let said = request.messages.last().map(|message| message.text()).unwrap_or_default();
        answer(match (step_of(request), said.strip_prefix("be ")) {
            (0, Some(_)) => {
                let args =
                    json!({"path": "AGENTS.md", "content": format!("Be {}.", &said[3..]), "overwrite": true});
                vec![call("c1", "write_file", args)]
            }
            (1, _) => vec![call("c2", "list_files", json!({}))],
            _ => vec![Part::text("done")],
        })
    };
    let patterns = vec![PatternRule { tool: None, pattern: "AGENTS.md".into(), policy: Policy::Allow }];
    let permissions = Rules { default: Some(Policy::Allow), patterns, ..Rules::default() };
    Stage::scripted(script, move |builder| {
        builder.settings(Settings { permissions: permissions.clone(), ..Settings::default() })
    })
}

fn put(stage: &Stage, user: &str, layer: Layer, at: &str, text: &str) {
    let workspace = stage.workspaces().open(&"t".into(), &"default".into(), &user.into(), None);
    let (path, bytes) = (FilePath::parse(at).unwrap(), text.as_bytes().to_vec().into());
    block_on(workspace.layer(layer).write(&path, bytes, &Precondition::Any)).unwrap();
}

/// How long files are used without reading them again.
const FRESH: Duration = ms(1_000);

/// The requests of turns, without those that extract facts.
fn requests(models: &ScriptedModels) -> Vec<ModelRequest> {
    models.requests().into_iter().filter(|request| !request.tools.is_empty()).collect()
}

fn run(stage: &Stage, turn: &str, said: &str) {
    stage.post(turn, said);
    stage.settle();
    stage.check();
}

#[test]
fn memory_is_marked_as_untrusted() {
    let (stage, models) = stage();
    run(&stage, "t1", "hi");
    put(&stage, "u", Layer::User, "MEMORY.md", "- likes tea\n");
    stage.tick(FRESH);
    run(&stage, "t2", "hi");
    let memories: Vec<String> = requests(&models)
        .iter()
        .map(|request| request.system.split("<memory_context>").nth(1).unwrap().to_owned())
        .collect();
    assert!(memories[0].starts_with("</memory_context>"));
    assert!(
        memories[1].starts_with("\n<untrusted_output>\n- likes tea\n</untrusted_output>\n</memory_context>")
    );
}

#[test]
fn an_edit_of_the_agent_applies_from_the_next_step_and_others_within_a_second() {
    let (stage, models) = stage();
    put(&stage, "u", Layer::Shared, "AGENTS.md", "Be kind.");
    put(&stage, "u", Layer::Shared, "knowledge/KNOWLEDGE.md", "Prices are in euros.");
    put(&stage, "other", Layer::User, "AGENTS.md", "of another user");
    run(&stage, "t1", "be short");
    run(&stage, "t2", "hi");
    let asked = requests(&models);
    let seen: Vec<&str> = asked
        .iter()
        .map(|request| {
            let (instructions, context) = request.system.split_once("\n\n## Workspace").unwrap();
            assert!(
                instructions.starts_with("You are a helpful assistant.")
                    && context.contains("Prices are in euros.")
            );
            let agents = context.split("<agents_context>\n").nth(1).unwrap();
            agents.split("\n</agents_context>").next().unwrap()
        })
        .collect();
    let both = "Be kind.\n<untrusted_output>\nBe short.\n</untrusted_output>";
    assert_eq!(seen, ["Be kind.", both, both, both]);
    assert_eq!(asked[1].system, asked[2].system, "byte by byte");
    let hash = |turn: &str| stage.end(turn).prompt_render_hash.unwrap();
    assert_eq!(hash("t1"), hash("t2"));
    put(&stage, "u", Layer::User, "AGENTS.md", "Be long.");
    stage.tick(FRESH);
    run(&stage, "t3", "hi");
    assert_ne!(hash("t2"), hash("t3"));
    assert_eq!(stage.end("t3").sub_steps_failed, [""; 0]);
}

#[test]
fn a_turn_costs_one_round_trip() {
    let files: Rc<OnceCell<Rc<MemoryFiles>>> = Rc::default();
    let seen: Rc<RefCell<Vec<usize>>> = Rc::default();
    let (at, calls) = (Rc::clone(&files), Rc::clone(&seen));
    let script = move |request: &ModelRequest| {
        if !request.tools.is_empty() {
            calls.borrow_mut().push(at.get().unwrap().calls.get());
        }
        answer(vec![match step_of(request) {
            0 => call("c1", "current_time", json!({})),
            _ => Part::text("done"),
        }])
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    files.set(stage.files.clone()).ok().unwrap();
    put(&stage, "u", Layer::User, "AGENTS.md", "Be kind.");
    let before = stage.files.calls.get();
    run(&stage, "t1", "hi");
    assert_eq!(*seen.borrow(), [before + 1; 2], "before the first model call");
    assert_eq!(stage.files.glanced.get(), 8, "once");
}

#[test]
fn a_failing_or_hanging_store_does_not_fail_the_turn() {
    let (stage, models) = stage();
    put(&stage, "u", Layer::User, "AGENTS.md", "Be kind.");
    run(&stage, "t1", "hi");
    stage.tick(FRESH);
    stage.files.down.set(true);
    run(&stage, "t2", "hi");
    stage.tick(FRESH);
    stage.files.down.set(false);
    stage.files.hold();
    stage.post("t3", "hi");
    stage.run();
    stage.tick(ms(1_900));
    assert_eq!(requests(&models).len(), 2);
    stage.tick(ms(200));
    assert_eq!(requests(&models).len(), 3, "the timeout is bounded");
    stage.files.release();
    stage.settle();
    for (turn, failed) in [("t1", &[][..]), ("t2", &["workspace_context"]), ("t3", &["workspace_context"])] {
        assert_eq!(stage.end(turn).sub_steps_failed, failed, "{turn}");
    }
    let systems: Vec<String> = requests(&models).into_iter().map(|request| request.system).collect();
    assert!(systems[0].contains("Be kind."));
    assert_eq!([&systems[1], &systems[2]], [&systems[0]; 2], "the last known version");
    // An instance without a cached version continues without the files.
    stage.crash();
    stage.files.down.set(true);
    run(&stage, "t4", "hi");
    assert!(!requests(&models)[3].system.contains("Be kind."));
    assert_eq!(stage.end("t4").sub_steps_failed, ["workspace_context"]);
}

#[test]
fn the_files_are_read_while_the_message_is_stored() {
    let (stage, models) = stage();
    put(&stage, "u", Layer::User, "AGENTS.md", "Be kind.");
    let calls = stage.files.calls.get();
    stage.store.die_after(Some(0));
    assert!(stage.try_post("t1", "hi", OnBusy::Queue, BudgetPatch::default()).is_err());
    assert_eq!(stage.files.calls.get(), calls + 1, "the query starts before the commit");
    stage.store.die_after(None);
    stage.tick(FRESH);
    // A turn waits for the query that its message has started, and does not start another.
    stage.files.hold();
    stage.post("t2", "hi");
    stage.run();
    assert_eq!((stage.files.calls.get(), requests(&models).len()), (calls + 2, 0));
    stage.files.release();
    stage.settle();
    assert_eq!(stage.files.calls.get(), calls + 2);
    assert!(requests(&models)[0].system.contains("Be kind."));
    assert_eq!(stage.end("t2").sub_steps_failed, [""; 0]);
}

#[test]
fn an_edit_of_a_context_file_by_a_tool_waits_for_the_user() {
    let script = |request: &ModelRequest| {
        answer(match step_of(request) {
            0 => vec![
                call("c1", "write_file", json!({"path": "notes.md", "content": "x"})),
                call("c2", "move_file", json!({"from": "notes.md", "to": "AGENTS.md"})),
            ],
            _ => vec![Part::text("done")],
        })
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    put(&stage, "u", Layer::Shared, "AGENTS.md", "Be kind.");
    stage.post("t1", "go");
    stage.run();
    let asked = stage.records().into_iter().filter(|record| record["type"] == "tool.approval_required");
    let asked: Vec<_> = asked.map(|record| (record["name"].clone(), record["by"].clone())).collect();
    assert_eq!(asked, [(json!("move_file"), json!(null))], "the user may decide");
    assert_eq!(stage.records().last().unwrap()["type"], "turn.waiting");
}
