//! The Chat Completions of OpenAI, with the session's object in memory.

mod fields;

use crate::http::{exchange, read, request, status, stream, whole};
use crate::scripts::says;
use crate::stage::{Stage, meta, ms};
use edge_harness::http::Response;
use edge_harness::platform::in_memory::models::{answer, call};
use edge_harness::ports::SessionStore;
use edge_harness::session::hub::ByteReceiver;
use edge_harness::types::{
    Category, ModelError, ModelErrorKind, ModelEvent, ModelRequest, Part, Policy, Problem, Role,
    SessionPermissions,
};
use futures::{FutureExt, StreamExt};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{cell::RefCell, rc::Rc};

const CHAT: &str = "POST /v1/chat/completions";

/// Sends a request and runs the session's tasks until there is a response. `session` is the one that the client has
/// chosen.
fn send(stage: &Stage, session: Option<&str>, body: &Value) -> Result<Response, Problem> {
    let named = session.map(|id| ("x-session-id", id));
    let asked = request(CHAT, "", named.as_slice(), body.to_string());
    exchange(stage, asked)
}

fn chat(messages: Value) -> Value {
    json!({"model": "default", "messages": messages})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn complete(stage: &Stage, session: Option<&str>, body: &Value) -> Value {
    let response = send(stage, session, body).unwrap();
    assert_eq!(status(&response), 200);
    whole(response)
}

/// The chunks of a stream that has ended, and whether `[DONE]` follows them.
fn chunks(stage: &Stage, session: Option<&str>, body: &Value) -> (Vec<Value>, bool) {
    let mut body = body.clone();
    body["stream"] = true.into();
    let response = send(stage, session, &body).unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut open = stream(response);
    let text = read_all(stage, &mut open);
    assert!(text.ends_with("\n\n") && !text.contains('\r'), "{text}");
    let events: Vec<&str> =
        text.split_terminator("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    let done = events.last() == Some(&"[DONE]");
    let events = events.into_iter().filter(|data| *data != "[DONE]");
    (events.map(|data| serde_json::from_str(data).unwrap()).collect(), done)
}

/// Reads a stream to its end.
fn read_all(stage: &Stage, open: &mut ByteReceiver) -> String {
    let mut out = Vec::new();
    for _ in 0..300 {
        while let Some(item) = open.next().now_or_never() {
            match item {
                Some(bytes) => out.extend_from_slice(&bytes.expect("a complete stream")),
                None => return String::from_utf8(out).unwrap(),
            }
        }
        stage.tick(ms(10));
    }
    panic!("no end: {}", String::from_utf8_lossy(&out));
}

fn text_of(chunks: &[Value]) -> String {
    chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect()
}

fn reasons(chunks: &[Value]) -> Vec<&str> {
    chunks.iter().filter_map(|chunk| chunk["choices"][0]["finish_reason"].as_str()).collect()
}

/// What the model was shown: role and text of each message, calls and results included.
fn shown(request: &ModelRequest) -> Vec<String> {
    let line = |part: &Part| match part {
        Part::Text { text } => text.clone(),
        Part::ToolCall(call) => format!("call {} {}", call.name, call.args),
        Part::ToolResult { outcome, .. } => format!("result {}", outcome.model_text()),
        other => format!("{other:?}"),
    };
    let messages = request.messages.iter();
    let parts = |parts: &[Part]| parts.iter().map(line).collect::<Vec<_>>().join(" | ");
    messages.map(|message| format!("{}: {}", message.role.name(), parts(&message.parts))).collect()
}

#[test]
fn a_completion_has_the_text_and_the_usage() {
    let (stage, _) = Stage::scripted(|_| says("Hello"), |builder| builder);
    let body = complete(&stage, Some("s"), &chat(json!([user("hi")])));
    assert_eq!((&body["object"], &body["model"]), (&json!("chat.completion"), &json!("default")));
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl-"));
    let message = json!({"role": "assistant", "content": "Hello", "refusal": null});
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": "stop"});
    assert_eq!(body["choices"], json!([choice]));
    assert_eq!(body["usage"]["total_tokens"], json!(7));
}

#[test]
fn a_stream_has_one_finish_reason_and_the_usage_on_request() {
    let (stage, _) = Stage::scripted(|_| says("Hello"), |builder| builder);
    let mut body = chat(json!([user("hi")]));
    let (plain, done) = chunks(&stage, Some("s"), &body);
    assert_eq!((text_of(&plain).as_str(), reasons(&plain), done), ("Hello", vec!["stop"], true));
    assert_eq!(plain[0]["choices"][0]["delta"]["role"], json!("assistant"));
    assert!(plain.iter().all(|chunk| chunk["id"] == plain[0]["id"] && chunk.get("usage").is_none()));
    body["stream_options"] = json!({"include_usage": true});
    let (counted, _) = chunks(&stage, Some("s"), &body);
    let last = counted.last().unwrap();
    assert_eq!((&last["choices"], &last["usage"]["prompt_tokens"]), (&json!([]), &json!(1)));
}

#[test]
fn a_chosen_session_remembers_and_ignores_the_repeated_transcript() {
    let (stage, models) = Stage::scripted(|_| says("Hello"), |builder| builder);
    complete(&stage, Some("s"), &chat(json!([user("one")])));
    let repeated = json!([user("one"), {"role": "assistant", "content": "Hello"}, user("two")]);
    complete(&stage, Some("s"), &chat(repeated));
    let last = models.requests().pop().unwrap();
    assert_eq!(shown(&last), ["user: one", "assistant: Hello", "user: two"]);
}

#[test]
fn without_a_session_the_transcript_is_all_that_the_agent_knows_and_nothing_is_kept() {
    let (stage, models) = Stage::scripted(|_| says("Hello"), |builder| builder);
    let call =
        json!({"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{\"at\":1}"}});
    let transcript = json!([
        {"role": "system", "content": "Be brief."},
        user("one"),
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "a tree"},
        {"role": "assistant", "content": "A tree."},
        user("two"),
        {"role": "user", "content": [{"type": "text", "text": "three"}]},
    ]);
    let body = complete(&stage, None, &chat(transcript));
    assert_eq!(body["choices"][0]["message"]["content"], json!("Hello"));
    let request = models.requests().pop().unwrap();
    let expected = [
        "user: one",
        "assistant: call look {\"at\":1}",
        "tool: result a tree",
        "assistant: A tree.",
        "user: two\n\nthree",
    ];
    assert_eq!(shown(&request), expected);
    assert!(request.system.contains("\n\nBe brief.\n\n"), "{}", request.system);
    stage.live(ms(5_000));
    assert_eq!(stage.host().open().map(|session| session.is_some()), Ok(false), "the session is erased");
    assert_eq!(models.requests().len(), 1, "nothing is remembered of it");
}

#[test]
fn arguments_in_a_transcript_that_cannot_be_stored_are_kept_as_text() {
    let deep = format!("{}{}", "[".repeat(70), "]".repeat(70));
    for arguments in ["{not JSON", &deep] {
        let (stage, models) = Stage::scripted(|_| says("Hello"), |builder| builder);
        let call =
            json!({"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}});
        let transcript = json!([
            user("one"),
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "a tree"},
            user("two"),
        ]);
        complete(&stage, None, &chat(transcript));
        let expected = format!("assistant: call look {}", json!({ "_raw": arguments }));
        assert_eq!(shown(&models.requests()[0])[1], expected);
    }
}

#[test]
fn a_client_runs_its_own_tools_and_the_turn_continues() {
    let script = |request: &ModelRequest| match request.messages.last().map(|last| last.role) {
        Some(Role::Tool) => says("It is 7 and 8."),
        _ => answer(vec![
            Part::text("Let me look."),
            call("c1", "look", json!({"at": 1})),
            call("c2", "look", json!({"at": 2})),
        ]),
    };
    for session in [Some("s"), None] {
        for streams in [false, true] {
            let (stage, models) = Stage::scripted(script, |builder| builder);
            let mut body = chat(json!([user("look")]));
            let parameters = json!({"type": "object", "properties": {"at": {"type": "integer"}}});
            body["tools"] =
                json!([{"type": "function", "function": {"name": "look", "parameters": parameters}}]);
            let (text, reason, calls) = match streams {
                true => {
                    let (chunks, done) = chunks(&stage, session, &body);
                    assert!(done);
                    let calls =
                        chunks.iter().find_map(|chunk| chunk["choices"][0]["delta"].get("tool_calls"));
                    let last = &chunks.last().unwrap()["choices"][0];
                    assert_eq!((&last["delta"], &last["finish_reason"]), (&json!({}), &json!("tool_calls")));
                    (text_of(&chunks), reasons(&chunks).join(","), calls.unwrap().clone())
                }
                false => {
                    let choice = complete(&stage, session, &body)["choices"][0].clone();
                    let text = choice["message"]["content"].as_str().unwrap().to_owned();
                    (
                        text,
                        choice["finish_reason"].as_str().unwrap().into(),
                        choice["message"]["tool_calls"].clone(),
                    )
                }
            };
            assert_eq!((text.as_str(), reason.as_str()), ("Let me look.", "tool_calls"));
            assert_eq!(calls[1]["function"], json!({"name": "look", "arguments": "{\"at\":2}"}));
            assert!(models.requests()[0].tools.iter().any(|tool| tool.name == "look"));
            let mut messages = vec![user("look"), json!({"role": "assistant", "tool_calls": calls})];
            for (index, result) in ["7", "8"].iter().enumerate() {
                messages.push(json!({"role": "tool", "tool_call_id": calls[index]["id"], "content": result}));
            }
            body["messages"] = messages.into();
            let rest = complete(&stage, session, &body);
            assert_eq!(rest["choices"][0]["message"]["content"], json!("It is 7 and 8."), "{session:?}");
            let results = shown(&models.requests()[1]).into_iter().filter(|line| line.starts_with("tool"));
            assert_eq!(results.collect::<Vec<_>>(), ["tool: result 7", "tool: result 8"]);
        }
    }
}

#[test]
fn a_tool_of_the_client_replaces_that_of_the_server_for_one_turn() {
    let script = |request: &ModelRequest| match request.messages.last().map(|last| last.role) {
        Some(Role::Tool) => says("Done"),
        _ => answer(vec![call("c1", "write_it", json!({"key": "k", "line": 1}))]),
    };
    let (stage, models) = Stage::scripted(script, |builder| builder);
    let parameters =
        json!({"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]});
    let function = json!({"name": "write_it", "description": "Of the editor.", "parameters": parameters});
    let mut body = chat(json!([user("write")]));
    body["tools"] = json!([{"type": "function", "function": function}]);
    let choice = complete(&stage, Some("s"), &body)["choices"][0].clone();
    assert_eq!(choice["finish_reason"], json!("tool_calls"));
    let descriptions = |request: &ModelRequest| -> Vec<String> {
        let named = request.tools.iter().filter(|tool| tool.name == "write_it");
        named.map(|tool| tool.description.clone()).collect()
    };
    assert_eq!(descriptions(&models.requests()[0]), ["Of the editor."]);
    // The session is evicted while the call waits.
    stage.crash();
    let result = json!({"role": "tool", "tool_call_id": "c1", "content": "written by the editor"});
    let resumed = json!({"model": "default", "messages": [user("write"), choice["message"], result]});
    assert_eq!(complete(&stage, Some("s"), &resumed)["choices"][0]["message"]["content"], json!("Done"));
    assert_eq!(shown(&models.requests()[1]).last().unwrap(), "tool: result written by the editor");
    assert_eq!(stage.runs.borrow().get("k"), None);
    // A rule about the name is also about the tool of the client.
    stage.permit(|own: &mut SessionPermissions| {
        own.tools.insert("write_it".into(), Policy::Deny);
    });
    assert_eq!(complete(&stage, Some("s"), &body)["choices"][0]["finish_reason"], json!("stop"));
    assert_eq!(descriptions(&models.requests()[2]), [""; 0]);
    assert!(shown(&models.requests()[3]).last().unwrap().contains("forbids write_it"));
    // Without it, the tool of the server is there again.
    stage.permit(|own: &mut SessionPermissions| {
        own.tools.clear();
    });
    complete(&stage, Some("s"), &chat(json!([user("write")])));
    assert_eq!(descriptions(&models.requests()[4]), ["Writes."]);
    assert_eq!(stage.runs.borrow().get("k"), Some(&1));
}

#[test]
fn the_reasoning_of_the_model_is_sent() {
    let script = |_: &ModelRequest| {
        let mut events = says("Hello");
        events.insert(0, Ok(ModelEvent::Reasoning("Be polite.".into())));
        events
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    let message = &complete(&stage, Some("s"), &chat(json!([user("hi")])))["choices"][0]["message"];
    assert_eq!((&message["reasoning_content"], &message["content"]), (&json!("Be polite."), &json!("Hello")));
    let (found, _) = chunks(&stage, Some("s"), &chat(json!([user("hi")])));
    let deltas = found.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["reasoning_content"].as_str());
    assert_eq!((deltas.collect::<String>().as_str(), text_of(&found).as_str()), ("Be polite.", "Hello"));
}

#[test]
fn a_stream_stays_open_while_nothing_is_written() {
    let input = json!({"model": "default", "conversation": "s", "input": "/slow 40000 2", "stream": true});
    let mut body = chat(json!([user("/slow 40000 2")]));
    body["stream"] = true.into();
    for (route, body) in [(CHAT, body), ("POST /v1/responses", input)] {
        let stage = Stage::demo();
        let asked = request(route, "", &[("x-session-id", "s")], body.to_string());
        let mut open = stream(exchange(&stage, asked).unwrap());
        stage.run();
        read(&mut open);
        stage.tick(ms(15_000));
        assert_eq!(read(&mut open), ": ping\n\n", "{route}");
    }
}

#[test]
fn the_mode_of_the_session_applies() {
    let (stage, models) = Stage::scripted(|_| says("Hello"), |builder| builder);
    let modes =
        json!([{"id": "brief", "instructions": "Answer in one word.", "available_tools": ["read_it"]}]);
    let stage = stage.with_modes(serde_json::from_value(modes).unwrap());
    let mut body = chat(json!([user("hi")]));
    body["tools"] = json!([{"type": "function", "function": {"name": "look"}}]);
    complete(&stage, Some("s"), &body);
    let request = &models.requests()[0];
    assert!(request.system.contains("Answer in one word."), "{}", request.system);
    assert_eq!(request.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["look", "read_it"]);
}

#[test]
fn a_call_that_waits_for_a_person_is_named_in_the_text() {
    let script = |_: &ModelRequest| answer(vec![call("c1", "write_it", json!({"key": "k"}))]);
    let (stage, _) = Stage::scripted(script, |builder| builder);
    stage.host().create(meta(stage.host().now())).unwrap();
    stage.permit(|own: &mut SessionPermissions| {
        own.categories.insert(Category::Other, Policy::Ask);
    });
    let (found, done) = chunks(&stage, Some("s"), &chat(json!([user("write")])));
    let text = text_of(&found);
    assert!(text.contains("waits for a decision or an answer: write_it (call c1)"), "{text}");
    assert_eq!((reasons(&found), done), (vec!["stop"], true));
}

#[test]
fn text_that_was_voided_is_not_repeated() {
    let tries = Rc::new(RefCell::new(0));
    let script = move |_: &ModelRequest| {
        *tries.borrow_mut() += 1;
        if *tries.borrow() > 1 {
            return says("Hello world");
        }
        let cut = ModelError::new(ModelErrorKind::Network, "cut");
        vec![Ok(ModelEvent::Text("Hello".into())), Err(cut)]
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    let (found, _) = chunks(&stage, Some("s"), &chat(json!([user("hi")])));
    assert_eq!(text_of(&found), "Hello world");
}

#[test]
fn a_failed_turn_is_an_error() {
    let refuse = |_: &ModelRequest| vec![Err(ModelError::new(ModelErrorKind::Auth, "no key"))];
    let (stage, _) = Stage::scripted(refuse, |builder| builder);
    let response = send(&stage, None, &chat(json!([user("hi")]))).unwrap();
    assert_eq!(status(&response), 500);
    let body = whole(response);
    assert_eq!(body["error"]["type"], json!("server_error"));
    let (found, done) = chunks(&stage, Some("s"), &chat(json!([user("hi")])));
    assert_eq!((found[0]["error"]["code"].clone(), done), (body["error"]["code"].clone(), false));
}

#[test]
fn a_file_is_attached_to_the_message() {
    let (stage, models) = Stage::scripted(|_| says("Nice"), |builder| builder);
    let content = json!([
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    ]);
    complete(&stage, None, &chat(json!([{"role": "user", "content": content}])));
    let request = models.requests().pop().unwrap();
    let prompt = request.messages[0].prompt_text();
    assert!(
        prompt.starts_with("What is this?\n[file \"") && prompt.contains(", image/png, 2 bytes: "),
        "{prompt}"
    );
}

#[test]
fn a_file_keeps_its_name_without_folders() {
    for (name, shown) in [("../../x.pdf", "[file \"x.pdf\", "), ("..", "[file \"art_")] {
        let (stage, models) = Stage::scripted(|_| says("Nice"), |builder| builder);
        let data = "data:application/pdf;base64,aGk=";
        let file = json!({"type": "file", "file": {"filename": name, "file_data": data}});
        complete(&stage, None, &chat(json!([{"role": "user", "content": [file]}])));
        let prompt = models.requests().pop().unwrap().messages[0].prompt_text();
        assert!(prompt.starts_with(shown), "{name}: {prompt}");
    }
}

#[test]
fn a_file_that_is_not_base64_is_refused() {
    let (stage, _) = Stage::scripted(|_| says("Nice"), |builder| builder);
    for url in ["data:image/png;base64,no base64", "data:image/png;base64,aGk", "data:image/png,hi"] {
        let image = json!({"type": "image_url", "image_url": {"url": url}});
        let body = chat(json!([{"role": "user", "content": [image]}]));
        let problem = send(&stage, Some("s"), &body).map(drop).unwrap_err();
        assert_eq!(problem.errors[0].pointer, "/messages/0/content/0", "{url}");
        assert!(!stage.store.exists().unwrap());
    }
}

#[test]
fn a_conversation_of_too_many_messages_is_refused() {
    let (stage, _) = Stage::scripted(|_: &ModelRequest| says("fine"), |builder| builder);
    let earlier = |pairs: usize| {
        let pairs = (0..pairs).flat_map(|_| [user("a"), json!({"role": "assistant", "content": "b"})]);
        chat(pairs.chain([user("new")]).collect())
    };
    let problem = send(&stage, None, &earlier(5_001)).map(drop).unwrap_err();
    assert_eq!(problem.code.status(), 422);
    assert!(problem.detail.contains("more than 10000 messages and tool calls"), "{problem}");
    assert!(!stage.store.exists().unwrap());
    complete(&stage, None, &earlier(500));
}

#[test]
fn a_file_of_an_earlier_message_leaves_a_line() {
    let (stage, models) = Stage::scripted(|_| says("Nice"), |builder| builder);
    let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let file = json!({"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="});
    let earlier = json!([
        {"type": "text", "text": "What is this?"},
        image("data:image/png;base64,aGk="),
        image("https://example.com/a.png"),
        {"type": "file", "file": file},
    ]);
    let messages = json!([{"role": "user", "content": earlier}, {"role": "assistant", "content": "A tree."}, user("Sure?")]);
    complete(&stage, None, &chat(messages));
    let gone = "its content is not available]";
    let expected = format!(
        "user: What is this?\n[file, image/png: {gone}\n[file, image: {gone}\n[file \"a.pdf\", application/pdf: {gone}"
    );
    assert_eq!(shown(&models.requests()[0])[0], expected);
}

#[test]
fn a_response_is_incomplete_if_its_session_goes_away() {
    let stage = Stage::demo();
    let mut body = chat(json!([user("/slow 1000 9")]));
    body["stream"] = true.into();
    let mut open = stream(send(&stage, Some("s"), &body).unwrap());
    stage.crash();
    let mut last = None;
    while let Some(Some(item)) = open.next().now_or_never() {
        last = Some(item.is_err());
    }
    assert_eq!(last, Some(true), "the connection is cut, not ended");
}
