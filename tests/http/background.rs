//! Background tasks over HTTP, and across `kill -9`.

use crate::support::{
    Chat, Client, Counting, Gate, PATIENCE, Received, Script, Server, Sse, World,
    log::{self, of_type, wait_idle},
    tail_text,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{sync::OnceLock, time::Instant};

fn settings(background: &str) -> Value {
    json!({"MEMORY_FLUSH": "never", "SUBAGENTS": "[]", "BACKGROUND_TASKS": background})
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| World::with(settings("on")))
}

#[track_caller]
fn demo(client: &Client, id: &str) -> Chat {
    client.post("/v1/sessions", json!({"id": id, "model": "demo/echo"})).expect(201);
    Chat::new(client.clone(), id)
}

/// Returns a message that makes the demo model spawn a subagent in the background.
fn spawn(task: &str) -> String {
    format!(
        "/tool agent_spawn {}",
        json!({"agent_id": "general-purpose", "task": task, "timeout_seconds": 0})
    )
}

fn tasks(chat: &Chat) -> Vec<Value> {
    chat.get("/tasks")["data"].as_array().unwrap().clone()
}

#[test]
fn a_task_ends_after_its_turn_and_is_listed() {
    let chat = demo(&world().server.client(), "background");
    let done = chat.say(&spawn("/tool sleep {\"ms\": 300}"));
    assert_eq!(done["status"], "completed");
    let ended = chat.until_logged("task.completed");
    let task = chat.get(&format!("/tasks/{}", ended["task"].as_str().unwrap()));
    assert_eq!((&task["status"], &task["shown"]), (&json!("completed"), &json!(false)));
    assert!(task["reply"].as_str().unwrap().starts_with("sleep"), "{task}");
    let child = Chat::new(chat.client.clone(), task["session"].as_str().unwrap());
    assert_eq!(child.get(&format!("/turns/{}", task["id"].as_str().unwrap()))["status"], "completed");
    log::check(&chat.log());
    chat.client.get(&chat.path("/tasks/trn_unknown")).expect(404);
}

#[test]
fn the_next_turn_is_shown_the_result_once() {
    let chat = demo(&world().server.client(), "shown");
    chat.say(&spawn("/say the answer is 42"));
    chat.until_logged("task.completed");
    chat.client.patch(&chat.path(""), json!({"model": "openai/sees"})).expect(200);
    for question in ["and?", "again?"] {
        world().model.script("sees", Script::text(["I see."]));
        assert_eq!(chat.say(question)["status"], "completed");
    }
    let received = world().received("sees");
    let shows: Vec<bool> =
        received.iter().map(|asked| tail_text(asked).contains("the answer is 42")).collect();
    assert_eq!(shows, [true, false]);
    assert_eq!(tasks(&chat)[0]["shown"], true);
}

#[test]
fn a_request_shows_ten_results_and_counts_the_rest() {
    let mut many = settings("on");
    many["MAX_SUBAGENTS"] = "15".into();
    let world = World::with(many);
    let chat = demo(&world.server.client(), "many");
    chat.say(&(0..15).map(|n| spawn(&format!("/say number {n}."))).collect::<Vec<_>>().join("\n"));
    let end = Instant::now() + PATIENCE;
    while !tasks(&chat).iter().all(|task| task["status"] == "completed") {
        assert!(Instant::now() < end, "{:?}", tasks(&chat));
    }
    chat.client.patch(&chat.path(""), json!({"model": "openai/sees"})).expect(200);
    for question in ["and?", "and then?", "nothing more?"] {
        world.model.script("sees", Script::text(["I see."]));
        chat.say(question);
    }
    let counts = |asked: &Received| {
        let tail = tail_text(asked);
        (tail.matches(" completed:").count(), tail.contains("5 more have ended"))
    };
    let shown: Vec<_> = world.received("sees").iter().map(counts).collect();
    assert_eq!(shown, [(10, true), (5, false), (0, false)]);
    assert_eq!(tasks(&chat).len(), 15);
}

#[test]
fn a_wait_is_bounded_and_refused_after_two_in_vain() {
    let chat = demo(&world().server.client(), "waits");
    let wait = |args: Value| format!("/tool wait_async_results {args}");
    chat.say(&format!(
        "{}\n/then {}",
        spawn("/say soon"),
        wait(json!({"timeout_seconds": 300, "task_ids": []}))
    ));
    let result = of_type(&chat.log(), "tool.completed")[1]["result"].clone();
    assert_eq!((&result["timeout_seconds"], &result["results"][0]["reply"]), (&json!(120), &json!("soon")));
    let briefly = wait(json!({"timeout_seconds": 1}));
    let said = [spawn("/tool sleep {\"ms\": 30000}"), briefly.clone(), briefly.clone(), briefly];
    chat.say(&said.join("\n/then "));
    chat.say(&wait(json!({"task_ids": ["trn_unknown"]})));
    let log = chat.log();
    let outcomes: Vec<_> = of_type(&log, "tool.completed").split_off(2);
    assert_eq!(outcomes[1]["result"]["still_running"], 1);
    let reasons = outcomes[3..].iter().map(|outcome| outcome["reason"].as_str().unwrap());
    let reasons: Vec<_> = reasons.map(|reason| reason.split(':').next().unwrap()).collect();
    assert_eq!(
        reasons,
        ["no task ended during your last two waits", "there is no background task trn_unknown"]
    );
    chat.post("/abort", json!({})).expect(200);
}

#[test]
fn the_subagents_of_two_users_are_two() {
    let spawned = ["ann", "bob"].map(|user| {
        let client = world().server.client();
        client.post("/v1/sessions", json!({"id": user, "user": user, "model": "demo/echo"})).expect(201);
        let chat = Chat::new(client, user);
        chat.say(&spawn_named("reader", &format!("/say of {user}"), 30));
        chat.say(&send("reader", "/say again", 30));
        let result = of_type(&chat.log(), "tool.completed")[0]["result"].clone();
        let child = Chat::new(chat.client.clone(), result["agent_key"].as_str().unwrap());
        assert_eq!(child.get("")["user"], user);
        assert_eq!(of_type(&child.log(), "turn.started").len(), 2);
        assert_eq!(result["reply"], format!("of {user}"));
        child.id
    });
    assert_ne!(spawned[0], spawned[1]);
}

#[test]
fn tasks_are_canceled_one_by_one_and_by_an_abort() {
    let chat = demo(&world().server.client(), "canceled");
    let long = spawn("/tool sleep {\"ms\": 30000}");
    chat.say(&format!("{long}\n{long}"));
    let id = tasks(&chat)[0]["id"].as_str().unwrap().to_owned();
    let canceled = chat.post(&format!("/tasks/{id}/cancel"), json!({})).expect(200);
    assert_eq!(canceled["canceled"], true);
    chat.until_logged("task.canceled");
    assert_eq!(chat.post("/abort", json!({})).expect(200)["aborted"], true);
    chat.client
        .stream(&chat.path("/events"))
        .find(|event| event.event == "task.canceled" && !event.data.contains(&id));
    assert!(tasks(&chat).iter().all(|task| task["status"] == "canceled"));
    let children: Vec<Value> = tasks(&chat).iter().map(|task| task["session"].clone()).collect();
    assert_eq!(chat.client.delete(&chat.path("")).status, 204);
    for child in children {
        chat.client.get(&format!("/v1/sessions/{}", child.as_str().unwrap())).expect(404);
    }
}

#[test]
fn denials_apply_to_a_task_and_it_has_no_subagents() {
    let chat = demo(&world().server.client(), "denied");
    chat.client.patch(&chat.path(""), json!({"permissions": {"tools": {"echo": "deny"}}})).expect(200);
    chat.say(&spawn(&format!("/tool echo {{\"text\": \"x\"}}\n{}", spawn("/say never"))));
    chat.until_logged("task.completed");
    let child = Chat::new(chat.client.clone(), tasks(&chat)[0]["session"].as_str().unwrap());
    let log = child.log();
    let denied: Vec<&Value> =
        of_type(&log, "tool.completed").iter().map(|record| &record["denied"]).collect();
    assert_eq!(denied, ["permission", "permission"]);
}

#[test]
fn a_task_survives_a_kill_and_wakes_its_session() {
    let counting = Counting::start();
    let mut server = Server::start(settings("wake"));
    let chat = demo(&server.client(), "killed");
    let counts = format!("/tool counter {}", json!({"url": counting.url("/task")}));
    chat.say(&spawn(&format!("/tool sleep {{\"ms\": 300}}\n{counts}")));
    server.restart();
    let chat = Chat::new(server.client(), "killed");
    chat.get("");
    chat.until_logged("task.completed");
    wait_idle(&server.client(), "killed");
    let log = chat.log();
    log::check(&log);
    assert_eq!(of_type(&log, "task.completed").len(), 1);
    assert_eq!(of_type(&log, "turn.started").len(), 2, "the task has started a turn");
    assert_eq!(tasks(&chat)[0]["shown"], true);
    assert!(counting.count("/task") <= 1, "the tool is not idempotent");
}

/// Returns a message that makes the demo model send a subagent a further one.
fn send(label: &str, message: &str, timeout_seconds: u64) -> String {
    let args = json!({"label": label, "message": message, "timeout_seconds": timeout_seconds});
    format!("/tool agent_send {args}")
}

fn spawn_named(label: &str, task: &str, timeout_seconds: u64) -> String {
    let args = json!({"agent_id": "general-purpose", "task": task, "label": label,
        "timeout_seconds": timeout_seconds});
    format!("/tool agent_spawn {args}")
}

#[test]
fn a_subagent_continues_its_conversation_with_a_further_message() {
    let chat = demo(&world().server.client(), "sent");
    chat.say(&spawn_named("reader", "/say one", 30));
    chat.say(&send("reader", "/say two", 30));
    let result = of_type(&chat.log(), "tool.completed")[1]["result"].clone();
    assert_eq!(result["reply"], "two");
    let child = Chat::new(chat.client.clone(), result["agent_key"].as_str().unwrap());
    let said: Vec<Value> = of_type(&child.log(), "turn.started")
        .iter()
        .map(|turn| turn["message"]["parts"][0]["text"].clone())
        .collect();
    assert_eq!(said, ["/say one", "/say two"]);
    log::check(&child.log());
    // Another session of the same user has no such subagent.
    let other = demo(&chat.client, "sent-other");
    let args = json!({"agent_key": child.id, "message": "/say three"});
    other.say(&format!("/tool agent_send {args}"));
    let failed = of_type(&other.log(), "tool.completed")[0].clone();
    assert_eq!(failed["outcome"], "failure");
    assert!(failed["reason"].as_str().unwrap().starts_with("you have no subagent"), "{failed}");
}

#[test]
fn a_message_to_a_working_subagent_survives_a_kill() {
    let counting = Counting::start();
    let mut server = Server::start(settings("on"));
    let chat = demo(&server.client(), "queued");
    let counts = format!("/tool counter {}", json!({"url": counting.url("/sent")}));
    chat.say(&format!(
        "{}\n/then\n{}",
        spawn_named("w", "/tool sleep {\"ms\": 2000}", 0),
        send("w", &counts, 0)
    ));
    server.restart();
    let chat = Chat::new(server.client(), "queued");
    chat.get("");
    let id = tasks(&chat)[1]["id"].as_str().unwrap().to_owned();
    let ended = |event: &crate::support::Event| event.event == "task.completed" && event.data.contains(&id);
    chat.client.stream(&chat.path("/events")).find(ended);
    let log = chat.log();
    log::check(&log);
    assert_eq!(of_type(&log, "task.completed").len(), 2);
    assert_eq!(counting.count("/sent"), 1);
}

/// The types of the stored events of one task in the stream of its parent, in order.
fn of_task(events: &[Value], task: &str) -> Vec<Value> {
    let own = events.iter().filter(|event| event["source"]["task"] == task).map(|event| &event["event"]);
    own.filter(|event| event["seq"].is_u64()).cloned().collect()
}

/// Reads the events of a stream until a subagent's event of this type.
fn read_until(stream: Sse, kind: &str) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    for event in stream {
        let event: Value = serde_json::from_str(&event.data).unwrap();
        let is_last = event["event"]["type"] == kind;
        events.push(event);
        if is_last {
            break;
        }
    }
    events
}

#[test]
fn the_stream_of_a_session_has_the_events_of_its_subagents_across_a_kill() {
    let mut settings = settings("on");
    settings["SUBAGENTS"] =
        json!([{"id": "slow", "description": "takes its time", "model": "openai/slow"}]).to_string().into();
    let (mut world, gate) = (World::with(settings), Gate::new());
    world.model.script("slow", Script::new().tool("a", "echo", json!({"text": "hi"})));
    // The kill repeats the request.
    for _ in 0..2 {
        world.model.script("slow", Script::new().hold(&gate).say("done"));
    }
    let chat = demo(&world.server.client(), "shown-live");
    let task = json!({"agent_id": "slow", "task": "Take your time.", "timeout_seconds": 0});
    chat.say(&format!("/tool agent_spawn {task}"));
    let stream = |chat: &Chat, query: &str| chat.client.stream(&chat.path(&format!("/events?{query}")));
    let before = read_until(stream(&chat, "subagents=true"), "tool.started");
    let task = tasks(&chat)[0].clone();
    let id = task["id"].as_str().unwrap();
    let source = json!({"session": task["session"], "agent": "slow", "call_id": task["call_id"], "task": id});
    let is_source = |event: &&Value| event["type"] == "subagent.event" && event["source"] == source;
    assert!(before.iter().any(|event| is_source(&event)), "{before:?}");
    let last = before.iter().filter_map(|event| event["seq"].as_u64()).max().unwrap();
    gate.reached();
    world.server.restart();
    let chat = Chat::new(world.server.client(), "shown-live");
    let stream = stream(&chat, &format!("subagents=true&after={last}"));
    gate.open();
    let after = read_until(stream, "turn.completed");
    assert!(after.iter().filter_map(|event| event["seq"].as_u64()).all(|seq| seq > last), "{after:?}");
    let child = Chat::new(chat.client.clone(), task["session"].as_str().unwrap());
    let logged: Vec<Value> = child.log().into_iter().filter(|record| record["turn"] == id).collect();
    assert_eq!(of_task(&after, id), logged, "all events of the task, each once");
    log::check(&child.log());
}

#[test]
fn a_subagent_that_outlasts_its_wait_goes_on_in_the_background() {
    let chat = demo(&world().server.client(), "promoted");
    chat.say(&spawn_named("slow", "/tool sleep {\"ms\": 2000}\n/then\n/say finally", 1));
    let result = of_type(&chat.log(), "tool.completed")[0]["result"].clone();
    assert_eq!((&result["status"], &result["timeout_promoted"]), (&json!("running"), &json!(true)));
    let ended = chat.until_logged("task.completed");
    assert_eq!(ended["task"], result["task_id"]);
    let task = chat.get(&format!("/tasks/{}", ended["task"].as_str().unwrap()));
    assert!(task["reply"].as_str().unwrap().ends_with("finally"), "{task}");
    log::check(&chat.log());
}

#[test]
fn a_further_message_obeys_the_present_rules_and_mode_of_the_parent() {
    let chat = demo(&world().server.client(), "reused");
    let echo = "/tool echo {\"text\": \"x\"}";
    chat.say(&spawn_named("helper", echo, 30));
    chat.client.patch(&chat.path(""), json!({"permissions": {"tools": {"echo": "deny"}}})).expect(200);
    chat.say(&send("helper", echo, 30));
    chat.say(&send("helper", echo, 30));
    chat.client.patch(&chat.path(""), json!({"mode": "plan"})).expect(200);
    chat.say(&send("helper", "/tool write {\"key\": \"a\", \"value\": 1}", 30));
    let key = of_type(&chat.log(), "tool.completed")[0]["result"]["agent_key"].clone();
    let child = Chat::new(chat.client.clone(), key.as_str().unwrap());
    let log = child.log();
    let fates: Vec<&str> = of_type(&log, "tool.completed")
        .iter()
        .map(|record| record["denied"].as_str().or(record["outcome"].as_str()).unwrap())
        .collect();
    assert_eq!(fates, ["result", "permission", "permission", "permission"]);
    let session = child.get("");
    assert_eq!((&session["mode"], &session["state"]["a"]), (&json!("plan"), &Value::Null));
    assert_eq!(of_type(&log, "turn.started").len(), 4, "one conversation");
    log::check(&log);
}
