//! Tools that wait for an answer: questions and external tools.

use crate::scripts::step_of;
use crate::stage::Stage;
use edge_harness::agent::host::suspensions::{CallAnswer, TurnEffect};
use edge_harness::agent::{ExternalTool, external_tool::Declared};
use edge_harness::platform::in_memory::models::{answer, call};
use edge_harness::types::{CallId, Part, Problem, ResolvedBy, SessionStatus, WaitKind};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;

/// A turn that makes these calls in its first step, with the ids `c0`, `c1` and so on.
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
    let changed = stage.host().answer(&stage.session(), &call.into(), reply, ResolvedBy::default());
    stage.run();
    changed
}

pub fn say(stage: &Stage, call: &str, said: Value) -> Result<TurnEffect, Problem> {
    reply(stage, call, CallAnswer::Answer(said))
}

pub fn waiting(stage: &Stage) -> Vec<CallId> {
    stage.session().pending().unwrap().into_iter().map(|pending| pending.call_id).collect()
}

/// The results of a turn's calls as the model sees them.
pub fn tool_results(stage: &Stage, turn: &str) -> Vec<Value> {
    stage.settle();
    stage.check();
    let own = stage.records().into_iter().filter(|r| r["type"] == "tool.completed" && r["turn"] == turn);
    own.map(|r| r.get("result").or(r.get("reason")).unwrap().clone()).collect()
}

fn question(more: Value) -> (&'static str, Value) {
    let mut args = json!({"question": "Which color?"});
    args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    ("ask_user", args)
}

#[test]
fn a_turn_waits_until_all_questions_are_answered() {
    let stage = stage(&[question(json!({})), question(json!({"options": [{"label": "red"}]}))]);
    assert_eq!(stage.session().state().status(), SessionStatus::Waiting);
    let pending = stage.session().pending().unwrap();
    assert_eq!(pending[1].kind, WaitKind::Question);
    assert_eq!(pending[1].payload, json!({"question": "Which color?", "options": [{"label": "red"}]}));
    assert_eq!(say(&stage, "c1", json!("red")), Ok(TurnEffect::Waits));
    assert_eq!(waiting(&stage), ["c0"]);
    // In any instance.
    stage.crash();
    assert_eq!(say(&stage, "c0", json!("green")), Ok(TurnEffect::Continues));
    assert_eq!(tool_results(&stage, "t1"), ["User answered: green", "User answered: red"]);
    assert_eq!(stage.end("t1").reply.unwrap().text, "done");
}

#[test]
fn several_options_may_be_chosen() {
    let options = json!([{"label": "a", "description": "the first"}, {"label": "b"}]);
    let stage = stage(&[question(json!({"options": options, "selection_mode": "multi"}))]);
    for bad in [json!([]), json!(["a", 1]), json!({}), json!(" ")] {
        let refused = say(&stage, "c0", bad).unwrap_err();
        assert_eq!((refused.code.status(), refused.errors[0].pointer.as_str()), (422, "/answer"));
    }
    assert_eq!(say(&stage, "c0", json!(["a", "b"])), Ok(TurnEffect::Continues));
    assert_eq!(tool_results(&stage, "t1"), ["User answered: a, b"]);
}

#[test]
fn a_choice_without_options_is_an_error_without_a_suspension() {
    let stage = stage(&[question(json!({"selection_mode": "single"}))]);
    assert_eq!(tool_results(&stage, "t1"), ["`selection_mode` requires `options`; add options or omit it"]);
    assert_eq!(stage.outcomes("t1"), ["failure"]);
    assert!(!stage.kinds().contains(&"tool.suspended".to_owned()));
}

#[test]
fn a_client_runs_an_external_tool_and_sends_the_result() {
    let stage = stage(&[("lookup", json!({"id": "7"})), ("lookup", json!({"id": 8})), ("lookup", json!({}))]);
    let pending = stage.session().pending().unwrap();
    let shown: Vec<_> = pending.iter().map(|pending| (pending.kind, pending.payload.clone())).collect();
    let external = |args| (WaitKind::External, args);
    assert_eq!(
        shown,
        [external(json!({"id": 7})), external(json!({"id": 8}))],
        "converted to the schema's types"
    );
    say(&stage, "c0", json!({"name": "Ann"})).unwrap();
    reply(&stage, "c1", CallAnswer::Failure("no such customer".into())).unwrap();
    let results = tool_results(&stage, "t1");
    assert_eq!(results[..2], [json!({"name": "Ann"}), json!("no such customer")]);
    assert!(results[2].as_str().unwrap().starts_with("the arguments do not match the schema"), "{results:?}");
    assert_eq!(stage.outcomes("t1"), ["result", "failure", "validation"]);
}

#[test]
fn a_client_cannot_replace_an_external_tool_of_the_operator() {
    let (stage, _) = Stage::scripted(|_| answer(vec![]), |builder| builder.dyn_tool(lookup()));
    let agent = stage.host().agent();
    assert!(!agent.accepts_client_tool("lookup") && !agent.accepts_client_tool("ask_user"));
    assert!(agent.accepts_client_tool("read_it") && agent.accepts_client_tool("mine"));
}

#[test]
fn the_answers_to_a_step_are_bounded() {
    let calls = || (0..12).map(|id| call(&format!("c{id}"), "lookup", json!({"id": id}))).collect();
    let (stage, _) = Stage::scripted(
        move |request| match step_of(request) {
            0 => answer(calls()),
            _ => answer(vec![Part::text("Done")]),
        },
        |builder| builder.dyn_tool(lookup()),
    );
    stage.post("t1", "go");
    stage.run();
    let refused = |at: usize, bytes: usize| {
        say(&stage, &format!("c{at}"), "x".repeat(bytes).into()).map(drop).unwrap_err().errors[0].clone()
    };
    let large = refused(0, 1 << 20);
    assert!(large.pointer == "/answer" && large.detail.contains("1 MiB"), "{large:?}");
    let answered =
        (0..12).take_while(|at| say(&stage, &format!("c{at}"), "x".repeat(1_000_000).into()).is_ok());
    assert_eq!(answered.count(), 8);
    assert!(refused(8, 1_000_000).detail.contains("8 MiB"));
    for at in 8..12 {
        reply(&stage, &format!("c{at}"), CallAnswer::Failure("too large".into())).unwrap();
    }
    assert_eq!(tool_results(&stage, "t1").len(), 12);
    assert_eq!(stage.end("t1").reply.unwrap().text, "Done");
}
