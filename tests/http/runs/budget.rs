//! Runs that reach their budget.

use super::{Work, command, define, good, plan, world};
use crate::support::World;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::io::{Cursor, Read as _};
use zip::ZipArchive;

/// Asserts that the run has reached its budget, that its archive says so, and that it succeeds with another budget.
#[track_caller]
fn goes_on(run: &Work, ended: &Value, budget: Value) {
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("budget_exceeded")));
    let mut archive = ZipArchive::new(Cursor::new(run.client.get(&run.path("/export")).body)).unwrap();
    let mut report = String::new();
    archive.by_name("report.md").unwrap().read_to_string(&mut report).unwrap();
    assert!(report.contains("Failed: the run has reached its limit"), "{report}");
    run.client.post(&run.path("/retry"), json!({ "budget": budget })).expect(202);
    assert_eq!(run.work(good)["status"], "succeeded");
}

#[test]
fn a_run_stops_at_its_budget_and_goes_on_with_a_larger_one() {
    let world = world();
    let steps = [command("a", &[]), command("b", &["a"])];
    let run = Work::start(&world, "small", &[plan(&steps)], json!({"budget": {"max_tool_calls": 3}}));
    goes_on(&run, &run.work(good), json!({"max_tool_calls": 50}));
}

#[test]
fn a_run_stops_at_its_cost_and_goes_on_with_a_larger_budget() {
    let prices = json!({"openai/priced": {"input": 10.0, "output": 100.0}});
    let world = World::with(json!({"MEMORY_FLUSH": "never", "MODEL_PRICES": prices.to_string()}));
    define(&world, json!({}));
    let text =
        |id: &str, after: &[&str]| json!({"id": id, "type": "model", "prompt": id, "depends_on": after});
    let steps = [text("first", &[]), text("second", &["first"])];
    // Each response costs $0.0006, so the plan and the first text exceed the limit.
    let responses = [plan(&steps), "One.".to_owned(), "Two.".to_owned()];
    let run = Work::start(&world, "priced", &responses, json!({"budget": {"max_cost_usd": 0.001}}));
    let ended = run.work(good);
    assert_eq!(run.statuses(), ["first succeeded", "second skipped"]);
    assert!((ended["cost_usd"].as_f64().unwrap() - 0.0012).abs() < 1e-9, "{ended:#}");
    goes_on(&run, &ended, json!({"max_cost_usd": 1.0}));
    assert_eq!(run.statuses(), ["first succeeded", "second succeeded"]);
    // The retry has only asked for what was left.
    assert_eq!(world.received("priced").len(), 3);
}
