//! Requests of other protocols that are repeated, because their response was lost, or refused.

use crate::http::{exchange, read_data, request, set_header, status, stream, whole};
use crate::scripts::{asking, says};
use crate::stage::{Stage, ms};
use edge_harness::http::{Response, routes, session::call::SessionRequest};
use edge_harness::platform::in_memory::models::{answer, call};
use edge_harness::ports::Clock;
use edge_harness::standard::Config;
use edge_harness::types::{
    Category, ErrorCode, ModelError, ModelErrorKind, ModelEvent, ModelRequest, Part, Policy, Problem, Role,
    Scope, Scopes, SessionStatus,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::cell::Cell;

type Script = Vec<Result<ModelEvent, ModelError>>;

const CHAT: &str = "POST /v1/chat/completions";
const RESPONSES: &str = "POST /v1/responses";
const UI: &str = "POST /api/chat";
const AG_UI: &str = "POST /ag-ui";
const SESSION: (&str, &str) = ("x-session-id", "s");
const KEY: (&str, &str) = ("idempotency-key", "k");
const A2A: (&str, &str) = ("a2a-version", "1.0");

fn send(stage: &Stage, route: &str, headers: &[(&str, &str)], body: &Value) -> Result<Response, Problem> {
    let mut asked = request(route, "", &[], body.to_string());
    headers.iter().for_each(|(name, value)| set_header(&mut asked, name, value));
    exchange(stage, asked)
}

fn json_of(stage: &Stage, route: &str, headers: &[(&str, &str)], body: &Value) -> Value {
    whole(send(stage, route, headers, body).unwrap())
}

/// The events of a response, which has to end.
fn events_of(stage: &Stage, route: &str, headers: &[(&str, &str)], body: &Value) -> Vec<Value> {
    let (events, has_ended) =
        read_data(stage, &mut stream(send(stage, route, headers, body).unwrap()), 3_000);
    assert!(has_ended, "{events:?}");
    let events = events.iter().filter(|event| *event != "[DONE]");
    events.map(|event| serde_json::from_str(event).unwrap()).collect()
}

fn chat(more: Value) -> Value {
    let mut body = json!({"model": "default"});
    more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
    body
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// A model whose connection is cut after each of these texts but the last.
fn cut(texts: &'static [&'static str]) -> Stage {
    let at = Cell::new(0);
    let script = move |_: &ModelRequest| {
        let text = texts[at.replace(at.get() + 1)];
        match at.get() == texts.len() {
            true => says(text),
            false => {
                vec![Ok(ModelEvent::Text(text.into())), Err(ModelError::new(ModelErrorKind::Network, "cut"))]
            }
        }
    };
    Stage::scripted(script, |builder| builder).0
}

fn results(request: &ModelRequest) -> usize {
    request.messages.iter().filter(|message| message.role == Role::Tool).count()
}

/// A model that calls the client's tool `look` this often.
fn looks(times: usize) -> Stage {
    let script = move |request: &ModelRequest| match results(request) {
        done if done >= times => says("It is 7."),
        done => answer(vec![call(&format!("c{}", done + 1), "look", json!({}))]),
    };
    Stage::scripted(script, |builder| builder).0
}

fn a2a(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

fn a2a_message(text: &str) -> Value {
    json!({"message": {"messageId": "m", "role": "ROLE_USER", "contextId": "s", "parts": [{"text": text}]}})
}

fn chat_tools() -> Value {
    json!([{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}])
}

fn response_tools() -> Value {
    json!([{"type": "function", "name": "look", "parameters": {"type": "object"}}])
}

fn writes(request: &ModelRequest) -> Script {
    match request.messages.last().map(|last| last.role) {
        Some(Role::Tool) => says("Done"),
        _ => answer(vec![Part::text("Wait."), call("c1", "write_it", json!({"key": "k"}))]),
    }
}

#[test]
fn a_repeated_result_gets_the_same_completion() {
    for (headers, times) in [(&[SESSION][..], 1), (&[SESSION][..], 2), (&[][..], 1)] {
        let stage = looks(times);
        let body = chat(json!({"messages": [user("look")], "tools": chat_tools()}));
        let first = json_of(&stage, CHAT, headers, &body);
        let message = &first["choices"][0]["message"];
        let result = json!({"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "7"});
        let body = chat(json!({"tools": chat_tools(), "messages": [user("look"), message, result]}));
        let mut second = json_of(&stage, CHAT, headers, &body);
        let mut again = json_of(&stage, CHAT, headers, &body);
        for response in [&mut second, &mut again] {
            response["created"].take();
        }
        assert_eq!(second, again, "{times}");
    }
}

#[test]
fn a_repeated_output_gets_the_same_response() {
    for times in [1, 2] {
        let stage = looks(times);
        let body = chat(json!({"conversation": "s", "input": "look", "tools": response_tools()}));
        let first = json_of(&stage, RESPONSES, &[], &body);
        let call = &first["output"][0]["call_id"];
        let given = json!([{"type": "function_call_output", "call_id": call, "output": "7"}]);
        let body =
            chat(json!({"previous_response_id": first["id"], "input": given, "tools": response_tools()}));
        let second = json_of(&stage, RESPONSES, &[], &body);
        let again = json_of(&stage, RESPONSES, &[], &body);
        assert!(second["id"].as_str().unwrap().contains("_1."), "{}", second["id"]);
        assert_eq!((&again["id"], &again["output"]), (&second["id"], &second["output"]), "{times}");
    }
}

/// The status of the response to a message, and whether the client may repeat it. The first commit that follows `after`
/// milliseconds fails.
fn may_repeat(stage: &Stage, asked: &(&str, Value), after: u64) -> (u16, bool) {
    may_repeat_with(stage, &[], asked, after)
}

fn may_repeat_with(
    stage: &Stage,
    headers: &[(&str, &str)],
    (route, body): &(&str, Value),
    after: u64,
) -> (u16, bool) {
    let (clock, store) = (stage.clock.clone(), stage.store.clone());
    stage.host().spawn(async move {
        clock.sleep(ms(after)).await;
        store.fail_commits(1);
    });
    let mut asked = request(route, "", &[SESSION], body.to_string());
    headers.iter().for_each(|(name, value)| set_header(&mut asked, name, value));
    let response = exchange(stage, asked.clone());
    let response = response.unwrap_or_else(|problem| routes::problem(&asked.request, &problem, "req_1"));
    (status(&response), allows_repetition(&response))
}

fn allows_repetition(response: &Response) -> bool {
    response.headers().get("x-should-retry").is_none_or(|value| value != "false")
}

#[test]
fn clients_do_not_repeat_a_message_whose_turn_has_started() {
    let message = |text: &str| {
        let input = json!({"conversation": "s", "input": text});
        [(CHAT, chat(json!({"messages": [user(text)]}))), (RESPONSES, chat(input))]
    };
    for asked in message("/slow 100 5") {
        assert_eq!(may_repeat(&Stage::demo(), &asked, 250), (503, false), "{} was interrupted", asked.0);
        assert_eq!(may_repeat(&Stage::demo(), &asked, 0), (500, true), "{} was not stored", asked.0);
    }
    let [failed, _] = message("/fail auth");
    assert_eq!(may_repeat(&Stage::demo(), &failed, 60_000), (500, false));
    let [failed, _] = message("/fail 500");
    assert_eq!(may_repeat(&Stage::demo(), &failed, 60_000), (503, false));
}

#[test]
fn clients_repeat_what_starts_no_other_turn() {
    let body = chat(json!({"messages": [user("/slow 100 5")]}));
    for (route, body) in
        [(CHAT, body), (RESPONSES, chat(json!({"conversation": "s", "input": "/slow 100 5"})))]
    {
        let stage = Stage::demo();
        let asked = (route, body);
        assert_eq!(may_repeat_with(&stage, &[KEY], &asked, 250), (503, true), "{route} with a key");
        let again = may_repeat_with(&stage, &[KEY], &asked, 60_000);
        assert_eq!(again, (409, true), "{route} while the turn runs");
        stage.settle();
        assert_eq!(may_repeat_with(&stage, &[KEY], &asked, 60_000), (200, true), "{route} again");
        assert_eq!(stage.session().state().activity.totals.turns, 1);
    }
    // The result of a tool of the client, and the decision of a call.
    let stage = Stage::demo();
    let asks = user("/tool look {}\n/then /slow 100 5");
    let first = chat(json!({"messages": [asks], "tools": chat_tools()}));
    let first = json_of(&stage, CHAT, &[SESSION], &first);
    let message = &first["choices"][0]["message"];
    let result = json!({"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "7"});
    let body = chat(json!({"tools": chat_tools(), "messages": [asks, message, result]}));
    assert_eq!(may_repeat(&stage, &(CHAT, body.clone()), 250), (503, true));
    assert_eq!(may_repeat(&stage, &(CHAT, body), 60_000), (200, true));
    let stage = Stage::demo();
    stage.host().create(crate::stage::meta(stage.host().now())).unwrap();
    stage.permit(|own| {
        own.tools.insert("echo".into(), Policy::Ask);
    });
    let first =
        chat(json!({"conversation": "s", "input": "/tool echo {\"text\": \"a\"}\n/then /slow 100 5"}));
    let first = json_of(&stage, RESPONSES, &[], &first);
    let approval = &first["output"].as_array().unwrap().last().unwrap()["id"];
    let given = json!([{"type": "mcp_approval_response", "approval_request_id": approval, "approve": true}]);
    let body = chat(json!({"conversation": "s", "input": given}));
    assert_eq!(may_repeat(&stage, &(RESPONSES, body), 250), (503, true));
}

#[test]
fn clients_repeat_a_request_whose_first_one_still_runs() {
    let asked = request(CHAT, "", &[], String::new());
    let repeats = |code: ErrorCode| {
        let problem = Problem::new(code, "a detail");
        allows_repetition(&routes::problem(&asked.request, &problem, "req_1"))
    };
    assert!(repeats(ErrorCode::IdempotencyInProgress) && repeats(ErrorCode::RateLimited));
    assert!(!repeats(ErrorCode::NotWaiting) && !repeats(ErrorCode::QuotaExceeded));
}

#[test]
fn a_message_to_a_session_that_is_erased_during_its_turn_finds_no_session() {
    let input = chat(json!({"conversation": "s", "input": "/slow 100 5"}));
    for (route, body) in [(CHAT, chat(json!({"messages": [user("/slow 100 5")]}))), (RESPONSES, input)] {
        let stage = Stage::demo();
        let (clock, host) = (stage.clock.clone(), stage.host());
        stage.host().spawn(async move {
            clock.sleep(ms(250)).await;
            host.erase(&"t".into(), &"s".into()).await.unwrap();
        });
        let problem = send(&stage, route, &[SESSION], &body).map(drop).unwrap_err();
        assert_eq!((problem.code, problem.started_turn), (ErrorCode::NotFound, true), "{route}");
    }
}

#[test]
fn a_message_of_a2a_that_is_repeated_while_its_task_runs_gets_the_whole_task() {
    let stage = Stage::demo();
    let message = a2a("SendStreamingMessage", a2a_message("/slow 100 5"));
    let mut first = stream(send(&stage, "POST /a2a", &[KEY, A2A], &message).unwrap());
    let (seen, has_ended) = read_data(&stage, &mut first, 250);
    assert!(!has_ended);
    let again = events_of(&stage, "POST /a2a", &[KEY, A2A], &message);
    let (rest, has_ended) = read_data(&stage, &mut first, 3_000);
    assert!(has_ended);
    let first: Vec<Value> =
        [seen, rest].concat().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let text = |events: &[Value]| {
        let texts =
            events.iter().map(|event| &event["result"]["artifactUpdate"]["artifact"]["parts"][0]["text"]);
        texts.filter_map(Value::as_str).collect::<String>()
    };
    assert!(!text(&first).is_empty());
    assert_eq!(text(&again), text(&first));
    assert_eq!(again[0]["result"]["task"]["id"], first[0]["result"]["task"]["id"]);
    assert_eq!(again.last(), first.last());
    assert_eq!(stage.session().state().activity.totals.turns, 1);
}

#[test]
fn a_message_of_a2a_that_is_repeated_while_it_is_queued_is_refused() {
    let stage = Stage::demo();
    let message = |text: &str| a2a("SendStreamingMessage", a2a_message(text));
    let running = send(&stage, "POST /a2a", &[A2A], &message("/slow 100 5")).unwrap();
    let mut queued = stream(send(&stage, "POST /a2a", &[KEY, A2A], &message("later")).unwrap());
    read_data(&stage, &mut queued, 50);
    let refused = send(&stage, "POST /a2a", &[KEY, A2A], &message("later")).unwrap();
    assert_eq!(status(&refused), 409);
    drop(running);
}

#[test]
fn a_repeated_message_gets_the_same_events() {
    let ui = json!({"id": "s", "messages": [{"role": "user", "parts": [{"type": "text", "text": "x"}]}]});
    let ag_ui = json!({"threadId": "s", "runId": "r", "messages": [user("x")]});
    let message = a2a("SendStreamingMessage", a2a_message("x"));
    for (route, headers, body) in
        [(UI, &[KEY][..], ui), (AG_UI, &[KEY][..], ag_ui), ("POST /a2a", &[KEY, A2A][..], message)]
    {
        // The turn waits; then another one does.
        let stage = asking(writes);
        let first = events_of(&stage, route, headers, &body);
        let kinds = |events: &[Value]| {
            let kinds: Vec<_> = events.iter().map(|event| event["type"].clone()).collect();
            kinds
        };
        let again = events_of(&stage, route, headers, &body);
        assert_eq!((kinds(&again), again.last()), (kinds(&first), first.last()), "{route}");
    }
    let at = Cell::new(0);
    let stage = asking(move |request: &ModelRequest| match at.replace(at.get() + 1) {
        0 => says("One"),
        _ => writes(request),
    });
    let body = |text: &str| json!({"id": "s", "messages": [{"role": "user", "parts": [{"type": "text", "text": text}]}]});
    let one = events_of(&stage, UI, &[KEY], &body("one"));
    events_of(&stage, UI, &[], &body("two"));
    assert_eq!(events_of(&stage, UI, &[KEY], &body("one")).last(), one.last());
}

#[test]
fn a_repeated_decision_of_a_wait_shows_what_is_left() {
    let script = |request: &ModelRequest| match request.messages.last().map(|last| last.role) {
        Some(Role::Tool) => says("Done"),
        _ => answer(vec![
            call("c1", "write_it", json!({"key": "a"})),
            call("c2", "write_it", json!({"key": "b"})),
        ]),
    };
    let stage = asking(script);
    let run = |body: Value| {
        let events = events_of(&stage, AG_UI, &[], &body);
        let outcome = &events.last().unwrap()["outcome"];
        let interrupts = outcome["interrupts"].as_array().into_iter().flatten();
        (outcome["type"].clone(), interrupts.map(|one| one["id"].clone()).collect::<Vec<_>>())
    };
    let approves = |id: &str| {
        let entry = json!({"interruptId": id, "status": "resolved", "payload": {"approved": true}});
        json!({"threadId": "s", "runId": "r", "messages": [user("x"), {"role": "assistant"}], "resume": [entry]})
    };
    run(json!({"threadId": "s", "runId": "r", "messages": [user("x")]}));
    let left = (json!("interrupt"), vec![json!("c2")]);
    assert_eq!((run(approves("c1")), run(approves("c1"))), (left.clone(), left));
    let success = (json!("success"), Vec::new());
    assert_eq!((run(approves("c2")), run(approves("c2"))), (success.clone(), success));
    assert_eq!(stage.session().state().activity.totals.turns, 1, "no message is posted again");
}

#[test]
fn text_that_was_not_sent_is_voided() {
    let whole_text = |stage: &Stage| {
        let body = chat(json!({"messages": [user("hi")]}));
        json_of(stage, CHAT, &[SESSION], &body)["choices"][0]["message"]["content"].clone()
    };
    assert_eq!(whole_text(&cut(&["Hel", "Bye"])), "Bye");
    let stage = cut(&["Hel", "He", "Hello"]);
    let body = chat(json!({"stream": true, "messages": [user("hi")]}));
    let chunks = events_of(&stage, CHAT, &[SESSION], &body);
    let deltas = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    assert_eq!(deltas.collect::<String>(), "Hello");
    let stage = cut(&["Hel", "Hello"]);
    let response = json_of(&stage, RESPONSES, &[], &chat(json!({"conversation": "s", "input": "hi"})));
    let texts: Vec<_> =
        response["output"].as_array().unwrap().iter().map(|item| &item["content"][0]["text"]).collect();
    assert_eq!(texts, [&json!("Hello")]);
}

#[test]
fn a_task_belongs_to_its_agent() {
    let stage = asking(writes);
    let message = a2a("SendMessage", a2a_message("x"));
    let first = json_of(&stage, "POST /a2a", &[A2A], &message);
    let id = first["result"]["task"]["id"].clone();
    let other = json_of(&stage, "POST /a2a/other", &[A2A], &a2a("GetTask", json!({"id": id})));
    assert_eq!(other["error"]["data"][0]["reason"], "TASK_NOT_FOUND");
    let other = json_of(&stage, "POST /a2a/other", &[A2A], &message);
    assert_eq!(other["error"]["data"][0]["reason"], "INVALID_PARAMS");
}

#[test]
fn a_complete_response_cannot_be_canceled() {
    let stage = looks(9);
    let body = chat(json!({"conversation": "s", "input": "look", "tools": response_tools()}));
    let first = json_of(&stage, RESPONSES, &[], &body);
    let given = json!([{"type": "function_call_output", "call_id": "c1", "output": "7"}]);
    let body = chat(json!({"previous_response_id": first["id"], "input": given, "tools": response_tools()}));
    let second = json_of(&stage, RESPONSES, &[], &body);
    let cancel = |response: &Value| {
        let route = format!("POST /v1/responses/{}/cancel", response["id"].as_str().unwrap());
        json_of(&stage, &route, &[], &json!({}))
    };
    assert_eq!(cancel(&first)["status"], "completed");
    assert_eq!(stage.session().state().status(), SessionStatus::Waiting);
    // The turn waits for the result that the newest response has asked for.
    cancel(&second);
    assert_eq!(stage.session().state().status(), SessionStatus::Idle);
}

/// A call of a legacy client of MCP, of which only the question can be shown to its user.
fn mixed_call(forms_only: bool) -> (Stage, SessionRequest) {
    let script = move |request: &ModelRequest| match request.messages.last().map(|last| last.role) {
        Some(Role::Tool) => says("Done"),
        _ if forms_only => answer(vec![call("c1", "ask_user", json!({"question": "Tea?"}))]),
        _ => answer(vec![
            call("c1", "ask_user", json!({"question": "Tea?"})),
            call("c2", "write_it", json!({"key": "k"})),
        ]),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    let arguments = json!({"message": "x", "session": "s"});
    let body = json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "ask_agent", "arguments": arguments},
    });
    let headers = [("accept", "application/json, text/event-stream"), ("mcp-session-id", "s+forms")];
    let mut asked = request("POST /mcp", "", &headers, body.to_string());
    asked.principal.scopes = Scopes(vec![Scope::Chat]);
    asked.principal.policy.rules.categories.insert(Category::Other, Policy::Ask);
    (stage, asked)
}

#[test]
fn a_call_that_cannot_be_decided_in_forms_ends_with_what_waits() {
    let (stage, asked) = mixed_call(false);
    let (messages, has_ended) = read_data(&stage, &mut stream(exchange(&stage, asked).unwrap()), 1_000);
    let result: Value = serde_json::from_str(messages.last().unwrap()).unwrap();
    assert_eq!((has_ended, &result["result"]["structuredContent"]["status"]), (true, &json!("waiting")));
}

#[test]
fn a_form_that_is_not_filled_in_is_dismissed() {
    for content in [json!({}), json!({"answer": ""})] {
        let (stage, asked) = mixed_call(true);
        let mut open = stream(exchange(&stage, asked).unwrap());
        read_data(&stage, &mut open, 100);
        let reply =
            json!({"jsonrpc": "2.0", "id": "s/c1", "result": {"action": "accept", "content": content}});
        let headers = [("mcp-session-id", "s+forms")];
        assert_eq!(status(&send(&stage, "POST /mcp", &headers, &reply).unwrap()), 202);
        let (messages, has_ended) = read_data(&stage, &mut open, 1_000);
        assert!(has_ended && messages.last().unwrap().contains("Done"), "{messages:?}");
    }
}

#[test]
fn a_refused_message_leaves_no_session() {
    let schema = json!({"format": {"type": "json_schema", "name": "x", "schema": {"type": 7}}});
    for body in [json!({"input": "hi", "text": schema}), json!({"input": "   "})] {
        let (stage, _) = Stage::scripted(|_| says("Hello"), |builder| builder);
        let mut body = chat(body);
        body["conversation"] = "s".into();
        let refused = send(&stage, RESPONSES, &[], &body).map(drop).unwrap_err();
        assert_eq!(refused.code, ErrorCode::ValidationFailed);
        assert!(stage.host().open().unwrap().is_none(), "{body}");
        // Another request may be about to use the session.
        let other = stage.host().count_in_flight();
        assert!(send(&stage, RESPONSES, &[], &body).is_err());
        assert!(stage.host().open().unwrap().is_some(), "{body}");
        drop(other);
    }
}

#[test]
fn a_repeated_message_stores_its_files_once() {
    let (stage, _) = Stage::scripted(|_| says("Hello"), |builder| builder);
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let content = json!([{"type": "text", "text": "hi"}, image]);
    let body = chat(json!({"messages": [{"role": "user", "content": content}]}));
    for _ in 0..3 {
        json_of(&stage, CHAT, &[SESSION, KEY], &body);
        stage.live(ms(10));
    }
    assert_eq!(stage.kinds().iter().filter(|kind| *kind == "artifact.stored").count(), 1);
}

#[test]
fn a_session_of_another_agent_is_refused() {
    let (stage, _) = Stage::scripted(|_| says("Hello"), |builder| builder);
    json_of(&stage, CHAT, &[SESSION], &chat(json!({"messages": [user("hi")]})));
    let mut body = chat(json!({"messages": [user("hi")]}));
    body["model"] = "other".into();
    let refused = send(&stage, CHAT, &[SESSION], &body).map(drop).unwrap_err();
    assert_eq!(refused.errors[0].pointer, "/model");
}

#[test]
fn a_canceled_plan_is_rejected() {
    let script = |request: &ModelRequest| match results(request) {
        0 => answer(vec![call("p0", "plan_enter", json!({}))]),
        1 => answer(vec![call("p1", "plan_write", json!({"content": "# good"}))]),
        2 => answer(vec![call("p2", "plan_exit", json!({}))]),
        _ => says("Done"),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    let stage = stage.with_modes(Config::default().agent.modes);
    events_of(&stage, AG_UI, &[], &json!({"threadId": "s", "runId": "r", "messages": [user("x")]}));
    let entry = json!({"interruptId": "p2", "status": "cancelled"});
    let messages = json!([user("x"), {"role": "assistant"}]);
    let body = json!({"threadId": "s", "runId": "r", "messages": messages, "resume": [entry]});
    let events = events_of(&stage, AG_UI, &[], &body);
    assert_eq!(events.last().unwrap()["outcome"]["type"], "success");
}
