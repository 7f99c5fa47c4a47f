//! Background tasks: subagents that work while their parent goes on.

mod ends;
mod events;
mod sends;
mod waits;

use crate::http::{call as request, respond_beside, status, whole};
use crate::scripts::{ruling, step_of};
use crate::stage::{Stage, check, meta, ms};
use edge_harness::agent::SessionHost;
use edge_harness::http::session::{self, call::SessionRequest};
use edge_harness::platform::in_memory::{
    ScriptedModels,
    models::{ScriptedResponse, answer, call},
};
use edge_harness::ports::{Clock, SessionStore};
use edge_harness::types::{
    Acknowledgement, BackgroundTasks, BudgetPatch, ChildStatus, Decision, ErrorCode, ModelRequest, Part,
    Policy, Problem, ResolvedBy, Role, SessionStatus, StopReason, TurnOptions,
};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;

/// The task of a child that reads for 200 ms.
const READ: &str = r#"[[["read_it", {"key": "x"}]]]"#;
/// The same of one that writes.
const WRITE: &str = r#"[[["write_it", {"key": "a"}]]]"#;

/// The user's message is a list of steps, each a list of calls. The reply repeats the last result.
fn script(request: &ModelRequest) -> ScriptedResponse {
    let said = request.messages.iter().rfind(|message| message.role == Role::User).unwrap().text();
    let steps: Value = serde_json::from_str(&said).unwrap_or_default();
    let calls = steps.get(step_of(request)).and_then(Value::as_array).cloned().unwrap_or_default();
    let number = request.messages.len();
    let mut parts: Vec<Part> = calls
        .iter()
        .enumerate()
        .map(|(place, made)| call(&format!("c{number}.{place}"), made[0].as_str().unwrap(), made[1].clone()))
        .collect();
    if parts.is_empty() {
        let results = request.messages.iter().flat_map(|message| &message.parts).rev();
        let last = results.filter_map(|part| match part {
            Part::ToolResult { outcome, .. } => Some(outcome.model_text().into_owned()),
            _ => None,
        });
        parts.push(Part::text(format!("done: {}", last.take(1).collect::<String>())));
    } else {
        parts.insert(0, Part::text("half"));
    }
    answer(parts)
}

fn stage_of(background: BackgroundTasks) -> (Stage, Rc<ScriptedModels>) {
    let (stage, models) = Stage::scripted(script, |builder| builder);
    stage.subagents.replace(Some(Vec::new()));
    stage.background.set(background);
    stage.crash();
    (stage, models)
}

fn stage() -> Stage {
    stage_of(BackgroundTasks::On).0
}

fn spawn(task: &str, timeout_seconds: u64) -> Value {
    json!(["agent_spawn", {"agent_id": "general-purpose", "task": task, "timeout_seconds": timeout_seconds}])
}

/// The task of a child that reads so often, each time for 200 ms.
fn reads(times: u32) -> String {
    steps(&(0..times).map(|n| json!(["read_it", {"key": n.to_string()}])).collect::<Vec<_>>())
}

/// A message with one call in each step.
fn steps(calls: &[Value]) -> String {
    json!(calls.iter().map(|call| json!([call])).collect::<Vec<_>>()).to_string()
}

fn ask(host: &Rc<SessionHost>, mut call: SessionRequest, id: &str) -> Result<Value, Problem> {
    call.session = id.into();
    block_on(session::respond(host, &call)).map(whole)
}

fn get(stage: &Stage, path: &str) -> Value {
    ask(&stage.host(), request(&format!("GET {path}"), "", &json!({})), "s").unwrap()
}

fn post(stage: &Stage, path: &str) -> Value {
    ask(&stage.host(), request(&format!("POST {path}"), "", &json!({})), "s").unwrap()
}

/// The background tasks, as clients see them.
fn tasks(stage: &Stage) -> Vec<Value> {
    get(stage, "/tasks")["data"].as_array().unwrap().clone()
}

/// The reply of the first task.
fn reply(stage: &Stage) -> Value {
    let task = tasks(stage).remove(0);
    assert!(task.get("reply").is_none(), "the list has no replies");
    get(stage, &format!("/tasks/{}", task["id"].as_str().unwrap()))["reply"].clone()
}

fn statuses(stage: &Stage) -> Vec<String> {
    tasks(stage).iter().map(|task| task["status"].as_str().unwrap().to_owned()).collect()
}

/// The records of the ends of tasks.
fn ends(stage: &Stage) -> Vec<Value> {
    let is_end = |record: &Value| {
        ["task.completed", "task.failed", "task.canceled"].contains(&record["type"].as_str().unwrap())
    };
    stage.records().into_iter().filter(is_end).collect()
}

/// The results of a turn's calls.
fn results(stage: &Stage, turn: &str) -> Vec<Value> {
    let own = stage.records().into_iter().filter(|r| r["type"] == "tool.completed" && r["turn"] == turn);
    own.map(|r| [&r["result"], &r["reason"]].into_iter().find(|v| !v.is_null()).unwrap().clone()).collect()
}

fn child(stage: &Stage) -> String {
    let started = stage.records().into_iter().rfind(|record| record["type"] == "subagent.started");
    started.expect("a subagent")["session"].as_str().unwrap().to_owned()
}

/// The texts after the conversation in the requests of the parent, oldest first.
fn shown(models: &ScriptedModels) -> Vec<String> {
    let own = models.requests().into_iter().filter(|request| !request.system.contains("You are a subagent"));
    own.map(|request| request.tail).collect()
}

#[test]
fn a_turn_goes_on_while_its_subagent_works() {
    let (stage, models) = stage_of(BackgroundTasks::On);
    stage.post("t1", &steps(&[spawn(READ, 0)]));
    stage.settle();
    let task = tasks(&stage).remove(0);
    assert_eq!((&task["status"], &task["shown"]), (&json!("running"), &json!(false)));
    let started = results(&stage, "t1").remove(0);
    assert_eq!(
        (&started["task_id"], &started["status"], &started["timeout_promoted"]),
        (&task["id"], &json!("running"), &json!(false))
    );
    assert_eq!(stage.session().state().status(), SessionStatus::Idle);
    stage.tick(ms(500));
    let ended = ends(&stage);
    assert_eq!((ended.len(), &ended[0]["type"]), (1, &json!("task.completed")));
    let task = get(&stage, &format!("/tasks/{}", task["id"].as_str().unwrap()));
    assert_eq!((&task["status"], &task["reply"]), (&json!("completed"), &json!("done: read x")));
    assert_eq!(stage.records().last().unwrap()["type"], "task.completed", "no turn is started for it");
    // The next turn shows the result in each of its steps, and only that one.
    let before = shown(&models).len();
    stage.post("t2", &steps(&[json!(["read_it", {"key": "y"}])]));
    stage.settle();
    assert_eq!(tasks(&stage)[0]["shown"], true);
    stage.post("t3", "[]");
    stage.settle();
    let shown: Vec<bool> =
        shown(&models)[before..].iter().map(|tail| tail.contains("done: read x")).collect();
    assert_eq!(shown, [true, true, false]);
    stage.check();
}

#[test]
fn a_result_that_arrives_in_time_is_that_of_the_call() {
    let stage = stage();
    stage.post("t1", &steps(&[spawn(READ, 30)]));
    stage.settle();
    let result = results(&stage, "t1").remove(0);
    assert_eq!((&result["reply"], &result["agent_key"]), (&json!("done: read x"), &json!(child(&stage))));
    assert_eq!((tasks(&stage).len(), ends(&stage).len()), (0, 0));
    stage.check();
}

#[test]
fn a_call_that_has_waited_long_enough_leaves_its_subagent_in_the_background() {
    let stage = stage();
    stage.post("t1", &steps(&[spawn(&reads(8), 1)]));
    stage.settle();
    let result = results(&stage, "t1").remove(0);
    assert_eq!((&result["status"], &result["timeout_promoted"]), (&json!("running"), &json!(true)));
    stage.live(ms(5_000));
    assert_eq!(statuses(&stage), ["completed"]);
    stage.check();
    check(&stage.others.disk(&child(&stage)).log());
}

#[test]
fn the_tasks_that_a_session_may_have_are_limited() {
    let stage = stage();
    stage.max_subagents.set(2);
    stage.crash();
    stage.post("t1", &json!([[spawn(READ, 0), spawn(READ, 0), spawn(READ, 0)]]).to_string());
    stage.settle();
    assert_eq!(stage.outcomes("t1"), ["result", "result", "budget"]);
    let reason = results(&stage, "t1").pop().unwrap();
    assert!(reason.as_str().unwrap().starts_with("at most 2 subagents work in the background"), "{reason}");
    assert_eq!(statuses(&stage), ["running", "running"]);
}

#[test]
fn a_subagent_has_no_subagents_and_no_background_tasks() {
    let (stage, models) = stage_of(BackgroundTasks::On);
    stage.post("t1", &steps(&[spawn(&steps(&[spawn(READ, 0)]), 30)]));
    stage.settle();
    let result = results(&stage, "t1").remove(0);
    assert_eq!(result["reply"], "done: Not run: a subagent cannot use this tool: do the task yourself");
    let requests = models.requests();
    let theirs = requests.iter().find(|request| request.system.contains("You are a subagent")).unwrap();
    let offered: Vec<&str> = theirs.tools.iter().map(|tool| tool.name.as_str()).collect();
    for name in ["agent_spawn", "agent_list", "task_output", "task_cancel", "task_list", "wait_async_results"]
    {
        assert!(!offered.contains(&name), "{offered:?}");
    }
}

#[test]
fn the_share_of_a_task_is_set_aside() {
    let stage = stage();
    let budget = BudgetPatch { max_steps: Some(12), max_tool_calls: Some(9), ..BudgetPatch::default() };
    stage.post_with("t1", &json!([[spawn(READ, 0)]]).to_string(), budget, TurnOptions::default());
    stage.run();
    let state = stage.session().state().clone();
    let task = &state.subagents.tasks[0];
    // One of twelve steps and one of nine calls are used; the turn and the task have half of the rest each.
    assert_eq!((task.budget.max_steps, task.budget.max_tool_calls), (5, 4));
    stage.settle();
    stage.tick(ms(500));
    let (own, host) = (stage.end("t1"), stage.others.host(&child(&stage)));
    let theirs = host.open().unwrap().unwrap().state().activity.totals.usage.total_tokens;
    let totals = stage.session().state().activity.totals.usage.total_tokens;
    assert_eq!(totals, own.usage.total_tokens + theirs, "the session counts it although the turn is over");
}

#[test]
fn a_turn_gets_back_what_a_task_has_not_used() {
    let stage = stage();
    let wait = json!(["wait_async_results", {}]);
    let budget = BudgetPatch { max_steps: Some(9), ..BudgetPatch::default() };
    stage.post_with("t1", &steps(&[spawn(READ, 0), wait]), budget, TurnOptions::default());
    stage.settle();
    let end = stage.end("t1");
    assert_eq!(end.stop_reason, StopReason::End);
    let (host, own) = (stage.others.host(&child(&stage)), end.usage.total_tokens);
    let theirs = host.open().unwrap().unwrap().state().activity.totals.usage.total_tokens;
    let counted: u64 = stage
        .records()
        .iter()
        .filter(|r| r["type"] == "usage.updated")
        .map(|r| r["step"]["total_tokens"].as_u64().unwrap())
        .sum();
    assert_eq!((own, counted > theirs), (counted, true));
    stage.check();
}
