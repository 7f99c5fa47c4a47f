//! The UI message stream of the AI SDK, with the session's object in memory.

mod decisions;

use crate::http::{exchange, read_data, request, status, stream};
use crate::scripts::{calls_first, planning, ruling, says};
use crate::stage::{Stage, ms};
use edge_harness::http::Response;
use edge_harness::platform::in_memory::models::call;
use edge_harness::session::hub::ByteReceiver;
use edge_harness::types::{
    Category, Decision, ErrorCode, ModelError, ModelErrorKind, ModelEvent, ModelRequest, Policy, Problem,
    ResolvedBy, Role,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

fn send(stage: &Stage, route: &str, body: &Value) -> Result<Response, Problem> {
    let asked = request(route, "", &[], body.to_string());
    exchange(stage, asked)
}

/// Reads chunks until `[DONE]`, at most for `span` milliseconds.
fn read(stage: &Stage, open: &mut ByteReceiver, span: u64) -> (Vec<Value>, bool) {
    let (mut events, _) = read_data(stage, open, span);
    let is_done = events.pop_if(|last| last == "[DONE]").is_some();
    (events.iter().map(|event| serde_json::from_str(event).unwrap()).collect(), is_done)
}

fn chunks(stage: &Stage, route: &str, body: &Value) -> Vec<Value> {
    let response = send(stage, route, body).unwrap();
    assert_eq!(response.headers()["x-vercel-ai-ui-message-stream"], "v1");
    let (chunks, done) = read(stage, &mut stream(response), 3_000);
    assert!(done, "{chunks:#?}");
    check(&chunks);
    chunks
}

/// Checks what the SDK requires of chunks.
fn check(chunks: &[Value]) {
    let mut open: Vec<&Value> = Vec::new();
    for chunk in chunks {
        let kind = chunk["type"].as_str().unwrap();
        match kind {
            "reset-step" => open.clear(),
            "tool-input-start" | "tool-input-delta" => {}
            _ if kind.ends_with("-start") => open.push(&chunk["id"]),
            _ if kind.ends_with("-delta") => assert!(open.contains(&&chunk["id"]), "{chunk}"),
            "text-end" | "reasoning-end" => open.retain(|id| **id != chunk["id"]),
            _ => {}
        }
    }
    assert!(open.is_empty(), "{open:?}");
    assert_eq!(chunks[0]["type"], json!("start"));
}

fn post(stage: &Stage, messages: Value) -> Vec<Value> {
    let body = json!({"id": "s", "messages": messages, "trigger": "submit-message"});
    chunks(stage, "POST /api/chat", &body)
}

fn user(text: &str) -> Value {
    json!({"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]})
}

fn kinds(chunks: &[Value]) -> Vec<&str> {
    let kinds = chunks.iter().map(|chunk| chunk["type"].as_str().unwrap());
    let mut kinds: Vec<_> = kinds.collect();
    kinds.dedup_by(|one, other| one == other && one.ends_with("-delta"));
    kinds
}

fn text_of(chunks: &[Value]) -> String {
    let texts = chunks.iter().filter(|chunk| chunk["type"] == "text-delta");
    texts.map(|chunk| chunk["delta"].as_str().unwrap()).collect()
}

#[test]
fn text_is_a_message_with_one_step() {
    let (stage, models) = Stage::scripted(|_| says("Hello"), |builder| builder);
    let found = post(&stage, json!([user("one")]));
    let expected = ["start", "start-step", "text-start", "text-delta", "text-end", "finish-step", "finish"];
    assert_eq!((kinds(&found), text_of(&found)), (expected.to_vec(), "Hello".to_owned()));
    let last = found.last().unwrap();
    assert_eq!(
        (&last["finishReason"], &last["messageMetadata"]["usage"]["totalTokens"]),
        (&json!("stop"), &json!(7))
    );
    let known = json!({"id": "a", "role": "assistant", "parts": [{"type": "text", "text": "Hello"}]});
    post(&stage, json!([user("one"), known, user("two")]));
    let shown: Vec<_> = models.requests()[1].messages.iter().map(|message| message.text()).collect();
    assert_eq!(shown, ["one", "Hello", "two"]);
}

#[test]
fn tools_of_the_server_are_executed_by_the_provider() {
    let calls = || vec![call("c1", "echo", json!({"text": "a"})), call("c2", "nothing", json!({}))];
    let (stage, _) = Stage::scripted(calls_first(calls), |builder| builder);
    let found = post(&stage, json!([user("go")]));
    let expected = [
        "start",
        "start-step",
        "tool-input-available",
        "tool-input-available",
        "tool-output-available",
        "tool-output-error",
        "finish-step",
        "start-step",
        "text-start",
        "text-delta",
        "text-end",
        "finish-step",
        "finish",
    ];
    let mut sorted = kinds(&found);
    sorted[4..6].sort_unstable();
    assert_eq!(sorted, expected);
    let tools = found.iter().filter(|chunk| chunk["type"].as_str().unwrap().starts_with("tool-"));
    assert!(tools.into_iter().all(|chunk| chunk["providerExecuted"] == true && chunk["dynamic"] == true));
}

#[test]
fn an_artifact_of_a_tool_is_a_file() {
    let calls = || vec![call("c1", "echo", json!({"text": "x".repeat(20_000)}))];
    let (stage, _) = Stage::scripted(calls_first(calls), |builder| builder);
    let found = post(&stage, json!([user("go")]));
    let output = found.iter().find(|chunk| chunk["type"] == "tool-output-available").unwrap();
    let url = format!("/v1/sessions/s/artifacts/{}", output["output"]["ref"].as_str().unwrap());
    let file = found.iter().find(|chunk| chunk["type"] == "file").unwrap();
    assert_eq!((&file["url"], &file["mediaType"]), (&json!(url), &output["output"]["mime_type"]));
    let artifact = exchange(&stage, request(&format!("GET {url}"), "", &[], String::new())).unwrap();
    assert_eq!(status(&artifact), 200);
}

#[test]
fn an_approval_continues_the_same_message() {
    let calls = || vec![call("c1", "write_it", json!({"key": "k"}))];
    for approved in [true, false] {
        let (stage, _) = Stage::scripted(calls_first(calls), |builder| builder);
        stage.host().create(crate::stage::meta(stage.host().now())).unwrap();
        stage.permit(|own| {
            own.categories.insert(Category::Other, Policy::Ask);
        });
        let first = post(&stage, json!([user("write")]));
        let request = first.iter().find(|chunk| chunk["type"] == "tool-approval-request").unwrap();
        assert_eq!(first.last().unwrap()["finishReason"], json!("tool-calls"));
        let idle = send(&stage, "GET /api/chat/s/stream", &json!({})).unwrap();
        assert_eq!(status(&idle), 204);
        let part = json!({
            "type": "dynamic-tool", "toolName": "write_it", "toolCallId": request["toolCallId"],
            "state": "approval-responded", "input": {"key": "k"},
            "approval": {"id": request["approvalId"], "approved": approved, "reason": "so"},
        });
        let answered = json!([user("write"), {"id": "a", "role": "assistant", "parts": [part]}]);
        let second = post(&stage, answered.clone());
        assert_eq!(second[0], first[0], "the same message");
        let outcome = if approved { "tool-output-available" } else { "tool-output-denied" };
        assert_eq!(kinds(&second)[..3], ["start", "tool-approval-response", outcome]);
        assert_eq!(text_of(&second), "Done");
        let again = json!({"id": "s", "messages": answered});
        let problem = send(&stage, "POST /api/chat", &again).map(drop).unwrap_err();
        assert_eq!(problem.code, ErrorCode::NotWaiting);
    }
}

/// The last state of each call, as the SDK has it after these chunks.
fn states(chunks: &[Value]) -> BTreeMap<&str, &str> {
    let tools = chunks.iter().filter(|chunk| {
        let kind = chunk["type"].as_str().unwrap();
        kind.starts_with("tool-") && chunk["toolCallId"].is_string()
    });
    tools.map(|chunk| (chunk["toolCallId"].as_str().unwrap(), chunk["type"].as_str().unwrap())).collect()
}

/// The last output of a call; `null` without one.
fn output(chunks: &[Value], id: &str) -> Value {
    let of_call = |chunk: &&Value| chunk["type"] == "tool-output-available" && chunk["toolCallId"] == id;
    chunks.iter().rfind(of_call).map_or(Value::Null, |chunk| chunk["output"].clone())
}

#[test]
fn the_page_runs_its_own_tools() {
    let calls = || vec![call("c1", "look", json!({"at": 1})), call("c2", "look", json!({"at": 2}))];
    let (stage, models) = Stage::scripted(calls_first(calls), |builder| builder);
    let tools = json!([{"name": "look", "parameters": {"properties": {"at": {"type": "integer"}}}}]);
    let body = json!({"id": "s", "messages": [user("look")], "clientTools": tools});
    let first = chunks(&stage, "POST /api/chat", &body);
    let inputs: Vec<_> = first.iter().filter(|chunk| chunk["type"] == "tool-input-available").collect();
    assert!(inputs.len() == 2 && inputs.iter().all(|chunk| chunk.get("providerExecuted").is_none()));
    let part = |id: &str, more: Value| {
        let mut part = json!({"type": "tool-look", "toolCallId": id});
        more.as_object().unwrap().iter().for_each(|(name, value)| part[name] = value.clone());
        part
    };
    let parts = json!([
        part("c1", json!({"state": "output-available", "output": {"sun": true}})),
        part("c2", json!({"state": "output-error", "errorText": "fog"})),
    ]);
    let second = post(&stage, json!([user("look"), {"id": "a", "role": "assistant", "parts": parts}]));
    assert_eq!((&second[0], text_of(&second)), (&first[0], "Done".to_owned()));
    let results: Vec<_> = models.requests()[1]
        .messages
        .iter()
        .filter(|message| message.role == Role::Tool)
        .collect::<Vec<_>>()
        .iter()
        .map(|message| format!("{:?}", message.parts))
        .collect();
    assert!(results[0].contains("sun") && results[1].contains("fog"), "{results:?}");
}

#[test]
fn a_question_is_data_and_is_answered_like_a_tool() {
    let calls = || vec![call("c1", "ask_user", json!({"question": "Tea?"}))];
    let (stage, _) = Stage::scripted(calls_first(calls), |builder| builder);
    let first = post(&stage, json!([user("ask")]));
    let input = first.iter().find(|chunk| chunk["type"] == "tool-input-available").unwrap();
    assert_eq!(input.get("providerExecuted"), None, "the page gives the answer");
    let question = first.iter().find(|chunk| chunk["type"] == "data-question").unwrap();
    assert_eq!(
        (&question["data"]["callId"], &question["data"]["payload"]["question"]),
        (&json!("c1"), &json!("Tea?"))
    );
    let part =
        json!({"type": "tool-ask_user", "toolCallId": "c1", "state": "output-available", "output": "Yes"});
    let second = post(&stage, json!([user("ask"), {"id": "a", "role": "assistant", "parts": [part]}]));
    assert_eq!(text_of(&second), "Done");
}

#[test]
fn thoughts_sources_and_changes_of_the_session_are_parts() {
    let thoughts = post(&Stage::demo(), json!([user("/think Hm.\n/say Done")]));
    let expected =
        ["reasoning-start", "reasoning-delta", "reasoning-end", "text-start", "text-delta", "text-end"];
    assert_eq!(kinds(&thoughts)[2..8], expected);
    let stage = planning();
    let first = post(&stage, json!([user("plan")]));
    let parts = |chunks: &[Value]| -> Vec<Value> {
        let shown = chunks.iter().filter(|chunk| {
            let kind = chunk["type"].as_str().unwrap();
            kind.starts_with("source-") || kind.starts_with("data-")
        });
        shown.cloned().collect()
    };
    let mut found = parts(&first);
    let tasks = found.remove(2);
    assert_eq!(
        (&tasks["type"], &tasks["id"], &tasks["data"]["tasks"][0]["content"]),
        (&json!("data-tasks"), &json!("tasks"), &json!("Paint"))
    );
    let plan = json!({"path": "plans/s.md", "plan": "# Plan\n1. Paint it.", "summary": "Paint."});
    let expected = [
        json!({"type": "source-document", "sourceId": "c0-0", "mediaType": "text/plain", "title": "notes/0.md"}),
        json!({"type": "source-url", "sourceId": "c0-1", "url": "https://example.com/0"}),
        json!({"type": "data-mode", "id": "mode", "data": {"mode": "plan"}}),
        json!({"type": "data-plan", "id": "c4", "data": {"callId": "c4", "tool": "plan_exit", "payload": plan}}),
    ];
    assert_eq!(found, expected);
    let part = json!({
        "type": "tool-plan_exit", "toolCallId": "c4", "state": "output-available", "output": {"action": "approved"},
    });
    let second = post(&stage, json!([user("plan"), {"id": "a", "role": "assistant", "parts": [part]}]));
    let mode = json!({"type": "data-mode", "id": "mode", "data": {"mode": "build"}});
    assert_eq!(parts(&second), [mode]);
    assert!(text_of(&second).starts_with("Done"));
}

#[test]
fn a_result_that_is_sent_twice_shows_what_still_waits() {
    let calls = || vec![call("c1", "look", json!({})), call("c2", "write_it", json!({"key": "k"}))];
    let (stage, _) = Stage::scripted(calls_first(calls), |builder| builder);
    stage.host().create(crate::stage::meta(stage.host().now())).unwrap();
    stage.permit(|own| {
        own.tools.insert("write_it".into(), Policy::Ask);
    });
    let body = json!({"id": "s", "messages": [user("go")], "clientTools": [{"name": "look"}]});
    chunks(&stage, "POST /api/chat", &body);
    let part = json!({"type": "tool-look", "toolCallId": "c1", "state": "output-available", "output": "sun"});
    let answered = json!([user("go"), {"id": "a", "role": "assistant", "parts": [part]}]);
    let expected =
        ["start", "tool-output-available", "tool-input-available", "tool-approval-request", "finish"];
    for _ in 0..2 {
        let shown = post(&stage, answered.clone());
        assert_eq!((kinds(&shown), output(&shown, "c1")), (expected.to_vec(), json!("sun")));
        // A page that sends its results by itself would otherwise send this one after each response.
        assert_eq!(shown[1]["providerExecuted"], json!(true));
    }
}

#[test]
fn a_call_that_was_decided_elsewhere_continues_where_the_page_waited() {
    let stage = Stage::demo();
    stage.host().create(crate::stage::meta(stage.host().now())).unwrap();
    stage.permit(|own| {
        own.tools.insert("echo".into(), Policy::Ask);
    });
    let asks = "/think Hm.\n/tool echo {\"text\": \"a\"}\n/then /slow 100 9";
    let first = post(&stage, json!([user(asks)]));
    let request = first.iter().find(|chunk| chunk["type"] == "tool-approval-request").unwrap();
    let call_id = request["toolCallId"].as_str().unwrap().into();
    stage
        .host()
        .decide(&stage.session(), &call_id, ruling(Decision::Approve), ResolvedBy::default())
        .unwrap();
    stage.live(ms(300));
    let part = json!({
        "type": "dynamic-tool", "toolName": "echo", "toolCallId": call_id, "state": "approval-responded",
        "input": {"text": "a"}, "approval": {"id": call_id, "approved": true},
    });
    let second = post(&stage, json!([user(asks), {"id": "a", "role": "assistant", "parts": [part]}]));
    let expected = ["start", "tool-approval-response", "tool-output-available", "start-step", "text-start"];
    assert_eq!((&second[0], &kinds(&second)[..5]), (&first[0], &expected[..]));
    assert_eq!(text_of(&second).split_whitespace().count(), 9);
}

#[test]
fn a_failure_after_text_ends_the_message_with_an_error() {
    let script = |_: &ModelRequest| {
        vec![Ok(ModelEvent::Text("Hel".into())), Err(ModelError::new(ModelErrorKind::Auth, "no key"))]
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    let found = post(&stage, json!([user("hi")]));
    let expected = ["start", "start-step", "text-start", "text-delta", "text-end", "finish-step", "error"];
    assert_eq!(kinds(&found), expected);
}

#[test]
fn a_reader_that_returns_reads_the_message_from_its_beginning() {
    let stage = Stage::demo();
    let body = json!({"id": "s", "messages": [user("/slow 100 9")]});
    let mut lost = stream(send(&stage, "POST /api/chat", &body).unwrap());
    let (before, _) = read(&stage, &mut lost, 400);
    drop(lost);
    assert!(!text_of(&before).is_empty());
    let after = chunks(&stage, "GET /api/chat/s/stream", &json!({}));
    assert_eq!((&after[0], text_of(&after).split_whitespace().count()), (&before[0], 9));
    assert_eq!(status(&send(&stage, "GET /api/chat/s/stream", &json!({})).unwrap()), 204);
}

#[test]
fn voided_text_resets_its_step() {
    let tries = Rc::new(RefCell::new(0));
    let script = move |_: &ModelRequest| {
        *tries.borrow_mut() += 1;
        match *tries.borrow() {
            1 => {
                vec![Ok(ModelEvent::Text("Hel".into())), Err(ModelError::new(ModelErrorKind::Network, "cut"))]
            }
            _ => says("Hello"),
        }
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    let found = post(&stage, json!([user("hi")]));
    let expected = [
        "start",
        "start-step",
        "text-start",
        "text-delta",
        "reset-step",
        "text-start",
        "text-delta",
        "text-end",
        "finish-step",
        "finish",
    ];
    assert_eq!(kinds(&found), expected);
}

#[test]
fn a_failure_and_an_abort_are_not_a_finish() {
    let refuse = |_: &ModelRequest| vec![Err(ModelError::new(ModelErrorKind::Auth, "no key"))];
    let (stage, _) = Stage::scripted(refuse, |builder| builder);
    assert_eq!(kinds(&post(&stage, json!([user("hi")]))), ["start", "error"]);
    let stage = Stage::demo();
    let body = json!({"id": "s", "messages": [user("/slow 100 900")]});
    let mut open = stream(send(&stage, "POST /api/chat", &body).unwrap());
    read(&stage, &mut open, 300);
    assert_eq!(status(&send(&stage, "POST /api/chat/s/stop", &json!({})).unwrap()), 200);
    let (rest, done) = read(&stage, &mut open, 300);
    let last: Vec<_> = kinds(&rest).into_iter().rev().take(3).collect();
    assert_eq!((last, done), (vec!["abort", "finish-step", "text-end"], true));
}

#[test]
fn a_file_of_an_earlier_message_leaves_a_line() {
    let (stage, models) = Stage::scripted(|_| says("Nice"), |builder| builder);
    let file = json!({"type": "file", "mediaType": "image/png", "filename": "a.png", "url": "data:image/png;base64,aGk="});
    let earlier = json!({"id": "u", "role": "user", "parts": [{"type": "text", "text": "one"}, file]});
    let known = json!({"id": "a", "role": "assistant", "parts": [file]});
    post(&stage, json!([earlier, known, user("two")]));
    let shown: Vec<_> = models.requests()[0].messages.iter().map(|message| message.text()).collect();
    let line = "[file \"a.png\", image/png: its content is not available]";
    assert_eq!(shown, [&format!("one\n{line}"), line, "two"]);
}

#[test]
fn calls_of_subagents_are_not_calls_of_a_new_session() {
    let (stage, models) = Stage::scripted(|_| says("Nice"), |builder| builder);
    let part = |id: &str| {
        json!({"type": "dynamic-tool", "toolName": "echo", "toolCallId": id, "state": "output-available",
            "input": {"text": id}, "output": id})
    };
    let known = json!({"id": "a", "role": "assistant", "parts": [part("c1"), part("ses_1/c2")]});
    post(&stage, json!([user("one"), known, user("two")]));
    let shown = format!("{:?}", models.requests()[0].messages);
    assert!(shown.contains("c1") && !shown.contains("c2"), "{shown}");
}

#[test]
fn a_new_message_has_no_tools_of_the_turn_that_waits() {
    let calls = || vec![call("c1", "echo", json!({"text": "a"}))];
    let (stage, _) = Stage::scripted(calls_first(calls), |builder| builder);
    let body = json!({"id": "s", "messages": [user("one")], "clientTools": [{"name": "echo"}]});
    let first = chunks(&stage, "POST /api/chat", &body);
    assert_eq!(states(&first), BTreeMap::from([("c1", "tool-input-available")]));
    // The server runs its own tool of this name.
    let second = post(&stage, json!([user("two")]));
    let input = second.iter().find(|chunk| chunk["type"] == "tool-input-available").unwrap();
    assert_eq!((&input["providerExecuted"], text_of(&second)), (&json!(true), "Done".to_owned()));
}
