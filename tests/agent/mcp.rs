//! Calls of MCP that ask an agent, with the session's object in memory.

use crate::discipline::SlowWrite;
use crate::http::{exchange, read_data, request, set_header, status, stream, whole};
use crate::scripts::{asking, calls_first};
use crate::stage::{Stage, ms};
use edge_harness::http::{Response, session};
use edge_harness::platform::in_memory::models::call;
use edge_harness::session::hub::ByteReceiver;
use edge_harness::types::{
    Category, ModelError, ModelErrorKind, ModelRequest, Part, Policy, Problem, Scope, Scopes,
};
use futures::{FutureExt, StreamExt};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{cell::RefCell, rc::Rc};

const ROUTE: &str = "POST /mcp";
const BOTH: (&str, &str) = ("accept", "application/json, text/event-stream");
const MODERN: &str = "2026-07-28";
/// A legacy client whose calls run in the session `s`.
const CLIENT: (&str, &str) = ("mcp-session-id", "s");

/// Sends a message, and runs the session's tasks until there is a response.
fn send(stage: &Stage, headers: &[(&str, &str)], body: &Value) -> Result<Response, Problem> {
    let mut asked = request(ROUTE, "", &[], body.to_string());
    headers.iter().for_each(|(name, value)| set_header(&mut asked, name, value));
    exchange(stage, asked)
}

/// Reads the messages of `span` milliseconds, and whether the stream has ended.
fn read(stage: &Stage, open: &mut ByteReceiver, span: u64) -> (Vec<Value>, bool) {
    let (events, has_ended) = read_data(stage, open, span);
    (events.iter().map(|event| serde_json::from_str(event).unwrap()).collect(), has_ended)
}

fn ask(arguments: &Value, more: &Value) -> Value {
    let mut body = json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "ask_agent", "arguments": arguments},
    });
    more.as_object().unwrap().iter().for_each(|(name, value)| body["params"][name] = value.clone());
    body
}

/// Calls as a legacy client that reads streams; returns all messages.
fn legacy(stage: &Stage, message: &str, more: &Value) -> Vec<Value> {
    let response = send(stage, &[BOTH, CLIENT], &ask(&json!({ "message": message }), more)).unwrap();
    let (messages, has_ended) = read(stage, &mut stream(response), 3_000);
    assert!(has_ended);
    messages
}

const MODERN_HEADERS: [(&str, &str); 4] =
    [BOTH, ("mcp-protocol-version", MODERN), ("mcp-method", "tools/call"), ("mcp-name", "ask_agent")];

fn modern_body(message: &str, capabilities: &Value, more: &Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let mut more = more.clone();
    more["_meta"] = meta;
    ask(&json!({"message": message, "session": "s"}), &more)
}

/// Calls as a modern client; returns the result.
fn modern(stage: &Stage, message: &str, capabilities: &Value, more: &Value) -> Value {
    let body = modern_body(message, capabilities, more);
    let (messages, has_ended) = read(stage, &mut stream(send(stage, &MODERN_HEADERS, &body).unwrap()), 3_000);
    assert_eq!((messages.len(), has_ended), (1, true), "{messages:?}");
    assert_eq!(messages[0]["id"], json!(7));
    messages[0]["result"].clone()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

#[test]
fn a_call_returns_the_reply() {
    let stage = Stage::demo();
    let messages = legacy(&stage, "/say Hello", &json!({}));
    let result = &messages[0]["result"];
    assert_eq!((messages.len(), &result["content"]), (1, &json!([{"type": "text", "text": "Hello"}])));
    let about = &result["structuredContent"];
    assert_eq!(
        (&about["session"], &about["status"], &about["stop_reason"]),
        (&json!("s"), &json!("completed"), &json!("end"))
    );
    assert_eq!(result.get("resultType"), None);
    let result = modern(&stage, "/say Again", &json!({}), &json!({}));
    assert_eq!((text(&result), &result["resultType"]), ("Again", &json!("complete")));
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], json!("edge-harness"));
    // A client that reads no streams.
    let json_only = [("accept", "application/json")];
    let response = send(&stage, &json_only, &ask(&json!({"message": "/say Third"}), &json!({}))).unwrap();
    assert_eq!(text(&whole(response)["result"]), "Third");
    assert_eq!(stage.session().state().activity.totals.turns, 3);
}

#[test]
fn progress_is_reported_if_the_client_wants_it() {
    let calls = || vec![Part::text("Look."), call("c1", "echo", json!({"text": "a"}))];
    let (stage, _) = Stage::scripted(calls_first(calls), |builder| builder);
    let messages = legacy(&stage, "hi", &json!({"_meta": {"progressToken": "p"}}));
    let (last, progress) = messages.split_last().unwrap();
    assert_eq!(text(&last["result"]), "Done");
    let expected = ["Look.", "Calls echo.", "Done"].into_iter().zip(1..).map(|(message, at)| {
        let params = json!({"progressToken": "p", "progress": at, "message": message});
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    });
    assert_eq!(progress, expected.collect::<Vec<_>>());
}

/// The messages of the progress of a call, for at most `span` milliseconds, and whether the response has ended.
fn progress_of(stage: &Stage, client: (&str, &str), message: &str, span: u64) -> (Vec<String>, bool) {
    let body = ask(&json!({ "message": message }), &json!({"_meta": {"progressToken": 1}}));
    let mut open = stream(send(stage, &[BOTH, client], &body).unwrap());
    let (messages, has_ended) = read(stage, &mut open, span);
    let progress = messages.iter().filter(|message| message["method"] == "notifications/progress");
    let progress = progress.zip(1..).map(|(message, at)| {
        assert_eq!(message["params"]["progress"], json!(at));
        message["params"]["message"].as_str().unwrap().to_owned()
    });
    (progress.collect(), has_ended)
}

#[test]
fn progress_is_reported_while_nothing_happens() {
    let long = || vec![call("c1", "slow_write", json!({"ms": 35_000}))];
    let (stage, _) = Stage::scripted(calls_first(long), |builder| builder.tool(SlowWrite));
    let still = "Still calls slow_write.";
    let expected = ["Calls slow_write.", still, still, "Done"].map(str::to_owned).to_vec();
    assert_eq!(progress_of(&stage, CLIENT, "hi", 40_000), (expected, true));
    // Text that is written slowly, and a silent model.
    let stage = Stage::demo();
    let (progress, _) = progress_of(&stage, CLIENT, "/slow 20000 3", 50_000);
    assert_eq!(progress, ["Still working.", "word1 ", "word2 "]);
    // A client without a token gets comments.
    let stage = Stage::demo();
    let body = ask(&json!({"message": "/slow 20000 3"}), &json!({}));
    let mut open = stream(send(&stage, &[BOTH, CLIENT], &body).unwrap());
    assert_eq!(read(&stage, &mut open, 50_000), (vec![], false));
    // A form that the user has not filled in.
    let question = || vec![call("c1", "ask_user", json!({"question": "Tea?"}))];
    let (stage, _) = Stage::scripted(calls_first(question), |builder| builder);
    let (progress, has_ended) = progress_of(&stage, ("mcp-session-id", "s+forms"), "ask", 20_000);
    assert_eq!((progress.last().unwrap().as_str(), has_ended), ("Waits for the user.", false));
}

#[test]
fn failures_are_results_that_a_model_can_read() {
    let refuse = |_: &ModelRequest| vec![Err(ModelError::new(ModelErrorKind::Auth, "no key"))];
    let (stage, _) = Stage::scripted(refuse, |builder| builder);
    let result = legacy(&stage, "hi", &json!({}))[0]["result"].clone();
    assert_eq!(
        (&result["isError"], &result["structuredContent"]["status"]),
        (&json!(true), &json!("failed"))
    );
    for (name, expected) in [("ask_agent", "/message"), ("ask_agent_other", "call ask_agent")] {
        let mut body = ask(&json!({"message": " ", "session": "s"}), &json!({}));
        body["params"]["name"] = name.into();
        let response = whole(send(&stage, &[BOTH], &body).unwrap());
        assert_eq!(response["result"]["isError"], json!(true));
        assert!(text(&response["result"]).contains(expected), "{response}");
    }
}

#[test]
fn a_modern_client_is_asked_for_input() {
    let calls =
        || vec![call("c1", "write_it", json!({"key": "k"})), call("c2", "write_it", json!({"key": "l"}))];
    let forms = json!({"elicitation": {}});
    let stage = asking(calls_first(calls));
    let first = modern(&stage, "write", &forms, &json!({}));
    assert_eq!(first["resultType"], json!("input_required"));
    let form = &first["inputRequests"]["c1"];
    assert_eq!(form["method"], json!("elicitation/create"));
    assert_eq!(form["params"]["requestedSchema"]["required"], json!(["approved"]));
    assert!(form["params"]["message"].as_str().unwrap().contains(r#"{"key":"k"}"#));
    let state = &first["requestState"];
    let answered = |answers: Value| {
        modern(&stage, "write", &forms, &json!({"requestState": state, "inputResponses": answers}))
    };
    // What is missing is requested again.
    for answers in [json!({}), json!({"c1": {"action": "accept", "content": {}}})] {
        assert_eq!(answered(answers)["inputRequests"].as_object().unwrap().len(), 2);
    }
    let approve = json!({"action": "accept", "content": {"approved": true}});
    let half = answered(json!({"c1": approve, "c9": approve}));
    assert_eq!(half["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), ["c2"]);
    let last = answered(json!({"c2": {"action": "decline"}}));
    assert_eq!((text(&last), &last["resultType"]), ("Done", &json!("complete")));
    // A request whose response was lost gets it again.
    assert_eq!(text(&answered(json!({"c2": {"action": "decline"}}))), "Done");
    let outcomes = stage.outcomes(last["structuredContent"]["turn"].as_str().unwrap());
    assert_eq!(outcomes.len(), 2, "{outcomes:?}");
    assert_eq!(stage.session().state().activity.totals.turns, 1);
}

#[test]
fn nobody_approves_by_a_form_what_does_not_fit_into_it() {
    let calls = || vec![call("c1", "write_it", json!({"key": format!("{}rm -rf /", "k".repeat(10_000))}))];
    let stage = asking(calls_first(calls));
    let result = modern(&stage, "write", &json!({"elicitation": {}}), &json!({}));
    assert_eq!(result["resultType"], json!("complete"), "{result}");
    assert!(text(&result).contains("write_it (call c1)"), "{result}");
    assert_eq!(stage.session().pending().unwrap().len(), 1);
}

#[test]
fn a_client_that_shows_no_forms_reads_what_waits() {
    let calls = || vec![call("c1", "write_it", json!({"key": "k"}))];
    let stage = asking(calls_first(calls));
    let result = modern(&stage, "write", &json!({"elicitation": {"url": {}}}), &json!({}));
    assert!(text(&result).contains("write_it (call c1)"), "{result}");
    let about = &result["structuredContent"];
    assert_eq!((&about["status"], &about["pending"][0]["call_id"]), (&json!("waiting"), &json!("c1")));
    let stage = asking(calls_first(calls));
    let messages = legacy(&stage, "write", &json!({}));
    assert!(text(&messages[0]["result"]).contains("write_it (call c1)"));
}

#[test]
fn a_legacy_client_answers_forms_while_its_call_goes_on() {
    let client = ("mcp-session-id", "s+forms");
    let question =
        || vec![call("c1", "ask_user", json!({"question": "Tea?", "options": [{"label": "Yes"}]}))];
    let (stage, models) = Stage::scripted(calls_first(question), |builder| builder);
    let call = ask(&json!({"message": "ask"}), &json!({}));
    let mut open = stream(send(&stage, &[BOTH, client], &call).unwrap());
    let (messages, has_ended) = read(&stage, &mut open, 500);
    assert_eq!((messages.len(), has_ended), (1, false));
    let asked = &messages[0];
    assert_eq!((&asked["method"], &asked["id"]), (&json!("elicitation/create"), &json!("s/c1")));
    let answer = json!({"type": "string", "title": "Answer", "enum": ["Yes"]});
    assert_eq!(asked["params"]["requestedSchema"]["properties"]["answer"], answer);
    let result = json!({"action": "accept", "content": {"answer": "Yes"}});
    let reply = json!({"jsonrpc": "2.0", "id": "s/c1", "result": result});
    assert_eq!(status(&send(&stage, &[BOTH, client], &reply).unwrap()), 202);
    let (messages, has_ended) = read(&stage, &mut open, 500);
    assert_eq!((text(&messages[0]["result"]), has_ended), ("Done", true));
    let said = format!("{:?}", models.requests()[1].messages.last());
    assert!(said.contains("User answered: Yes"), "{said}");
    // A late answer changes nothing.
    assert_eq!(status(&send(&stage, &[BOTH, client], &reply).unwrap()), 202);
}

#[test]
fn only_an_approver_is_asked_about_rules_of_the_operator() {
    let calls = || vec![call("c1", "write_it", json!({"key": "k"}))];
    let (stage, _) = Stage::scripted(calls_first(calls), |builder| builder);
    let body = modern_body("write", &json!({"elicitation": {}}), &json!({}));
    let policy = |scopes: &[Scope]| {
        let mut asked = request(ROUTE, "", &MODERN_HEADERS, body.to_string());
        asked.principal.scopes = Scopes(scopes.to_vec());
        asked.principal.policy.rules.categories.insert(Category::Other, Policy::Ask);
        let (host, found) = (stage.host(), Rc::new(RefCell::new(None)));
        let into = Rc::clone(&found);
        stage.host().spawn(async move { *into.borrow_mut() = Some(session::respond(&host, &asked).await) });
        stage.run();
        let mut open = stream(found.take().unwrap().unwrap());
        read(&stage, &mut open, 500).0[0]["result"].clone()
    };
    assert_eq!(policy(&[Scope::Chat])["structuredContent"]["status"], json!("waiting"));
    assert_eq!(policy(&[Scope::Chat, Scope::Approve])["resultType"], json!("input_required"));
}

#[test]
fn a_legacy_client_cancels_with_a_notification() {
    let stage = Stage::demo();
    let call = ask(&json!({"message": "/slow 100 900"}), &json!({}));
    let mut open = stream(send(&stage, &[BOTH, CLIENT], &call).unwrap());
    assert_eq!(read(&stage, &mut open, 300), (vec![], false));
    let cancel =
        |id: u64| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    send(&stage, &[BOTH, CLIENT], &cancel(8)).unwrap();
    send(&stage, &[BOTH, ("mcp-session-id", "t")], &cancel(7)).unwrap();
    assert_eq!(read(&stage, &mut open, 300), (vec![], false));
    assert_eq!(status(&send(&stage, &[BOTH, CLIENT], &cancel(7)).unwrap()), 202);
    assert_eq!(read(&stage, &mut open, 300), (vec![], true));
    assert!(stage.kinds().contains(&"turn.canceled".to_owned()));
    // Closing the stream is no cancellation for this client.
    drop(stream(send(&stage, &[BOTH, CLIENT], &call).unwrap()));
    stage.live(ms(1_000));
    assert!(stage.session().state().activity.turn.is_some());
}

#[test]
fn a_modern_client_cancels_by_closing_the_stream() {
    let stage = Stage::demo();
    let first = modern_body("/slow 100 900", &json!({}), &json!({}));
    let open = stream(send(&stage, &MODERN_HEADERS, &first).unwrap());
    let queued =
        stream(send(&stage, &MODERN_HEADERS, &modern_body("/say next", &json!({}), &json!({}))).unwrap());
    drop(queued);
    stage.run();
    assert_eq!(stage.session().state().activity.queue.len(), 0);
    assert!(stage.session().state().activity.turn.is_some());
    drop(open);
    stage.run();
    assert!(stage.session().state().activity.turn.is_none());
    assert!(stage.kinds().contains(&"turn.canceled".to_owned()));
}

#[test]
fn closing_the_stream_of_a_finished_request_cancels_nothing() {
    let calls = || vec![call("c1", "write_it", json!({"key": "k"}))];
    let stage = asking(calls_first(calls));
    modern(&stage, "write", &json!({"elicitation": {}}), &json!({}));
    stage.run();
    assert_eq!(stage.session().pending().unwrap().len(), 1);
    // The server ends the stream when it restarts; the turn goes on.
    let stage = Stage::demo();
    let mut open =
        stream(send(&stage, &MODERN_HEADERS, &modern_body("/slow 100 9", &json!({}), &json!({}))).unwrap());
    stage.tick(ms(100));
    stage.session().hub().detach();
    assert!(open.next().now_or_never().is_some());
    while let Some(Some(_)) = open.next().now_or_never() {}
    drop(open);
    stage.run();
    assert!(stage.session().state().activity.turn.is_some());
}

/// The capabilities of a client that reads tasks, with these in addition.
fn reads_tasks(more: Value) -> Value {
    let mut all = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    more.as_object().unwrap().iter().for_each(|(name, value)| all[name] = value.clone());
    all
}

/// Calls as a client that reads tasks; returns the task.
fn create(stage: &Stage, message: &str) -> Value {
    let body = modern_body(message, &reads_tasks(json!({})), &json!({}));
    whole(send(stage, &MODERN_HEADERS, &body).unwrap())["result"].clone()
}

/// Sends a request about a task.
fn about(stage: &Stage, method: &str, id: &str, capabilities: &Value, more: &Value) -> Value {
    let mut params = more.clone();
    params["taskId"] = id.into();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let body = json!({"jsonrpc": "2.0", "id": 8, "method": method, "params": params});
    let headers = [BOTH, ("mcp-protocol-version", MODERN), ("mcp-method", method), ("mcp-name", id)];
    whole(send(stage, &headers, &body).unwrap())
}

fn task(stage: &Stage, id: &str) -> Value {
    about(stage, "tasks/get", id, &reads_tasks(json!({})), &json!({}))["result"].clone()
}

#[test]
fn a_call_of_a_client_that_reads_tasks_is_a_task() {
    let stage = Stage::demo();
    let created = create(&stage, "/slow 100 5");
    let id = created["taskId"].as_str().unwrap();
    assert_eq!(
        (&created["resultType"], &created["status"], &created["ttlMs"], &created["pollIntervalMs"]),
        (&json!("task"), &json!("working"), &Value::Null, &json!(2_000))
    );
    let working = task(&stage, id);
    assert_eq!((&working["resultType"], &working["status"]), (&json!("complete"), &json!("working")));
    assert_eq!((&working["taskId"], &working["createdAt"]), (&created["taskId"], &created["createdAt"]));
    let queued = create(&stage, "/fail auth");
    let queued_id = queued["taskId"].as_str().unwrap();
    assert_eq!(task(&stage, queued_id)["status"], json!("working"));
    stage.live(ms(3_000));
    let completed = task(&stage, id);
    assert_eq!((&completed["status"], completed.get("inputRequests")), (&json!("completed"), None));
    assert_eq!(text(&completed["result"]).split_whitespace().count(), 5);
    let result = &completed["result"];
    assert_eq!(
        (&result["resultType"], &result["structuredContent"]["status"]),
        (&json!("complete"), &json!("completed"))
    );
    assert!(completed["lastUpdatedAt"].as_str() > completed["createdAt"].as_str());
    // A failed turn is a result, too: `failed` is for errors of the protocol.
    let failed = task(&stage, queued_id);
    assert_eq!((&failed["status"], &failed["result"]["isError"]), (&json!("completed"), &json!(true)));
    assert_eq!(failed["createdAt"], queued["createdAt"]);
    // Invalid arguments make no task.
    let body = modern_body(" ", &reads_tasks(json!({})), &json!({}));
    assert_eq!(whole(send(&stage, &MODERN_HEADERS, &body).unwrap())["result"]["isError"], json!(true));
    for unknown in ["trn_1.s", "trn_1.other"] {
        let refused = about(&stage, "tasks/get", unknown, &reads_tasks(json!({})), &json!({}));
        assert_eq!(refused["error"]["code"], json!(-32602));
    }
}

#[test]
fn a_task_requires_input() {
    let calls =
        || vec![call("c1", "write_it", json!({"key": "k"})), call("c2", "write_it", json!({"key": "l"}))];
    let stage = asking(calls_first(calls));
    let id = create(&stage, "write")["taskId"].as_str().unwrap().to_owned();
    stage.live(ms(1_000));
    // A client that shows no forms cannot provide input.
    let waits = task(&stage, &id);
    assert_eq!((&waits["status"], waits.get("inputRequests")), (&json!("working"), None));
    assert!(waits["statusMessage"].as_str().unwrap().contains("write_it (call c1)"), "{waits}");
    let capabilities = reads_tasks(json!({"elicitation": {}}));
    let get = || about(&stage, "tasks/get", &id, &capabilities, &json!({}))["result"].clone();
    let asked = get();
    assert_eq!(
        (&asked["status"], &asked["inputRequests"]["c1"]["method"]),
        (&json!("input_required"), &json!("elicitation/create"))
    );
    let update = |responses: Value| {
        let answer =
            about(&stage, "tasks/update", &id, &capabilities, &json!({ "inputResponses": responses }));
        stage.live(ms(1_000));
        answer
    };
    let approve = json!({"action": "accept", "content": {"approved": true}});
    let acknowledged = update(json!({"c1": approve, "c9": approve}))["result"].clone();
    assert_eq!(acknowledged["resultType"], json!("complete"));
    assert_eq!(acknowledged.as_object().unwrap().keys().collect::<Vec<_>>(), ["_meta", "resultType"]);
    assert_eq!(get()["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), ["c2"]);
    update(json!({"c1": {"action": "decline"}, "c2": {"action": "decline"}}));
    assert_eq!(text(&get()["result"]), "Done");
    assert_eq!(update(Value::Null)["error"]["code"], json!(-32602));
}

#[test]
fn a_task_is_canceled() {
    let stage = Stage::demo();
    let running = create(&stage, "/slow 100 900");
    let queued = create(&stage, "/say next");
    for created in [queued, running] {
        let id = created["taskId"].as_str().unwrap();
        for _ in 0..2 {
            let answer = about(&stage, "tasks/cancel", id, &reads_tasks(json!({})), &json!({}));
            assert_eq!(answer["result"]["resultType"], json!("complete"));
        }
        assert_eq!(task(&stage, id)["status"], json!("cancelled"));
    }
    assert!(stage.session().state().activity.turn.is_none());
    // A task that has ended remains as it is.
    let ended = create(&stage, "/say Hello");
    let id = ended["taskId"].as_str().unwrap();
    stage.live(ms(1_000));
    about(&stage, "tasks/cancel", id, &reads_tasks(json!({})), &json!({}));
    assert_eq!(text(&task(&stage, id)["result"]), "Hello");
}
