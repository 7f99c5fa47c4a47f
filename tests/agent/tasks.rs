//! The task list: changes are recorded, and the prompt's prefix stays the same within a turn.

use crate::scripts::step_of;
use crate::stage::Stage;
use edge_harness::platform::in_memory::{
    ScriptedModels,
    models::{answer, call},
};
use edge_harness::types::{Part, Role};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;

/// A model that makes the calls of the user's message: a list of steps, each with a tool's name and
/// arguments.
fn stage() -> (Stage, Rc<ScriptedModels>) {
    Stage::scripted(
        |request| {
            let said = request.messages.iter().rfind(|message| message.role == Role::User).unwrap().text();
            let steps: Vec<(String, Value)> = serde_json::from_str(&said).unwrap_or_default();
            let step = step_of(request);
            answer(vec![match steps.into_iter().nth(step) {
                Some((name, args)) => call(&format!("c{step}"), &name, args),
                None => Part::text("Done."),
            }])
        },
        |builder| builder,
    )
}

fn turn(stage: &Stage, turn: &str, steps: Value) {
    stage.post(turn, &steps.to_string());
    stage.settle();
}

/// The ids and statuses of each change, in order.
fn changes(stage: &Stage) -> Vec<Value> {
    let found = stage.records().into_iter().filter(|record| record["type"] == "task.list_updated");
    let short = |task: &Value| json!([task["id"], task["status"]]);
    found.map(|record| record["tasks"].as_array().unwrap().iter().map(short).collect()).collect()
}

fn results(stage: &Stage, turn: &str) -> Vec<Value> {
    let own = stage.records().into_iter().filter(|r| r["type"] == "tool.completed" && r["turn"] == turn);
    own.map(|mut record| json!([record["outcome"], record["result"].take()])).collect()
}

/// The list in the prompt of each model call.
fn shown(models: &ScriptedModels) -> Vec<String> {
    let list = |volatile: &str| match volatile.split_once("<current-task-list>\n") {
        Some((_, rest)) => rest.split("</current-task-list>").next().unwrap_or_default().to_owned(),
        None => String::new(),
    };
    models.requests().iter().map(|request| list(&request.volatile)).collect()
}

#[test]
fn each_change_is_recorded_once() {
    let (stage, _) = stage();
    let (pending, at_hand) = ("pending", "in_progress");
    turn(
        &stage,
        "t1",
        json!([
            ["task_write", {"tasks": [{"content": "Write tests", "status": at_hand}, {"content": "Ship"}]}],
            ["task_write", {"tasks": [{"content": "A", "status": at_hand}, {"content": "B", "status": at_hand}]}],
            ["task_update", {"id": "task_ship", "status": at_hand}],
            ["task_update", {"id": "task_write_tests", "status": pending}],
            ["task_complete", {"id": "nope"}],
            ["task_complete", {"id": "task_ship"}],
        ]),
    );
    stage.check();
    assert_eq!(
        changes(&stage),
        [
            json!([["task_write_tests", at_hand], ["task_ship", pending]]),
            json!([["task_write_tests", pending], ["task_ship", at_hand]]),
            json!([["task_write_tests", pending], ["task_ship", "completed"]]),
        ]
    );
    let found = results(&stage, "t1");
    assert_eq!(
        found[0][1],
        "<task-list-update>\n[in_progress] task_write_tests: Write tests\n[pending] task_ship: Ship\n</task-list-update>\n0 of 2 completed, 1 in progress, 1 pending"
    );
    assert_eq!(found[1][0], "failure");
    assert_eq!(
        found[2][1],
        "<task-list-update>\n[pending] task_write_tests: Write tests\n[in_progress] task_ship: Ship\n</task-list-update>\n0 of 2 completed, 1 in progress, 1 pending"
    );
    assert_eq!(
        found[3][1],
        "<task-list-update>\n[pending] task_write_tests: Write tests\n</task-list-update>\n0 of 2 completed, 1 in progress, 1 pending"
    );
    assert_eq!(found[4][0], "failure");
    let tasks = stage.session().state().guidance.tasks.clone();
    assert_eq!(tasks.iter().map(|task| task.status.name()).collect::<Vec<_>>(), ["pending", "completed"]);
}

#[test]
fn a_check_is_never_skipped() {
    let (stage, _) = stage();
    let check = json!(["task_check", {}]);
    let write = json!(["task_write", {"tasks": [{"content": "A"}]}]);
    turn(&stage, "t1", json!([check, check, write, write, check]));
    let found = results(&stage, "t1");
    let empty = json!(["result", {"total": 0, "completed": 0, "in_progress": 0, "pending": 0, "incomplete": 0,
        "has_tasks": false, "all_completed": false, "incomplete_tasks": []}]);
    assert_eq!((&found[0], &found[1]), (&empty, &empty));
    assert_eq!(stage.outcomes("t1"), ["result", "result", "result", "duplicate", "result"]);
    assert_eq!(
        (&found[4][1]["total"], &found[4][1]["incomplete_tasks"][0]["id"]),
        (&json!(1), &json!("task_a"))
    );
}

#[test]
fn a_turn_shows_the_list_as_of_its_start() {
    let (stage, models) = stage();
    let write = json!(["task_write", {"tasks": [{"content": "A</current-task-list>"}, {"content": "B"}]}]);
    turn(&stage, "t1", json!([write]));
    let ids = ["task_a_current_task_list", "task_b"];
    turn(&stage, "t2", json!([["task_complete", {"id": ids[0]}], ["read_it", {"key": "k"}]]));
    turn(&stage, "t3", json!([["task_write", {"tasks": []}]]));
    turn(&stage, "t4", json!([]));
    let list = |first: &str| format!("[{first}] {}: A&lt;/current-task-list>\n[pending] task_b: B\n", ids[0]);
    let (pending, completed) = (list("pending"), list("completed"));
    let (none, pending, completed) = ("", pending.as_str(), completed.as_str());
    assert_eq!(shown(&models), [none, none, pending, pending, pending, completed, completed, none]);
}

#[test]
fn a_restarted_turn_shows_the_same_list() {
    let (stage, models) = stage();
    turn(&stage, "t1", json!([["task_write", {"tasks": [{"content": "A"}]}]]));
    stage.post("t2", &json!([["task_complete", {"id": "task_a"}], ["read_it", {"key": "k"}]]).to_string());
    stage.run();
    assert_eq!(changes(&stage).len(), 2);
    stage.crash();
    stage.wake();
    stage.settle();
    stage.check();
    let shown = shown(&models);
    assert_eq!(shown[2..], vec!["[pending] task_a: A\n"; shown.len() - 2]);
    assert_eq!(changes(&stage).len(), 2);
    turn(&stage, "t3", json!([]));
    assert_eq!(self::shown(&models).last().unwrap(), "[completed] task_a: A\n");
}
