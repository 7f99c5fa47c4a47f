//! Sessions, users, and tenants are isolated from each other's data and defects.

use crate::support::{
    Gate, ModelServer, Script, Server,
    log::{check, check_messages, messages, records, said_by_user, text, transcript, wait_idle},
    shared,
};
use serde_json::{Value, json};
use std::thread;

fn start(model: &ModelServer) -> Server {
    Server::start(
        json!({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": model.base_url(), "DEFAULT_MODEL": "openai/m"}),
    )
}

#[test]
fn a_hundred_concurrent_sessions_never_mix() {
    const SESSIONS: usize = 100;
    let model = ModelServer::start();
    let server = start(&model);
    // The model repeats the whole conversation it is sent, in small pieces.
    model.choose(|request| {
        let lines = request["messages"].as_array()?.iter().filter(|line| line["role"] != "system");
        let said: Vec<&str> = lines.filter_map(|line| line["content"].as_str()).collect();
        Some(said.join("|").split_inclusive('-').fold(Script::new(), Script::say))
    });
    let client = server.client();
    thread::scope(|scope| {
        for n in 0..SESSIONS {
            let client = &client;
            scope.spawn(move || {
                let session = format!("session-{n}");
                let path = format!("/v1/sessions/{session}/messages");
                let secrets = ["a", "b"].map(|turn| format!("<secret-{n}-of-{turn}-ü>"));
                let first = client.post(&path, json!({"content": secrets[0]})).expect(200);
                assert_eq!(first["reply"]["text"], secrets[0]);
                let events: Vec<_> = client.post_stream(&path, json!({"content": secrets[1]})).collect();
                let [a, b] = &secrets;
                assert_eq!(events.last().unwrap().json()["reply"]["text"], format!("{a}|{a}|{b}"));
            });
        }
    });
    for n in 0..SESSIONS {
        let session = format!("session-{n}");
        let stored = records(&client, &session);
        check(&stored);
        let replayed = transcript(&wait_idle(&client, &session));
        replayed.check();
        // Follow-ups may have added records since.
        assert_eq!(replayed.records[..stored.len()], stored);
        let said: Vec<String> = messages(&client, &session).iter().map(text).collect();
        assert_eq!(said.len(), 4);
        for whole in [Value::from(stored).to_string(), said.join(" ")] {
            let mut secrets = whole.match_indices("<secret-").map(|(at, _)| &whole[at..]);
            assert!(secrets.all(|secret| secret.starts_with(&format!("<secret-{n}-"))), "{session}: {whole}");
        }
    }
    let mut listed = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = client.get(&format!("/v1/sessions?limit=30{cursor}")).expect(200);
        listed.extend(
            page["data"].as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    listed.sort();
    listed.dedup();
    assert_eq!(listed.len(), SESSIONS);
}

#[test]
fn a_panic_affects_only_its_own_request() {
    let (model, gate) = (ModelServer::start(), Gate::new());
    let server = start(&model);
    let client = server.client();
    model.script("m", Script::text(["Grüße "]).hold(&gate).say("🌍"));
    let path = "/v1/sessions/neighbor/messages";
    let mut posted = client.post_stream(path, json!({"content": "hallo"}));
    let mut own = posted.until_type("message.delta");
    let mut watcher = client.stream("/v1/sessions/neighbor/events");
    let mut seen = watcher.until_type("message.delta");
    let mut socket = client.websocket("/v1/sessions/neighbor/ws?after=0");
    let mut hear = |kind: &str| loop {
        let frame: Value = serde_json::from_str(socket.read().unwrap().to_text().unwrap()).unwrap();
        if frame["type"] == kind {
            break frame;
        }
    };
    hear("message.delta");

    for round in 0..3 {
        // In the Worker, during a response.
        assert_eq!(server.anonymous().get("/fixtures/panic").status, 500);
        // In a tool, concurrently with another call that succeeds; the turn continues.
        let session = format!("broken-{round}");
        client.post("/v1/sessions", json!({"id": session, "model": "demo/echo"})).expect(201);
        let content = "/tool echo {\"text\": \"fine\"}\n/tool panic {}\n/tool echo {\"text\": \"too\"}";
        let answer = client.post(&format!("/v1/sessions/{session}/messages"), json!({ "content": content }));
        assert_eq!(answer.expect(200)["status"], "completed");
        let stored = records(&client, &session);
        check(&stored);
        check_messages(&messages(&client, &session));
        let outcomes: Vec<_> =
            stored.iter().filter(|r| r["type"] == "tool.completed").map(|r| r["outcome"].clone()).collect();
        assert_eq!(outcomes, ["result", "failure", "result"]);
        // The session is unaffected afterwards.
        let again = client.post(&format!("/v1/sessions/{session}/messages"), json!({"content": "/say well"}));
        assert_eq!(again.expect(200)["reply"]["text"], "well");
    }

    // The other session was unaffected: same connections, same model call.
    gate.open();
    own.extend(posted.by_ref());
    assert_eq!(own.last().unwrap().json()["reply"]["text"], "Grüße 🌍");
    assert!(!posted.cut);
    seen.extend(watcher.until_type("turn.completed"));
    assert_eq!(seen[1..], own);
    assert_eq!(hear("turn.completed")["reply"]["text"], "Grüße 🌍");
    let stored = records(&client, "neighbor");
    assert!(
        stored.iter().all(|record| record["type"] != "turn.resumed"),
        "the other session was restarted: {stored:#?}"
    );
    assert_eq!(model.received().len(), 1);
    transcript(&seen).check();
}

#[test]
fn the_same_id_in_two_tenants_is_two_sessions() {
    let admin = shared().admin();
    let clients = ["one", "two"].map(|name| {
        let tenant = admin.post("/v1/admin/tenants", json!({ "name": name })).expect(201);
        let keys = format!("/v1/admin/tenants/{}/keys", tenant["id"].as_str().unwrap());
        shared().anonymous().with_key(admin.post(&keys, json!({})).expect(201)["key"].as_str().unwrap())
    });
    let path = "/v1/sessions/same-id/messages";
    for (client, secret) in clients.iter().zip(["apple", "pear"]) {
        client.get("/v1/sessions/same-id").expect(404);
        let answer = client.post(path, json!({"content": format!("/say {secret}")})).expect(200);
        assert_eq!(answer["reply"]["text"], secret);
    }
    for (client, secret) in clients.iter().zip(["apple", "pear"]) {
        assert_eq!(said_by_user(&messages(client, "same-id")), [format!("/say {secret}")]);
        assert_eq!(client.get("/v1/sessions").expect(200)["data"].as_array().unwrap().len(), 1);
    }
    clients[0].delete("/v1/sessions/same-id").expect(204);
    clients[0].get("/v1/sessions/same-id").expect(404);
    assert_eq!(messages(&clients[1], "same-id").len(), 2);
}

#[test]
fn another_users_session_does_not_exist() {
    let client = shared().client();
    let path = "/v1/sessions/of-ann/messages";
    client.post(path, json!({"content": "/say hello", "user": "ann"})).expect(200);
    for path in ["", "/messages", "/events", "/ws"] {
        let upgrade = client.with_header("upgrade", "websocket").with_header("connection", "upgrade");
        let client = if path == "/ws" { upgrade } else { client.clone() };
        client.get(&format!("/v1/sessions/of-ann{path}?user=bob")).expect(404);
    }
    client.post(path, json!({"content": "mine", "user": "bob"})).expect(404);
    assert_eq!(said_by_user(&messages(&client, "of-ann")), ["/say hello"]);
}

#[test]
fn an_erased_session_does_not_come_back_while_others_read_it() {
    let client = shared().client();
    for round in 0..10 {
        let session = format!("erase-{round}");
        let path = format!("/v1/sessions/{session}");
        client.post(&format!("{path}/messages"), json!({"content": "/say secret"})).expect(200);
        thread::scope(|scope| {
            // These clients read before, during, and after the deletion.
            let gone = || (0..1_000).any(|_| client.get(&path).status == 404);
            let readers: Vec<_> = (0..6).map(|_| scope.spawn(gone)).collect();
            client.delete(&path).expect(204);
            let gone: Vec<bool> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
            assert_eq!(gone, [true; 6], "the session still exists");
        });
        client.get(&path).expect(404);
        // A new session with this id starts empty.
        client.post(&format!("{path}/messages"), json!({"content": "/say new"})).expect(200);
        let stored = records(&client, &session);
        check(&stored);
        assert!(!Value::from(stored).to_string().contains("secret"));
    }
}
