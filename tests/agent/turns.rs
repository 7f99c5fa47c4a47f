//! Concurrent messages: queuing, rejecting, and records deferred during streaming.

use crate::scripts::step_of;
use crate::stage::{Stage, ms};
use edge_harness::agent::OnBusy;
use edge_harness::platform::in_memory::models::{answer, call};
use edge_harness::ports::directory::SessionKinds;
use edge_harness::ports::{Clock, Directory, SessionStore, session_store::Batch};
use edge_harness::session::Permit;
use edge_harness::session::idempotency::{
    self, FirstResponse, KEEP, MAX_KEPT, ResponseDocument, StoredResponse,
};
use edge_harness::types::{BudgetPatch, DenyReason, Part, StopReason, Timestamp, ToolOutcome, TurnStatus};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::json;

#[test]
fn a_plain_turn_writes_four_records_and_a_tool_call_three_more() {
    let stage = Stage::demo();
    stage.post("t1", "hello");
    stage.settle();
    stage.post("t2", "/tool current_time {}");
    stage.settle();
    stage.check();
    let plain = ["turn.started", "message.completed", "usage.updated", "turn.completed"];
    let call = ["turn.started", "tool.started", "usage.updated", "tool.completed"];
    let call = [&call[..], &plain[1..]].concat();
    assert_eq!(stage.kinds(), [&["session.created"][..], &plain, &call].concat());
}

#[test]
fn records_are_deferred_while_a_message_is_streamed() {
    let stage = Stage::demo();
    stage.post("t1", "/slow 10 3");
    stage.run();
    stage.tick(ms(10));
    let session = stage.session();
    let (streaming, before) = (session.last_seq() + 1, stage.kinds());
    stage.post("t2", "hello");
    assert_eq!(stage.kinds(), before, "the queued record is deferred");
    stage.settle();
    stage.check();
    let kinds = stage.kinds();
    let at = |kind: &str| kinds.iter().position(|k| k == kind).unwrap() as u64 + 1;
    assert_eq!(at("message.completed"), streaming);
    assert_eq!((at("turn.completed"), at("turn.queued")), (streaming + 2, streaming + 3));
    assert_eq!(at("followup.queued"), streaming + 4);
}

#[test]
fn a_token_is_sent_at_once() {
    let stage = Stage::demo();
    // A token every four milliseconds.
    stage.post("t1", "/slow 4 5");
    stage.run();
    let session = stage.session();
    let sent_after = |span| {
        stage.tick(ms(span));
        session.hub().streamed().map(|(_, text)| text).unwrap_or_default()
    };
    assert_eq!(sent_after(4), "word1 ");
    assert_eq!(sent_after(4), "word1 word2 ");
    assert_eq!(sent_after(3), "word1 word2 ");
    stage.settle();
    stage.check();
}

#[test]
fn deferred_records_survive_a_crash() {
    let stage = Stage::demo();
    stage.post("t1", "/slow 10 3");
    stage.run();
    stage.tick(ms(10));
    stage.post("t2", "hello");
    stage.crash();
    stage.wake();
    stage.settle();
    stage.check();
    let kinds = stage.kinds();
    assert_eq!(kinds[2..4], ["turn.resumed", "turn.queued"]);
    assert_eq!(stage.end("t2").status, TurnStatus::Completed);
}

#[test]
fn a_refused_message_does_not_affect_the_streamed_one() {
    let stage = Stage::demo();
    stage.post("t1", "/slow 10 4");
    stage.run();
    stage.tick(ms(10));
    let session = stage.session();
    let streamed = session.hub().streamed();
    assert_eq!(streamed.as_ref().map(|(_, text)| text.as_str()), Some("word1 "));
    let refused = stage.try_post("t2", "hello", OnBusy::Reject, BudgetPatch::default());
    assert_eq!(refused.unwrap_err().code.as_str(), "session_busy");
    assert_eq!(session.hub().streamed(), streamed);
    stage.settle();
    stage.check();
}

#[test]
fn steering_ends_the_running_and_the_queued_turns() {
    let stage = Stage::demo();
    stage.post("t1", "/slow 10 4");
    stage.run();
    stage.tick(ms(10));
    stage.post("t2", "never runs");
    stage.try_post("t3", "/say now", OnBusy::Steer, BudgetPatch::default()).unwrap();
    stage.settle();
    stage.check();
    let ends = ["t1", "t2", "t3"].map(|turn| stage.end(turn).status);
    assert_eq!(ends, [TurnStatus::Canceled, TurnStatus::Canceled, TurnStatus::Completed]);
    assert_eq!(stage.end("t1").reply.unwrap().text, "word1 ");
    assert_eq!(stage.end("t2").message.unwrap().text(), "never runs");
}

#[test]
fn an_unreadable_queued_message_can_be_removed_or_steered_past() {
    let stage = Stage::demo();
    stage.post("t1", "/slow 10 4");
    stage.run();
    for turn in ["t2", "t3"] {
        stage.post(turn, "never runs");
        let put = vec![(format!("queue/{turn}"), "{".to_owned())];
        stage.store.commit(Batch { put, ..Batch::default() }).unwrap();
    }
    assert!(stage.host().remove_queued(&stage.session(), &"t2".into()).unwrap());
    stage.try_post("t4", "/say now", OnBusy::Steer, BudgetPatch::default()).unwrap();
    stage.settle();
    stage.check();
    let ends = ["t1", "t2", "t3", "t4"].map(|turn| stage.end(turn).status);
    let canceled = TurnStatus::Canceled;
    assert_eq!(ends, [canceled, canceled, canceled, TurnStatus::Completed]);
}

#[test]
fn a_retired_copy_holds_no_permit() {
    let stage = Stage::demo();
    stage.post("t1", "/slow 10 4");
    stage.run();
    let session = stage.session();
    let permit = Permit::of(&session).unwrap();
    assert!(session.holds(&permit));
    session.retire();
    assert!(!session.holds(&permit));
}

#[test]
fn an_abort_while_a_tool_runs_gives_its_call_an_outcome() {
    let script = |request: &_| match step_of(request) {
        0 => answer(vec![
            call("c", "write_it", json!({"key": "a"})),
            call("d", "read_it", json!({"key": "b"})),
        ]),
        _ => answer(vec![Part::text("done")]),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    stage.post("t1", "go");
    stage.run();
    assert!(stage.host().abort(&stage.session(), Vec::new()).unwrap());
    stage.settle();
    stage.check();
    let outcomes: Vec<_> = stage
        .records()
        .into_iter()
        .filter(|r| r["type"] == "tool.completed")
        .map(|r| r["outcome"].clone())
        .collect();
    assert_eq!(outcomes, ["unknown", "denied"]);
    // The next turn continues from there.
    stage.post("t2", "go on");
    stage.settle();
    stage.check();
}

#[test]
fn an_exhausted_budget_ends_a_turn_with_a_reason() {
    let script = |request: &_| {
        let id = step_of(request);
        answer(vec![call(&format!("c{id}"), "read_it", json!({"key": id.to_string()}))])
    };
    let run = |budget: BudgetPatch| {
        let (stage, _) = Stage::scripted(script, |builder| builder);
        stage.try_post("t1", "go", OnBusy::Queue, budget).unwrap();
        stage.settle();
        stage.check();
        let end = stage.end("t1");
        assert_eq!(end.status, TurnStatus::Completed);
        (end.stop_reason, end.steps, stage.kinds().iter().filter(|kind| *kind == "tool.completed").count())
    };
    let none = BudgetPatch::default();
    assert_eq!(run(BudgetPatch { max_steps: Some(3), ..none }), (StopReason::MaxSteps, 3, 3));
    assert_eq!(run(BudgetPatch { max_tool_calls: Some(2), ..none }), (StopReason::MaxToolCalls, 3, 3));
    assert_eq!(run(BudgetPatch { max_tokens: Some(3), ..none }), (StopReason::Tokens, 2, 2));
    let (reason, ..) = run(BudgetPatch { timeout_s: Some(1), ..none });
    assert_eq!(reason, StopReason::Deadline);
}

#[test]
fn unknown_tools_and_invalid_arguments_are_reported_to_the_model() {
    let script = |request: &_| match step_of(request) {
        0 => answer(vec![call("c", "absent", json!({})), call("d", "read_it", json!({"key": {}}))]),
        _ => answer(vec![Part::text("done")]),
    };
    let (stage, models) = Stage::scripted(script, |builder| builder);
    stage.post("t1", "go");
    stage.settle();
    stage.check();
    let denials: Vec<_> = models.requests()[1]
        .messages
        .iter()
        .flat_map(|m| m.parts.clone())
        .filter_map(|part| match part {
            Part::ToolResult { outcome: ToolOutcome::Denied { denied, .. }, .. } => Some(denied),
            _ => None,
        })
        .collect();
    assert_eq!(denials, [DenyReason::UnknownTool, DenyReason::Validation]);
}

/// Makes the session's directory entry outdated.
fn relist(stage: &Stage) {
    stage.session().commit(stage.clock.now(), |draft| draft.relist()).unwrap();
    stage.run();
}

#[test]
fn a_failed_directory_update_is_retried() {
    let stage = Stage::demo();
    stage.post("t1", "hello");
    stage.settle();
    let listed = || {
        block_on(stage.directory.sessions(SessionKinds::Conversations, &"t".into(), None, None, None, 10))
            .unwrap()
            .pop()
            .unwrap()
    };
    let before = listed().updated_at;
    stage.clock.advance(ms(1_000));
    stage.post("t2", "hello again");
    stage.settle();
    stage.directory.down.set(true);
    relist(&stage);
    stage.directory.down.set(false);
    stage.crash();
    stage.wake();
    assert!(listed().updated_at > before);
}

#[test]
fn a_long_turn_is_listed_as_running_until_it_ends() {
    let running = |stage: &Stage| {
        let listed = block_on(stage.directory.sessions(
            SessionKinds::Conversations,
            &"t".into(),
            None,
            None,
            None,
            10,
        ))
        .unwrap();
        listed[0].running
    };
    let after = |span: u64| {
        let stage = Stage::demo();
        stage.post("t1", "/slow 1000 30");
        stage.live(ms(span));
        stage
    };
    let stage = after(12_000);
    assert_eq!((running(&after(9_000)), running(&stage)), (false, true));
    stage.crash();
    stage.wake();
    stage.live(ms(60_000));
    assert!(!running(&stage));
    // The writing of the entry is not confirmed, so the end of the turn must replace it.
    let stage = Stage::demo();
    stage.post("t1", "/slow 1000 30");
    stage.run();
    stage.directory.down.set(true);
    stage.live(ms(12_000));
    let background = stage.session().state().background.clone();
    assert_eq!((background.listed_running, background.listed_at), (true, Timestamp(0)));
    stage.directory.down.set(false);
    stage.settle();
    stage.live(ms(60_000));
    assert!(!running(&stage));
}

#[test]
fn a_wake_up_is_repeated_until_no_work_is_left() {
    let stage = Stage::demo();
    stage.post("t1", "hello");
    stage.settle();
    stage.directory.down.set(true);
    relist(&stage);
    stage.crash();
    for _ in 0..10 {
        stage.wake();
        let wait = stage.take_wake_up().expect("another attempt");
        stage.clock.advance(wait);
    }
    stage.directory.down.set(false);
    stage.clock.advance(ms(600_000));
    stage.wake();
    let watchdog = stage.take_wake_up().expect("the watchdog of the job");
    stage.clock.advance(watchdog);
    stage.wake();
    assert_eq!(stage.take_wake_up(), None, "nothing is pending");
}

#[test]
fn expired_responses_are_deleted_even_while_turns_run() {
    let stage = Stage::demo();
    let keep = |key: &str| {
        let response = StoredResponse::Json(200, "{}".into());
        let first = FirstResponse { body_hash: String::new(), at: stage.clock.now(), response };
        let response = ResponseDocument::new(stage.store.as_ref(), "x", key, &first).unwrap();
        stage.session().commit(stage.clock.now(), |draft| draft.store_response(response)).unwrap();
    };
    stage.post("t1", "hello");
    stage.settle();
    keep("old");
    stage.wake();
    stage.clock.advance(KEEP - ms(5_000));
    stage.post("t2", "/slow 100 300");
    stage.run();
    keep("new");
    for expected in [2, 2, 1, 1] {
        stage.wake();
        assert_eq!(stage.store.list("response/").unwrap().len(), expected);
        assert_eq!(stage.store.list("response-expiry/").unwrap().len(), expected);
        stage.tick(ms(2_500));
    }
}

fn keep(stage: &Stage, key: &str, at: Timestamp) {
    let first = FirstResponse { body_hash: key.into(), at, response: StoredResponse::Json(200, "{}".into()) };
    let response = ResponseDocument::new(stage.store.as_ref(), "x", key, &first).unwrap();
    stage.session().commit(at, |draft| draft.store_response(response)).unwrap();
}

#[test]
fn an_alarm_reads_only_the_responses_that_are_due() {
    let stage = Stage::demo();
    stage.post("t1", "hello");
    stage.settle();
    stage.live(ms(60_000));
    let start = stage.clock.now();
    for n in 0..1_000 {
        keep(&stage, &format!("k{n}"), start + ms(n * 1_000));
    }
    stage.clock.advance(KEEP + ms(2_000));
    let before = stage.store.documents_read.get();
    stage.wake();
    assert_eq!(stage.store.list("response/").unwrap().len(), 997);
    let read = stage.store.documents_read.get() - before - 997;
    assert!(read < 20, "{read} documents read");
    // The newest replace the oldest.
    let find = |key: &str| idempotency::find(&stage.session(), "x", key, stage.clock.now()).unwrap();
    for n in 0..4 {
        keep(&stage, &format!("new{n}"), stage.clock.now());
    }
    assert_eq!((find("k3"), find("k4").is_some(), find("new3").is_some()), (None, true, true));
    assert_eq!(stage.store.list("response/").unwrap().len(), MAX_KEPT);
}

#[test]
fn a_response_that_is_stored_again_outlives_the_first() {
    let stage = Stage::demo();
    stage.post("t1", "hello");
    stage.settle();
    keep(&stage, "k", stage.clock.now());
    stage.clock.advance(KEEP);
    keep(&stage, "k", stage.clock.now());
    stage.wake();
    assert_eq!(stage.store.list("response/").unwrap().len(), 1);
    stage.clock.advance(KEEP);
    stage.wake();
    assert_eq!(stage.store.list("response/").unwrap().len(), 0);
}

#[test]
fn retiring_a_copy_ends_all_waits() {
    let stage = Stage::demo();
    stage.post("t1", "/slow 10 2");
    stage.post("t2", "hello");
    // Like a caller that waits for the queued turn's response and holds the session.
    let session = stage.session();
    let mut ended = session.hub().pause_of(&"t2".into());
    stage.run();
    stage.store.die_after(Some(0));
    for _ in 0..10 {
        stage.tick(ms(10));
    }
    stage.store.die_after(None);
    stage.wake();
    stage.settle();
    assert_eq!(stage.end("t2").status, TurnStatus::Completed);
    assert!(ended.try_recv().is_err(), "the wait ended");
    stage.check();
}

#[test]
fn a_late_directory_update_does_not_undo_later_ones() {
    let stage = Stage::demo();
    stage.post("t1", "/slow 10 2");
    let old = stage.session();
    stage.run();
    // The store fails at the end of the turn, so the host retires its copy of the session.
    stage.store.die_after(Some(0));
    for _ in 0..10 {
        stage.tick(ms(10));
    }
    stage.store.die_after(None);
    stage.wake();
    stage.settle();
    let state = stage.store.log().len();
    assert!(old.commit(stage.clock.now(), |draft| draft.relist()).is_err());
    assert_eq!(stage.store.log().len(), state);
    stage.crash();
    stage.wake();
    stage.check();
    assert_eq!(stage.session().state().activity.turn, None);
}
