//! Subagents: tasks in their own sessions, over HTTP, and across `kill -9`.

use crate::privacy::unzip;
use crate::support::{
    Chat, Client, Counting, DEV_API_KEY, Gate, Script, Server, World,
    log::{self, Random, of_type, wait_idle},
    outcomes,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::sync::OnceLock;

fn kinds() -> Value {
    let slow = json!([{"id": "slow", "description": "takes its time", "model": "openai/slow"},
        {"id": "reader", "description": "only echoes", "tools": ["echo"], "instructions": "Only echo."},
        {"id": "guest", "description": "has files of its own", "workspace": {"mode": "isolated"}, "skills": {"deny": ["*"]}}]);
    json!({"MEMORY_FLUSH": "never", "SUBAGENTS": slow.to_string()})
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| World::with(kinds()))
}

/// Creates a session of the demo model.
#[track_caller]
fn demo(client: &Client, id: &str) -> Chat {
    client.post("/v1/sessions", json!({"id": id, "model": "demo/echo"})).expect(201);
    Chat::new(client.clone(), id)
}

/// Returns a message that makes the demo model spawn a subagent.
fn send(agent: &str, task: &str) -> String {
    format!("/tool subagent {}", json!({"agent": agent, "task": task}))
}

/// Returns the sessions of the subagents that a session has spawned.
fn children(chat: &Chat) -> Vec<Chat> {
    let log = chat.log();
    let ids = of_type(&log, "subagent.started").into_iter().map(|record| record["session"].as_str().unwrap());
    ids.map(|id| Chat::new(chat.client.clone(), id)).collect()
}

fn listed(client: &Client) -> Vec<String> {
    let list = client.get("/v1/sessions?limit=100").expect(200);
    list["data"].as_array().unwrap().iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_agent_of_another_server_is_a_kind_of_subagent() {
    let elsewhere = Server::start(json!({}));
    let expert = json!({"model": "demo/echo", "instructions": "You know bicycles."});
    elsewhere.client().put("/v1/agents/expert", expert).expect(201);
    let provider = json!([{"name": "elsewhere", "base_url": format!("http://{}/v1", elsewhere.address()), "key": "THEIRS"}]);
    let kind =
        json!([{"id": "expert", "description": "knows bicycles", "model": "elsewhere/expert", "tools": []}]);
    let server = Server::start(json!({
        "PROVIDERS": provider.to_string(), "THEIRS": DEV_API_KEY, "SUBAGENTS": kind.to_string(),
    }));
    let chat = demo(&server.client(), "asks");
    // The agent there has tools of its own, which it uses there.
    chat.say(&send("expert", "/tool echo {\"text\": \"Two wheels.\"}"));
    let log = chat.log();
    let completed = of_type(&log, "tool.completed").pop().unwrap();
    assert!(completed["result"].as_str().unwrap().contains("Two wheels."), "{completed}");
    assert!(of_type(&children(&chat)[0].log(), "tool.completed").is_empty());
}

#[test]
fn subagents_complete_their_tasks() {
    let client = world().server.client();
    let chat = demo(&client, "round");
    let asked = format!("{}\n{}", send("general-purpose", "/say one"), send("general-purpose", "/say two"));
    let events: Vec<_> = chat.stream(json!({"content": asked})).collect();
    let kinds: Vec<&str> =
        events.iter().map(|event| event.event.as_str()).filter(|kind| kind.starts_with("subagent")).collect();
    assert_eq!(kinds, ["subagent.started", "subagent.started", "subagent.completed", "subagent.completed"]);
    assert_eq!(events.last().unwrap().event, "turn.completed", "a single stream covers the turn");
    let log = chat.log();
    log::check(&log);
    let results: Vec<&Value> =
        of_type(&log, "tool.completed").iter().map(|record| &record["result"]).collect();
    assert_eq!(results, ["one", "two"]);
    let children = children(&chat);
    let parent = &children[0].get("")["parent"];
    assert_eq!((&parent["session"], &parent["agent"]), (&json!("round"), &json!("general-purpose")));
    let list = listed(&client);
    for child in &children {
        log::check(&child.log());
        assert_eq!(child.log_types().iter().filter(|kind| *kind == "turn.completed").count(), 1);
        assert!(!list.iter().any(|id| child.path("").ends_with(id)));
        let refused = child.post("/messages", json!({"content": "hi"})).expect(409);
        assert_eq!(refused["code"], "subagent_session");
    }
    assert!(list.contains(&"round".to_owned()));
    let used: u64 = of_type(&log, "subagent.completed")
        .iter()
        .map(|r| r["usage"]["total_tokens"].as_u64().unwrap())
        .sum();
    assert!(used > 0 && chat.get("")["usage"]["total_tokens"].as_u64().unwrap() > used);
    assert_eq!(client.delete(&chat.path("")).status, 204);
    for child in children {
        client.get(&child.path("")).expect(404);
    }
}

#[test]
fn an_isolated_subagent_has_files_of_its_own() {
    let client = world().server.client();
    let chat = demo(&client, "isolated");
    let put =
        |path: &str, text: &str| client.send("PUT", &format!("/v1/workspace/files/{path}"), text.as_bytes());
    put("isolated.md", "private");
    put("isolated-guide.md?layer=shared", "of all users");
    put("skills/isolated/SKILL.md?layer=shared", "---\nname: isolated\ndescription: d\n---\n\nDo it.\n");
    let tool = |name: &str, args: Value| format!("/tool {name} {args}");
    let file = |path: &str| tool("read_file", json!({"path": path}));
    let write = tool("write_file", json!({"path": "isolated.md", "content": "of the subagent"}));
    let task = [
        file("isolated.md"),
        format!("/then {}", file("isolated-guide.md")),
        format!("/then {write}"),
        format!("/then {}", file("isolated.md")),
        format!("/then {}", tool("load_skill", json!({"name": "isolated"}))),
    ];
    let done = chat.say(&send("guest", &task.join("\n")));
    assert_eq!(done["status"], "completed", "{done}");
    let child = children(&chat).remove(0);
    let log = child.log();
    let outcomes = of_type(&log, "tool.completed");
    let text = |n: usize| outcomes[n]["result"].as_str().or(outcomes[n]["reason"].as_str()).unwrap();
    assert!(text(0).contains("no such file"), "{}", text(0));
    assert!(text(1).contains("of all users"), "{}", text(1));
    assert!(text(3).contains("of the subagent"), "{}", text(3));
    assert!(text(4).contains("no such skill"), "{}", text(4));
    client.post(&child.path("/fork"), json!({})).expect(409);
    let user = child.get("")["user"].as_str().unwrap().to_owned();
    let has = |user: &str| {
        let export = unzip(&client.get(&format!("/v1/export?user={user}")));
        export.iter().any(|(name, text)| name.ends_with("/isolated.md") && text == "of the subagent")
    };
    assert!(has(&user) && !has("another"));
    let read = || client.get("/v1/workspace/files/isolated.md").text().to_owned();
    assert_eq!(read(), "private");
    assert_eq!(client.delete(&chat.path("")).status, 204);
    client.get(&child.path("")).expect(404);
    assert_eq!(read(), "private");
}

#[test]
fn denials_of_the_parent_apply_to_the_child() {
    let client = world().server.client();
    let chat = demo(&client, "forbidden");
    client
        .patch(&chat.path(""), json!({"permissions": {"tools": {"echo": "deny"}, "yolo": true}}))
        .expect(200);
    for task in ["/tool echo {\"text\": \"x\"}", "/tool write {\"key\": \"a\", \"value\": 1}"] {
        chat.say(&send("general-purpose", task));
    }
    let children = children(&chat);
    let denied = of_type(&children[0].log(), "tool.completed")[0].clone();
    assert_eq!(denied["denied"], "permission");
    assert_eq!(children[1].get("")["state"]["a"], 1, "yolo applies to the child too");
    for change in [json!({"permissions": {"tools": {"echo": "allow"}}}), json!({"mode": "build"})] {
        assert_eq!(client.patch(&children[0].path(""), change).expect(409)["code"], "subagent_session");
    }
    client.patch(&chat.path(""), json!({"mode": "plan"})).expect(200);
    chat.say(&send("general-purpose", "/tool write {\"key\": \"a\", \"value\": 2}"));
    let child = self::children(&chat).pop().unwrap();
    assert_eq!((&child.get("")["mode"], &child.get("")["state"]["a"]), (&json!("plan"), &Value::Null));
    // A kind of subagent has its own tools and instructions.
    chat.say(&send("reader", "/tool write {\"key\": \"a\", \"value\": 3}"));
    let child = self::children(&chat).pop().unwrap();
    assert_eq!(of_type(&child.log(), "tool.completed")[0]["denied"], "unknown_tool");
}

#[test]
fn a_fork_is_tagged_and_hidden_and_spawns_no_subagents() {
    let client = world().server.client();
    let chat = demo(&client, "forking");
    chat.say("/say before");
    let nested = send("general-purpose", "/say never");
    let asked = json!({"agent": "general-purpose", "task": nested, "forked": true});
    let done = chat.say(&format!("/tool subagent {asked}"));
    assert_eq!(done["status"], "completed");
    let child = children(&chat).pop().unwrap();
    let log = child.log();
    log::check(&log);
    assert_eq!(
        (&log[0]["forked_from"], &child.get("")["parent"]["forked"]),
        (&json!("forking"), &json!(true))
    );
    assert!(
        log::messages(&client, child.path("").rsplit('/').next().unwrap())
            .iter()
            .any(|m| log::text(m) == "before")
    );
    assert!(!listed(&client).iter().any(|id| child.path("").ends_with(id)));
    let refused = of_type(&log, "tool.completed").pop().unwrap().clone();
    assert_eq!(refused["denied"], "permission");
    assert!(refused["reason"].as_str().unwrap().contains("do the task yourself"));
    assert_eq!(of_type(&log, "turn.completed").len(), 2, "the turn continued");
}

/// Creates a session whose subagent has streamed `half` and stalls.
fn half_way(id: &str) -> (Chat, Chat, Gate) {
    let gate = Gate::new();
    world().model.script("slow", Script::text(["half"]).hold(&gate).say(" and more"));
    let chat = demo(&world().server.client(), id);
    chat.begin(json!({"content": send("slow", "Write.")}));
    gate.reached();
    chat.until_logged("subagent.started");
    let child = children(&chat).pop().unwrap();
    child.client.stream(&child.path("/events")).until_type("message.delta");
    (chat, child, gate)
}

#[test]
fn an_aborted_subagent_returns_its_partial_text() {
    let (chat, child, gate) = half_way("half");
    assert_eq!(child.post("/abort", json!({})).expect(200)["aborted"], true);
    chat.until_idle();
    gate.open();
    let log = chat.log();
    log::check(&log);
    let ended = of_type(&log, "tool.completed")[0];
    assert_eq!(
        (&ended["outcome"], &ended["result"]),
        (&json!("result"), &json!("[Aborted by user]\n\nhalf"))
    );
    assert_eq!(log.last().unwrap()["type"], "turn.completed", "the parent's turn continues");

    let (chat, child, gate) = half_way("half-2");
    assert_eq!(chat.post("/abort", json!({})).expect(200)["aborted"], true);
    chat.until_idle();
    child.until_idle();
    gate.open();
    let log = chat.log();
    log::check(&log);
    assert_eq!(of_type(&log, "tool.completed")[0]["result"], "[Aborted by user]\n\nhalf");
    assert_eq!(of_type(&log, "subagent.completed")[0]["status"], "canceled");
    assert_eq!(log.last().unwrap()["type"], "turn.canceled");
    assert_eq!(child.log().last().unwrap()["type"], "turn.canceled");
}

#[test]
fn a_subagents_approval_request_survives_a_kill() {
    let counting = Counting::start();
    let mut server = Server::start(json!({"MEMORY_FLUSH": "never", "SUBAGENTS": "[]"}));
    let chat = demo(&server.client(), "asks");
    server.client().patch(&chat.path(""), json!({"permissions": {"tools": {"counter": "ask"}}})).expect(200);
    let task = format!("/tool counter {}", json!({"url": counting.url("/asks")}));
    let waits = chat.say(&send("general-purpose", &task));
    assert_eq!(waits["status"], "waiting");
    let payload = &waits["pending"][0]["payload"];
    let (session, call) = (payload["session"].as_str().unwrap(), &payload["pending"][0]["call_id"]);
    server.restart();
    let child = Chat::new(server.client(), session);
    let approved = child
        .post(&format!("/approvals/{}", call.as_str().unwrap()), json!({"decision": "approve"}))
        .expect(200);
    assert_eq!(approved["status"], "completed");
    let chat = Chat::new(server.client(), "asks");
    chat.until_idle();
    log::check(&chat.log());
    assert_eq!((counting.count("/asks"), outcomes(&chat.turn(&waits)).len()), (1, 1));
    assert_eq!(chat.log().last().unwrap()["type"], "turn.completed");
}

#[test]
fn killed_at_any_moment_tasks_run_once() {
    const ROUNDS: usize = 6;
    let (counting, mut random) = (Counting::start(), Random::new());
    let mut server = Server::start(json!({"MEMORY_FLUSH": "never", "SUBAGENTS": "[]"}));
    for round in 0..ROUNDS {
        let (id, path) = (format!("k{round}"), format!("/killed/{round}"));
        let chat = demo(&server.client(), &id);
        let counts = format!("/tool counter {}", json!({"url": counting.url(&path)}));
        let asked = [send("general-purpose", &counts), send("general-purpose", "/tool sleep {\"ms\": 300}")];
        chat.begin(json!({"content": asked.join("\n")}));
        match random.below(4) {
            0 => {}
            1 => drop(chat.until_logged("subagent.started")),
            2 => counting.wait_for(&path),
            _ => drop(chat.until_logged("subagent.completed")),
        }
        server.restart();
        let client = server.client();
        wait_idle(&client, &id);
        let chat = Chat::new(client, &id);
        let log = chat.log();
        log::check(&log);
        assert_eq!(log.last().unwrap()["type"], "turn.completed");
        assert_eq!(of_type(&log, "subagent.completed").len(), 2);
        let children = children(&chat);
        assert_eq!(children.len(), 2);
        for child in children {
            log::check(&child.log());
            assert_eq!(of_type(&child.log(), "turn.started").len(), 1);
        }
        assert!(counting.count(&path) <= 1, "the tool is not idempotent");
    }
}

#[test]
fn at_the_deadline_a_subagent_in_the_foreground_ends_and_leaves_no_task() {
    let client = world().server.client();
    let chat = demo(&client, "too-long");
    let task = send("general-purpose", "/tool sleep {\"ms\": 30000}");
    let done = chat.ask(json!({"content": task, "budget": {"timeout_s": 2}}));
    assert_eq!(done["status"], "completed", "{done}");
    let child = children(&chat).pop().unwrap();
    let (log, of_child) = (chat.log(), child.log());
    log::check(&log);
    log::check(&of_child);
    assert_eq!(of_type(&log, "subagent.completed").len(), 1);
    let end = of_child.last().unwrap();
    assert_eq!((&end["type"], &end["stop_reason"]), (&json!("turn.completed"), &json!("deadline")));
    assert_eq!(chat.get("/tasks")["data"], json!([]));
}
