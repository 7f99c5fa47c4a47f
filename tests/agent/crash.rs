//! Evictions and failed stores at every step of a turn: the turn ends as it would have, except for calls with
//! an unknown outcome.

use crate::scripts::step_of;
use crate::stage::{Stage, check, ms};
use edge_harness::agent::OnBusy;
use edge_harness::platform::in_memory::models::{ScriptedResponse, answer, call};
use edge_harness::types::{BudgetPatch, ModelRequest, Part, StopReason, TurnStatus};
use proptest::prelude::*;
use serde_json::json;

/// One step of the model: whether it has text, and its calls.
#[derive(Clone, Debug)]
struct Step {
    text: bool,
    calls: Vec<&'static str>,
}

fn step() -> impl Strategy<Value = Step> {
    let tool = prop_oneof![
        3 => Just("read_it"),
        3 => Just("write_it"),
        1 => Just("fail_it"),
        1 => Just("absent"),
    ];
    (any::<bool>(), prop::collection::vec(tool, 1..4)).prop_map(|(text, calls)| Step { text, calls })
}

fn play(steps: &[Step], request: &ModelRequest) -> ScriptedResponse {
    let done = step_of(request);
    let Some(step) = steps.get(done) else { return answer(vec![Part::text("the end")]) };
    let mut parts = Vec::new();
    if step.text {
        parts.push(Part::text(format!("step {done}")));
    }
    for (place, tool) in step.calls.iter().enumerate() {
        let key = format!("{done}.{place}");
        parts.push(call(&format!("c{key}"), tool, json!({ "key": key })));
    }
    answer(parts)
}

fn stage(steps: &[Step]) -> Stage {
    let steps = steps.to_vec();
    Stage::scripted(move |request| play(&steps, request), |builder| builder).0
}

/// A turn without evictions, and its number of commits.
fn whole(steps: &[Step]) -> (Stage, u32) {
    let stage = stage(steps);
    stage.post("t1", "go");
    stage.settle();
    stage.check();
    let commits = stage.store.commits();
    (stage, commits)
}

/// Runs the tasks of an instance whose store fails.
fn run_doomed_tasks(stage: &Stage) {
    stage.run();
    for _ in 0..40 {
        stage.tick(ms(100));
    }
}

/// Checks the invariants after an interruption. Returns the kinds of outcomes.
fn ended_well(stage: &Stage, steps: &[Step]) -> Vec<String> {
    check(&stage.store.log());
    let end = stage.end("t1");
    assert_eq!((end.status, end.stop_reason), (TurnStatus::Completed, StopReason::End));
    assert_eq!(end.reply.unwrap().text, "the end");
    for (key, runs) in stage.runs.borrow().iter() {
        assert_eq!(*runs, 1, "write_it ran {runs} times for {key}");
    }
    let outcomes: Vec<String> = stage
        .records()
        .iter()
        .filter(|record| record["type"] == "tool.completed")
        .map(|record| record["outcome"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(outcomes.len(), steps.iter().map(|step| step.calls.len()).sum::<usize>());
    outcomes
}

fn same_but_for_unknown(found: &[String], expected: &[String]) {
    for (found, expected) in found.iter().zip(expected) {
        assert!(found == expected || found == "unknown", "{found} instead of {expected}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_crash_after_any_commit_is_survived(steps in prop::collection::vec(step(), 1..4)) {
        let (reference, commits) = whole(&steps);
        let expected = ended_well(&reference, &steps);
        for last in 1..=commits {
            let stage = stage(&steps);
            stage.store.die_after(Some(last));
            stage.post("t1", "go");
            run_doomed_tasks(&stage);
            stage.crash();
            // The second instance crashes too, a little later.
            stage.store.die_after(Some(2));
            let _ = futures::executor::block_on(stage.host().wake());
            run_doomed_tasks(&stage);
            stage.crash();
            stage.store.die_after(None);
            stage.wake();
            stage.settle();
            same_but_for_unknown(&ended_well(&stage, &steps), &expected);
        }
    }

    #[test]
    fn a_crash_at_any_moment_is_survived(steps in prop::collection::vec(step(), 1..4), ticks in 0u64..20) {
        let expected = ended_well(&whole(&steps).0, &steps);
        let stage = stage(&steps);
        stage.post("t1", "go");
        stage.run();
        for _ in 0..ticks {
            stage.tick(ms(50));
        }
        stage.crash();
        stage.wake();
        stage.settle();
        same_but_for_unknown(&ended_well(&stage, &steps), &expected);
    }

    #[test]
    fn a_failed_commit_is_recovered(steps in prop::collection::vec(step(), 1..3)) {
        let (reference, commits) = whole(&steps);
        let expected = ended_well(&reference, &steps);
        for good in 1..commits {
            let stage = stage(&steps);
            stage.post("t1", "go");
            while stage.store.commits() < good {
                stage.tick(ms(1));
                if stage.store.commits() < good {
                    stage.clock.advance(ms(99));
                }
            }
            stage.store.fail_commits(1);
            run_doomed_tasks(&stage);
            // In the same instance, which requested a wake-up.
            stage.store.fail_commits(0);
            stage.wake();
            stage.settle();
            same_but_for_unknown(&ended_well(&stage, &steps), &expected);
        }
    }
}

#[test]
fn a_message_that_cannot_be_stored_leaves_no_trace() {
    let stage = stage(&[]);
    stage.store.fail_commits(1);
    let refused = stage.try_post("t1", "go", Default::default(), Default::default());
    assert_eq!(refused.unwrap_err().code.as_str(), "internal");
    assert!(stage.store.log().is_empty());
    stage.crash();
    stage.post("t2", "go");
    stage.settle();
    stage.check();
}

#[test]
fn a_turn_that_always_crashes_is_failed() {
    let steps = [Step { text: false, calls: vec!["read_it", "absent"] }];
    let stage = stage(&steps);
    stage.post("t1", "go");
    for _ in 0..10 {
        stage.run();
        stage.crash();
        stage.wake();
    }
    stage.settle();
    stage.check();
    let end = stage.end("t1");
    assert_eq!((end.status, end.error.unwrap().code.as_str()), (TurnStatus::Failed, "recovery_exhausted"));
    // Every call has an outcome: the next turn's request is valid.
    stage.post("t2", "go on");
    stage.settle();
    stage.check();
}

#[test]
fn a_turn_longer_than_the_window_survives_a_crash() {
    let steps = vec![Step { text: true, calls: vec!["read_it"] }; 8];
    let stage = stage(&steps);
    stage.context_messages.set(4);
    stage.crash();
    stage.post("t1", "go");
    stage.run();
    for _ in 0..12 {
        stage.tick(ms(100));
    }
    stage.crash();
    stage.wake();
    stage.settle();
    ended_well(&stage, &steps);
}

/// A turn that calls `read_it`, then `write_it` and `read_it` again.
fn read_write_read() -> Stage {
    let steps = [
        Step { text: false, calls: vec!["read_it"] },
        Step { text: false, calls: vec!["write_it", "read_it"] },
    ];
    let script = move |request: &ModelRequest| {
        let Some(step) = steps.get(step_of(request)) else { return answer(vec![Part::text("the end")]) };
        let made = step.calls.iter().enumerate();
        let id = |place: usize| format!("c{}.{place}", step_of(request));
        answer(made.map(|(place, tool)| call(&id(place), tool, json!({ "key": "k" }))).collect())
    };
    Stage::scripted(script, |builder| builder).0
}

#[test]
fn reads_before_an_unknown_outcome_are_repeated() {
    let stage = read_write_read();
    stage.post("t1", "go");
    stage.run();
    stage.tick(ms(200));
    stage.tick(ms(100));
    stage.crash();
    stage.wake();
    stage.settle();
    stage.check();
    let completed = stage.records().into_iter().filter(|record| record["type"] == "tool.completed");
    let outcomes: Vec<_> = completed.map(|record| record["outcome"].as_str().unwrap().to_owned()).collect();
    assert_eq!(outcomes, ["result", "unknown", "result"]);
}

#[test]
fn outcomes_directly_follow_their_calls_at_the_deadline() {
    let stage = read_write_read();
    let budget = BudgetPatch { timeout_s: Some(2), ..BudgetPatch::default() };
    stage.try_post("t1", "go", OnBusy::Queue, budget).unwrap();
    stage.run();
    stage.crash();
    stage.tick(ms(5_000));
    stage.wake();
    stage.settle();
    stage.check();
    let last = stage.kinds().split_off(5);
    assert_eq!(last, ["tool.completed", "message.completed", "budget.exceeded", "turn.completed"]);
}
