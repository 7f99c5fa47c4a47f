//! The events of subagents in the stream of their parent.

use super::*;
use crate::http::{read_data, read_events, respond, stream};
use edge_harness::session::hub::ByteReceiver;
use pretty_assertions::assert_eq;

fn open(stage: &Stage, query: &str) -> ByteReceiver {
    stream(respond(stage, &request("GET /events", query, &Value::Null)).unwrap())
}

/// The types of the events of this task among those of a stream, without deltas.
fn of_task(events: &[Value], task: &Value) -> Vec<String> {
    let own = events.iter().filter(|event| event["source"]["task"] == *task).map(|event| &event["event"]);
    own.filter(|event| event["seq"].is_u64())
        .map(|event| event["type"].as_str().unwrap().to_owned())
        .collect()
}

/// The stored events of the only subagent, of all of its tasks.
fn logged(stage: &Stage) -> Vec<String> {
    let log = stage.others.disk(&child(stage)).log();
    let of_turns = log.iter().filter(|record| record.turn.is_some());
    of_turns.map(|record| record.kind.to_string()).collect()
}

#[test]
fn a_stream_has_the_events_of_the_subagents_that_work() {
    let stage = stage();
    stage.host().create(meta(stage.clock.now())).unwrap();
    let mut open = [open(&stage, "subagents=true"), open(&stage, ""), open(&stage, "subagents=false")];
    stage.post("t1", &steps(&[spawn(READ, 0)]));
    let [mut with, without, off] = open.each_mut().map(|open| read_events(&stage, open, 2_000));
    let task = &tasks(&stage)[0];
    let theirs: Vec<Value> = with.extract_if(.., |event| event["type"] == "subagent.event").collect();
    let source = json!({"session": child(&stage), "agent": "general-purpose", "call_id": task["call_id"],
        "task": task["id"]});
    assert!(theirs.iter().all(|event| event["source"] == source), "{theirs:?}");
    assert_eq!(of_task(&theirs, &task["id"]), logged(&stage));
    assert!(theirs.iter().any(|event| event["event"]["type"] == "message.delta"), "{theirs:?}");
    let own = |event: &Value| event["seq"].is_u64();
    assert!(with.iter().any(own) && with.iter().all(|event| event["source"].is_null()));
    let without: Vec<_> = without.into_iter().filter(own).collect();
    assert_eq!(with.into_iter().filter(own).collect::<Vec<_>>(), without);
    assert_eq!(off.into_iter().filter(own).collect::<Vec<_>>(), without);
    let refused = respond(&stage, &request("GET /events", "subagents=yes", &Value::Null));
    assert_eq!(refused.err().unwrap().code, ErrorCode::ValidationFailed);
}

#[test]
fn a_stream_that_is_opened_again_has_the_events_of_unfinished_tasks_from_their_start() {
    let stage = stage();
    stage.post("t1", &steps(&[spawn(&reads(3), 0)]));
    let mut first = open(&stage, "subagents=true");
    let before = read_events(&stage, &mut first, 300);
    let last = before.iter().filter_map(|event| event["seq"].as_u64()).max().unwrap();
    drop(first);
    stage.crash();
    stage.wake();
    let mut second = open(&stage, &format!("subagents=true&after={last}"));
    let after = read_events(&stage, &mut second, 4_000);
    let task = tasks(&stage)[0]["id"].clone();
    let seen = of_task(&before, &task);
    assert!(seen.len() > 1 && seen.len() < logged(&stage).len(), "{seen:?}");
    assert_eq!(of_task(&after, &task), logged(&stage));
    assert!(after.iter().filter_map(|event| event["seq"].as_u64()).all(|seq| seq > last));
    // The task has ended: what it did is in its own log.
    let mut third = open(&stage, "subagents=true");
    assert_eq!(of_task(&read_events(&stage, &mut third, 1_000), &task), [] as [&str; 0]);
}

#[test]
fn a_subagent_that_cannot_be_read_for_a_while_is_read_where_the_stream_was_cut() {
    let stage = stage();
    stage.host().create(meta(stage.clock.now())).unwrap();
    let mut open = open(&stage, "subagents=true");
    stage.others.down.set(true);
    stage.post("t1", &steps(&[spawn(&reads(3), 0)]));
    let before = read_events(&stage, &mut open, 1_000);
    assert!(before.iter().all(|event| event["type"] != "subagent.event"));
    stage.others.down.set(false);
    stage.wake();
    let events = read_events(&stage, &mut open, 10_000);
    assert_eq!(of_task(&events, &tasks(&stage)[0]["id"]), logged(&stage));
}

#[test]
fn a_stream_of_one_turn_has_the_events_of_its_subagents_and_ends_with_it() {
    let stage = stage();
    stage.post("t1", &steps(&[spawn(&reads(9), 0)]));
    stage.settle();
    stage.post("t2", &steps(&[spawn(READ, 30)]));
    let mut open = open(&stage, "subagents=true&turn=t2");
    let (events, has_ended) = read_data(&stage, &mut open, 3_000);
    let events: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let tasks = tasks(&stage);
    assert!(has_ended && events.iter().all(|event| event["turn"] == "t2" || event["source"].is_object()));
    assert_eq!(of_task(&events, &tasks[0]["id"]), [] as [&str; 0]);
    assert!(of_task(&events, &json!(null)).is_empty());
    let mut theirs = events.iter().filter(|event| event["type"] == "subagent.event");
    assert_eq!(theirs.next_back().unwrap()["event"]["type"], "turn.completed");
}
