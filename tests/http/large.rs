//! A session whose log is far larger than what its isolate may hold in memory.

use crate::support::{
    Gate, ModelServer, Script, Server,
    log::{self, post_async, said_by_user, wait_idle},
};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use tungstenite::Message;

/// Number of messages of almost 1 MiB.
const MESSAGES: usize = 104;

/// A message during whose turn the process is killed.
const WAITS: &str = "Wait for it.";

/// The most by which the runtime may grow, in bytes. One process holds the gateway, all objects and SQLite's caches, and
/// JavaScript frees memory late, so it grows by some 45 MB, also for a log of twice the size. Reads that are not bounded
/// make it grow by several times the size of the log.
const MAX_GROWTH: u64 = 64 << 20;

#[test]
fn a_log_of_a_hundred_megabytes_is_opened_replayed_listed_and_forked_in_bounded_memory() {
    let (model, gate) = (ModelServer::start(), Gate::new());
    let is_killed = AtomicBool::new(false);
    let of_model = gate.clone();
    model.choose(move |request| {
        let last = request["messages"].as_array()?.last()?["content"].to_string();
        let waits = last.contains(WAITS) && !is_killed.swap(true, Ordering::Relaxed);
        Some(if waits { Script::new().hold(&of_model) } else { Script::text(["Read."]) })
    });
    let mut server = Server::start(json!({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": model.base_url(),
        "DEFAULT_MODEL": "openai/m", "MEMORY_FLUSH": "never", "CONTEXT_STRATEGY": "none"}));
    let said = |n: usize| format!("{n} {}", "schwer ".repeat(148_000));
    for n in 0..MESSAGES {
        let answer =
            server.client().post("/v1/sessions/s/messages", json!({ "content": said(n) })).expect(200);
        assert_eq!(answer["reply"]["text"], "Read.", "{answer}");
    }
    server.restart();
    let client = server.client();
    // The code is loaded, and the buffers of a message exist.
    client.post("/v1/sessions/small/messages", json!({ "content": said(0) })).expect(200);
    let mut forked = Value::Null;
    let growth = server.growth(|| {
        client.get("/v1/sessions/s").expect(200);
        let mut events = client.stream("/v1/sessions/s/events?until=idle");
        let ends = events.by_ref().filter(|event| event.event == "turn.completed").count();
        assert_eq!((ends, events.cut), (MESSAGES, false));
        let listed = said_by_user(&log::messages(&client, "s"));
        assert!(listed.len() == MESSAGES && listed[MESSAGES - 1] == said(MESSAGES - 1));
        forked = client.post("/v1/sessions/s/fork", json!({})).expect(201);
        let path = format!("/v1/sessions/{}/messages", forked["id"].as_str().unwrap());
        client.post(&path, json!({"content": "And now?"})).expect(200);
    });
    assert!(growth < MAX_GROWTH, "the runtime grew by {} MB", growth >> 20);

    // A turn runs when the process is killed. What the restarted one holds of the log is bounded as well.
    post_async(&client, "s", WAITS);
    gate.reached();
    server.restart();
    let client = server.client();
    client.post("/v1/sessions/small/messages", json!({ "content": said(0) })).expect(200);
    let growth = server.growth(|| {
        let events = wait_idle(&client, "s");
        assert_eq!(events.last().map(|event| &*event.event), Some("turn.completed"));
        let mut socket = client.websocket("/v1/sessions/s/ws?after=0");
        // A client that has missed more than a connection receives connects again.
        while !matches!(socket.read().unwrap(), Message::Close(_)) {}
        client.post("/v1/sessions/s/messages", json!({"content": "And now?"})).expect(200);
    });
    assert!(growth < MAX_GROWTH, "the restarted runtime grew by {} MB", growth >> 20);
    // Compared as text, because parsing takes long.
    let lines = |session: &str| {
        let client = client.with_header("accept", "application/x-ndjson");
        client.get(&format!("/v1/sessions/{session}/events")).text()
    };
    let (own, copied) = (lines("s"), lines(forked["id"].as_str().unwrap()));
    let (own, copied): (Vec<&str>, Vec<&str>) = (own.lines().collect(), copied.lines().collect());
    let last = forked["last_seq"].as_u64().unwrap() as usize;
    assert!(copied[1..last] == own[1..last], "the fork has the records of the original");
    assert_eq!(own.iter().filter(|line| line.contains("\"type\":\"turn.completed\"")).count(), MESSAGES + 2);
}
