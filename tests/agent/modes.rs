//! Modes and switching between them.

use crate::{
    http::{self, whole},
    scripts::step_of,
    stage::Stage,
};
use edge_harness::agent::Settings;
use edge_harness::platform::in_memory::{
    ScriptedModels,
    models::{answer, call},
};
use edge_harness::turn::policy::Verdict;
use edge_harness::types::{BudgetPatch, Decider, Effect, Mode, Part, Problem, ToolSpec, TurnOptions};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;

fn ask(stage: &Stage, route: &str, body: Value) -> Result<Value, Problem> {
    http::ask(stage, route, "", &body).map(whole)
}

fn patch(stage: &Stage, body: Value) -> Result<Value, Problem> {
    ask(stage, "PATCH /v1/sessions/s", body)
}

fn code(result: Result<Value, Problem>) -> (&'static str, Option<String>) {
    let problem = result.unwrap_err();
    (problem.code.as_str(), problem.errors.first().map(|error| error.pointer.clone()))
}

fn modes(list: Value) -> Vec<Mode> {
    serde_json::from_value(list).unwrap()
}

/// `build`, which is the default, `look` with another model, and `fix`, which `look` does not lead to.
fn three() -> Vec<Mode> {
    modes(json!([
        {"id": "look", "default_model": "scripted/small", "transitions_to": ["build"],
            "instructions": "Only look.", "available_tools": ["read_it"]},
        {"id": "build", "default": true},
        {"id": "fix", "available_tools": []},
    ]))
}

fn stage(script: impl Fn(usize) -> Vec<Part> + 'static) -> (Stage, Rc<ScriptedModels>) {
    let (stage, models) = Stage::scripted(move |request| answer(script(step_of(request))), |builder| builder);
    (stage.with_modes(three()), models)
}

fn made(script: impl Fn(usize) -> Vec<Part> + 'static) -> (Stage, Rc<ScriptedModels>) {
    let (stage, models) = stage(script);
    ask(&stage, "POST /v1/sessions", json!({})).unwrap();
    (stage, models)
}

fn silent() -> (Stage, Rc<ScriptedModels>) {
    made(|_| vec![Part::text("done")])
}

/// The recorded changes of mode and model: the new one and the previous one.
fn changes(stage: &Stage) -> Vec<(String, Value, Value)> {
    let found = stage.records().into_iter().filter_map(|record| {
        let kind = record["type"].as_str().unwrap().strip_suffix(".changed")?.to_owned();
        Some((kind.clone(), record[&kind].clone(), record["previous"].clone()))
    });
    found.collect()
}

fn change(kind: &str, new: Value, previous: Value) -> (String, Value, Value) {
    (kind.to_owned(), new, previous)
}

#[test]
fn a_session_starts_in_the_default_or_the_requested_mode() {
    let (first, _) = stage(|_| vec![]);
    let made = ask(&first, "POST /v1/sessions", json!({})).unwrap();
    assert_eq!((&made["mode"], &made["model"]), (&json!("build"), &Value::Null));
    let (first, _) = stage(|_| vec![]);
    let made = ask(&first, "POST /v1/sessions", json!({"mode": "look"})).unwrap();
    assert_eq!((&made["mode"], &made["model"]), (&json!("look"), &json!("scripted/small")));
    let (first, _) = stage(|_| vec![]);
    let made = ask(&first, "POST /v1/sessions", json!({"mode": "look", "model": "scripted/large"})).unwrap();
    assert_eq!(made["model"], "scripted/large");
    let (first, _) = stage(|_| vec![]);
    let refused = ask(&first, "POST /v1/sessions", json!({"mode": "nap"}));
    assert_eq!(code(refused), ("validation_failed", Some("/mode".into())));
    assert!(first.kinds().is_empty());
    // Also with the first message.
    let (first, _) = stage(|_| vec![Part::text("hi")]);
    let headers = [("prefer", "respond-async")];
    let call = http::request("POST /messages", "", &headers, r#"{"content": "hi"}"#);
    http::respond(&first, &call).unwrap();
    assert_eq!(first.session().state().meta.mode.as_deref(), Some("build"));
}

#[test]
fn an_unknown_mode_is_refused() {
    let (stage, _) = silent();
    let before = (stage.kinds(), stage.session().state().clone());
    let refused = patch(&stage, json!({"title": "New", "mode": "nap"})).unwrap_err();
    assert_eq!(refused.errors[0].pointer, "/mode");
    assert_eq!(refused.errors[0].detail, "unknown mode \"nap\"; available: look, build, fix");
    assert_eq!((stage.kinds(), stage.session().state().clone()), before);
}

#[test]
fn a_mode_only_switches_to_its_transitions() {
    let (stage, _) = silent();
    patch(&stage, json!({"mode": "look"})).unwrap();
    let refused = patch(&stage, json!({"mode": "fix"})).unwrap_err();
    assert_eq!((refused.code.as_str(), refused.code.status()), ("transition_not_allowed", 409));
    assert_eq!(refused.detail, "cannot switch from mode \"look\" to \"fix\"; allowed: build");
    assert_eq!(patch(&stage, json!({"mode": "look"})).unwrap()["mode"], "look", "staying is always allowed");
    assert_eq!(patch(&stage, json!({"mode": null})).unwrap()["mode"], "build");
    let found: Vec<_> = changes(&stage).into_iter().filter(|(kind, ..)| kind == "mode").collect();
    let expected =
        [change("mode", json!("look"), json!("build")), change("mode", json!("build"), json!("look"))];
    assert_eq!(found, expected);
}

#[test]
fn of_concurrent_switches_the_last_one_applies() {
    let (stage, _) = silent();
    patch(&stage, json!({"mode": "look"})).unwrap();
    patch(&stage, json!({"mode": "build"})).unwrap();
    patch(&stage, json!({"mode": "look", "model": "scripted/large"})).unwrap();
    let small = json!("scripted/small");
    let expected = [
        change("mode", json!("look"), json!("build")),
        change("model", small.clone(), Value::Null),
        change("mode", json!("build"), json!("look")),
        change("model", Value::Null, small),
        change("mode", json!("look"), json!("build")),
        change("model", json!("scripted/large"), Value::Null),
    ];
    assert_eq!(changes(&stage), expected);
    let shown = ask(&stage, "GET /v1/sessions/s", json!({})).unwrap();
    assert_eq!((&shown["mode"], &shown["model"]), (&json!("look"), &json!("scripted/large")));
}

#[test]
fn a_mode_remembers_its_model_across_evictions() {
    let (stage, _) = silent();
    patch(&stage, json!({"model": "scripted/large"})).unwrap();
    patch(&stage, json!({"mode": "look"})).unwrap();
    patch(&stage, json!({"model": "scripted/tiny"})).unwrap();
    stage.crash();
    assert_eq!(patch(&stage, json!({"mode": "build"})).unwrap()["model"], "scripted/large");
    let found = changes(&stage);
    assert!(
        found.contains(&change("mode", json!("build"), json!("look"))),
        "the actual previous mode: {found:?}"
    );
    assert_eq!(patch(&stage, json!({"mode": "look"})).unwrap()["model"], "scripted/tiny");
    patch(&stage, json!({"mode": "build"})).unwrap();
    assert_eq!(
        patch(&stage, json!({"mode": "fix"})).unwrap()["model"],
        "scripted/large",
        "the mode has no model, so the current one stays"
    );
}

#[test]
fn a_mode_sets_instructions_and_tools() {
    let (stage, models) = silent();
    let said = |turn: &str| {
        stage.post(turn, "hello");
        stage.settle();
        let request = models.requests().pop().unwrap();
        let tools: Vec<String> = request.tools.iter().map(|tool| tool.name.clone()).collect();
        (request.model, request.system, tools, stage.end(turn).prompt_render_hash)
    };
    let (_, build, all, first) = said("t1");
    assert!(all.len() > 5 && all.contains(&"read_it".to_owned()));
    patch(&stage, json!({"mode": "look"})).unwrap();
    let (model, look, tools, other) = said("t2");
    assert_eq!((model.as_str(), tools), ("small", vec!["read_it".to_owned()]));
    let place = look.find("\n\nOnly look.").expect("its instructions");
    assert!(build.starts_with(look.get(..place).unwrap()), "after the agent's instructions");
    assert_ne!(first, other);
    patch(&stage, json!({"mode": "build"})).unwrap();
    assert_eq!(said("t3").3, first, "the same mode, the same prompt");
    patch(&stage, json!({"mode": "fix"})).unwrap();
    assert_eq!(said("t4").2, [""; 0], "an empty list offers no tools");
    stage.check();
}

#[test]
fn only_tools_of_both_the_mode_and_the_caller_can_be_called() {
    let (stage, models) = made(|step| match step {
        0 => vec![call("c1", "write_it", json!({"key": "a"})), call("c2", "read_it", json!({"key": "a"}))],
        _ => vec![Part::text("done")],
    });
    patch(&stage, json!({"mode": "look"})).unwrap();
    stage.post("t1", "go");
    stage.settle();
    assert_eq!(stage.outcomes("t1"), ["unknown_tool", "result"]);
    let tools = Some(vec!["write_it".to_owned()]);
    stage.post_with("t2", "go", BudgetPatch::default(), TurnOptions { tools, ..TurnOptions::default() });
    stage.settle();
    assert_eq!(stage.outcomes("t2"), ["unknown_tool", "unknown_tool"]);
    assert_eq!(models.requests().pop().unwrap().tools.len(), 0);
    assert!(stage.runs.borrow().is_empty());
    stage.check();
}

#[test]
fn a_switch_within_a_turn_applies_from_the_next_model_call() {
    let (stage, models) = made(|step| match step {
        0 => vec![call("c1", "read_it", json!({"key": "a"}))],
        _ => vec![Part::text("done")],
    });
    stage.post("t1", "go");
    stage.run();
    patch(&stage, json!({"mode": "look"})).unwrap();
    stage.settle();
    let offered: Vec<_> = models.requests().iter().map(|request| request.tools.len()).collect();
    assert!(offered[0] > 5 && offered[1] == 1, "{offered:?}");
    assert!(models.requests()[1].system.contains("Only look."));
    stage.check();
}

#[test]
fn an_agent_without_modes_has_none() {
    let (stage, _) = Stage::scripted(|_| answer(vec![Part::text("hi")]), |builder| builder);
    assert_eq!(ask(&stage, "POST /v1/sessions", json!({})).unwrap()["mode"], Value::Null);
    let refused = patch(&stage, json!({"mode": "build"})).unwrap_err();
    assert_eq!(refused.errors[0].detail, "unknown mode \"build\"; available: none");
    patch(&stage, json!({"mode": null})).unwrap();
    assert_eq!(changes(&stage), []);
}

#[test]
fn a_removed_mode_counts_as_the_default() {
    let (stage, _) = silent();
    patch(&stage, json!({"mode": "fix"})).unwrap();
    let stage = stage.with_modes(modes(json!([{"id": "a"}, {"id": "b"}])));
    assert_eq!(patch(&stage, json!({"mode": "b"})).unwrap()["mode"], "b");
    assert_eq!(changes(&stage).pop().unwrap(), change("mode", json!("b"), json!("a")));
}

#[test]
fn a_mode_restricts_calls_to_reads_and_by_its_rules() {
    let list = json!([{"id": "plan", "read_only": true, "permissions": {"tools": {"echo": "deny"}}}]);
    let (stage, _) = Stage::scripted(|_| answer(vec![]), |builder| builder);
    let stage = stage.with_modes(modes(list));
    let (session, host) = (stage.session(), stage.host());
    let state = session.state().clone();
    let agent = host.agent();
    let permissions = agent.permissions(&state);
    let (echo, _) = agent.toolkit().get("echo").unwrap();
    let other = |effect| ToolSpec { name: "other".into(), effect, control: false, ..echo.clone() };
    assert!(permissions.hides(echo) && permissions.hides(&other(Effect::LocalWrite)));
    assert!(!permissions.hides(&other(Effect::ReadOnly)));
}

#[test]
fn a_mode_of_the_definition_cannot_lift_what_the_deployment_asks_about() {
    let verdict = |own_modes| {
        let settings = Settings {
            permissions: serde_json::from_value(json!({"default": "ask"})).unwrap(),
            modes: modes(json!([{"id": "open", "permissions": {"tools": {"echo": "allow"}}}])),
            own_modes,
            ..Settings::default()
        };
        let (stage, _) =
            Stage::scripted(|_| answer(vec![]), move |builder| builder.settings(settings.clone()));
        let (session, host) = (stage.session(), stage.host());
        let (state, agent) = (session.state().clone(), host.agent());
        let (echo, _) = agent.toolkit().get("echo").unwrap();
        agent.verdict(&state, echo, &json!({}))
    };
    assert_eq!(verdict(false), Verdict::Allow, "a mode of the deployment");
    assert_eq!(verdict(true), Verdict::Ask(Decider::Approver), "a mode of the definition");
}
