//! Runs with the demo model.

use super::{Work, command, good, plan, world};
use crate::support::World;
use pretty_assertions::assert_eq;
use serde_json::json;
use std::cell::RefCell;

#[test]
fn the_demo_model_does_a_run_from_its_plan_to_its_report() {
    let world = world();
    let client = world.server.client();
    let mut gated = command("build", &[]);
    gated["needs_approval"] = json!(true);
    let goal =
        format!("Fix it.\n/plan {}\n/repair {}", plan(&[gated]), plan(&[command("repair", &["build"])]));
    let run = Work::start(&world, "", &[], json!({"model": "demo/echo", "goal": goal}));
    assert_eq!(run.work(good)["steps"][0]["status"], "waiting_approval");
    assert_eq!(*run.done.borrow(), ["local_repo_tree"]);
    run.decide("build", json!({"decision": "approve"})).expect(200);
    let has_failed = RefCell::new(false);
    let ended = run.work(|name, _| match name {
        "local_verify" if !has_failed.replace(true) => Err("1 test fails".into()),
        _ => Ok("ok".into()),
    });
    assert_eq!(
        (&ended["status"], &ended["plan_source"]),
        (&json!("succeeded"), &json!("model")),
        "{ended:#}"
    );
    assert_eq!(
        *run.done.borrow(),
        ["local_repo_tree", "$ build", "local_verify", "$ repair", "local_verify"]
    );
    let report = client.get(&format!("/v1/workspace/files/runs/{}/report.md?agent=builder", run.id)).text();
    assert!(report.contains("Passed, after 1 repairs."), "{report}");
}

#[test]
fn the_fallback_plan_waits_for_a_person_on_an_agent_without_a_runner() {
    let world = World::start();
    let goal = "Test it.\n/plan I would run the tests.";
    let run = Work::start(&world, "", &[], json!({"agent": null, "model": "demo/echo", "goal": goal}));
    let waits = run.work(good);
    assert_eq!((&waits["status"], &waits["plan_source"]), (&json!("waiting"), &json!("fallback")));
    assert_eq!(run.statuses(), ["test waiting_approval", "diagrams waiting_approval"]);
    run.decide("test", json!({"decision": "decline"})).expect(200);
    run.decide("diagrams", json!({"decision": "decline"})).expect(200);
    assert_eq!(run.work(good)["status"], "succeeded");
    assert_eq!(run.statuses(), ["test skipped", "diagrams skipped"]);

    let failing = Work::start(&world, "", &[], json!({"agent": null, "model": "demo/echo", "goal": goal}));
    failing.work(good);
    failing.decide("test", json!({"decision": "approve"})).expect(200);
    failing.decide("diagrams", json!({"decision": "decline"})).expect(200);
    let ended = failing.work(good);
    assert_eq!((&ended["status"], &ended["error"]["step"]), (&json!("failed"), &json!("test")));
}
