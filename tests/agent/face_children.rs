//! Calls of subagents that clients of other protocols decide in the session that waits for them.

use crate::http::{exchange, read_events, request, status, stream, whole};
use crate::stage::Stage;
use crate::subagents::{child, children, ruled};
use edge_harness::http::Response;
use edge_harness::types::{Policy, SessionStatus};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

fn send(stage: &Stage, route: &str, headers: &[(&str, &str)], body: &Value) -> Response {
    exchange(stage, request(route, "", headers, body.to_string())).unwrap()
}

/// Sends a request of A2A.
fn ask(stage: &Stage, method: &str, params: &Value) -> Response {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    send(stage, "POST /a2a", &[("a2a-version", "1.0")], &body)
}

/// Sends a message of A2A, for a task unless it is `null`.
fn say(stage: &Stage, task: &Value, parts: &Value) -> Response {
    let mut message = json!({"messageId": "m", "role": "ROLE_USER", "contextId": "s", "parts": parts});
    if !task.is_null() {
        message["taskId"] = task.clone();
    }
    ask(stage, "SendMessage", &json!({ "message": message }))
}

/// Sends a message of A2A, and returns the task.
fn a2a(stage: &Stage, task: &Value, parts: &Value) -> Value {
    let body = whole(say(stage, task, parts));
    assert!(body["error"].is_null(), "{body}");
    body["result"]["task"].clone()
}

/// The ids of the calls for which a task waits.
fn asks(task: &Value) -> Vec<&str> {
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let pending = task["status"]["message"]["parts"][1]["data"]["pending"].as_array().unwrap();
    pending.iter().map(|call| call["callId"].as_str().unwrap()).collect()
}

fn approved(call: &str) -> Value {
    json!({"data": {"callId": call, "approved": true}})
}

#[test]
fn calls_of_several_subagents_are_approved_together() {
    let stage = ruled("write_it", Policy::Ask);
    let begun = a2a(&stage, &Value::Null, &json!([{"text": "both:twice:a"}]));
    stage.settle_waiting();
    let task = whole(ask(&stage, "GetTask", &json!({"id": begun["id"]})))["result"].clone();
    let expected: Vec<_> =
        children(&stage).iter().flat_map(|id| [format!("{id}/w1"), format!("{id}/w2")]).collect();
    assert_eq!(asks(&task), expected);
    // One of four, and then the others.
    let task = a2a(&stage, &task["id"], &json!([approved(&expected[0])]));
    assert_eq!(asks(&task), expected[1..]);
    let rest: Vec<_> = expected[1..].iter().map(|call| approved(call)).collect();
    let task = a2a(&stage, &task["id"], &json!(rest));
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!((stage.runs.borrow().get("w1"), stage.runs.borrow().get("w2")), (Some(&2), Some(&2)));
    stage.settle();
    stage.check();
}

#[test]
fn a_call_of_a_subagent_is_an_interrupt() {
    let stage = ruled("write_it", Policy::Ask);
    let run = |more: Value| {
        let mut body = json!({"threadId": "s", "runId": "r", "messages": []});
        more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
        let mut open = stream(send(&stage, "POST /ag-ui", &[], &body));
        let events = read_events(&stage, &mut open, 3_000);
        // What has started has also ended.
        let mut open = Vec::new();
        for event in &events {
            match event["type"].as_str().unwrap() {
                "SUBAGENT_STARTED" => open.push(&event["subagentRunId"]),
                "SUBAGENT_FINISHED" => assert_eq!(open.pop(), Some(&event["subagentRunId"])),
                _ => {}
            }
        }
        assert!(open.is_empty());
        events.last().unwrap()["outcome"].clone()
    };
    let outcome = run(json!({"messages": [{"id": "u", "role": "user", "content": "delegate:write:a"}]}));
    let id = format!("{}/w", child(&stage));
    assert_eq!((&outcome["type"], &outcome["interrupts"][0]["id"]), (&json!("interrupt"), &json!(id)));
    let declined = json!({"interruptId": id, "status": "resolved", "payload": {"approved": false}});
    assert_eq!(run(json!({ "resume": [declined] }))["type"], "success");
    assert_eq!(stage.runs.borrow().get("a"), None);
    assert_eq!(stage.session().state().status(), SessionStatus::Idle);
}

#[test]
fn a_call_of_a_subagent_is_a_request_for_an_approval() {
    let stage = ruled("write_it", Policy::Ask);
    let create = |input: Value| {
        let body = json!({"model": "default", "conversation": "s", "input": input});
        let response = send(&stage, "POST /v1/responses", &[], &body);
        assert_eq!(status(&response), 200);
        whole(response)
    };
    let first = create(json!("delegate:write:a"));
    let request = first["output"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(request["id"], format!("mcpr_{}/w", child(&stage)));
    assert_eq!((&request["type"], &request["name"]), (&json!("mcp_approval_request"), &json!("write_it")));
    let approval =
        json!({"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": true});
    let second = create(json!([approval]));
    assert_eq!(second["status"], "completed");
    let last = second["output"].as_array().unwrap().last().unwrap();
    assert_eq!(last["content"][0]["text"], "it came to: it came to: wrote a");
    assert_eq!(stage.runs.borrow().get("a"), Some(&1));
}

#[test]
fn a_completion_waits_for_the_subagent() {
    let stage = ruled("write_it", Policy::Ask);
    let complete = |text: &str, tools: Value| {
        let messages = json!([{"role": "user", "content": text}]);
        let body = json!({"model": "default", "messages": messages, "tools": tools});
        let response = send(&stage, "POST /v1/chat/completions", &[("x-session-id", "s")], &body);
        assert_eq!(status(&response), 200);
        whole(response)["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    let waits = complete("delegate:write:a", Value::Null);
    let calls = format!("write_it (call {}/w)", child(&stage));
    assert_eq!(waits, format!("[This turn waits for a decision or an answer: {calls}.]"));
    // The next message ends the turn that waits.
    assert_eq!(complete("delegate:read:b", Value::Null), "it came to: it came to: read b");
    // The subagent has neither a tool of the client nor the tool of the server that it replaces.
    let tools = json!([{"type": "function", "function": {"name": "read_it"}}]);
    for task in ["delegate:read:c", "fork:read:c"] {
        let denied = complete(task, tools.clone());
        assert!(denied.contains("read_it"), "{task}: {denied}");
        assert_eq!(stage.runs.borrow().get("c"), None, "{task}");
    }
}

#[test]
fn a_call_of_a_subagent_is_a_form() {
    let stage = ruled("write_it", Policy::Ask);
    let ask = |more: Value| {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        });
        let arguments = json!({"message": "delegate:write:a", "session": "s"});
        let mut params = json!({"name": "ask_agent", "arguments": arguments, "_meta": meta});
        more.as_object().unwrap().iter().for_each(|(name, value)| params[name] = value.clone());
        let headers = [
            ("accept", "application/json"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "ask_agent"),
        ];
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        whole(send(&stage, "POST /mcp", &headers, &body))["result"].clone()
    };
    let first = ask(json!({}));
    let id = format!("{}/w", child(&stage));
    assert_eq!(
        (&first["resultType"], first["inputRequests"][&id].is_object()),
        (&json!("input_required"), true)
    );
    let given = json!({&id: {"action": "accept", "content": {"approved": true}}});
    let again = || ask(json!({"requestState": first["requestState"], "inputResponses": given}));
    assert_eq!(again()["content"][0]["text"], "it came to: it came to: wrote a");
    // A repetition reads the same result.
    assert_eq!(again()["content"][0]["text"], "it came to: it came to: wrote a");
    assert_eq!(stage.runs.borrow().get("a"), Some(&1));
}

#[test]
fn only_subagents_of_the_turn_are_reached() {
    let stage = ruled("write_it", Policy::Ask);
    let begun = a2a(&stage, &Value::Null, &json!([{"text": "delegate:write:a"}]));
    for call in ["other/w", &format!("{}/other", child(&stage)), "w"] {
        let body = whole(say(&stage, &begun["id"], &json!([approved(call)])));
        assert_eq!(body["error"]["data"][0]["reason"], "TASK_NOT_FOUND", "{call}: {body}");
    }
    assert_eq!(stage.session().state().status(), SessionStatus::Waiting);
    // Without a connection to the subagent, nothing is decided.
    stage.others.down.set(true);
    let response = say(&stage, &begun["id"], &json!([{"text": "yes"}]));
    assert_eq!(status(&response), 503);
    stage.others.down.set(false);
    let task = a2a(&stage, &begun["id"], &json!([{"text": "yes"}]));
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
}
