//! What only legacy clients of MCP do, with the session's object in memory: cancel a call by the id of its request.

use crate::http::{exchange, read, request, set_header, status, stream};
use crate::stage::{Stage, ms};
use edge_harness::http::Response;
use edge_harness::session::hub::ByteReceiver;
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
