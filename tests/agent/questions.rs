//! Tools that wait for an answer: questions, and tools that clients run themselves.

use crate::stage::{Stage, step_of};
use edge_harness::agent::host::suspensions::{CallAnswer, TurnEffect};
use edge_harness::platform::in_memory::models::{answer, call};
use edge_harness::tools::{ExternalTool, external::Declared};
use edge_harness::types::{Approver, Part, Problem, SessionStatus, WaitKind};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;

/// A turn that makes these calls in its first step, `c0` and so on.
fn stage(calls: &[(&str, Value)]) -> Stage {
    let made =
        |(place, (name, args)): (usize, &(&str, Value))| call(&format!("c{place}"), name, args.clone());
    let calls: Vec<Part> = calls.iter().enumerate().map(made).collect();
    let script = move |step| if step == 0 { calls.clone() } else { vec![Part::text("done")] };
    let lookup = |builder: edge_harness::agent::HarnessBuilder| builder.dyn_tool(lookup());
    let (stage, _) = Stage::scripted(move |request| answer(script(step_of(request))), lookup);
    stage.post("t1", "go");
    stage.run();
    stage
}

fn lookup() -> Rc<ExternalTool> {
    let declared: Declared = serde_json::from_value(json!({
        "name": "lookup", "description": "Looks a customer up.", "effect": "network_read",
        "parameters": {"properties": {"id": {"type": "integer"}}, "required": ["id"]},
    }))
    .unwrap();
    Rc::new(ExternalTool::new(declared).unwrap())
}

pub fn reply(stage: &Stage, call: &str, reply: CallAnswer) -> Result<TurnEffect, Problem> {
    let changed = stage.host().answer(&stage.session(), call, reply, Approver::default());
    stage.run();
    changed
}

pub fn say(stage: &Stage, call: &str, said: Value) -> Result<TurnEffect, Problem> {
    reply(stage, call, CallAnswer::Answer(said))
}

pub fn waiting(stage: &Stage) -> Vec<String> {
    stage.session().pending().unwrap().into_iter().map(|pending| pending.call_id).collect()
}

/// What the model was told of each call of a turn.
pub fn told(stage: &Stage, turn: &str) -> Vec<Value> {
    stage.settle();
    stage.check();
    let own = stage.records().into_iter().filter(|r| r["type"] == "tool.completed" && r["turn"] == turn);
    own.map(|r| r.get("result").or(r.get("reason")).unwrap().clone()).collect()
}

fn question(more: Value) -> (&'static str, Value) {
    let mut args = json!({"question": "Which colour?"});
    args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    ("ask_user", args)
}

#[test]
fn of_two_questions_one_waits_until_it_is_answered_too() {
    let stage = stage(&[question(json!({})), question(json!({"options": [{"label": "red"}]}))]);
    assert_eq!(stage.session().state().status(), SessionStatus::Waiting);
    let pending = stage.session().pending().unwrap();
    assert_eq!(pending[1].kind, WaitKind::Question);
    assert_eq!(pending[1].payload, json!({"question": "Which colour?", "options": [{"label": "red"}]}));
    assert_eq!(say(&stage, "c1", json!("red")), Ok(TurnEffect::Waits));
    assert_eq!(waiting(&stage), ["c0"]);
    // Wherever it is.
    stage.crash();
    assert_eq!(say(&stage, "c0", json!("green")), Ok(TurnEffect::Continues));
    assert_eq!(told(&stage, "t1"), ["User answered: green", "User answered: red"]);
    assert_eq!(stage.end("t1").reply.unwrap().text, "done");
}

#[test]
fn of_several_options_several_may_be_chosen() {
    let options = json!([{"label": "a", "description": "the first"}, {"label": "b"}]);
    let stage = stage(&[question(json!({"options": options, "selection_mode": "multi"}))]);
    for bad in [json!([]), json!(["a", 1]), json!({}), json!(" ")] {
        let refused = say(&stage, "c0", bad).unwrap_err();
        assert_eq!((refused.code.status(), refused.errors[0].pointer.as_str()), (422, "/answer"));
    }
    assert_eq!(say(&stage, "c0", json!(["a", "b"])), Ok(TurnEffect::Continues));
    assert_eq!(told(&stage, "t1"), ["User answered: a, b"]);
}

#[test]
fn a_choice_without_options_is_an_error_and_nobody_is_asked() {
    let stage = stage(&[question(json!({"selection_mode": "single"}))]);
    assert_eq!(told(&stage, "t1"), ["`selection_mode` requires `options`; add options or omit it"]);
    assert_eq!(stage.outcomes("t1"), ["failure"]);
    assert!(!stage.kinds().contains(&"tool.suspended".to_owned()));
}

#[test]
fn a_client_runs_its_own_tool_and_brings_the_result() {
    let stage = stage(&[("lookup", json!({"id": "7"})), ("lookup", json!({"id": 8})), ("lookup", json!({}))]);
    let pending = stage.session().pending().unwrap();
    let shown: Vec<_> = pending.iter().map(|pending| (pending.kind, pending.payload.clone())).collect();
    let external = |args| (WaitKind::External, args);
    assert_eq!(shown, [external(json!({"id": 7})), external(json!({"id": 8}))], "in the schema's types");
    say(&stage, "c0", json!({"name": "Ann"})).unwrap();
    reply(&stage, "c1", CallAnswer::Failure("no such customer".into())).unwrap();
    let told = told(&stage, "t1");
    assert_eq!(told[..2], [json!({"name": "Ann"}), json!("no such customer")]);
    assert!(told[2].as_str().unwrap().starts_with("the arguments do not match the schema"), "{told:?}");
    assert_eq!(stage.outcomes("t1"), ["result", "failure", "validation"]);
}
