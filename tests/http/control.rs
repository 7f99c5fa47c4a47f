//! Modes, permissions, tasks, usage, and state, over HTTP.

use crate::support::{Chat, Script, Server, World, log, log::of_type};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{sync::OnceLock, thread};

/// Modes, a tool with commands, and a schema of the state.
fn bindings() -> Value {
    let modes =
        json!([{"id": "build"}, {"id": "plan", "read_only": true}, {"id": "bare", "available_tools": []}]);
    let shell = json!([{"name": "shell", "description": "Runs a command.", "category": "execute",
        "parameters": {"properties": {"command": {"type": "string"}}, "required": ["command"]}}]);
    let schema = json!({"type": "object", "properties": {"count": {"type": "integer"}}});
    json!({"MEMORY_FLUSH": "never", "MODES": modes.to_string(), "EXTERNAL_TOOLS": shell.to_string(),
        "STATE_SCHEMA": schema.to_string()})
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| World::with(bindings()))
}

/// Creates a session of the demo model with these permissions.
#[track_caller]
fn demo(id: &str, permissions: Value) -> Chat {
    let client = world().server.client();
    let session = json!({"id": id, "model": "demo/echo", "permissions": permissions});
    client.post("/v1/sessions", session).expect(201);
    Chat::new(client, id)
}

/// Returns a message that makes the demo model call a tool.
fn tool(name: &str, args: Value) -> String {
    format!("/tool {name} {args}")
}

fn write(path: &str) -> String {
    tool("write_file", json!({"path": path, "content": "x", "overwrite": true}))
}

/// Returns the payload of the only suspended call, or its outcome.
#[track_caller]
fn fate(chat: &Chat, said: &str) -> String {
    let turn = chat.turn(&chat.say(said));
    let (waits, call) = (&turn["pending"][0]["kind"], &turn["calls"][0]);
    let fate = [waits, &call["denied"], &call["outcome"]].into_iter().find_map(Value::as_str);
    fate.expect("a call").to_owned()
}

#[test]
fn invalid_modes_are_logged_and_nothing_runs() {
    let bad = |modes: Value| {
        let mut bindings = bindings();
        bindings["MODES"] = modes.to_string().into();
        bindings
    };
    let mut server = Server::start(bad(json!([{"id": "a"}, {"id": "a"}])));
    let refused = |server: &Server, expected: &str| {
        let answer = server.client().post("/v1/sessions/x/messages", json!({"content": "hi"})).expect(501);
        assert_eq!(answer["code"], "not_configured");
        assert!(!answer.to_string().contains(expected), "the response does not say why");
        server.expect_log(expected);
    };
    refused(&server, "another mode has the same id");
    server.restart_with(bad(json!([{"id": "a", "tools": [], "additional_tools": []}])));
    refused(&server, "exclude each other");
}

#[test]
fn of_concurrent_switches_the_last_one_applies() {
    let chat = demo("switches", json!({}));
    let switches: Vec<_> = (0..8)
        .map(|n| {
            let chat = chat.clone();
            let mode = ["plan", "bare", "build"][n % 3];
            thread::spawn(move || chat.client.patch(&chat.path(""), json!({ "mode": mode })).expect(200))
        })
        .collect();
    switches.into_iter().for_each(|switch| drop(switch.join().unwrap()));
    let log = chat.log();
    let mut now = json!("build");
    for changed in of_type(&log, "mode.changed") {
        assert_eq!(changed["previous"], now);
        now = changed["mode"].clone();
    }
    assert_eq!(chat.get("")["mode"], now);
}

#[test]
fn a_session_keeps_its_mode() {
    let mut server = Server::start(bindings());
    server.client().post("/v1/sessions", json!({"id": "back", "model": "demo/echo"})).expect(201);
    server.client().patch("/v1/sessions/back", json!({"mode": "plan"})).expect(200);
    server.restart();
    let chat = Chat::new(server.client(), "back");
    assert_eq!(chat.get("")["mode"], "plan");
    chat.client.patch(&chat.path(""), json!({"mode": "build"})).expect(200);
    let log = chat.log();
    let changed = of_type(&log, "mode.changed").pop().unwrap().clone();
    assert_eq!((&changed["previous"], &changed["mode"]), (&json!("plan"), &json!("build")));
}

#[test]
fn forbidden_tools_are_hidden_from_the_model() {
    let chat = world().chat("openai/seen");
    let tools = || -> Vec<String> {
        world().model.script("seen", Script::text(["Yes."]));
        chat.say("and now?");
        let body = world().received("seen").pop().unwrap().body;
        let named = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_owned();
        body["tools"].as_array().map(|tools| tools.iter().map(named).collect()).unwrap_or_default()
    };
    assert!(tools().contains(&"write_file".to_owned()));
    let deny = json!({"permissions": {"yolo": true, "tools": {"write_file": "deny"}}});
    chat.client.patch(&chat.path(""), deny).expect(200);
    assert!(!tools().contains(&"write_file".to_owned()));
    chat.client.patch(&chat.path(""), json!({"mode": "bare"})).expect(200);
    assert_eq!(tools(), [] as [&str; 0]);
}

#[test]
fn rules_apply_in_their_order() {
    let denied = demo("order-1", json!({"yolo": true, "tools": {"write_file": "deny"}}));
    assert_eq!(fate(&denied, &write("a.txt")), "permission");
    let asks = json!({"default": "ask"});
    assert_eq!(fate(&demo("order-2", asks.clone()), &write("a.txt")), "approval");
    let yolo = demo("order-3", json!({"default": "ask", "yolo": true}));
    assert_eq!(fate(&yolo, &write("a.txt")), "result");
    let own = json!({"tools": {"write_file": "ask"}, "grants": {"categories": ["edit"]}});
    assert_eq!(
        fate(&demo("order-4", own), &write("a.txt")),
        "approval",
        "the tool's own rule takes precedence"
    );

    let chat = demo("order-5", asks);
    let waits = chat.say(&write("b.txt"));
    let foreign = chat.post("/approvals/call_of_nobody", json!({"decision": "approve"})).expect(404);
    assert_eq!((&foreign["code"], &chat.get("")["status"]), (&json!("not_found"), &json!("waiting")));
    let call = waits["pending"][0]["call_id"].as_str().unwrap();
    chat.post(&format!("/approvals/{call}"), json!({"decision": "always_allow_category"})).expect(200);
    let edit = tool("edit_file", json!({"path": "b.txt", "old": "x", "new": "y"}));
    assert_ne!(fate(&chat, &edit), "approval", "the category edit is allowed");
    assert_eq!(
        fate(&chat, &tool("shell", json!({"command": "ls"}))),
        "approval",
        "the category execute is not"
    );

    let patterns = json!([{"pattern": "git *", "policy": "allow"},
        {"pattern": "git push --force*", "policy": "deny"}]);
    let git = demo("order-6", json!({"default": "ask", "patterns": patterns}));
    assert_eq!(fate(&git, &tool("shell", json!({"command": "git push --force origin"}))), "permission");
    assert_eq!(fate(&git, &tool("shell", json!({"command": "git push; rm -r /"}))), "approval");
    assert_eq!(fate(&git, &tool("shell", json!({"command": "git push origin"}))), "external");
}

#[test]
fn aborting_a_waiting_call_is_not_a_failure_however_often() {
    let chat = demo("gate", json!({"tools": {"echo": "ask"}}));
    let waits = chat.say(&tool("echo", json!({"text": "x"})));
    let aborts: Vec<_> = (0..2)
        .map(|_| {
            let chat = chat.clone();
            thread::spawn(move || chat.post("/abort", json!({})).expect(200)["aborted"] == true)
        })
        .collect();
    let done = aborts.into_iter().map(|abort| abort.join().unwrap());
    assert_eq!(done.filter(|done| *done).count(), 1);
    let turn = chat.turn(&waits);
    assert_eq!((&turn["status"], &turn["calls"][0]["denied"]), (&json!("canceled"), &json!("canceled")));
    let log = chat.log();
    log::check(&log);
    assert!(of_type(&log, "turn.failed").is_empty());
}

#[test]
fn a_request_that_waits_for_a_turn_of_a_deleted_session_gets_404() {
    let chat = demo("deleted", json!({}));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| chat.post("/messages", json!({"content": "/slow 1000 60"})));
        chat.until_logged("turn.started");
        world().server.client().delete(&chat.path("")).expect(204);
        assert_eq!(waiting.join().unwrap().expect(404)["code"], "not_found");
    });
}

#[test]
fn tasks_keep_their_ids() {
    let chat = demo("tasks", json!({}));
    let result = |name: &str, args: Value| -> Value {
        let turn = chat.turn(&chat.say(&tool(name, args)));
        let call = &turn["calls"][0];
        [&call["result"], &call["reason"]].into_iter().find(|said| !said.is_null()).unwrap().clone()
    };
    let list = || -> Vec<(String, String)> {
        let view = chat.get("/view");
        let text = |task: &Value, name: &str| task[name].as_str().unwrap().to_owned();
        view["tasks"].as_array().unwrap().iter().map(|t| (text(t, "id"), text(t, "status"))).collect()
    };
    let pair = |id: &str, status: &str| (id.to_owned(), status.to_owned());
    let empty = result("task_check", json!({}));
    assert_eq!((&empty["has_tasks"], &empty["all_completed"]), (&json!(false), &json!(false)));
    let tasks = json!([{"content": "Write tests", "status": "in_progress"},
        {"id": "own", "content": "Run"}, {"id": "own", "content": "Ship"}]);
    result("task_write", json!({ "tasks": tasks }));
    let written = list();
    assert_eq!(written[..2], [pair("task_write_tests", "in_progress"), pair("own", "pending")]);
    assert_ne!(written[2].0, "own", "the second of two equal ids is replaced");
    let two = json!([{"content": "a", "status": "in_progress"}, {"content": "b", "status": "in_progress"}]);
    result("task_write", json!({ "tasks": two }));
    assert_eq!(list(), written, "the old list is unchanged");
    result("task_update", json!({"id": "own", "status": "in_progress"}));
    assert_eq!(list()[..2], [pair("task_write_tests", "pending"), pair("own", "in_progress")]);
    let unknown = result("task_complete", json!({"id": "unknown"})).to_string();
    assert!(unknown.contains("task_write_tests") && unknown.contains("own"), "{unknown}");
}

#[test]
fn usage_is_taken_from_the_provider() {
    let chat = world().chat("openai/usage");
    let call = Script::new().tool("c", "echo", json!({"text": "x"})).usage(100, 20, 50);
    world().model.script("usage", call);
    world().model.script("usage", Script::text(["Done."]).usage(200, 0, 10));
    let usage = chat.say("go")["usage"].clone();
    assert_eq!(
        [
            &usage["input_tokens"],
            &usage["output_tokens"],
            &usage["total_tokens"],
            &usage["cache_read_tokens"]
        ],
        [&json!(300), &json!(60), &json!(360), &json!(20)]
    );
    let reported = |log: &[Value]| -> Vec<(u64, u64)> {
        let tokens = |of: &Value| of["total_tokens"].as_u64().unwrap();
        of_type(log, "usage.updated").iter().map(|r| (tokens(&r["step"]), tokens(&r["total"]))).collect()
    };
    assert_eq!(reported(&chat.log()), [(150, 150), (210, 360)]);
    world().model.script("usage", Script::text(["More."]).no_usage());
    chat.say("more");
    assert_eq!(reported(&chat.log()).len(), 2, "a missing count is not a count of zero");
    assert_eq!(chat.get("")["usage"]["total_tokens"], 360);
}

#[test]
fn invalid_state_changes_nothing() {
    let chat = demo("state", json!({}));
    let patch = |state: Value| chat.client.patch(&chat.path(""), json!({ "state": state }));
    patch(json!({"count": 1, "name": "a"})).expect(200);
    let refused = patch(json!({"count": "two", "name": "b"})).expect(422);
    assert_eq!(refused["errors"][0]["pointer"], "/state/count");
    assert_eq!(chat.get("")["state"], json!({"count": 1, "name": "a"}));
    assert_eq!(patch(json!({"count": 3})).expect(200)["state"], json!({"count": 3, "name": "a"}));
    let log = chat.log();
    let changed: Vec<&Value> = of_type(&log, "state.changed").iter().map(|r| &r["changed_keys"]).collect();
    assert_eq!(changed, [&json!(["count", "name"]), &json!(["count"])]);
}
