//! The file tools when the folder of a runner is the workspace.

use crate::approvals::approve;
use crate::questions::{reply, say, tool_results};
use crate::scripts::step_of;
use crate::stage::{Stage, meta};
use edge_harness::agent::{
    ExternalTool, HarnessBuilder, Settings, Verify, external_tool::Declared, host::suspensions::CallAnswer,
};
use edge_harness::platform::in_memory::models::{answer, call};
use edge_harness::types::{
    CallId, FilePath, ModelRequest, Part, Pending, Policy, SessionStatus, SubagentKind, WaitKind,
    WorkspaceKind,
};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{rc::Rc, time::Duration};

/// A turn that makes these calls, each in a step of its own, with the ids `c0`, `c1` and so on.
fn stage(calls: &[(&str, Value)]) -> Stage {
    extended(calls, |builder| builder)
}

fn extended(calls: &[(&str, Value)], extend: impl Fn(HarnessBuilder) -> HarnessBuilder + 'static) -> Stage {
    let calls: Vec<_> = calls.iter().map(|(name, args)| ((*name).to_owned(), args.clone())).collect();
    let script = move |request: &ModelRequest| {
        let step = step_of(request);
        let made = calls.get(step).map(|(name, args)| call(&format!("c{step}"), name, args.clone()));
        answer(vec![made.unwrap_or(Part::text("done"))])
    };
    let (stage, _) = Stage::scripted(script, extend);
    stage.workspace.set(WorkspaceKind::Runner);
    stage.crash();
    stage.host().create(meta(stage.host().now())).unwrap();
    stage
}

/// The only call that waits.
#[track_caller]
fn waiting(stage: &Stage) -> Pending {
    stage.settle_waiting();
    let pending = stage.session().pending().unwrap();
    let [call] = &pending[..] else { panic!("{pending:?}") };
    call.clone()
}

fn stored(stage: &Stage, path: &str) -> Option<String> {
    let workspace = stage.workspaces().open(&"t".into(), &"default".into(), &"u".into(), None);
    let file = block_on(workspace.read(&FilePath::parse(path).unwrap())).ok()?.0;
    Some(String::from_utf8(file.bytes.to_vec()).unwrap())
}

fn write(path: &str) -> (&'static str, Value) {
    ("write_file", json!({"path": path, "content": "text"}))
}

#[test]
fn calls_of_the_folder_wait_for_a_runner_and_those_of_the_server_run_there() {
    let stage = stage(&[
        write("plans/p.md"),
        ("read_file", json!({"path": "src/a.rs"})),
        ("read_file", json!({"path": "/plans/p.md"})),
    ]);
    stage.post("t1", "go");
    let call = waiting(&stage);
    let args = json!({"path": "src/a.rs"});
    assert_eq!((call.name.as_str(), call.kind, &call.args), ("read_file", WaitKind::External, &args));
    assert_eq!(call.payload, json!({"workspace": "runner", "args": args}));
    assert_eq!(stored(&stage, "plans/p.md").as_deref(), Some("text"));
    say(&stage, "c1", json!({"lines": []})).unwrap_err();
    say(&stage, "c1", json!("src/a.rs: empty\n")).unwrap();
    let results = tool_results(&stage, "t1");
    assert_eq!(
        results,
        ["wrote 4 bytes to plans/p.md", "src/a.rs: empty\n", "plans/p.md: lines 1-1 of 1\n     1\ttext\n"]
    );
    assert_eq!(stored(&stage, "src/a.rs"), None);
}

#[test]
fn the_path_of_a_call_decides_where_it_runs() {
    let edit = |path: &str| json!({"path": path, "old_string": "a", "new_string": "b"});
    let cases = [
        (("list_files", json!({})), true),
        (("list_files", json!({"path": "/"})), true),
        (("list_files", json!({"path": "skills"})), false),
        (("glob_files", json!({"pattern": "*.md"})), true),
        (("glob_files", json!({"pattern": "*.md", "path": "src"})), true),
        (("glob_files", json!({"pattern": "*.md", "path": "/memory/"})), false),
        (("grep_files", json!({"pattern": "x"})), true),
        (("grep_files", json!({"pattern": "x", "path": "MEMORY.md"})), false),
        (("grep_files", json!({"pattern": "x", "path": "docs/MEMORY.md"})), true),
        (("edit_file", edit("README.md")), true),
        (("edit_file", edit("knowledge/a.md")), false),
        (("move_file", json!({"from": "a", "to": "b"})), true),
        (("move_file", json!({"from": "runs/a", "to": "specs/b.md"})), false),
        (("move_file", json!({"from": "a", "to": "b", "path": "memory/a"})), true),
        (("read_file", json!({"path": "src/a", "from": "memory/a", "to": "memory/b"})), true),
        (("delete_file", json!({"path": "memory.txt"})), true),
        (("delete_file", json!({"path": "subagents/a.md"})), false),
    ];
    let stage = stage(&cases.clone().map(|(call, _)| call));
    stage.post("t1", "go");
    let mut waited = Vec::new();
    loop {
        stage.run();
        for _ in 0..100 {
            if stage.session().state().status() != SessionStatus::Running {
                break;
            }
            stage.tick(Duration::from_millis(100));
        }
        let pending = stage.session().pending().unwrap();
        let Some(call) = pending.first() else { break };
        waited.push(call.call_id.clone());
        say(&stage, call.call_id.as_str(), json!("done")).unwrap();
    }
    stage.settle();
    stage.check();
    let expected = cases.iter().enumerate().filter(|(_, (_, waits))| *waits);
    let expected: Vec<CallId> = expected.map(|(place, _)| format!("c{place}").as_str().into()).collect();
    assert_eq!(waited, expected);
}

#[test]
fn no_file_is_moved_between_the_folder_and_the_server() {
    let stage = stage(&[
        ("move_file", json!({"from": "a.md", "to": "plans/a.md"})),
        ("move_file", json!({"from": "plans/a.md", "to": "a.md"})),
    ]);
    stage.post("t1", "go");
    for result in tool_results(&stage, "t1") {
        assert!(
            result.as_str().unwrap().contains("between the server and the folder of the runner"),
            "{result}"
        );
    }
}

#[test]
fn rules_decide_on_paths_of_the_folder_before_a_runner_is_asked() {
    let stage = stage(&[
        ("read_file", json!({"path": ".env"})),
        ("edit_file", json!({"path": "src/a.rs", "old_string": "a", "new_string": "b"})),
    ]);
    stage.permit(|permissions| {
        let rule = |pattern: &str, policy| {
            serde_json::from_value(json!({"pattern": pattern, "policy": policy})).unwrap()
        };
        permissions.default = Some(Policy::Allow);
        permissions.patterns = vec![rule(".env*", "deny"), rule("src/**", "ask")];
    });
    stage.post("t1", "go");
    let asked = waiting(&stage);
    assert_eq!((asked.call_id.as_str(), asked.kind), ("c1", WaitKind::Approval));
    approve(&stage, "c1").unwrap();
    assert_eq!(waiting(&stage).kind, WaitKind::External);
    say(&stage, "c1", json!("replaced")).unwrap();
    let [denied, edited] = &tool_results(&stage, "t1")[..] else { panic!("two calls") };
    assert!(denied.as_str().unwrap().contains("forbids this call of read_file"), "{denied}");
    assert_eq!(edited, "replaced");
}

/// Lets a runner claim the call that waits, and never answer it.
fn claim_and_vanish(stage: &Stage) {
    let (host, session) = (stage.host(), stage.session());
    host.claim(&session, &waiting(stage).call_id, "runner-1", Duration::from_secs(60)).unwrap();
    stage.live(Duration::from_secs(61));
}

#[test]
fn a_read_of_a_lost_runner_is_offered_again_and_a_write_is_unknown() {
    let read = stage(&[("grep_files", json!({"pattern": "x"}))]);
    read.post("t1", "go");
    claim_and_vanish(&read);
    assert_eq!(waiting(&read).claim, None);

    let write = stage(&[write("a.txt")]);
    write.post("t1", "go");
    claim_and_vanish(&write);
    let [result] = &tool_results(&write, "t1")[..] else { panic!("one call") };
    assert!(result.as_str().unwrap().contains("did not answer in time"), "{result}");
    assert_eq!(write.outcomes("t1"), ["unknown"]);
}

#[test]
fn the_error_of_a_runner_is_the_failure_of_the_call() {
    let stage = stage(&[("read_file", json!({"path": "none"}))]);
    stage.post("t1", "go");
    waiting(&stage);
    reply(&stage, "c0", CallAnswer::Failure("no such file".into())).unwrap();
    assert_eq!(tool_results(&stage, "t1"), ["no such file"]);
}

#[test]
fn equal_reads_are_asked_again_because_the_user_may_change_the_folder() {
    let read = || ("read_file", json!({"path": "a.txt"}));
    let stage = stage(&[read(), read()]);
    stage.post("t1", "go");
    for (call, text) in [("c0", "one"), ("c1", "two")] {
        assert_eq!(waiting(&stage).call_id.as_str(), call);
        say(&stage, call, json!(text)).unwrap();
    }
    assert_eq!(tool_results(&stage, "t1"), ["one", "two"]);
}

#[test]
fn an_answer_survives_a_crash_after_any_commit() {
    for commits in 0..6 {
        let stage = stage(&[("edit_file", json!({"path": "a.txt", "old_string": "a", "new_string": "b"}))]);
        stage.post("t1", "go");
        waiting(&stage);
        stage.store.die_after(Some(commits));
        let _ = say(&stage, "c0", json!("replaced"));
        stage.crash();
        stage.store.die_after(None);
        stage.wake();
        stage.run();
        if stage.session().state().status() == SessionStatus::Waiting {
            say(&stage, "c0", json!("replaced")).unwrap();
        }
        assert_eq!(tool_results(&stage, "t1"), ["replaced"], "after {commits} commits");
    }
}

#[test]
fn a_write_in_the_folder_is_verified() {
    let declared: Declared = serde_json::from_value(json!({
        "name": "check", "description": "Checks.", "effect": "local_write", "category": "execute",
    }))
    .unwrap();
    let check = Rc::new(ExternalTool::new(declared).unwrap());
    let stage = extended(&[write("a.txt")], move |builder| {
        let verify = Some(Verify { tool: "check".into(), attempts: 2 });
        builder.settings(Settings { verify, ..Settings::default() }).dyn_tool(check.clone())
    });
    stage.post("t1", "go");
    assert_eq!(waiting(&stage).name, "write_file");
    say(&stage, "c0", json!("wrote 4 bytes to a.txt")).unwrap();
    let verification = waiting(&stage);
    assert_eq!(verification.name, "check");
    say(&stage, verification.call_id.as_str(), json!("good")).unwrap();
    assert_eq!(tool_results(&stage, "t1"), ["wrote 4 bytes to a.txt", "good"]);
}

#[test]
fn a_client_cannot_replace_a_file_tool_that_a_runner_serves() {
    let agent = stage(&[]).host().agent();
    assert!(!agent.accepts_client_tool("read_file"));
    let on_server = Stage::demo().host().agent();
    assert!(on_server.accepts_client_tool("read_file"));
}

#[test]
fn an_isolated_subagent_has_its_files_on_the_server() {
    let script = |request: &ModelRequest| {
        let is_child = request.system.contains("You are a subagent");
        answer(vec![match (step_of(request), is_child) {
            (0, false) => call("c0", "subagent", json!({"agent": "guest", "task": "go"})),
            (0, true) => call("k0", "write_file", json!({"path": "a.txt", "content": "text"})),
            _ => Part::text("done"),
        }])
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    let kinds: Vec<SubagentKind> = serde_json::from_value(
        json!([{"id": "guest", "description": "d", "workspace": {"mode": "isolated"}}]),
    )
    .unwrap();
    stage.subagents.replace(Some(kinds));
    stage.workspace.set(WorkspaceKind::Runner);
    stage.crash();
    stage.post("t1", "go");
    stage.settle();
    let started = stage.records().into_iter().find(|record| record["type"] == "subagent.started").unwrap();
    let log = stage.others.disk(started["session"].as_str().unwrap()).log();
    let records = log.iter().map(|record| serde_json::from_str::<Value>(&record.json).unwrap());
    let done: Vec<_> = records.filter(|record| record["type"] == "tool.completed").collect();
    assert_eq!(done[0]["result"], "wrote 4 bytes to a.txt");
}
