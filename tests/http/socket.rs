//! The WebSocket of a session: the same records as the event stream, and commands.

use crate::support::{
    Client, Event, Gate, ModelServer, Script, Server, WebSocket,
    log::{messages, post_async, records, said_by_user, transcript, wait_idle},
    shared,
};
use serde_json::{Value, json};
use tungstenite::{
    Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};

fn session(name: &str) -> (Client, String) {
    let client = shared().client();
    client.post("/v1/sessions", json!({ "id": name })).expect(201);
    (client, name.to_owned())
}

fn open(client: &Client, session: &str, query: &str) -> WebSocket {
    client.websocket(&format!("/v1/sessions/{session}/ws{query}"))
}

fn frame(socket: &mut WebSocket) -> Value {
    serde_json::from_str(socket.read().unwrap().to_text().unwrap()).unwrap()
}

fn until(socket: &mut WebSocket, kind: &str) -> Vec<Value> {
    let mut frames = Vec::new();
    while frames.last().is_none_or(|last: &Value| last["type"] != kind) {
        frames.push(frame(socket));
    }
    frames
}

fn send(socket: &mut WebSocket, command: Value) {
    socket.send(command.to_string().into()).unwrap();
}

/// Reads the next close frame.
fn closed(socket: &mut WebSocket) -> CloseFrame {
    loop {
        match socket.read().unwrap() {
            Message::Close(frame) => return frame.expect("a code"),
            Message::Text(text) => panic!("expected a close frame, found {text}"),
            _ => {}
        }
    }
}

/// Converts a frame to an event; the id of a delta is its `cursor`.
fn as_event(frame: &Value) -> Event {
    let id = frame["seq"].as_u64().map(|seq| seq.to_string());
    let id = id.or_else(|| frame["cursor"].as_str().map(str::to_owned));
    Event { id, event: frame["type"].as_str().unwrap().to_owned(), data: frame.to_string() }
}

#[test]
fn a_socket_receives_the_frames_of_the_event_stream() {
    let (client, session) = session("same");
    let mut socket = open(&client, &session, "?after=0");
    let mut stream = client.stream(&format!("/v1/sessions/{session}/events"));
    let content = "/think hm\n/say Grüße 🌍 one two\n/tool echo {\"text\": \"ä\"}\n/then /slow 2 10";
    post_async(&client, &session, content);
    let frames = until(&mut socket, "turn.completed");
    let events = stream.until_type("turn.completed");
    assert_eq!(frames, events.iter().map(Event::json).collect::<Vec<_>>());
    let frames: Vec<Event> = frames.iter().map(as_event).collect();
    assert_eq!(
        frames.iter().map(|e| &e.id).collect::<Vec<_>>(),
        events.iter().map(|e| &e.id).collect::<Vec<_>>()
    );
    transcript(&frames).check();
}

#[test]
fn a_socket_catches_up_within_a_text() {
    let (model, gate) = (ModelServer::start(), Gate::new());
    let server = Server::start(
        json!({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": model.base_url(), "DEFAULT_MODEL": "openai/m"}),
    );
    let client = server.client();
    model.script("m", Script::text(["Grüße ", "🌍 "]).hold(&gate).say("und ").say("mehr"));
    let path = "/v1/sessions/s/messages";
    let mut posted = client.post_stream(path, json!({"content": "hallo"}));
    posted.until(|event| event.data.contains("🌍"));
    // From the start, from within the text, and from the current position.
    let mut all = open(&client, "s", "?after=0");
    let mut inside = open(&client, "s", "?after=3.8");
    let mut later = open(&client, "s", "");
    // Each socket is served before the text continues: the pong follows what it missed.
    let mut missed = Vec::new();
    for socket in [&mut all, &mut inside, &mut later] {
        socket.send("ping".into()).unwrap();
        let mut frames = Vec::new();
        loop {
            let frame = socket.read().unwrap();
            if frame.to_text().unwrap() == "pong" {
                break;
            }
            frames.push(serde_json::from_str::<Value>(frame.to_text().unwrap()).unwrap());
        }
        missed.push(frames);
    }
    gate.open();
    let rest = until(&mut all, "turn.completed");
    assert_eq!(until(&mut inside, "turn.completed"), rest);
    assert_eq!(until(&mut later, "turn.completed"), rest);
    let whole: Vec<Event> = missed[0].iter().chain(&rest).map(as_event).collect();
    let whole = transcript(&whole);
    whole.check();
    assert_eq!(whole.records, records(&client, "s"));
    assert_eq!(missed[1].len(), 1);
    assert_eq!((&missed[1][0]["delta"], &missed[1][0]["cursor"]), (&json!("🌍 "), &json!("3.13")));
    // A socket that starts at the current position, within the text, gets the start of the text.
    assert!(missed[2].iter().all(|frame| frame["type"] == "message.delta"));
}

#[test]
fn commands_post_steer_and_abort() {
    let (client, session) = session("commands");
    let mut socket = open(&client, &session, "");
    send(&mut socket, json!({"type": "message", "content": "/slow 50 1000"}));
    let mut frames = until(&mut socket, "message.delta");
    send(&mut socket, json!({"type": "message", "content": "/say queued"}));
    send(&mut socket, json!({"type": "steer", "content": "/slow 50 999"}));
    frames.extend(until(&mut socket, "turn.started"));
    frames.extend(until(&mut socket, "message.delta"));
    send(&mut socket, json!({"type": "abort"}));
    frames.extend(until(&mut socket, "turn.canceled"));
    let of = |frames: &[Value], kind: &str| frames.iter().filter(|frame| frame["type"] == kind).count();
    // Each command is answered, among the events in between.
    while of(&frames, "accepted") < 4 {
        frames.push(frame(&mut socket));
    }
    assert_eq!(of(&frames, "turn.canceled"), 3);
    assert!(frames.iter().any(|frame| frame["answer"]["aborted"] == true));
    wait_idle(&client, &session);
    assert_eq!(said_by_user(&messages(&client, &session)), ["/slow 50 1000", "/slow 50 999"]);
}

#[test]
fn an_invalid_command_is_answered_with_an_error_frame() {
    let (client, session) = session("errors");
    let mut socket = open(&client, &session, "");
    for (command, status, pointer) in [
        ("not JSON", 422, "/type"),
        ("[]", 422, "/type"),
        ("{}", 422, "/type"),
        (r#"{"type": "dance"}"#, 422, "/type"),
        (r#"{"type": "message"}"#, 422, "/content"),
        (r#"{"type": "message", "content": 7}"#, 422, "/content"),
        (r#"{"type": "message", "content": "x", "role": "system"}"#, 422, "/role"),
        (r#"{"type": "message", "content": "x", "on_busy": "dance"}"#, 422, "/on_busy"),
    ] {
        socket.send(command.into()).unwrap();
        let error = frame(&mut socket);
        assert_eq!(
            (&error["type"], &error["problem"]["status"]),
            (&json!("error"), &json!(status)),
            "{command}"
        );
        assert_eq!(error["problem"]["errors"][0]["pointer"], pointer, "{command}: {error}");
        assert!(error["problem"]["request_id"].is_string());
    }
    // The socket remains usable.
    socket.send("ping".into()).unwrap();
    assert_eq!(socket.read().unwrap().to_text().unwrap(), "pong");
    assert_eq!(records(&client, &session).len(), 1);
}

#[test]
fn a_ticket_opens_a_socket_with_its_issuers_rights() {
    let (client, session) = session("tickets");
    let tenant = shared().admin().post("/v1/admin/tenants", json!({})).expect(201);
    let tenant = tenant["id"].as_str().unwrap();
    let key = |scopes: Value| {
        let made =
            shared().admin().post(&format!("/v1/admin/tenants/{tenant}/keys"), json!({ "scopes": scopes }));
        shared().anonymous().with_key(made.expect(201)["key"].as_str().unwrap())
    };
    let (talker, reader) = (key(json!(["chat", "read"])), key(json!(["read"])));
    talker.post("/v1/sessions", json!({"id": session})).expect(201);
    let ticket = |client: &Client, scopes: Value| {
        let made = client.post("/v1/tickets", json!({"session": session, "scopes": scopes})).expect(201);
        format!("?ticket={}", made["ticket"].as_str().unwrap())
    };
    let browser = shared().anonymous();
    let mut talking = open(&browser, &session, &ticket(&talker, json!(["chat", "read"])));
    let listening = [
        open(&reader, &session, ""),
        open(&browser, &session, &ticket(&reader, Value::Null)),
        open(&browser, &session, &ticket(&talker, Value::Null)),
    ];
    for mut socket in listening {
        for command in [json!({"type": "message", "content": "hi"}), json!({"type": "abort"})] {
            send(&mut socket, command);
            let refused = frame(&mut socket);
            assert_eq!((&refused["type"], &refused["problem"]["status"]), (&json!("error"), &json!(403)));
            assert_eq!(refused["problem"]["code"], "missing_scope");
        }
    }
    assert_eq!(records(&talker, &session).len(), 1);
    let mut watcher = open(&reader, &session, "");
    send(&mut talking, json!({"type": "message", "content": "/say heard"}));
    until(&mut watcher, "turn.completed");
    // The same id in another tenant is another session.
    assert_eq!(records(&client, &session).len(), 1);
    // A ticket is valid for one session, and for streams only.
    let other = ticket(&talker, Value::Null);
    for path in ["/v1/sessions/another/events", "/v1/sessions/tickets/messages"] {
        assert!(matches!(browser.get(&format!("{path}{other}")).status, 401 | 403 | 404));
    }
    for path in ["/v1/sessions/tickets/ws", "/v1/sessions/tickets/ws?ticket=made.up"] {
        let upgrade = browser.with_header("upgrade", "websocket");
        assert_eq!(upgrade.get(path).status, 401);
    }
}

#[test]
fn a_socket_receives_a_turn_after_its_object_hibernated() {
    let (client, session) = session("asleep");
    let mut socket = open(&client, &session, "");
    post_async(&client, &session, "/say first");
    until(&mut socket, "turn.completed");
    // The platform hibernates an object after ten idle seconds, without a signal.
    std::thread::sleep(std::time::Duration::from_secs(14));
    post_async(&client, &session, "/say Grüße again\n/tool echo {\"text\": \"x\"}");
    // The extraction of facts from the first turn may have been reported before.
    let frames = until(&mut socket, "turn.completed");
    assert!(frames.iter().any(|frame| frame["type"] == "turn.started"));
    assert!(frames.iter().any(|frame| frame["type"] == "message.delta"));
    // The object still has its listeners.
    send(&mut socket, json!({"type": "message", "content": "/say third"}));
    until(&mut socket, "turn.completed");
    assert_eq!(said_by_user(&messages(&client, &session)).len(), 3);
}

#[test]
fn a_close_is_answered_with_its_code() {
    let (client, session) = session("closing");
    for code in [CloseCode::Normal, CloseCode::Away, CloseCode::Library(4001)] {
        let mut socket = open(&client, &session, "");
        socket.close(Some(CloseFrame { code, reason: "bye".into() })).unwrap();
        assert_eq!(closed(&mut socket).code, code);
    }
    // A closed socket causes no failure.
    let mut other = open(&client, &session, "");
    post_async(&client, &session, "/say still here");
    until(&mut other, "turn.completed");
}

#[test]
fn a_socket_does_not_outlive_its_session() {
    let (client, session) = session("erased");
    let mut socket = open(&client, &session, "");
    assert_eq!(client.delete(&format!("/v1/sessions/{session}")).status, 204);
    // The id can be reused by another user, whose events must not arrive here.
    let path = format!("/v1/sessions/{session}/messages");
    client.post(&path, json!({"content": "/say private", "user": "someone-else"})).expect(200);
    assert_eq!(closed(&mut socket).code, CloseCode::Away);
}

#[test]
fn without_an_upgrade_or_a_session_there_is_no_socket() {
    let (client, session) = session("no-socket");
    client.get(&format!("/v1/sessions/{session}/ws")).expect(400);
    let upgrade = client.with_header("upgrade", "websocket").with_header("connection", "upgrade");
    upgrade.get("/v1/sessions/there-is-none/ws").expect(404);
}
