//! Runs that are canceled.

use super::{Work, command, good, plan, world};
use crate::support::{Gate, Script, log};
use pretty_assertions::assert_eq;
use serde_json::json;
use std::time::Duration;

#[test]
fn a_canceled_run_does_nothing_more() {
    let world = world();
    let mut gated = command("a", &[]);
    gated["needs_approval"] = json!(true);
    let run = Work::start(&world, "canceled", &[plan(&[gated, command("b", &["a"])])], json!({}));
    run.work(good);
    assert_eq!(run.statuses(), ["a waiting_approval", "b pending"]);
    run.cancel();
    assert_eq!(run.statuses(), ["a skipped", "b skipped"]);
    run.decide("a", json!({"decision": "approve"})).expect(409);
    run.decide("b", json!({"decision": "approve"})).expect(409);
    run.decide("x", json!({"decision": "approve"})).expect(404);

    // A result that comes after the cancelation is not taken.
    let late = Work::start(&world, "late", &[plan(&[command("a", &[])])], json!({}));
    while !late.pending().iter().any(|call| call["name"] == "local_repo_tree") {
        std::thread::sleep(Duration::from_millis(20));
    }
    let call = late.pending()[0]["call_id"].as_str().unwrap().to_owned();
    assert_eq!(late.show()["phase"], "context");
    late.cancel();
    let path = format!("/v1/sessions/{}/answers/{call}", late.id);
    late.client.post(&path, json!({"answer": "late"})).expect(409);
    assert_eq!(late.show()["status"], "canceled");
    late.client.post(&late.path("/retry"), json!({})).expect(202);
    assert_eq!(late.work(good)["status"], "succeeded");
}

#[test]
fn a_run_is_canceled_while_its_model_responds() {
    let world = world();
    let text = json!({"id": "text", "type": "model", "prompt": "Describe it."});
    let mut after = command("after", &["text"]);
    after["needs_approval"] = json!(true);
    let plan = plan(&[text, after]);

    let gate = Gate::new();
    world.model.script("planning", Script::text([plan.as_str()]).hold(&gate));
    let run = Work::start(&world, "planning", &[], json!({}));
    run.answer("local_repo_tree");
    gate.reached();
    let shown = run.show();
    assert_eq!(shown["phase"], "plan", "{shown:#}");
    run.cancel();
    let at_end = run.log();
    // The rest of the response goes nowhere.
    world.wait_for_abort("planning");
    gate.open();
    assert_eq!((run.statuses(), run.log()), (Vec::new(), at_end));
    run.decide("text", json!({"decision": "approve"})).expect(404);

    let gate = Gate::new();
    world.model.script("writing", Script::text([plan.as_str()]));
    world.model.script("writing", Script::text(["It "]).hold(&gate));
    let run = Work::start(&world, "writing", &[], json!({}));
    run.answer("local_repo_tree");
    gate.reached();
    run.cancel();
    let at_end = run.log();
    gate.open();
    for step in ["text", "after"] {
        let late = run.decide(step, json!({"decision": "approve"})).expect(409);
        assert_eq!(late["code"], "not_waiting");
    }
    assert_eq!(run.statuses(), ["text skipped", "after skipped"]);
    assert_eq!(run.log(), at_end);
    log::check(&at_end);

    // A retry asks again, and the step still needs its approval.
    world.model.script("writing", Script::text(["It adds."]));
    run.client.post(&run.path("/retry"), json!({})).expect(202);
    assert_eq!(run.work(good)["status"], "waiting");
    assert_eq!(run.statuses(), ["text succeeded", "after waiting_approval"]);
}
