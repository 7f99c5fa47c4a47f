//! Results of calls in requests of other protocols: next to a message, of calls that the server does not know, and of some
//! of the calls that wait.

use crate::http::{exchange, read_events, request, status, stream, whole};
use crate::scripts::{calls_first, says};
use crate::stage::{Stage, ms};
use edge_harness::http::Response;
use edge_harness::platform::in_memory::models::{answer, call};
use edge_harness::types::{Category, ErrorCode, ModelRequest, Part, Policy, Problem, Role, SessionStatus};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::cell::Cell;

const CHAT: &str = "POST /v1/chat/completions";
const RESPONSES: &str = "POST /v1/responses";
const UI: &str = "POST /api/chat";
const AG_UI: &str = "POST /ag-ui";

fn send(stage: &Stage, route: &str, body: &Value) -> Result<Response, Problem> {
    let named = [("x-session-id", "s")];
    let headers: &[_] = if route == CHAT { &named } else { &[] };
    exchange(stage, request(route, "", headers, body.to_string()))
}

fn json_of(stage: &Stage, route: &str, body: &Value) -> Value {
    let response = send(stage, route, body).unwrap();
    assert_eq!(status(&response), 200);
    whole(response)
}

/// A stage whose model calls the client's tool `look` twice, and the body of the first request.
fn looking() -> (Stage, Value) {
    let calls = || vec![call("c1", "look", json!({})), call("c2", "look", json!({}))];
    let (stage, _) = Stage::scripted(calls_first(calls), |builder| builder);
    let function = json!({"name": "look", "parameters": {"type": "object"}});
    let tools = json!([{"type": "function", "function": function}]);
    let body = json!({"model": "default", "messages": [user("look")], "tools": tools});
    let first = json_of(&stage, CHAT, &body);
    assert_eq!(first["choices"][0]["finish_reason"], "tool_calls");
    (stage, body)
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn result(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": format!("sun {id}")})
}

fn output(id: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": format!("sun {id}")})
}

fn assistant() -> Value {
    let function = json!({"name": "look", "arguments": "{}"});
    let calls = ["c1", "c2"].map(|id| json!({"id": id, "type": "function", "function": function}));
    json!({"role": "assistant", "content": null, "tool_calls": calls})
}

fn with_ids(messages: Value) -> Value {
    let messages = messages.as_array().unwrap().iter().cloned().enumerate();
    let with_id = messages.map(|(index, mut message)| {
        message["id"] = format!("m{index}").into();
        if let Some(calls) = message.as_object_mut().unwrap().remove("tool_calls") {
            message["toolCalls"] = calls;
        }
        if let Some(call) = message.as_object_mut().unwrap().remove("tool_call_id") {
            message["toolCallId"] = call;
        }
        message
    });
    with_id.collect()
}

fn chat(messages: Value) -> Value {
    json!({"model": "default", "messages": messages})
}

fn responses(input: Value) -> Value {
    json!({"model": "default", "conversation": "s", "input": input})
}

fn ag_ui(messages: Value) -> Value {
    json!({"threadId": "s", "runId": "r", "messages": with_ids(messages)})
}

#[test]
fn a_message_next_to_results_is_refused_and_the_turn_still_waits() {
    let part = |id: &str| json!({"type": "tool-look", "toolCallId": id, "state": "output-available", "input": {}, "output": "sun"});
    let text = |text: &str| json!({"role": "user", "parts": [{"type": "text", "text": text}]});
    let answered = json!({"role": "assistant", "parts": [part("c1"), part("c2")]});
    let approval =
        json!({"type": "mcp_approval_response", "approval_request_id": "mcpr_c1", "approve": true});
    let all = [result("c1"), result("c2")];
    let [one, two] = &all;
    let cases = [
        (CHAT, chat(json!([user("look"), assistant(), one, two, user("go on")])), "/messages/4"),
        (CHAT, chat(json!([user("look"), assistant(), user("go on"), one, two])), "/messages/2"),
        (RESPONSES, responses(json!([output("c1"), output("c2"), user("go on")])), "/input/2"),
        (RESPONSES, responses(json!([user("go on"), output("c1"), output("c2")])), "/input/0"),
        (RESPONSES, responses(json!([approval, user("go on")])), "/input/1"),
        (AG_UI, ag_ui(json!([user("look"), assistant(), one, two, user("go on")])), "/messages/4"),
        (AG_UI, ag_ui(json!([user("look"), assistant(), one, user("go on"), two])), "/messages/3"),
        (UI, json!({"id": "s", "messages": [text("look"), answered, text("go on")]}), "/messages/2"),
    ];
    for (route, body, pointer) in cases {
        let (stage, _) = looking();
        let refused = send(&stage, route, &body).map(drop).unwrap_err();
        assert_eq!(
            (refused.code, refused.errors[0].pointer.as_str()),
            (ErrorCode::ValidationFailed, pointer)
        );
        assert!(refused.errors[0].detail.contains("send the results first"), "{refused}");
        assert_eq!(stage.session().state().status(), SessionStatus::Waiting, "{route}: {body}");
        let done = json_of(&stage, CHAT, &chat(json!([user("look"), assistant(), one, two])));
        assert_eq!(done["choices"][0]["message"]["content"], "Done");
        // These results are known by now, so the message is what is new.
        let next = json_of(&stage, CHAT, &chat(json!([user("look"), assistant(), one, two, user("go on")])));
        assert_eq!(next["choices"][0]["finish_reason"], "stop");
    }
}

#[test]
fn a_decision_next_to_a_message_of_ag_ui_is_refused() {
    let calls = || vec![call("c1", "write_it", json!({"key": "k"}))];
    let (stage, _) = Stage::scripted(calls_first(calls), |builder| builder);
    stage.host().create(crate::stage::meta(stage.host().now())).unwrap();
    stage.permit(|own| {
        own.categories.insert(Category::Other, Policy::Ask);
    });
    let mut open = stream(send(&stage, AG_UI, &ag_ui(json!([user("write")]))).unwrap());
    read_events(&stage, &mut open, 3_000);
    let said = json!({"role": "assistant", "content": "I write."});
    let mut body = ag_ui(json!([user("write"), said, user("and then?")]));
    body["resume"] = json!([{"interruptId": "c1", "status": "resolved", "payload": {"approved": true}}]);
    let refused = send(&stage, AG_UI, &body).map(drop).unwrap_err();
    assert_eq!(refused.errors[0].pointer, "/messages/2");
    assert_eq!(stage.runs.borrow().get("k"), None);
}

#[test]
fn results_of_unknown_calls_are_part_of_a_transcript() {
    for id in ["call_1", "functions.look:0", "c1.ses_00000000000000000000000000000000"] {
        let (stage, models) = Stage::scripted(|_| says("Sunny"), |builder| builder);
        let function = json!({"name": "look", "arguments": "{}"});
        let calls = json!([{"id": id, "type": "function", "function": function}]);
        let messages = json!([user("look"), {"role": "assistant", "tool_calls": calls}, result(id)]);
        let asked = request(CHAT, "", &[], chat(messages).to_string());
        let body = whole(exchange(&stage, asked).unwrap());
        assert_eq!(body["choices"][0]["message"]["content"], "Sunny", "{id}");
        let shown = format!("{:?}", models.requests()[0].messages);
        assert!(shown.contains("sun"), "{shown}");
        assert_eq!(models.requests()[0].messages.last().map(|last| last.role), Some(Role::User));
    }
    // Without the call, the result belongs to nothing.
    let (stage, _) = Stage::scripted(|_| says("Sunny"), |builder| builder);
    let asked = request(CHAT, "", &[], chat(json!([user("look"), assistant(), result("c3")])).to_string());
    assert_eq!(exchange(&stage, asked).map(drop).unwrap_err().code, ErrorCode::NotFound);
}

#[test]
fn a_response_has_no_results_of_the_client_and_reads_the_same_later() {
    let (stage, _) = looking();
    let body = responses(json!([output("c1"), output("c2")]));
    let response = json_of(&stage, RESPONSES, &body);
    let kinds: Vec<_> = response["output"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["message"]);
    let route = format!("GET /v1/responses/{}", response["id"].as_str().unwrap());
    assert_eq!(json_of(&stage, &route, &json!({}))["output"], response["output"]);
}

#[test]
fn responses_to_some_of_the_calls_that_wait_have_their_own_ids() {
    let (stage, _) = looking();
    let first = json_of(&stage, RESPONSES, &responses(json!([output("c1")])));
    let ids: Vec<_> =
        first["output"].as_array().unwrap().iter().map(|item| item["call_id"].as_str().unwrap()).collect();
    assert_eq!((ids, &first["status"]), (vec!["c2"], &json!("completed")));
    let show = |response: &Value, more: &str| {
        let route = format!("GET /v1/responses/{}{more}", response["id"].as_str().unwrap());
        json_of(&stage, &route, &json!({}))
    };
    assert_eq!(show(&first, "")["output"], first["output"]);
    let route = format!("GET /v1/responses/{}", first["id"].as_str().unwrap());
    let again = exchange(&stage, request(&route, "stream=true", &[], String::new())).unwrap();
    assert!(crate::http::read(&mut stream(again)).contains("response.completed"));
    assert_eq!(json_of(&stage, RESPONSES, &responses(json!([output("c1")])))["id"], first["id"], "repeated");
    let input = |response: &Value| -> Vec<Value> {
        let items = show(response, "/input_items")["data"].clone();
        items.as_array().unwrap().iter().map(|item| item["call_id"].clone()).collect()
    };
    assert_eq!(input(&first), ["c1"]);
    let second = json_of(&stage, RESPONSES, &responses(json!([output("c2")])));
    assert_ne!(first["id"], second["id"]);
    let kinds: Vec<_> = second["output"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["message"]);
    assert_eq!(show(&second, "")["output"], second["output"]);
    assert_eq!(show(&first, "")["output"], first["output"], "later, too");
    assert_eq!((input(&first), input(&second)), (vec![json!("c1")], vec![json!("c1"), json!("c2")]));
    let route = format!("GET /v1/responses/{}", first["id"].as_str().unwrap()).replace("-1.", "-3.");
    assert_eq!(send(&stage, &route, &json!({})).map(drop).unwrap_err().code, ErrorCode::NotFound);
}

#[test]
fn completions_of_one_turn_have_different_ids() {
    let (stage, _) = looking();
    let ask = |result: &Value| {
        json_of(&stage, CHAT, &chat(json!([user("look"), assistant(), result])))["id"].clone()
    };
    let (first, second) = (ask(&result("c1")), ask(&result("c2")));
    assert_ne!(first, second);
}

#[test]
fn the_output_of_a_response_is_bounded() {
    let long = "x".repeat(1 << 20);
    let steps = Cell::new(0);
    let script = move |_: &ModelRequest| {
        let step = steps.replace(steps.get() + 1);
        let mut parts = vec![Part::text(format!("{step} {long}"))];
        if step < 5 {
            parts.push(call(&format!("c{step}"), "echo", json!({"text": "a"})));
        }
        answer(parts)
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    let response = json_of(&stage, RESPONSES, &responses(json!("hi")));
    assert!(response.to_string().len() < 5 << 20);
    let last = response["output"].as_array().unwrap().last().unwrap();
    let text = last["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("5 "), "{}", &text[..20]);
}

#[test]
fn a_client_learns_at_once_that_its_message_is_queued() {
    let a2a = json!({"jsonrpc": "2.0", "id": 7, "method": "SendStreamingMessage", "params": {"message": {
        "messageId": "m1", "role": "ROLE_USER", "contextId": "s", "parts": [{"text": "/say two"}],
    }}});
    let mut in_responses = responses(json!("/say two"));
    in_responses["stream"] = true.into();
    let first = |route: &str, body: &Value| {
        let stage = Stage::demo();
        let slow = ag_ui(json!([user("/slow 100 20")]));
        let mut running = stream(send(&stage, AG_UI, &slow).unwrap());
        read_events(&stage, &mut running, 300);
        let asked = request(route, "", &[("a2a-version", "1.0")], body.to_string());
        let mut open = stream(exchange(&stage, asked).unwrap());
        let text = crate::http::read(&mut open);
        assert!(!text.is_empty(), "{route}");
        let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        assert_eq!(text.matches("data: ").count(), 1, "{text}");
        let mut rest = String::new();
        for _ in 0..400 {
            stage.tick(ms(10));
            rest.push_str(&crate::http::read(&mut open));
        }
        assert!(rest.contains("two"), "{rest}");
        (serde_json::from_str::<Value>(data).unwrap(), rest)
    };
    let (task, rest) = first("POST /a2a", &a2a);
    let task = &task["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_SUBMITTED");
    assert!(task["id"].is_string() && rest.contains("TASK_STATE_WORKING"), "{rest}");
    let (created, rest) = first(RESPONSES, &in_responses);
    assert_eq!(
        (&created["type"], &created["response"]["status"]),
        (&json!("response.created"), &json!("queued"))
    );
    assert!(!rest.contains("response.created") && rest.contains("response.in_progress"), "{rest}");
    let (started, rest) = first(AG_UI, &ag_ui(json!([user("/say two")])));
    assert_eq!(started["type"], "RUN_STARTED");
    assert!(!rest.contains("RUN_STARTED"), "{rest}");
}

#[test]
fn a_response_in_the_background_has_to_be_stored() {
    let stage = Stage::demo();
    let body = json!({"model": "default", "input": "hi", "background": true, "store": false});
    let refused = send(&stage, RESPONSES, &body).map(drop).unwrap_err();
    assert_eq!(refused.errors[0].pointer, "/background");
}
