//! Canceling subagents, wherever their task or the cancellation is.

use super::*;
use pretty_assertions::assert_eq;

/// Aborts the turn before its child has started the task, and lets all messages arrive. The task must not run.
fn cancel_before_the_start(stage: &Stage) {
    ask(stage.host(), request("POST /abort", "", &json!({})), "s").unwrap();
    stage.settle();
    stage.tick(ms(1_000));
    stage.tick(ms(1_000));
    assert_eq!(stage.end("t1").stop_reason, StopReason::Canceled);
    assert_eq!(stage.runs.borrow().len(), 0);
}

#[test]
fn an_aborted_child_returns_its_partial_text() {
    let stage = stage();
    stage.post("t1", "delegate:read:x");
    stage.tick(ms(50));
    let id = child(&stage);
    ask(stage.others.host(&id), request("POST /abort", "", &json!({})), &id).unwrap();
    stage.settle();
    stage.check();
    assert_eq!(outcomes(&stage.store), [json!("[Aborted by user]\n\nhalf")]);
    assert_eq!(stage.outcomes("t1"), ["result"]);
    assert!(reply(&stage, "t1").starts_with("it came to: [Aborted by user]"), "the turn continues");
}

#[test]
fn an_abort_cancels_children_and_keeps_their_partial_text() {
    let stage = stage();
    stage.post("t1", "both:read:x");
    stage.tick(ms(50));
    ask(stage.host(), request("POST /abort", "", &json!({})), "s").unwrap();
    stage.settle();
    stage.check();
    assert_eq!(
        outcomes(&stage.store),
        [json!("[Aborted by user]\n\nhalf"), json!("[Aborted by user]\n\nhalf")]
    );
    assert_eq!(stage.end("t1").stop_reason, StopReason::Canceled);
    for id in children(&stage) {
        let disk = stage.others.disk(&id);
        check(&disk.log());
        assert_eq!(disk.log().last().unwrap().kind, "turn.canceled");
    }
    let completed = stage.records().into_iter().filter(|r| r["type"] == "subagent.completed").count();
    assert_eq!(completed, 2);
}

#[test]
fn a_status_that_arrives_during_an_abort_is_the_outcome_of_the_call() {
    let stage = stage();
    stage.post("t1", "both:read:x");
    stage.tick(ms(50));
    let canceled = block_on(stage.host().cancel_children(&stage.session()));
    let first = &canceled[0];
    let failed = ChildStatus::failed(first.session.clone(), first.call_id.clone(), "it is gone");
    block_on(stage.host().child_status(failed)).unwrap();
    stage.host().abort(&stage.session(), canceled).unwrap();
    stage.settle();
    stage.check();
    assert_eq!(ends(&stage), ["failed", "canceled"]);
    assert_eq!(
        outcomes(&stage.store),
        [json!("the subagent failed: it is gone"), json!("[Aborted by user]\n\nhalf")]
    );
}

#[test]
fn a_call_whose_subagent_is_gone_has_failed_although_its_turn_is_aborted() {
    let stage = ruled("write_it", Policy::Ask);
    stage.post("t1", "both:write:a");
    stage.settle_waiting();
    // Only a lost disk causes this.
    stage.others.disk(&children(&stage)[0]).erase().unwrap();
    stage.crash();
    stage.wake();
    stage.settle_waiting();
    ask(stage.host(), request("POST /abort", "", &json!({})), "s").unwrap();
    stage.settle();
    stage.check();
    assert_eq!(ends(&stage), ["failed", "canceled"]);
    assert_eq!(
        outcomes(&stage.store),
        [json!("the subagent failed: its session was deleted"), json!("[Aborted by user]\n\nhalf")]
    );
}

#[test]
fn a_child_canceled_before_its_task_arrives_does_not_start() {
    let stage = sending("write:a", ms(100));
    cancel_before_the_start(&stage);
    assert_eq!(stage.others.disk(&child(&stage)).log(), [], "its task is refused when it arrives");
}

#[test]
fn a_child_canceled_before_its_spawn_is_not_spawned() {
    let stage = ruled("read_it", Policy::Ask);
    stage.others.down.set(true);
    stage.post("t1", "mixed:write:a");
    stage.run();
    assert_eq!(stage.session().state().status(), SessionStatus::Waiting);
    stage.crash();
    stage.others.down.set(false);
    // The new instance is about to spawn it when the message arrives.
    stage.post("t2", "hello:you");
    stage.settle();
    stage.check();
    assert_eq!(stage.runs.borrow().len(), 0);
    assert!(stage.others.disk(&child(&stage)).log().is_empty());
}

#[test]
fn a_child_that_missed_its_cancellation_is_canceled_at_its_next_status() {
    let stage = ruled("write_it", Policy::Ask);
    stage.post("t1", "delegate:write:a");
    stage.settle_waiting();
    let id = child(&stage);
    stage.others.down.set(true);
    stage.post("t2", "hello:you");
    stage.settle();
    assert_eq!(
        session(&stage, &id).1.state().status(),
        SessionStatus::Waiting,
        "the cancellation did not arrive"
    );
    stage.others.down.set(false);
    stage.crash();
    block_on(stage.others.host(&id).wake()).unwrap();
    stage.run();
    assert_eq!(session(&stage, &id).1.state().status(), SessionStatus::Idle);
    check(&stage.others.disk(&id).log());
}

#[test]
fn an_interrupted_abort_is_completed_after_the_eviction() {
    let stage = stage();
    stage.post("t1", "delegate:read:x");
    stage.tick(ms(50));
    block_on(stage.host().cancel_children(&stage.session()));
    // Evicted before the end of the turn is stored: only the alarm remains.
    let alarm = stage.take_wake_up().expect("a wake-up");
    stage.crash();
    stage.tick(alarm);
    stage.wake();
    stage.settle();
    stage.check();
    assert_eq!(outcomes(&stage.store), [json!("[Aborted by user]\n\nhalf")]);
    assert!(reply(&stage, "t1").starts_with("it came to: [Aborted by user]"), "the turn continues");
}
