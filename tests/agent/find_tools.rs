//! Agents with many tools.

use crate::scripts::step_of;
use crate::stage::Stage;
use crate::workspace_tools::put_shared;
use edge_harness::agent::{DynTool, HarnessBuilder, Settings, ToolContext};
use edge_harness::platform::in_memory::models::{answer, call};
use edge_harness::types::{
    Category, Effect, Invalid, ModelRequest, Part, Policy, Rules, ToolOutcome, ToolSpec, TurnOptions,
};
use futures::{FutureExt, future::LocalBoxFuture};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;

/// A tool that returns its arguments.
struct Named(String, String);

impl DynTool for Named {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.0.clone(),
            description: self.1.clone(),
            parameters: json!({"type": "object", "properties": {"city": {"type": "string"}}}).into(),
            effect: Effect::ReadOnly,
            idempotent: true,
            retry_on_timeout: false,
            varies: false,
            category: Category::Read,
            control: false,
            suspends: None,
            client_may_repeat: false,
        }
    }

    fn check(&self, args: &Value) -> Result<Vec<String>, Invalid> {
        args.is_object().then(Vec::new).ok_or_else(|| Invalid("expected an object".into()))
    }

    fn call<'a>(&'a self, args: Value, _cx: ToolContext) -> LocalBoxFuture<'a, ToolOutcome> {
        async move { ToolOutcome::Result { result: args } }.boxed_local()
    }
}

fn crowded(builder: HarnessBuilder) -> HarnessBuilder {
    let many = (0..60).map(|n| Named(format!("crm_{n:02}"), format!("Reads table {n} of customers.")));
    let weather = Named("forecast".into(), "Forecasts rain and wind for a city.".into());
    many.chain([weather]).fold(builder, |builder, tool| builder.dyn_tool(Rc::new(tool)))
}

fn names(request: &ModelRequest) -> Vec<&str> {
    request.tools.iter().map(|tool| tool.name.as_str()).collect()
}

/// Searches for the weather, and calls what it has found.
fn search(request: &ModelRequest) -> Vec<Part> {
    let wrapped = json!({"name": "forecast", "arguments": {"city": "Rome"}});
    match step_of(request) {
        0 => vec![call("f", "find_tools", json!({"query": "rain in a city"}))],
        1 => vec![call("c", "call_tool", wrapped)],
        2 => vec![call("x", "call_tool", json!({"name": "absent"}))],
        _ => vec![Part::text("done")],
    }
}

#[test]
fn tools_that_are_not_offered_are_found_and_called() {
    let (stage, models) = Stage::scripted(|request| answer(search(request)), crowded);
    stage.post("t1", "customers of table 3");
    stage.settle();
    let requests = models.requests();
    let offered = names(&requests[0]);
    assert!(offered.contains(&"find_tools") && offered.contains(&"call_tool") && offered.contains(&"crm_03"));
    assert!(!offered.contains(&"forecast"), "{offered:?}");
    assert!(requests.iter().all(|request| names(request) == offered), "the start of the prompt is stable");
    let records = stage.records();
    let result = |call: &str| {
        records.iter().find(|r| r["type"] == "tool.completed" && r["call_id"] == call).unwrap()["result"]
            .clone()
    };
    assert_eq!(result("f")[0]["name"], "forecast");
    assert_eq!(result("c"), json!({"city": "Rome"}));
    let started: Vec<_> =
        records.iter().filter(|r| r["type"] == "tool.started").map(|r| &r["name"]).collect();
    assert_eq!(started, ["find_tools", "forecast", "call_tool"]);
    assert_eq!(stage.outcomes("t1"), ["result", "result", "failure"]);
    // Also in the next turn.
    stage.post("t2", "weather");
    stage.settle();
    assert_eq!(names(models.requests().last().unwrap()), offered);
}

#[test]
fn a_denied_tool_stays_denied_when_it_is_called_by_name() {
    let deny = Rules { tools: [("forecast".to_owned(), Policy::Deny)].into(), ..Rules::default() };
    let settings = Settings { permissions: deny, ..Settings::default() };
    let extend = move |builder| crowded(builder).settings(settings.clone());
    let (stage, _) = Stage::scripted(|request| answer(search(request)), extend);
    stage.post("t1", "go");
    stage.settle();
    assert_eq!(stage.outcomes("t1")[1], "permission");
}

/// An operator's file restricts what is offered and what is found.
#[test]
fn tools_that_the_workspace_denies_are_neither_offered_nor_found() {
    let script = |request: &ModelRequest| {
        answer(match step_of(request) {
            0 => vec![call("f", "find_tools", json!({"query": "customers in table 7"}))],
            1 => vec![call("x", "absent", json!({}))],
            _ => vec![Part::text("done")],
        })
    };
    let run = |file: Value| {
        let (stage, models) = Stage::scripted(script, crowded);
        put_shared(&stage, "tools.json", &file.to_string());
        stage.post("t1", "customers of table 3");
        stage.settle();
        let offered = names(&models.requests()[0]).into_iter().map(str::to_owned).collect::<Vec<_>>();
        let records = stage.records();
        let of = |call: &str| {
            records.iter().find(|r| r["type"] == "tool.completed" && r["call_id"] == call).unwrap().clone()
        };
        (offered, of("f"), of("x")["reason"].as_str().unwrap().to_owned())
    };
    let (offered, found, unknown) = run(json!({"allow": ["forecast"]}));
    assert!(offered.contains(&"forecast".to_owned()) && !offered.contains(&"find_tools".to_owned()));
    assert!(!found.to_string().contains("crm_"), "{found}");
    assert!(unknown.contains("forecast") && !unknown.contains("crm_"), "{unknown}");
    let (offered, found, _) = run(json!({"deny": ["crm_07", "crm_03"]}));
    assert!(offered.contains(&"find_tools".to_owned()) && !offered.contains(&"crm_03".to_owned()));
    let names: Vec<_> = found["result"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert!(!names.is_empty() && !names.contains(&&json!("crm_07")), "{names:?}");
}

#[test]
fn few_tools_are_all_offered() {
    let (stage, models) = Stage::scripted(|_| answer(vec![Part::text("done")]), |builder| builder);
    stage.post("t1", "go");
    stage.settle();
    assert!(!names(&models.requests()[0]).contains(&"find_tools"));
    // A message that restricts the tools leaves nothing to find.
    let (stage, models) = Stage::scripted(|_| answer(vec![Part::text("done")]), crowded);
    let options =
        TurnOptions { tools: Some(vec!["forecast".into(), "crm_01".into()]), ..TurnOptions::default() };
    stage.post_with("t1", "go", Default::default(), options);
    stage.settle();
    assert_eq!(names(&models.requests()[0]), ["crm_01", "forecast"]);
}
