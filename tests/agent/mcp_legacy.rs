//! What only legacy clients of MCP do, with the session's object in memory: cancel a call by the id of its request, and
//! continue a response whose connection was lost.

use crate::http::{exchange, read, request, set_header, status, stream};
use crate::scripts::calls_first;
use crate::stage::{Stage, ms};
use edge_harness::http::Response;
use edge_harness::platform::in_memory::models::call;
use edge_harness::session::hub::ByteReceiver;
use edge_harness::types::{ErrorCode, Part, Problem};
use futures::{FutureExt, StreamExt};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const VERSION: (&str, &str) = ("mcp-protocol-version", "2025-11-25");

/// Sends a message of a connection, and runs the session's tasks until there is a response.
fn send(stage: &Stage, connection: &str, body: &Value) -> Response {
    let mut asked = request("POST /mcp", "", &[VERSION], body.to_string());
    set_header(&mut asked, "accept", "application/json, text/event-stream");
    set_header(&mut asked, "mcp-session-id", connection);
    exchange(stage, asked).unwrap()
}

/// Calls the agent of the session `s`.
fn ask(stage: &Stage, connection: &str, id: Value, message: &str) -> ByteReceiver {
    let params = json!({
        "name": "ask_agent", "arguments": {"message": message, "session": "s"}, "_meta": {"progressToken": "p"},
    });
    let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    stream(send(stage, connection, &body))
}

fn cancel(stage: &Stage, connection: &str, id: Value) {
    let params = json!({ "requestId": id });
    let body = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    assert_eq!(status(&send(stage, connection, &body)), 202);
}

/// Continues a response after the event with this id.
fn resume(stage: &Stage, connection: &str, id: &str) -> Result<Response, Problem> {
    let mut asked = request("GET /mcp", "", &[VERSION], "");
    set_header(&mut asked, "last-event-id", id);
    set_header(&mut asked, "mcp-session-id", connection);
    exchange(stage, asked)
}

/// An event: its id and its message.
type Received = (Option<String>, Option<Value>);

/// Reads the events of `span` milliseconds.
fn events(stage: &Stage, open: &mut ByteReceiver, span: u64) -> Vec<Received> {
    let mut out = String::new();
    for _ in 0..span / 10 {
        out.push_str(&read(open));
        stage.tick(ms(10));
    }
    out.push_str(&read(open));
    let field = |event: &str, name: &str| {
        event.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
    };
    let parse = |data: String| (!data.is_empty()).then(|| serde_json::from_str(&data).unwrap());
    let read = |event: &str| (field(event, "id:"), field(event, "data:").and_then(parse));
    out.split_terminator("\n\n").map(read).filter(|event| *event != (None, None)).collect()
}

fn messages(events: &[Received]) -> Vec<Value> {
    events.iter().filter_map(|(_, message)| message.clone()).collect()
}

fn ids(events: &[Received]) -> Vec<String> {
    events.iter().filter_map(|(id, _)| id.clone()).collect()
}

fn has_ended(open: &mut ByteReceiver) -> bool {
    matches!(open.next().now_or_never(), Some(None))
}

/// The text and the names of calls in the progress of a response, and its results.
fn content(messages: &[Value]) -> (String, Vec<Value>) {
    let progress = messages.iter().filter_map(|message| message["params"]["message"].as_str());
    let progress = progress.filter(|said| *said != "Still working.");
    let results = messages.iter().filter(|message| message.get("result").is_some()).cloned();
    (progress.collect(), results.collect())
}

#[test]
fn a_cancellation_ends_the_turn_of_its_request() {
    let stage = Stage::demo();
    let mut first = ask(&stage, "m", json!(1), "/slow 100 900");
    let mut second = ask(&stage, "m", json!("1"), "/slow 100 900");
    let mut third = ask(&stage, "n", json!(1), "/slow 100 900");
    let queue = || stage.session().state().activity.queue.len();
    for (connection, id) in [("m", json!(2)), ("m", Value::Null), ("n", json!("1")), ("m+forms", json!(1))] {
        cancel(&stage, connection, id);
    }
    assert_eq!(queue(), 2);
    let running = stage.session().current_turn();
    for _ in 0..2 {
        cancel(&stage, "m", json!("1"));
        assert_eq!((queue(), stage.session().current_turn()), (1, running.clone()));
    }
    for _ in 0..2 {
        cancel(&stage, "m", json!(1));
        stage.run();
        assert_eq!(queue(), 0);
        assert!(stage.session().current_turn().is_some_and(|turn| Some(turn) != running));
    }
    // A canceled request gets no response.
    for open in [&mut first, &mut second] {
        assert_eq!(content(&messages(&events(&stage, open, 0))).1, Vec::<Value>::new());
        assert!(has_ended(open));
    }
    // Without a connection and a process that were there when it began.
    drop(third.next().now_or_never());
    drop(third);
    stage.crash();
    stage.wake();
    stage.run();
    assert!(stage.session().current_turn().is_some());
    cancel(&stage, "n", json!(1));
    assert_eq!(stage.session().current_turn(), None);
    assert_eq!(stage.kinds().iter().filter(|kind| *kind == "turn.canceled").count(), 3);
}

#[test]
fn a_response_continues_after_each_of_its_events() {
    let calls = || vec![Part::text("Look at this: ü."), call("c1", "echo", json!({"text": "a"}))];
    let (stage, _) = Stage::scripted(calls_first(calls), |builder| builder);
    let mut open = ask(&stage, "m", json!(7), "hi");
    let all = events(&stage, &mut open, 500);
    assert!(has_ended(&mut open));
    let (progress, result) = content(&messages(&all));
    assert_eq!((progress.as_str(), result.len()), ("Look at this: ü.Calls echo.Done", 1));
    // The first event has only an id, and all ids are different.
    assert_eq!((all[0].0.is_some(), &all[0].1), (true, &None));
    let mut different = ids(&all);
    different.sort();
    different.dedup();
    assert_eq!((different.len(), all.len()), (5, 5));
    for received in 1..all.len() {
        let mut open = stream(resume(&stage, "m", &ids(&all)[received - 1]).unwrap());
        let rest = events(&stage, &mut open, 100);
        assert_eq!(messages(&rest), messages(&all[received..]), "after {received}");
        assert!(has_ended(&mut open));
    }
    assert_eq!(stage.session().state().activity.totals.turns, 1);
}

#[test]
fn a_response_continues_within_a_text_and_after_a_restart() {
    let stage = Stage::demo();
    let mut open = ask(&stage, "m", json!(7), "/slow 100 200");
    let before = events(&stage, &mut open, 9_000);
    drop(open);
    let last = ids(&before).pop().unwrap();
    let said = content(&messages(&before)).0;
    assert!(said.len() >= 200, "{said}");
    stage.tick(ms(1_000));
    // It runs, it has ended, and it ran in another process.
    let mut live = stream(resume(&stage, "m", &last).unwrap());
    let rest = events(&stage, &mut live, 15_000);
    let (more, results) = content(&messages(&rest));
    let reply = results[0]["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!((format!("{said}{more}"), results.len()), (reply, 1));
    let mut late = stream(resume(&stage, "m", &last).unwrap());
    assert_eq!(content(&messages(&events(&stage, &mut late, 100))), (more, results));
    let progress =
        |messages: &[Value]| messages.iter().filter_map(|own| own["params"]["progress"].as_u64()).max();
    let numbers: Vec<_> =
        messages(&rest).iter().filter_map(|own| own["params"]["progress"].as_u64()).collect();
    assert!(numbers[0] > progress(&messages(&before)).unwrap() && numbers.is_sorted());

    let stage = Stage::demo();
    let mut open = ask(&stage, "m", json!(7), "/slow 100 50");
    let before = events(&stage, &mut open, 3_000);
    stage.crash();
    stage.wake();
    let mut open = stream(resume(&stage, "m", &ids(&before).pop().unwrap()).unwrap());
    let (_, results) = content(&messages(&events(&stage, &mut open, 10_000)));
    let reply = results[0]["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!((reply.split_whitespace().count(), results.len()), (50, 1));
}

#[test]
fn a_form_that_the_client_has_is_not_sent_again() {
    let questions = || {
        let question = |id: &str| call(id, "ask_user", json!({"question": id}));
        vec![question("c1"), question("c2")]
    };
    let (stage, _) = Stage::scripted(calls_first(questions), |builder| builder);
    let mut open = ask(&stage, "m+forms", json!(7), "ask");
    let before = events(&stage, &mut open, 500);
    let forms: Vec<_> =
        messages(&before).into_iter().filter(|own| own["method"] == "elicitation/create").collect();
    let last = ids(&before).pop().unwrap();
    assert_eq!((forms.len(), &before.last().unwrap().1), (2, &forms.last().cloned()));
    // Only the last form has an id, so a client that has lost it gets both again.
    let second = before.len() - 2;
    assert_eq!((&before[second].0, &before[second].1), (&None, &Some(forms[0].clone())));
    let mut again = stream(resume(&stage, "m+forms", &ids(&before[..second]).pop().unwrap()).unwrap());
    assert_eq!(messages(&events(&stage, &mut again, 100)), forms);
    let mut continued = stream(resume(&stage, "m+forms", &last).unwrap());
    // The official client forgets the id that it has continued from.
    assert_eq!(events(&stage, &mut continued, 100), [(Some(last), None)]);
    for id in ["s/c1", "s/c2"] {
        let result = json!({"action": "accept", "content": {"answer": "Yes"}});
        send(&stage, "m+forms", &json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }
    for open in [&mut again, &mut continued] {
        assert_eq!(content(&messages(&events(&stage, open, 500))).1.len(), 1);
    }
    // Forms that were filled in meanwhile are not shown.
    let mut late = stream(resume(&stage, "m+forms", &ids(&before)[0]).unwrap());
    let late = messages(&events(&stage, &mut late, 100));
    assert!(late.iter().all(|own| own["method"] != "elicitation/create"));
    assert_eq!(content(&late).1.len(), 1);
}

#[test]
fn a_queued_call_continues_and_can_be_canceled() {
    let stage = Stage::demo();
    let mut first = ask(&stage, "m", json!(1), "/slow 100 20");
    let mut second = ask(&stage, "m", json!(2), "/say Next");
    let primed = ids(&events(&stage, &mut second, 100)).pop().unwrap();
    let other = ids(&events(&stage, &mut first, 0)).pop().unwrap();
    let mut open = stream(resume(&stage, "m", &primed).unwrap());
    let results = content(&messages(&events(&stage, &mut open, 5_000))).1;
    assert_eq!((results.len(), &results[0]["id"]), (1, &json!(2)));
    let mut running = stream(resume(&stage, "m", &other).unwrap());
    assert_eq!(content(&messages(&events(&stage, &mut running, 100))).1.len(), 1);
    let mut third = ask(&stage, "m", json!(3), "/slow 100 900");
    let primed = ids(&events(&stage, &mut third, 100)).pop().unwrap();
    let mut open = stream(resume(&stage, "m", &primed).unwrap());
    cancel(&stage, "m", json!(3));
    for open in [&mut third, &mut open] {
        assert_eq!(content(&messages(&events(&stage, open, 100))).1, Vec::<Value>::new());
        assert!(has_ended(open));
    }
}

#[test]
fn an_id_of_another_turn_is_refused() {
    let stage = Stage::demo();
    let mut open = ask(&stage, "m", json!(1), "/say hi");
    let id = ids(&events(&stage, &mut open, 100)).pop().unwrap();
    let code = |stage: &Stage, id: &str| resume(stage, "m", id).err().map(|problem| problem.code);
    assert_eq!(code(&stage, &id), None);
    assert_eq!(code(&stage, "12"), Some(ErrorCode::InvalidRequest));
    let elsewhere = Stage::demo();
    assert_eq!(code(&elsewhere, &id), Some(ErrorCode::NotFound));
    elsewhere.post("t1", "hi");
    assert_eq!(code(&elsewhere, &id), Some(ErrorCode::NotFound));
}
