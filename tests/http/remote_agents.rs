//! Remote agents: subagents whose work another server does, over HTTP and across `kill -9`.

use crate::support::{
    Chat, Client, Counting, DEV_API_KEY, PATIENCE, Server,
    log::{self, of_type, wait_idle},
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{thread, time::Instant};

/// Starts a server with these settings, and one whose agent has the first as a remote agent, reached with this key.
fn start_with(settings: Value, key: &str) -> (Server, Server) {
    let elsewhere = Server::start(settings);
    let address = elsewhere.address();
    let server = Server::start(json!({ "REMOTE_AGENTS_ALLOW": address.to_string() }));
    let stored = server.client().put("/v1/secrets/THEIRS", json!({ "value": key }));
    assert!((200..300).contains(&stored.status), "{}", stored.text());
    let remote = json!({
        "url": format!("http://{address}/a2a"), "headers": {"authorization": "Bearer ${secret:THEIRS}"},
    });
    let kinds = json!([{"id": "expert", "description": "knows bicycles", "remote": remote}]);
    let desk = json!({"model": "demo/echo", "subagents": kinds, "background_tasks": "on"});
    server.client().put("/v1/agents/desk", desk).expect(201);
    (elsewhere, server)
}

fn start(settings: Value) -> (Server, Server) {
    start_with(settings, DEV_API_KEY)
}

fn chat(client: &Client) -> Chat {
    client.post("/v1/sessions", json!({"id": "asks", "agent": "desk"})).expect(201);
    Chat::new(client.clone(), "asks")
}

fn spawn(task: &str) -> String {
    let args = json!({"agent_id": "expert", "task": task, "label": "expert", "timeout_seconds": 60});
    format!("/tool agent_spawn {args}")
}

fn send(message: &str) -> String {
    let args = json!({"label": "expert", "message": message, "timeout_seconds": 60});
    format!("/tool agent_send {args}")
}

/// Returns the last result of a call in a session.
fn last_result(chat: &Chat) -> Value {
    of_type(&chat.log(), "tool.completed").pop().unwrap().clone()
}

fn reply(chat: &Chat) -> String {
    let result = last_result(chat);
    result["result"]["reply"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}

/// Kills the server and starts it again. Returns the session when its turn has ended.
fn restarted(server: &mut Server) -> Chat {
    server.restart();
    let chat = Chat::new(server.client(), "asks");
    chat.get("");
    wait_idle(&server.client(), "asks");
    chat
}

/// Waits for the session on the other server.
fn session_of(elsewhere: &Server) -> Chat {
    let end = Instant::now() + PATIENCE;
    loop {
        let list = elsewhere.client().get("/v1/sessions").expect(200);
        if let Some(session) = list["data"][0]["id"].as_str() {
            return Chat::new(elsewhere.client(), session);
        }
        assert!(Instant::now() < end, "no session elsewhere");
        thread::yield_now();
    }
}

#[test]
fn a_remote_agent_does_tasks_in_one_conversation() {
    let (elsewhere, server) = start(json!({}));
    let chat = chat(&server.client());
    // The agent there has tools of its own, which it uses there.
    chat.say(&spawn("/tool echo {\"text\": \"Two wheels.\"}"));
    assert!(reply(&chat).contains("Two wheels."));
    chat.say(&send("/say Three."));
    assert_eq!(reply(&chat), "Three.");
    let theirs = session_of(&elsewhere);
    assert_eq!(of_type(&theirs.log(), "turn.completed").len(), 2);
    let own = Chat::new(server.client(), last_result(&chat)["result"]["agent_key"].as_str().unwrap());
    let log = own.log();
    log::check(&log);
    assert!(of_type(&log, "tool.started").is_empty());
    assert_eq!(of_type(&log, "turn.completed")[0]["model"], "remote/expert");
    assert!(!server.log().contains(DEV_API_KEY));
}

#[test]
fn a_question_of_a_remote_agent_is_answered_by_the_next_message() {
    let (elsewhere, server) = start(json!({"PERMISSIONS": r#"{"tools": {"current_time": "ask"}}"#}));
    let chat = chat(&server.client());
    chat.say(&spawn("/tool current_time {}"));
    assert!(reply(&chat).starts_with("The remote agent needs input"), "{}", reply(&chat));
    chat.say(&send("yes"));
    assert!(reply(&chat).contains("unix_ms"), "{}", reply(&chat));
    assert_eq!(of_type(&session_of(&elsewhere).log(), "turn.completed").len(), 1);
}

#[test]
fn a_remote_task_is_done_once_across_a_kill() {
    let counting = Counting::start();
    let (elsewhere, mut server) = start(json!({}));
    let slowly_counts = format!(
        "/tool sleep {{\"ms\": 8000}}\n/then /tool counter {}",
        json!({"url": counting.url("/remote")})
    );
    let chat = chat(&server.client());
    chat.begin(json!({"content": spawn(&slowly_counts)}));
    let theirs = session_of(&elsewhere);
    theirs.until_logged("tool.started");
    let chat = restarted(&mut server);
    assert!(reply(&chat).contains("counter"), "{}", reply(&chat));
    assert_eq!(counting.count("/remote"), 1);
    assert_eq!(of_type(&theirs.log(), "turn.started").len(), 1);
    log::check(&chat.log());
}

#[test]
fn an_answer_to_a_remote_agent_counts_once_across_a_kill() {
    let counting = Counting::start();
    let (elsewhere, mut server) = start(json!({"PERMISSIONS": r#"{"tools": {"sleep": "ask"}}"#}));
    let counts = format!("/tool counter {}", json!({"url": counting.url("/answered")}));
    let chat = chat(&server.client());
    chat.say(&spawn(&format!("/tool sleep {{\"ms\": 8000}}\n/then {counts}")));
    chat.begin(json!({"content": send("yes")}));
    let theirs = session_of(&elsewhere);
    theirs.until_logged("approval.decided");
    let chat = restarted(&mut server);
    assert!(reply(&chat).contains("counter"), "{}", reply(&chat));
    assert_eq!(counting.count("/answered"), 1);
    assert_eq!(of_type(&theirs.log(), "turn.started").len(), 1);
}

#[test]
fn rules_decide_on_what_is_given_to_a_remote_agent() {
    let (elsewhere, server) = start(json!({}));
    let chat = chat(&server.client());
    chat.client.patch(&chat.path(""), json!({"permissions": {"default": "ask"}})).expect(200);
    let one = json!({"agent_id": "general-purpose", "task": "/say One.", "timeout_seconds": 60});
    chat.say(&format!("/tool agent_spawn {one}"));
    assert_eq!(reply(&chat), "One.", "another subagent only controls the session");
    let waits = chat.say(&spawn("/say Two."));
    assert_eq!((&waits["status"], &waits["pending"][0]["name"]), (&json!("waiting"), &json!("agent_spawn")));
    let call = waits["pending"][0]["call_id"].as_str().unwrap();
    chat.post(&format!("/approvals/{call}"), json!({"decision": "approve"})).expect(200);
    wait_idle(&server.client(), "asks");
    assert_eq!(reply(&chat), "Two.");
    assert_eq!(chat.say(&send("/say Three."))["status"], "waiting");
    chat.post("/abort", json!({})).expect(200);
    chat.client.patch(&chat.path(""), json!({"mode": "plan"})).expect(200);
    for asked in [send("/say Four."), spawn("/say Five.")] {
        chat.say(&asked);
        assert_eq!(last_result(&chat)["denied"], "permission");
    }
    assert_eq!(of_type(&session_of(&elsewhere).log(), "turn.started").len(), 1);
}

#[test]
fn an_abort_reaches_the_remote_agent() {
    let (elsewhere, server) = start(json!({}));
    let chat = chat(&server.client());
    chat.begin(json!({"content": spawn("/tool sleep {\"ms\": 20000}")}));
    let theirs = session_of(&elsewhere);
    theirs.until_logged("tool.started");
    chat.post("/abort", json!({})).expect(200);
    theirs.until_logged("turn.canceled");
    wait_idle(&server.client(), "asks");
}

#[test]
fn a_remote_agent_that_refuses_fails_the_call_and_not_the_turn() {
    let (_elsewhere, server) = start_with(json!({}), "another key");
    let chat = chat(&server.client());
    let done = chat.say(&spawn("/say One."));
    assert_eq!(done["status"], "completed", "{done}");
    let failed = last_result(&chat);
    assert!(failed.to_string().contains("the remote agent answered with status 401"), "{failed}");
}

#[test]
fn a_definition_with_a_remote_agent_is_checked() {
    let server = Server::start(json!({"REMOTE_AGENTS_ALLOW": "agents.example.com"}));
    let put = |kind: Value| server.client().put("/v1/agents/desk", json!({ "subagents": [kind] }));
    let remote = json!({"url": "https://agents.example.com/a2a"});
    let kind = |more: Value| {
        let mut kind = json!({"id": "expert", "description": "d", "remote": remote});
        kind.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        kind
    };
    put(kind(json!({}))).expect(201);
    for (more, pointer) in [
        (json!({"remote": {"url": "https://other.example.com/"}}), "/subagents/0/remote/url"),
        (json!({"remote": {"url": "http://agents.example.com/"}}), "/subagents/0/remote/url"),
        (
            json!({"remote": {"url": "https://agents.example.com/", "headers": {"A2A-Version": "1"}}}),
            "/subagents/0/remote/headers/A2A-Version",
        ),
        (json!({"tools": ["echo"]}), "/subagents/0"),
        (json!({"instructions": "Be strict."}), "/subagents/0"),
    ] {
        let refused = put(kind(more)).expect(422);
        assert_eq!(refused["errors"][0]["pointer"], pointer, "{refused}");
    }
}
