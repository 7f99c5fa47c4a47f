//! Tools that wait for tasks, the limit of results in a request, and turns that finished tasks start.

use super::*;
use crate::limits::tenant;
use edge_harness::types::{TenantLimits, TenantPolicy};
use pretty_assertions::assert_eq;

fn wait(args: Value) -> Value {
    json!(["wait_async_results", args])
}

#[test]
fn a_wait_returns_the_first_result_or_all() {
    let slow = reads(8);
    for (args, ended) in [(json!({}), 1), (json!({"wait_all": true}), 2)] {
        let (stage, models) = stage_of(BackgroundTasks::On);
        let both = json!([spawn(READ, 0), spawn(&slow, 0)]);
        stage.post("t1", &json!([both, [wait(args)]]).to_string());
        stage.settle();
        let result = results(&stage, "t1").pop().unwrap();
        assert_eq!(result["results"].as_array().unwrap().len(), ended, "{result}");
        assert_eq!(result["still_running"], 2 - ended);
        assert_eq!(result["results"][0]["reply"], "done: read x");
        // The result is part of the conversation, and marked as shown.
        let last = shown(&models).pop().unwrap();
        assert_eq!(tasks(&stage)[0]["shown"], true, "{last}");
        stage.check();
    }
}

#[test]
fn a_wait_is_bounded_and_refused_after_two_in_vain() {
    let stage = stage();
    stage.host().create(meta(stage.host().now())).unwrap();
    stage.permit(|permissions| permissions.tools.extend([("write_it".to_owned(), Policy::Ask)]));
    let said = steps(&[
        spawn(WRITE, 0),
        wait(json!({"timeout_seconds": 300})),
        wait(json!({"timeout_seconds": 1})),
        wait(json!({})),
        wait(json!({"task_ids": ["trn_unknown"]})),
    ]);
    stage.post("t1", &said);
    let started = stage.clock.now();
    stage.settle();
    let waited = stage.clock.now().since(started).as_secs();
    let results = results(&stage, "t1");
    assert!((120..130).contains(&waited), "{waited}: {results:?}");
    assert_eq!(results[1], json!({"results": [], "still_running": 1, "timeout_seconds": 120}));
    assert!(
        results[3].as_str().unwrap().starts_with("no task ended during your last two waits"),
        "{}",
        results[3]
    );
    assert_eq!(results[4], "there is no background task trn_unknown");
}

#[test]
fn a_request_shows_ten_results_and_counts_the_rest() {
    let (stage, models) = stage_of(BackgroundTasks::On);
    stage.max_subagents.set(15);
    stage.crash();
    stage.post("t1", &json!([vec![spawn(READ, 0); 15]]).to_string());
    stage.settle();
    stage.tick(ms(1_000));
    assert_eq!(ends(&stage).len(), 15);
    let before = shown(&models).len();
    stage.post("t2", &steps(&[json!(["read_it", {"key": "y"}])]));
    stage.settle();
    stage.post("t3", "[]");
    stage.settle();
    let counts = |tail: &String| (tail.matches(" completed:").count(), tail.contains("5 more have ended"));
    let shown: Vec<_> = shown(&models)[before..].iter().map(counts).collect();
    assert_eq!(shown, [(10, true), (10, false), (0, false)]);
    assert!(tasks(&stage).iter().all(|task| task["shown"] == true));
}

#[test]
fn a_result_is_shown_again_if_the_step_was_not_committed() {
    let (stage, models) = stage_of(BackgroundTasks::On);
    stage.post("t1", &steps(&[spawn(READ, 0)]));
    stage.settle();
    stage.tick(ms(500));
    let before = shown(&models).len();
    stage.store.die_after(Some(1));
    stage.post("t2", "[]");
    stage.run();
    assert!(shown(&models)[before].contains("done: read x"));
    stage.store.die_after(None);
    stage.crash();
    stage.wake();
    stage.settle();
    assert!(shown(&models).last().unwrap().contains("done: read x"));
    assert_eq!(tasks(&stage)[0]["shown"], true);
}

#[test]
fn the_outcomes_of_other_calls_are_stored_before_a_wait() {
    let (stage, _) = stage_of(BackgroundTasks::On);
    let read = json!(["read_it", {"key": "x"}]);
    let calls = json!([[spawn(&reads(20), 0)], [read, wait(json!({"timeout_seconds": 60}))]]);
    stage.post("t1", &calls.to_string());
    stage.run();
    (0..6).for_each(|_| stage.tick(ms(100)));
    let outcomes: Vec<_> = stage.records().into_iter().filter(|r| r["type"] == "tool.completed").collect();
    let names: Vec<_> = outcomes.iter().map(|record| &record["name"]).collect();
    assert_eq!(names, ["agent_spawn", "read_it"], "the wait goes on");
    stage.settle();
}

#[test]
fn a_finished_task_wakes_an_idle_session_once() {
    let (stage, models) = stage_of(BackgroundTasks::Wake);
    stage.post("t1", &json!([[spawn(READ, 0), spawn(READ, 0)]]).to_string());
    stage.settle();
    stage.tick(ms(500));
    stage.settle();
    stage.tick(ms(500));
    stage.settle();
    let turns = stage.kinds().iter().filter(|kind| *kind == "turn.started").count();
    assert!((2..=3).contains(&turns), "{:?}", stage.kinds());
    assert!(shown(&models).last().unwrap().contains("done: read x"));
    assert!(tasks(&stage).iter().all(|task| task["shown"] == true));
    stage.live(ms(60_000));
    assert_eq!(stage.kinds().iter().filter(|kind| *kind == "turn.started").count(), turns);
    stage.check();
}

#[test]
fn a_finished_task_does_not_interrupt_a_turn() {
    let (stage, _) = stage_of(BackgroundTasks::Wake);
    let more = |key: &str| json!(["read_it", {"key": key}]);
    stage.post("t1", &steps(&[spawn(READ, 0), more("1"), more("2"), more("3")]));
    stage.settle();
    stage.live(ms(5_000));
    assert_eq!(stage.kinds().iter().filter(|kind| *kind == "turn.started").count(), 1);
    assert_eq!(tasks(&stage)[0]["shown"], true);
}

#[test]
fn a_finished_task_does_not_exceed_the_limits_of_the_tenant() {
    let (stage, _) = stage_of(BackgroundTasks::Wake);
    stage.post("t1", &json!([[spawn(READ, 0)]]).to_string());
    stage.run();
    let limit = |version, turns_per_day| {
        let limits = TenantLimits { turns_per_day, ..TenantLimits::default() };
        let policy = TenantPolicy { limits, version, ..TenantPolicy::default() };
        stage.host().apply_tenant_policy(&tenant(), &policy).unwrap();
    };
    limit(1, Some(0));
    stage.settle();
    stage.live(ms(60_000));
    assert_eq!(stage.kinds().iter().filter(|kind| *kind == "turn.started").count(), 1, "{:?}", stage.kinds());
    let known = tasks(&stage);
    assert_eq!((&known[0]["status"], &known[0]["shown"]), (&json!("completed"), &json!(false)));
    // It asks once, and not again and again.
    let calls = stage.ledger.calls.get();
    stage.live(ms(600_000));
    assert_eq!(stage.ledger.calls.get(), calls);
    // The next message shows the result.
    limit(2, None);
    stage.post("t2", "[]");
    stage.settle();
    assert_eq!(tasks(&stage)[0]["shown"], true);
    stage.check();
}

#[test]
fn a_result_is_shown_again_if_its_turn_was_aborted() {
    let (stage, models) = stage_of(BackgroundTasks::On);
    stage.post("t1", &steps(&[spawn(READ, 0)]));
    stage.live(ms(1_000));
    let wait = json!(["ask_user", {"question": "Which?"}]);
    stage.post("t2", &steps(&[wait]));
    stage.settle_waiting();
    assert_eq!(tasks(&stage)[0]["shown"], true);
    post(&stage, "/abort");
    stage.settle();
    stage.post("t3", "[]");
    stage.settle();
    assert!(shown(&models).last().unwrap().contains("done: read x"), "{:?}", shown(&models));
}
