//! Requests of legacy clients of MCP that concern a call that has begun.

use crate::stage::{DEV, Request, Stage, get, post};
use edge_harness::types::ErrorCode;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// A call with this id, of the connection `m`.
fn call(target: &str, id: &Value, name: &str, arguments: &Value) -> Request {
    let params = json!({"name": name, "arguments": arguments});
    let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    post(target).bearer(DEV).header("mcp-session-id", "m").json(&body)
}

/// Returns the session to which the cancellation of a request goes.
fn canceled(stage: &Stage, target: &str, connection: &str, id: &Value) -> String {
    let body = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    stage
        .forward(post(target).bearer(DEV).header("mcp-session-id", connection).json(&body))
        .session
        .to_string()
}

#[test]
fn a_cancellation_goes_to_the_session_of_the_call() {
    let stage = Stage::new();
    let in_session = |session: &str| json!({"message": "hi", "session": session});
    stage.forward(call("/mcp", &json!(1), "ask_agent", &in_session("s")));
    stage.forward(call("/mcp?user=ann", &json!(1), "ask_agent", &in_session("of-ann")));
    let other =
        stage.forward(call("/mcp", &json!("2"), "ask_agent_other", &json!({"message": "hi"}))).session;
    assert_eq!(canceled(&stage, "/mcp", "m", &json!(1)), "s");
    assert_eq!(canceled(&stage, "/mcp?user=ann", "m", &json!(1)), "of-ann");
    assert_eq!(canceled(&stage, "/mcp", "m", &json!("2")), other.as_str());
    // Other requests, connections and users.
    for (target, connection, id) in [
        ("/mcp", "m", json!("1")),
        ("/mcp", "m", json!(2)),
        ("/mcp", "m+forms", json!(1)),
        ("/mcp?user=ben", "m", json!(1)),
    ] {
        assert_eq!(canceled(&stage, target, connection, &id), "m", "{target} {connection} {id}");
    }
    assert_eq!(canceled(&stage, "/mcp", "n", &json!(1)), "n");
    // A client that repeats an id means the later call.
    stage.forward(call("/mcp", &json!(1), "ask_agent", &in_session("later")));
    assert_eq!(canceled(&stage, "/mcp", "m", &json!(1)), "later");
}

#[test]
fn a_call_in_the_session_of_its_client_is_not_recorded() {
    let stage = Stage::new();
    // The first request reads the tenant.
    let own = || stage.forward(call("/mcp", &json!(1), "ask_agent", &json!({"message": "hi"})));
    own();
    stage.directory.down.set(true);
    assert_eq!(own().session.as_str(), "m");
    // Without the record, a call runs, too.
    let named = call("/mcp", &json!(2), "ask_agent", &json!({"message": "hi", "session": "s"}));
    assert_eq!(stage.forward(named).session.as_str(), "s");
    let logged = stage.log.lines();
    assert_eq!(logged.iter().filter(|line| line["event"] == "mcp.call_not_recorded").count(), 1);
    stage.directory.down.set(false);
    assert_eq!(canceled(&stage, "/mcp", "m", &json!(2)), "m");
}

#[test]
fn there_is_only_the_rest_of_a_response() {
    let stage = Stage::new();
    let listen = |headers: &[(&'static str, &'static str)]| {
        let asked = get("/mcp").bearer(DEV).header("accept", "text/event-stream");
        stage.answer(headers.iter().fold(asked, |asked, (name, value)| asked.header(name, value)))
    };
    let resumed = ("last-event-id", "eyJzIjoicyJ9");
    for headers in [&[][..], &[resumed, ("mcp-protocol-version", "2026-07-28")]] {
        let answer = listen(headers);
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
        assert_eq!(answer.body["error"]["data"]["code"], json!(ErrorCode::MethodNotAllowed.as_str()));
    }
    assert_eq!(listen(&[resumed]).status, 400);
    assert_eq!(listen(&[resumed, ("origin", "https://evil.example")]).status, 403);
    assert_eq!(stage.answer(get("/mcp").header("last-event-id", "x")).status, 401);
}
