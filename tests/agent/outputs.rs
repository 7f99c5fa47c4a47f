//! Tool outputs: nested too deep, too large for the conversation, or not a source.

use crate::scripts::step_of;
use crate::stage::Stage;
use edge_harness::agent::{Tool, ToolContext, ToolError};
use edge_harness::platform::in_memory::{
    ScriptedHttp,
    models::{answer, call},
};
use edge_harness::tools::WebFetch;
use edge_harness::types::{ModelRequest, Part};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;

/// Returns nested arrays.
struct Nest;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Depth {
    depth: usize,
}

impl Tool for Nest {
    type Args = Depth;
    type Output = Value;
    const NAME: &'static str = "nest";
    const DESCRIPTION: &'static str = "Nests.";

    async fn run(&self, args: Depth, _cx: ToolContext) -> Result<Value, ToolError> {
        Ok((0..args.depth).fold(json!(1), |inner, _| json!([inner])))
    }
}

#[test]
fn an_output_nested_too_deep_becomes_text() {
    let script = |request: &ModelRequest| match step_of(request) {
        0 => answer(vec![
            call("a", "nest", json!({"depth": 64})),
            call("b", "nest", json!({"depth": 125})),
            call("c", "nest", json!({"depth": 1_000})),
        ]),
        _ => answer(vec![Part::text("done")]),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder.tool(Nest));
    stage.post("t1", "go");
    stage.settle();
    stage.check();
    let results: Vec<_> = stage.records().into_iter().filter(|r| r["type"] == "tool.completed").collect();
    let text = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(results[0]["result"].to_string(), text(64));
    assert_eq!(results[1]["result"], json!(text(125)));
    assert_eq!(results[2]["result"], json!(text(1_000)));
    // Another instance reads it completely.
    stage.crash();
    stage.post("t2", "again");
    stage.settle();
    stage.check();
}

#[test]
fn only_an_existing_page_becomes_a_source() {
    let script = |request: &ModelRequest| match step_of(request) {
        0 => answer(vec![
            call("a", "web_fetch", json!({"url": "https://example.com/long"})),
            call("b", "web_fetch", json!({"url": "https://example.com/none"})),
        ]),
        _ => answer(vec![Part::text("done")]),
    };
    let (stage, _) = Stage::scripted(script, |builder| {
        let http = ScriptedHttp::default();
        http.respond(200, "long ".repeat(5_000));
        http.respond(404, "there is no such page");
        builder.tool(WebFetch::new(Rc::new(http), "*").unwrap())
    });
    stage.post("t1", "go");
    stage.settle();
    stage.check();
    assert_eq!(stage.outcomes("t1"), ["result", "result"]);
    let results: Vec<_> = stage.records().into_iter().filter(|r| r["type"] == "tool.completed").collect();
    assert_eq!(results[0]["result"]["untrusted_text"].as_str().map(str::len), Some(10_000));
    assert_eq!(results[0]["sources"][0]["url"], "https://example.com/long");
    assert_eq!((&results[1]["result"]["status"], results[1].get("sources")), (&json!(404), None));
}
