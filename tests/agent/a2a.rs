//! A2A, with the session's object in memory.

use crate::http::{exchange, read_events, request, status, stream, whole};
use crate::stage::{Stage, ms};
use edge_harness::http::session::call::SessionRequest;
use edge_harness::platform::in_memory::models::{answer, call};
use edge_harness::ports::SessionStore;
use edge_harness::types::{ModelError, ModelErrorKind, ModelEvent, ModelRequest, Part, Policy, Role};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::cell::Cell;

fn asked(method: &str, params: &Value) -> SessionRequest {
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    request("POST /a2a", "", &[("a2a-version", "1.0")], body.to_string())
}

/// Returns the message with the result, or the error.
pub fn ask(stage: &Stage, method: &str, params: &Value) -> Value {
    let response = exchange(stage, asked(method, params)).unwrap();
    assert_eq!(status(&response), 200);
    let body = whole(response);
    assert_eq!((&body["jsonrpc"], &body["id"]), (&json!("2.0"), &json!(7)));
    body
}

pub fn task_of(body: &Value) -> &Value {
    let task = &body["result"]["task"];
    assert!(task.is_object(), "{body:#}");
    task
}

/// Reads a stream, and checks that it is about one task.
fn stream_of(stage: &Stage, method: &str, params: &Value) -> Vec<Value> {
    let response = exchange(stage, asked(method, params)).unwrap();
    let results: Vec<_> = read_events(stage, &mut stream(response), 3_000)
        .into_iter()
        .map(|event| event["result"].clone())
        .collect();
    let id = &results[0]["task"]["id"];
    for update in &results[1..] {
        let update = update.get("statusUpdate").or(update.get("artifactUpdate")).unwrap();
        assert_eq!((&update["taskId"], &update["contextId"]), (id, &json!("s")));
    }
    results
}

pub fn says(parts: Value) -> Value {
    json!({"message": {"messageId": "m1", "role": "ROLE_USER", "contextId": "s", "parts": parts}})
}

pub fn answers(task: &Value, parts: Value) -> Value {
    let mut params = says(parts);
    params["message"]["taskId"] = task["id"].clone();
    params
}

fn texts(task: &Value) -> Vec<&str> {
    let artifacts = task["artifacts"].as_array().into_iter().flatten();
    artifacts.map(|artifact| artifact["parts"][0]["text"].as_str().unwrap()).collect()
}

/// What a client has of the artifacts after these updates, by id.
fn collected(results: &[Value]) -> Vec<String> {
    let mut found: Vec<(Value, String)> = Vec::new();
    for update in results.iter().filter_map(|result| result.get("artifactUpdate")) {
        let (id, text) =
            (&update["artifact"]["artifactId"], update["artifact"]["parts"][0]["text"].as_str().unwrap());
        match found.iter_mut().find(|(own, _)| own == id) {
            Some((_, own)) if update["append"] == true => own.push_str(text),
            Some((_, own)) => *own = text.to_owned(),
            None => {
                assert_eq!(update["append"], json!(false), "the first part of an artifact");
                found.push((id.clone(), text.to_owned()));
            }
        }
    }
    found.into_iter().map(|(_, text)| text).collect()
}

fn states(results: &[Value]) -> Vec<&str> {
    let states = results.iter().filter_map(|result| {
        result["task"]["status"]["state"].as_str().or(result["statusUpdate"]["status"]["state"].as_str())
    });
    states.collect()
}

pub fn text(text: &str) -> Value {
    json!([{"text": text}])
}

#[test]
fn a_message_is_a_task_whose_artifacts_are_the_messages_of_the_assistant() {
    let (stage, models) = Stage::scripted(|_| answer(vec![Part::text("Hello")]), |builder| builder);
    let body = ask(&stage, "SendMessage", &says(json!([{"text": "one"}, {"data": {"at": 1}}])));
    let task = task_of(&body);
    assert_eq!((texts(task), &task["status"]["state"]), (vec!["Hello"], &json!("TASK_STATE_COMPLETED")));
    assert_eq!(models.requests()[0].messages[0].text(), "one\n{\"at\":1}");
    assert_eq!(task["history"][0]["parts"][0]["text"], json!("one\n{\"at\":1}"));
    let again = ask(&stage, "GetTask", &json!({"id": task["id"], "historyLength": 0}));
    let mut without_history = task.clone();
    without_history.as_object_mut().unwrap().remove("history");
    assert_eq!(again["result"], without_history);
    ask(&stage, "SendMessage", &says(text("two")));
    assert_eq!(models.requests()[1].messages.len(), 3, "the context is remembered");
    let list = ask(&stage, "ListTasks", &json!({"contextId": "s", "pageSize": 1}));
    assert_eq!(
        (&list["result"]["totalSize"], list["result"]["tasks"].as_array().unwrap().len()),
        (&json!(2), 1)
    );
    let page =
        json!({"contextId": "s", "pageToken": list["result"]["nextPageToken"], "includeArtifacts": true});
    let rest = ask(&stage, "ListTasks", &page);
    assert_eq!(
        (&rest["result"]["tasks"][0]["id"], &rest["result"]["nextPageToken"]),
        (&task["id"], &json!(""))
    );
    let none = ask(&stage, "ListTasks", &json!({"contextId": "s", "status": "TASK_STATE_FAILED"}));
    assert_eq!(none["result"]["tasks"], json!([]));
    // A page covers turns, and not tasks that the filter finds: so no request reads the whole log.
    let failed = json!({"contextId": "s", "status": "TASK_STATE_FAILED", "pageSize": 1});
    let none = ask(&stage, "ListTasks", &failed);
    assert_eq!(none["result"]["tasks"], json!([]));
    assert_eq!(none["result"]["nextPageToken"], list["result"]["nextPageToken"]);
}

#[test]
fn a_stream_has_the_task_and_then_its_changes() {
    let stage = Stage::demo();
    let results = stream_of(&stage, "SendStreamingMessage", &says(text("/slow 100 9")));
    assert_eq!(states(&results), ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]);
    let body = ask(&stage, "GetTask", &json!({"id": results[0]["task"]["id"]}));
    assert_eq!(collected(&results), texts(&body["result"]));
}

#[test]
fn text_that_was_voided_is_replaced() {
    let tries = Cell::new(0);
    let once = move |_: &ModelRequest| match tries.replace(tries.get() + 1) {
        0 => vec![Ok(ModelEvent::Text("Hel".into())), Err(ModelError::new(ModelErrorKind::Network, "cut"))],
        _ => answer(vec![Part::text("Hello")]),
    };
    let (stage, _) = Stage::scripted(once, |builder| builder);
    let results = stream_of(&stage, "SendStreamingMessage", &says(text("hi")));
    let texts = collected(&results);
    let texts: Vec<_> = texts.iter().filter(|text| !text.is_empty()).collect();
    assert_eq!(texts, ["Hello"]);
}

fn has_run(stage: &Stage) -> bool {
    stage.runs.borrow().contains_key("k")
}

pub fn waiting() -> (Stage, Value) {
    let script = |request: &ModelRequest| match request.messages.last().map(|last| last.role) {
        Some(Role::Tool) => answer(vec![Part::text("Done")]),
        _ => answer(vec![Part::text("Wait."), call("c1", "write_it", json!({"key": "k"}))]),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    stage.host().create(crate::stage::meta(stage.host().now())).unwrap();
    stage.permit(|own| {
        own.tools.insert("write_it".into(), Policy::Ask);
    });
    let body = ask(&stage, "SendMessage", &says(text("write")));
    let task = task_of(&body).clone();
    assert_eq!(task["status"]["state"], json!("TASK_STATE_INPUT_REQUIRED"));
    let pending = &task["status"]["message"]["parts"][1]["data"]["pending"][0];
    assert_eq!((&pending["callId"], &pending["kind"]), (&json!("c1"), &json!("approval")));
    (stage, task)
}

#[test]
fn an_approval_is_input_in_words_or_as_data() {
    let data = |approved: bool| json!([{"data": {"callId": "c1", "approved": approved, "reason": "so"}}]);
    for (parts, ran) in [(text("Yes."), true), (text("no"), false), (data(true), true), (data(false), false)]
    {
        let (stage, task) = waiting();
        let body = ask(&stage, "SendMessage", &answers(&task, parts));
        let done = task_of(&body);
        assert_eq!((&done["id"], texts(done)), (&task["id"], vec!["Wait.", "Done"]));
        assert_eq!(has_run(&stage), ran);
        let again = ask(&stage, "SendMessage", &answers(&task, text("yes")));
        assert_eq!(again["error"]["code"], json!(-32004), "the task has ended");
    }
    let (stage, task) = waiting();
    let unclear = ask(&stage, "SendMessage", &answers(&task, text("perhaps")));
    assert_eq!(unclear["error"]["code"], json!(-32602));
    assert!(!has_run(&stage));
    let results = stream_of(&stage, "SendStreamingMessage", &answers(&task, text("approve")));
    assert_eq!(results[0]["task"]["artifacts"][0]["parts"][0]["text"], json!("Wait."), "what came before");
    assert_eq!(
        (states(&results).last(), collected(&results)),
        (Some(&"TASK_STATE_COMPLETED"), vec!["Done".into()])
    );
}

#[test]
fn a_question_is_answered_in_words() {
    let script = |request: &ModelRequest| match request.messages.last().map(|last| last.role) {
        Some(Role::Tool) => answer(vec![Part::text("Tea it is")]),
        _ => answer(vec![call("c1", "ask_user", json!({"question": "Tea?"}))]),
    };
    let (stage, models) = Stage::scripted(script, |builder| builder);
    let body = ask(&stage, "SendMessage", &says(text("ask")));
    let task = task_of(&body);
    let done = ask(&stage, "SendMessage", &answers(task, text("With milk")));
    assert_eq!(texts(task_of(&done)), ["Tea it is"]);
    let shown = format!("{:?}", models.requests()[1].messages);
    assert!(shown.contains("With milk"), "{shown}");
}

#[test]
fn a_task_is_followed_and_canceled() {
    let stage = Stage::demo();
    let mut params = says(text("/slow 100 900"));
    params["configuration"] = json!({"returnImmediately": true});
    let body = ask(&stage, "SendMessage", &params);
    let id = json!({"id": task_of(&body)["id"]});
    stage.live(ms(300));
    let mut open = stream(exchange(&stage, asked("SubscribeToTask", &id)).unwrap());
    let before = read_events(&stage, &mut open, 300);
    let before: Vec<_> = before.into_iter().map(|event| event["result"].clone()).collect();
    assert!(!collected(&before)[0].is_empty(), "what was said before");
    let begun = &before[0]["task"];
    assert_eq!(
        (&begun["status"]["state"], &begun["artifacts"]),
        (&json!("TASK_STATE_WORKING"), &Value::Null)
    );
    let queued = ask(&stage, "SendMessage", &{
        let mut params = says(text("/say later"));
        params["configuration"] = json!({"returnImmediately": true});
        params
    });
    assert_eq!(task_of(&queued)["status"]["state"], json!("TASK_STATE_SUBMITTED"));
    let removed = ask(&stage, "CancelTask", &json!({"id": task_of(&queued)["id"]}));
    assert_eq!(removed["result"]["status"]["state"], json!("TASK_STATE_CANCELED"));
    let canceled = ask(&stage, "CancelTask", &id);
    assert_eq!(canceled["result"]["status"]["state"], json!("TASK_STATE_CANCELED"));
    let rest = read_events(&stage, &mut open, 300);
    assert_eq!(
        rest.last().unwrap()["result"]["statusUpdate"]["status"]["state"],
        json!("TASK_STATE_CANCELED")
    );
    for (method, code) in [("CancelTask", -32002), ("SubscribeToTask", -32004)] {
        assert_eq!(ask(&stage, method, &id)["error"]["code"], json!(code));
    }
}

/// STREAM-SUB-002 and STREAM-ORDER-003 of the TCK.
#[test]
fn the_streams_of_a_task_that_waits_are_equal_and_last_until_it_ends() {
    let (stage, task) = waiting();
    let id = json!({"id": task["id"]});
    let subscribed = || stream(exchange(&stage, asked("SubscribeToTask", &id)).unwrap());
    let mut first = subscribed();
    stage.live(ms(5_000));
    let mut second = subscribed();
    let read = |open: &mut _| -> Vec<Value> {
        read_events(&stage, open, 1_000).into_iter().map(|event| event["result"].clone()).collect()
    };
    for open in [&mut first, &mut second] {
        assert_eq!(read(open), [json!({ "task": task })], "the task as it was when it began to wait");
    }
    // In another client.
    exchange(
        &stage,
        request("POST /v1/sessions/s/approvals/c1", "", &[], json!({"decision": "approve"}).to_string()),
    )
    .unwrap();
    let [first, second] = [read(&mut first), read(&mut second)];
    assert_eq!(states(&first), ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]);
    assert_eq!((collected(&first), &first), (vec!["Done".to_owned()], &second));
}

#[test]
fn the_time_of_a_status_that_waits_is_when_the_task_began_to_wait() {
    let script =
        |_: &ModelRequest| answer(["c1", "c2"].map(|id| call(id, "write_it", json!({"key": id}))).to_vec());
    let (stage, _) = Stage::scripted(script, |builder| builder);
    stage.host().create(crate::stage::meta(stage.host().now())).unwrap();
    stage.permit(|own| {
        own.tools.insert("write_it".into(), Policy::Ask);
    });
    let body = ask(&stage, "SendMessage", &says(text("write")));
    let task = task_of(&body);
    stage.live(ms(5_000));
    let one = json!([{"data": {"callId": "c1", "approved": true}}]);
    let results = stream_of(&stage, "SendStreamingMessage", &answers(task, one));
    let status = &results.last().unwrap()["statusUpdate"]["status"];
    let pending = status["message"]["parts"][1]["data"]["pending"].as_array().unwrap();
    assert_eq!((pending.len(), &pending[0]["callId"]), (1, &json!("c2")));
    assert_eq!(status["timestamp"], task["status"]["timestamp"]);
    let shown = ask(&stage, "GetTask", &json!({"id": task["id"]}));
    let shown = &shown["result"]["status"];
    assert_eq!(
        (&shown["message"]["parts"], &shown["timestamp"]),
        (&status["message"]["parts"], &status["timestamp"]),
        "the call that was decided is not asked about again"
    );
}

#[test]
fn a_failed_turn_is_a_failed_task_and_an_unknown_one_is_not_found() {
    let refuse = |_: &ModelRequest| vec![Err(ModelError::new(ModelErrorKind::Auth, "no key"))];
    let (stage, _) = Stage::scripted(refuse, |builder| builder);
    let body = ask(&stage, "SendMessage", &says(text("hi")));
    assert_eq!(task_of(&body)["status"]["state"], json!("TASK_STATE_FAILED"));
    assert!(task_of(&body)["status"]["message"]["parts"][0]["text"].as_str().unwrap().contains("key"));
    for id in ["trn_none.s", "none"] {
        let found = ask(&stage, "GetTask", &json!({"id": id}));
        let error = &found["error"];
        assert_eq!((&error["code"], &error["data"][0]["reason"]), (&json!(-32001), &json!("TASK_NOT_FOUND")));
    }
    let file = json!([{"text": "see"}, {"url": "https://example.com/a.png"}]);
    assert_eq!(ask(&stage, "SendMessage", &says(file))["error"]["code"], json!(-32602));
}

/// Returns the times of the statuses of a list of tasks.
fn times(list: &Value) -> Vec<String> {
    let tasks = list["result"]["tasks"].as_array().unwrap().iter();
    tasks.map(|task| task["status"]["timestamp"].as_str().unwrap().to_owned()).collect()
}

/// Cases of the protocol's Technology Compatibility Kit (TCK), by their ids.
#[test]
fn mandatory_cases_of_the_tck() {
    let stage = Stage::demo();
    let raw = |media_type: &str| says(json!([{"raw": "dGNr", "mediaType": media_type}]));
    let with = |field: &str, value: Value| {
        let mut params = says(text("/say hi"));
        params["message"][field] = value;
        params
    };
    let list = ask(&stage, "ListTasks", &json!({"contextId": "s"}))["result"].take();
    let nothing = json!({"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0});
    assert_eq!(list, nothing, "CORE-LIST-001: a context that does not exist");
    for (id, method, params, code) in [
        ("CORE-SEND-003", "SendMessage", raw("application/x-unsupported-tck-type"), -32005),
        ("DM-MSG-001", "SendMessage", with("messageId", Value::Null), -32602),
        ("DM-MSG-001", "SendMessage", with("messageId", json!("")), -32602),
        ("DM-MSG-001", "SendStreamingMessage", with("role", Value::Null), -32602),
        ("DM-MSG-001", "SendMessage", with("role", json!("ROLE_UNSPECIFIED")), -32602),
        ("CORE-CAP-003", "GetExtendedAgentCard", json!({}), -32004),
    ] {
        assert_eq!(ask(&stage, method, &params)["error"]["code"], json!(code), "{id}: {params}");
    }
    assert!(!stage.store.exists().unwrap(), "nothing was posted");
    for accepted in [raw("image/png"), raw("application/octet-stream"), raw("")] {
        task_of(&ask(&stage, "SendMessage", &accepted));
    }
    let new = |context: Value| {
        let mut params = with("contextId", context);
        params["message"]["parts"] = text("/say hi");
        ask(&stage, "SendMessage", &params)["result"]["task"].take()
    };
    let (one, two) = (new(json!("s")), new(json!("")));
    assert_eq!((&one["contextId"], &two["contextId"]), (&json!("s"), &json!("s")), "CORE-MULTI-001a, 002a");
    assert_ne!(one["id"], two["id"], "CORE-MULTI-003");
    for (id, field, value, code) in [
        ("CORE-MULTI-004", "taskId", json!("trn_none.s"), -32001),
        ("CORE-SEND-002", "taskId", one["id"].clone(), -32004),
    ] {
        assert_eq!(ask(&stage, "SendMessage", &with(field, value))["error"]["code"], json!(code), "{id}");
    }
    let mut other = with("taskId", one["id"].clone());
    other["message"]["contextId"] = json!("another");
    assert!(ask(&stage, "SendMessage", &other)["error"].is_object(), "CORE-MULTI-006");
    let found = times(&ask(&stage, "ListTasks", &json!({"contextId": "s"})));
    assert!(found.is_sorted_by(|a, b| a >= b), "CORE-LIST-003: {found:?}");
    // ProtoJSON: null is the default of a field, and an enum may be a number.
    let mut params = says(json!([{"raw": "dGNr", "mediaType": null, "filename": null}]));
    for (field, value) in [("role", json!(1)), ("contextId", Value::Null), ("taskId", Value::Null)] {
        params["message"][field] = value;
    }
    task_of(&ask(&stage, "SendMessage", &params));
    params["message"]["role"] = json!(3);
    assert_eq!(ask(&stage, "SendMessage", &params)["error"]["code"], json!(-32602));
    // Patch numbers make no difference, and the version may be a parameter of the address.
    let body =
        json!({"jsonrpc": "2.0", "id": 7, "method": "ListTasks", "params": {"contextId": "s"}}).to_string();
    for (id, headers, query, code) in [
        ("VER-CLIENT-002", vec![("a2a-version", "1.0.1")], "", None),
        ("VER-CLIENT-002", vec![], "A2A-Version=1.0", None),
        ("VER-SERVER-002", vec![("a2a-version", "1.1")], "", Some(-32009)),
        ("VER-SERVER-002", vec![("a2a-version", "1.0x")], "", Some(-32009)),
        ("VER-SERVER-003", vec![("a2a-version", "")], "", Some(-32009)),
        ("VER-SERVER-003", vec![], "", Some(-32009)),
    ] {
        let found = whole(exchange(&stage, request("POST /a2a", query, &headers, body.clone())).unwrap());
        assert_eq!(found["error"]["code"].as_i64(), code, "{id}: {headers:?} {query}");
    }
}
