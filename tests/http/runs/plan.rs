//! What a run knows when it plans, and how it does the steps of the plan.

use super::{Work, command, define, good, plan, tool, world};
use crate::support::World;
use pretty_assertions::assert_eq;
use serde_json::json;
use std::time::{Duration, Instant};

#[test]
fn a_plan_is_asked_for_with_what_the_runner_has_read() {
    let world = World::start();
    let outputs = [
        ("local_repo_tree", "src/sum.rs"),
        ("local_repo_map", "src/sum.rs: fn add"),
        ("local_git_status", "modified: src/sum.rs"),
        ("local_read", "Run `make check` after each change."),
    ];
    let readers = outputs.map(|(name, _)| tool(name, "read", "read_only"));
    let tools = [&readers[..], &[tool("local_verify", "execute", "local_write")]].concat();
    define(&world, json!({ "external_tools": tools }));
    let note = json!({"id": "note", "type": "note", "content": "Done."});
    let run = Work::start(&world, "informed", &[plan(&[note])], json!({}));
    let ended = run.work(|name, args| {
        let found = outputs.iter().find(|(own, _)| *own == name);
        let is_instructions = name != "local_read" || args["path"] == "AGENTS.md";
        found.filter(|_| is_instructions).map(|(_, text)| (*text).to_owned()).ok_or_else(|| "absent".into())
    });
    assert_eq!(ended["status"], "succeeded", "{ended:#}");
    let asked = world.received("informed").remove(0).body["messages"].to_string();
    for (name, output) in outputs {
        let (_, rest) = asked.split_once(&format!("# Output of {name}")).expect(name);
        let own = rest.split("# Output of ").next().unwrap();
        assert!(own.contains(output), "{name}: {asked}");
    }
}

#[test]
fn steps_that_do_not_depend_on_each_other_run_side_by_side() {
    let world = world();
    let steps = [command("a", &[]), command("b", &[]), command("after", &["a", "b"])];
    let run = Work::start(&world, "beside", &[plan(&steps)], json!({}));
    run.answer("local_repo_tree");
    let deadline = Instant::now() + Duration::from_secs(60);
    let offered = loop {
        let pending = run.pending();
        if pending.iter().any(|call| call["name"] == "local_shell") {
            break pending;
        }
        assert!(Instant::now() < deadline, "{:#}", run.show());
        std::thread::sleep(Duration::from_millis(20));
    };
    let commands: Vec<_> = offered.iter().map(|call| &call["payload"]["command"]).collect();
    assert_eq!(commands, ["a", "b"]);
    assert_eq!(run.statuses(), ["a running", "b running", "after pending"]);
    assert_eq!(run.work(good)["status"], "succeeded");
    assert_eq!(*run.done.borrow(), ["$ a", "$ b", "local_verify", "$ after", "local_verify"]);
}
