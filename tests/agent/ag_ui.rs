//! AG-UI, with the session's object in memory.

use crate::http::{exchange, read_events, request, stream};
use crate::scripts::{calls_first, planning};
use crate::stage::Stage;
use edge_harness::http::Response;
use edge_harness::platform::in_memory::models::{answer, call};
use edge_harness::types::{Category, ModelError, ModelErrorKind, ModelRequest, Part, Policy, Problem, Role};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

fn send(stage: &Stage, route: &str, body: &Value) -> Result<Response, Problem> {
    let asked = request(route, "", &[], body.to_string());
    exchange(stage, asked)
}

/// Runs, and checks that everything that was opened is closed.
fn run(stage: &Stage, more: &Value) -> Vec<Value> {
    let mut body = json!({"threadId": "s", "runId": "r1", "messages": []});
    more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
    let events = read_events(stage, &mut stream(send(stage, "POST /ag-ui", &body).unwrap()), 3_000);
    let mut open: Vec<String> = Vec::new();
    for event in &events {
        let (kind, id) =
            (event["type"].as_str().unwrap(), event["messageId"].as_str().or(event["toolCallId"].as_str()));
        let (of, change) = kind.rsplit_once('_').unwrap_or_default();
        let own = || format!("{of} {}", id.unwrap_or_default());
        match change {
            "START" => open.push(own()),
            "END" => assert_eq!(open.pop(), Some(own())),
            "CONTENT" | "ARGS" => assert_eq!(open.last(), Some(&own())),
            _ => assert!(open.is_empty(), "{kind}: {open:?}"),
        }
    }
    assert_eq!((&events[0]["type"], &events[0]["runId"]), (&json!("RUN_STARTED"), &json!("r1")));
    assert!(["RUN_FINISHED", "RUN_ERROR"].contains(&events.last().unwrap()["type"].as_str().unwrap()));
    events
}

fn user(text: &str) -> Value {
    json!({"id": "u", "role": "user", "content": text})
}

fn assistant() -> Value {
    json!({"id": "a", "role": "assistant", "content": ""})
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    kinds.dedup();
    kinds
}

fn text_of(events: &[Value]) -> String {
    let texts = events.iter().filter(|event| event["type"] == "TEXT_MESSAGE_CONTENT");
    texts.map(|event| event["delta"].as_str().unwrap()).collect()
}

fn outcome(events: &[Value]) -> &Value {
    &events.last().unwrap()["outcome"]
}

#[test]
fn text_and_tools_are_a_run() {
    let calls = || vec![Part::text("Look."), call("c1", "echo", json!({"text": "a"}))];
    let (stage, models) = Stage::scripted(calls_first(calls), |builder| builder);
    let context = json!([{"description": "Page", "value": "cart"}]);
    let events = run(&stage, &json!({"messages": [user("hi")], "context": context}));
    let expected = [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ];
    assert_eq!((kinds(&events), text_of(&events)), (expected.to_vec(), "Look.Done".to_owned()));
    assert_eq!(outcome(&events), &json!({"type": "success"}));
    assert!(models.requests()[0].system.contains("Page: cart"));
}

#[test]
fn an_approval_is_an_interrupt() {
    let calls = || vec![call("c1", "write_it", json!({"key": "k"}))];
    for (resume, result) in [
        (json!({"status": "resolved", "payload": {"approved": true}}), "written"),
        (json!({"status": "resolved", "payload": {"approved": false, "reason": "no"}}), "no"),
        (json!({"status": "cancelled"}), "declined"),
    ] {
        let (stage, _) = Stage::scripted(calls_first(calls), |builder| builder);
        stage.host().create(crate::stage::meta(stage.host().now())).unwrap();
        stage.permit(|own| {
            own.categories.insert(Category::Other, Policy::Ask);
        });
        let first = run(&stage, &json!({"messages": [user("write")]}));
        let interrupt = &outcome(&first)["interrupts"][0];
        assert_eq!((&interrupt["reason"], &interrupt["toolCallId"]), (&json!("approval"), &json!("c1")));
        let mut entry = resume.clone();
        entry["interruptId"] = interrupt["id"].clone();
        let second = run(&stage, &json!({"messages": [user("write"), assistant()], "resume": [entry]}));
        assert_eq!((kinds(&second)[1], text_of(&second)), ("TOOL_CALL_RESULT", "Done".to_owned()));
        let content = second[1]["content"].as_str().unwrap();
        assert!(result == "written" || content.contains(result), "{content}");
    }
    let (stage, _) = Stage::scripted(calls_first(calls), |builder| builder);
    stage.host().create(crate::stage::meta(stage.host().now())).unwrap();
    stage.permit(|own| {
        own.categories.insert(Category::Other, Policy::Ask);
    });
    run(&stage, &json!({"messages": [user("write")]}));
    let undecided = json!({"threadId": "s", "runId": "r", "messages": [],
        "resume": [{"interruptId": "c1", "status": "resolved"}]});
    let problem = send(&stage, "POST /ag-ui", &undecided).map(drop).unwrap_err();
    assert_eq!(problem.errors[0].pointer, "/resume/0/payload");
}

#[test]
fn the_client_runs_its_tools_and_answers_questions() {
    let calls = || vec![call("c1", "look", json!({"at": 1})), call("c2", "look", json!({"at": 2}))];
    let (stage, models) = Stage::scripted(calls_first(calls), |builder| builder);
    let parameters = json!({"type": "object", "properties": {"at": {"type": "integer"}}});
    let tools = json!([{"name": "look", "description": "Looks.", "parameters": parameters}]);
    let first = run(&stage, &json!({"messages": [user("look")], "tools": tools}));
    assert_eq!(outcome(&first), &json!({"type": "success", "pendingToolCallIds": ["c1", "c2"]}));
    let result = |id: &str, text: &str| json!({"id": id, "role": "tool", "toolCallId": id, "content": text});
    let messages = json!([user("look"), assistant(), result("c1", "sun"), result("c2", "fog")]);
    let second = run(&stage, &json!({"messages": messages, "tools": tools}));
    assert_eq!(text_of(&second), "Done");
    assert!(!kinds(&second).contains(&"TOOL_CALL_RESULT"), "the client has the results");
    let results: Vec<_> = models.requests()[1]
        .messages
        .iter()
        .filter(|message| message.role == Role::Tool)
        .map(|m| format!("{m:?}"))
        .collect();
    assert!(results[0].contains("sun") && results[1].contains("fog"), "{results:?}");

    let question = || vec![call("c1", "ask_user", json!({"question": "Tea?"}))];
    let (stage, _) = Stage::scripted(calls_first(question), |builder| builder);
    let first = run(&stage, &json!({"messages": [user("ask")]}));
    let interrupt = &outcome(&first)["interrupts"][0];
    assert_eq!(interrupt["metadata"]["payload"]["question"], json!("Tea?"));
    let entry = json!({"interruptId": "c1", "status": "resolved", "payload": "Yes"});
    assert_eq!(text_of(&run(&stage, &json!({"resume": [entry]}))), "Done");
}

#[test]
fn the_state_is_a_snapshot_and_then_changes() {
    let stage = Stage::demo();
    run(&stage, &json!({"messages": [user("/say hi")]}));
    let patch = |state: Value| {
        send(&stage, "PATCH /v1/sessions/s", &json!({ "state": state })).unwrap();
    };
    patch(json!({"color": "red", "size": 1}));
    let mut open = stream(
        send(
            &stage,
            "POST /ag-ui",
            &json!({"threadId": "s", "runId": "r", "messages": [user("/slow 100 9")]}),
        )
        .unwrap(),
    );
    let first = read_events(&stage, &mut open, 300);
    assert_eq!(first[1], json!({"type": "STATE_SNAPSHOT", "snapshot": {"color": "red", "size": 1}}));
    patch(json!({"color": "a/b", "size": null}));
    let rest = read_events(&stage, &mut open, 3_000);
    let delta = rest.iter().find(|event| event["type"] == "STATE_DELTA").unwrap()["delta"].clone();
    let mut operations: Vec<_> = delta.as_array().unwrap().iter().map(ToString::to_string).collect();
    operations.sort();
    let expected =
        [json!({"op": "add", "path": "/color", "value": "a/b"}), json!({"op": "remove", "path": "/size"})];
    assert_eq!(operations, expected.map(|operation| operation.to_string()));
}

#[test]
fn a_client_that_returns_follows_the_run_from_its_start() {
    let stage = Stage::demo();
    run(&stage, &json!({"messages": [user("/say hi")]}));
    let body = json!({"threadId": "s", "runId": "r2", "messages": [user("/slow 100 9")]});
    let mut lost = stream(send(&stage, "POST /ag-ui", &body).unwrap());
    let before = read_events(&stage, &mut lost, 400);
    drop(lost);
    let events = run(&stage, &json!({}));
    assert_eq!(events[1]["type"], json!("MESSAGES_SNAPSHOT"));
    let contents: Vec<_> =
        events[1]["messages"].as_array().unwrap().iter().map(|message| &message["content"]).collect();
    assert_eq!(contents, [&json!("/say hi"), &json!("hi"), &json!("/slow 100 9")]);
    assert!(text_of(&events).starts_with(&text_of(&before)));
    assert_eq!(text_of(&events).split_whitespace().count(), 9);
    // An idle thread.
    send(&stage, "PATCH /v1/sessions/s", &json!({"state": {"color": "red"}})).unwrap();
    let idle = run(&stage, &json!({}));
    assert_eq!(kinds(&idle), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "RUN_FINISHED"]);
    assert_eq!(idle[1]["messages"].as_array().unwrap().len(), 4);
    assert_eq!(outcome(&idle), &json!({"type": "success"}));
    let nothing = json!({"threadId": "s", "runId": "r", "messages": []});
    let problem = send(&Stage::demo(), "POST /ag-ui", &nothing).map(drop).unwrap_err();
    assert_eq!(problem.errors[0].pointer, "/messages");
}

#[test]
fn a_page_that_is_loaded_again_sees_what_a_turn_waits_for() {
    let calls = || vec![Part::text("Look."), call("c1", "ask_user", json!({"question": "Tea?"}))];
    let (stage, _) = Stage::scripted(calls_first(calls), |builder| builder);
    let first = run(&stage, &json!({"messages": [user("ask")]}));
    stage.crash();
    let again = run(&stage, &json!({}));
    assert_eq!(kinds(&again), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    assert_eq!(outcome(&again), outcome(&first));
    let messages = &again[1]["messages"];
    assert_eq!((&messages[0]["content"], &messages[1]["content"]), (&json!("ask"), &json!("Look.")));
    assert_eq!(messages[1]["toolCalls"][0]["id"], "c1");
    let entry = json!({"interruptId": "c1", "status": "resolved", "payload": "Yes"});
    assert_eq!(text_of(&run(&stage, &json!({"messages": messages, "resume": [entry]}))), "Done");
}

#[test]
fn the_messages_of_a_snapshot_are_the_newest_and_bounded() {
    let stage = Stage::demo();
    let long = "x".repeat(900_000);
    for text in ["/say first", &format!("/say a\n{long}"), "/tool echo {\"text\": \"b\"}"] {
        run(&stage, &json!({"messages": [user(text)]}));
    }
    let snapshot = || {
        let body = json!({"threadId": "s", "runId": "r", "messages": [user("/slow 20 9")]});
        drop(stream(send(&stage, "POST /ag-ui", &body).unwrap()));
        let events = run(&stage, &json!({}));
        assert_eq!(events[1]["type"], json!("MESSAGES_SNAPSHOT"));
        events[1]["messages"].as_array().unwrap().clone()
    };
    let roles = |messages: &[Value]| messages.iter().map(|m| m["role"].clone()).collect::<Vec<_>>();
    let first = snapshot();
    assert_eq!(
        roles(&first),
        ["user", "assistant", "user", "assistant", "user", "assistant", "tool", "assistant", "user"]
    );
    for _ in 0..4 {
        run(&stage, &json!({"messages": [user(&format!("/say a\n{long}"))]}));
    }
    let bounded = snapshot();
    assert!(json!(bounded).to_string().len() < 4 << 20);
    assert_eq!(bounded[0]["content"], json!("/tool echo {\"text\": \"b\"}"));
    assert_eq!(roles(&bounded).last(), Some(&json!("user")));
    assert_eq!(bounded.iter().filter(|m| m["content"].as_str().unwrap().len() > 900_000).count(), 4);
}

#[test]
fn failures_and_cancellations_end_the_run() {
    let refuse = |_: &ModelRequest| vec![Err(ModelError::new(ModelErrorKind::Auth, "no key"))];
    let (stage, _) = Stage::scripted(refuse, |builder| builder);
    let events = run(&stage, &json!({"messages": [user("hi")]}));
    assert_eq!(
        (kinds(&events), &events[1]["code"]),
        (vec!["RUN_STARTED", "RUN_ERROR"], &json!("provider_auth"))
    );
    let stage = Stage::demo();
    let body = json!({"threadId": "s", "runId": "r", "messages": [user("/slow 100 900")]});
    let mut open = stream(send(&stage, "POST /ag-ui", &body).unwrap());
    read_events(&stage, &mut open, 300);
    send(&stage, "POST /v1/sessions/s/abort", &json!({})).unwrap();
    let rest = read_events(&stage, &mut open, 300);
    assert_eq!(outcome(&rest), &json!({"type": "cancelled"}));
}

/// The values of the custom events with this name.
fn custom(events: &[Value], name: &str) -> Vec<Value> {
    let own = events.iter().filter(|event| event["type"] == "CUSTOM" && event["name"] == name);
    own.map(|event| event["value"].clone()).collect()
}

#[test]
fn changes_of_the_session_are_custom_events() {
    let stage = planning();
    let first = run(&stage, &json!({"messages": [user("plan")]}));
    assert_eq!(custom(&first, "mode"), [json!({"mode": "plan"})]);
    assert_eq!(custom(&first, "task_list")[0][0]["content"], json!("Paint"));
    let interrupt = &outcome(&first)["interrupts"][0];
    assert_eq!((&interrupt["reason"], &interrupt["metadata"]["tool"]), (&json!("plan"), &json!("plan_exit")));
    let entry = json!({"interruptId": "c4", "status": "resolved", "payload": {"action": "approved"}});
    let second = run(&stage, &json!({"resume": [entry]}));
    assert_eq!(custom(&second, "mode"), [json!({"mode": "build"})]);
    assert!(text_of(&second).starts_with("Done"));
    // The reason why a reply is shorter than the model wanted.
    let stage = planning();
    send(&stage, "POST /v1/sessions", &json!({"budget": {"max_steps": 1}})).unwrap();
    let short = run(&stage, &json!({"messages": [user("plan")]}));
    assert_eq!(custom(&short, "stop_reason"), [json!("max_steps")]);
    assert_eq!(outcome(&short), &json!({"type": "success"}));
}

#[test]
fn a_subagent_that_fails_ends_with_an_error() {
    let stage = Stage::demo();
    stage.subagents.replace(Some(Vec::new()));
    stage.crash();
    let task = json!({"agent": "general-purpose", "task": "/fail auth"});
    let events = run(&stage, &json!({"messages": [user(&format!("/tool subagent {task}"))]}));
    let of_subagent: Vec<_> =
        events.iter().filter(|event| event["type"].as_str().unwrap().starts_with("SUBAGENT_")).collect();
    let kinds: Vec<_> = of_subagent.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["SUBAGENT_STARTED", "SUBAGENT_ERROR"]);
    assert_eq!(of_subagent[0]["subagentRunId"], of_subagent[1]["subagentRunId"]);
    assert_eq!(of_subagent[1]["message"], json!("the subagent ended as failed"));
}

#[test]
fn a_file_of_an_earlier_message_leaves_a_line() {
    let (stage, models) = Stage::scripted(|_| answer(vec![Part::text("Nice")]), |builder| builder);
    let source = json!({"type": "data", "value": "aGk=", "mimeType": "image/png"});
    let content = json!([{"type": "text", "text": "one"}, {"type": "image", "source": source}]);
    let earlier = json!({"id": "u", "role": "user", "content": content});
    run(
        &stage,
        &json!({"messages": [earlier, {"id": "a", "role": "assistant", "content": "A tree."}, user("two")]}),
    );
    let line = "[file, image/png: its content is not available]";
    assert_eq!(models.requests()[0].messages[0].text(), format!("one\n{line}"));
}
