//! Errors and idempotency, common to all routes.

use crate::support::{Chat, Client, Event, Gate, Response, Script, Server, World, http};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{
    io::{BufReader, Read, Write},
    net::TcpStream,
    sync::OnceLock,
};

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(World::start)
}

/// A client with the development key.
fn client() -> Client {
    world().server.client()
}

/// Parses a problem, and checks the members that every problem has.
#[track_caller]
fn problem(answer: &Response, status: u16, code: &str) -> Value {
    assert_eq!(answer.status, status, "the response was: {}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let problem = answer.json();
    assert_eq!((&problem["status"], &problem["code"]), (&json!(status), &json!(code)), "{problem}");
    assert_eq!(problem["request_id"].as_str(), answer.header("x-request-id"), "{problem}");
    for field in ["type", "title", "detail"] {
        assert!(!problem[field].as_str().unwrap().is_empty(), "{field} in {problem}");
    }
    problem
}

#[test]
fn missing_and_unknown_credentials_are_refused() {
    let world = world();
    let anonymous = world.server.anonymous();
    for (method, path) in [
        ("GET", "/v1/sessions"),
        ("POST", "/v1/sessions/s/messages"),
        ("GET", "/v1/sessions/s/events"),
        ("GET", "/v1/admin/tenants"),
        ("POST", "/v1/tickets"),
    ] {
        for credential in ["", "Bearer", "Bearer ", "Bearer unknown", "Basic dXNlcjpwYXNz", "Bearer a.b.c"] {
            let client = if credential.is_empty() {
                anonymous.clone()
            } else {
                anonymous.with_header("authorization", credential)
            };
            let refused = client.send(method, path, &[]);
            problem(&refused, 401, "unauthenticated");
            assert!(refused.header("www-authenticate").unwrap().starts_with("Bearer"), "{method} {path}");
        }
    }
    problem(&anonymous.get("/v1/sessions/s/events?ticket=made.up"), 401, "unauthenticated");
    // The operator's key gives access to the administration only, and a tenant's key never does.
    let refused = problem(&world.server.admin().get("/v1/sessions"), 403, "missing_scope");
    assert!(refused["detail"].as_str().unwrap().contains("/v1/admin"), "{refused}");
    problem(&client().get("/v1/admin/tenants"), 403, "missing_scope");
}

#[test]
fn malformed_bodies_are_refused() {
    let (client, admin) = (client(), world().server.admin());
    let posts = [
        (&client, "/v1/sessions"),
        (&client, "/v1/sessions/unread/messages"),
        (&client, "/v1/sessions/unread/steer"),
        (&client, "/v1/tickets"),
        (&admin, "/v1/admin/tenants"),
    ];
    for (client, path) in posts {
        let sent = |kind: &str, body: &str| {
            client.with_header("content-type", kind).send("POST", path, body.as_bytes())
        };
        for body in [
            "{",
            r#"{"content": "a"#,
            "nonsense",
            r#"{"content": "a", "session": "s"} x"#,
            "{'a': 1}",
            "\u{1}",
        ] {
            problem(&sent("application/json", body), 400, "malformed_json");
        }
        let mut broken = br#"{"content": ""#.to_vec();
        broken.extend([0xff, 0xfe, b'"', b'}']);
        problem(
            &client.with_header("content-type", "application/json").send("POST", path, &broken),
            400,
            "malformed_json",
        );
        for kind in
            ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "nonsense"]
        {
            problem(&sent(kind, r#"{"content": "a"}"#), 415, "unsupported_media_type");
        }
        for other in ["[]", r#"["a", null, null, null, null, null, null]"#, "null", "7", "\"text\""] {
            let whole = sent("application/json", other);
            assert_eq!(
                problem(&whole, 422, "validation_failed")["errors"][0]["pointer"],
                "",
                "{path} {other}"
            );
        }
    }
    problem(&client.get("/v1/sessions/unread"), 404, "not_found");
}

#[test]
fn invalid_fields_are_reported_with_their_pointers() {
    let client = client();
    let chat = Chat::new(client.clone(), "fields");
    client.post("/v1/sessions", json!({"id": "fields"})).expect(201);
    let before = chat.log();
    let text = |value: Value| json!({"content": "a", "role": value});
    let with = |field: &str, value: Value| json!({"content": "a", field: value});
    let long = "x".repeat(201);
    let cases = [
        ("/messages", json!({"content": 5}), "/content"),
        ("/messages", json!({"content": ["a"]}), "/content"),
        ("/messages", json!({}), "/content"),
        ("/messages", json!({"content": null}), "/content"),
        ("/messages", json!({"content": ""}), "/content"),
        ("/messages", json!({"content": "a", "parts": []}), "/parts"),
        ("/messages", json!({"parts": "a"}), "/parts"),
        ("/messages", json!({"parts": [{"type": "text", "text": "a"}, {"type": "text"}]}), "/parts/1/text"),
        ("/messages", json!({"parts": [{"type": "hologram"}]}), "/parts/0/type"),
        ("/messages", text(json!("system")), "/role"),
        ("/messages", text(json!("assistant")), "/role"),
        ("/messages", text(json!("tool")), "/role"),
        ("/messages", text(json!(1)), "/role"),
        ("/messages", with("on_busy", json!("later")), "/on_busy"),
        ("/messages", with("budget", json!({"max_steps": "many"})), "/budget/max_steps"),
        ("/messages", with("budget", json!({"timeout_s": -1})), "/budget/timeout_s"),
        ("/messages", with("budget", json!(7)), "/budget"),
        ("/messages", with("budget", json!([3])), "/budget"),
        ("/messages", with("budget", json!({"max_steps": 0})), "/budget/max_steps"),
        ("/messages", with("budget", json!({"timeout_s": 1_000_000_000})), "/budget/timeout_s"),
        ("/messages", with("content", json!(" \n")), "/content"),
        ("/messages", with("tools", json!("echo")), "/tools"),
        ("/messages", with("tools", json!(["echo", 1])), "/tools/1"),
        ("/messages", with("tools", json!(["echo", "unheard_of"])), "/tools/1"),
        ("/messages", with("user", json!(5)), "/user"),
        ("/steer", json!({"content": {}}), "/content"),
        ("/fork", json!({"at_message": 5}), "/at_message"),
        ("PATCH", json!({"title": 5}), "/title"),
        ("PATCH", json!({"title": long}), "/title"),
        ("PATCH", json!({"metadata": []}), "/metadata"),
        ("PATCH", json!({"metadata": {"big": "x".repeat(70_000)}}), "/metadata"),
        ("PATCH", json!({"model": "nonsense"}), "/model"),
        ("PATCH", json!({"state": "on"}), "/state"),
        ("", json!({"id": 5}), "/id"),
        ("", json!({"id": "a b"}), "/id"),
        ("", json!({"id": "x".repeat(129)}), "/id"),
        ("", json!({"id": "new", "user": "../other"}), "/user"),
        ("", json!({"id": "new", "agent": "a b"}), "/agent"),
        ("", json!({"id": "new", "budget": {"max_tokens": 1.5}}), "/budget/max_tokens"),
        ("tickets", json!({}), ""),
        ("tickets", json!({"session": "a b"}), "/session"),
        ("tickets", json!({"session": "s", "scopes": ["admin"]}), "/scopes/0"),
        ("tickets", json!({"session": "s", "scopes": []}), "/scopes"),
    ];
    for (route, body, pointer) in cases {
        let answer = match route {
            "" => client.post("/v1/sessions", body.clone()),
            "PATCH" => client.patch(&chat.path(""), body.clone()),
            "tickets" => client.post("/v1/tickets", body.clone()),
            path => chat.post(path, body.clone()),
        };
        assert_eq!(answer.status, 422, "{route} {body}: {}", answer.text());
        let problem = problem(&answer, 422, "validation_failed");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{route} {body}: {problem}");
        assert!(!problem["errors"][0]["detail"].as_str().unwrap().is_empty());
    }
    assert_eq!(chat.log(), before);
    problem(&client.get("/v1/sessions/new"), 404, "not_found");
    // Unknown fields are ignored.
    world().model.script("m", Script::text(["ok"]));
    chat.ask(json!({"content": "a", "role": "user", "color": "green", "budget": {"sweets": 7}}));
}

/// Sends a POST over a raw socket, with the headers `framing` and the bytes `body`.
fn post_raw(path: &str, key: &str, framing: &str, body: &[u8]) -> Response {
    let mut stream = TcpStream::connect(world().server.address()).unwrap();
    stream.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\n{framing}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    // The server may respond and close before it has read everything.
    let _ = stream.write_all(body);
    let mut connection = BufReader::new(stream);
    let (first, headers) = http::read_head(&mut connection).unwrap();
    let mut reader = http::Body::new(connection, &headers, http::Length::UntilClose).unwrap();
    let mut body = Vec::new();
    reader.read_to_end(&mut body).unwrap();
    Response { status: first.split(' ').nth(1).unwrap().parse().unwrap(), headers, body }
}

/// Sends a chunked body, whose length is not announced.
fn chunked(path: &str, key: &str, body: &[u8]) -> Response {
    let frame = |chunk: &[u8]| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
    let framed: Vec<u8> = body.chunks(100_000).chain([&[][..]]).flat_map(frame).collect();
    post_raw(path, key, "transfer-encoding: chunked", &framed)
}

#[test]
fn bodies_over_four_mebibytes_are_refused() {
    let client = client();
    let body = |bytes: usize| {
        let frame = r#"{"title":"","content":""}"#.len();
        format!(r#"{{"title":"","content":"{}"}}"#, "x".repeat(bytes - frame))
    };
    let (limit, over) = (body(4 << 20), body((4 << 20) + 1));
    for (key, path) in [
        (crate::support::DEV_API_KEY, "/v1/sessions"),
        (crate::support::DEV_API_KEY, "/v1/sessions/large/messages"),
        (crate::support::DEV_API_KEY, "/v1/tickets"),
        // These are passed on to the object of a session.
        (crate::support::DEV_API_KEY, "/v1/sessions/large/messages"),
        (crate::support::DEV_API_KEY, "/v1/sessions/large/attachments"),
        (crate::support::DEV_API_KEY, "/v1/sessions/large/steer"),
        (crate::support::ADMIN_KEY, "/v1/admin/tenants"),
    ] {
        // The announced length is sufficient: the body itself need not be sent.
        let length = format!("content-length: {}", over.len());
        problem(&post_raw(path, key, &length, b"{"), 413, "payload_too_large");
        problem(&chunked(path, key, over.as_bytes()), 413, "payload_too_large");
    }
    problem(&client.get("/v1/sessions/large"), 404, "not_found");
    let fits =
        client.with_header("content-type", "application/json").send("POST", "/v1/sessions", limit.as_bytes());
    assert_eq!(fits.status, 201, "{}", fits.text());
    let fits = chunked("/v1/sessions", crate::support::DEV_API_KEY, limit.as_bytes());
    assert_eq!(fits.status, 201, "{}", fits.text());
}

#[test]
fn a_message_of_almost_a_mebibyte_round_trips() {
    // The model has a large context window; for others the message would be shortened.
    let windows = r#"{"openai/m": 5000000}"#;
    let mut world = World::with(json!({ "MEMORY_FLUSH": "never", "MODEL_WINDOWS": windows }));
    let text: String = (0..).map(|n| format!("{n} Grüße 🌍\\\"\n")).take(48_000).collect();
    assert!((950_000..1 << 20).contains(&text.len()), "{}", text.len());
    let chat = Chat::new(world.server.client(), "large");
    world.model.choose(|_| Some(Script::text(["Read."])));
    assert_eq!(chat.say(&text)["reply"]["text"], "Read.");
    let sent = &world.received("m")[0].body["messages"];
    assert_eq!(sent.as_array().unwrap().last().unwrap()["content"].as_str().unwrap().len(), text.len());
    world.server.restart();
    let came_back = chat.get("/messages")["data"][0]["parts"][0]["text"].clone();
    assert!(came_back == text.as_str(), "{} of {} bytes returned", came_back.to_string().len(), text.len());
    let replayed = chat.client.stream(&chat.path("/events?until=idle")).find(|e| e.event == "turn.started");
    assert!(replayed.unwrap().json()["message"]["parts"][0]["text"] == text.as_str());
    assert_eq!(chat.say("and now?")["reply"]["text"], "Read.");
}

#[test]
fn unknown_routes_and_methods_have_different_errors() {
    let client = client();
    for path in [
        "/v1",
        "/v2/sessions",
        "/v1/sessions/",
        "/v1/sessions/a/unknown",
        "/v1/sessions/a/turns/",
        "/v1/sessions//messages",
        "/v1/sessions/%FF",
        "/V1/sessions",
    ] {
        for method in ["GET", "POST", "DELETE"] {
            problem(&client.send(method, path, &[]), 404, "not_found");
        }
    }
    for id in ["a%2Fb", "a%20b", "%F0%9F%8C%8D", &"x".repeat(129)] {
        problem(&client.get(&format!("/v1/sessions/{id}")), 404, "not_found");
    }
    for (method, path, allow) in [
        ("PUT", "/v1/sessions", "POST, GET"),
        ("POST", "/v1/sessions/a", "GET, PATCH, DELETE"),
        ("POST", "/v1/sessions/a/events", "GET"),
        ("PATCH", "/v1/sessions/a/messages", "GET, POST"),
        ("GET", "/v1/sessions/a/abort", "POST"),
        ("DELETE", "/healthz", "GET"),
        ("GET", "/v1/tickets", "POST"),
    ] {
        let refused = client.send(method, path, &[]);
        problem(&refused, 405, "method_not_allowed");
        let sorted = |list: &str| {
            let mut methods: Vec<_> = list.split(", ").map(str::to_owned).collect();
            methods.sort();
            methods
        };
        assert_eq!(sorted(refused.header("allow").unwrap()), sorted(allow), "{method} {path}");
    }
}

#[test]
fn query_parameters_are_validated() {
    let (client, admin) = (client(), world().server.admin());
    client.post("/v1/sessions", json!({"id": "queries"})).expect(201);
    let lists = [
        (&client, "/v1/sessions"),
        (&client, "/v1/sessions/queries/messages"),
        (&admin, "/v1/admin/tenants"),
    ];
    for (client, path) in lists {
        for limit in ["0", "201", "-1", "many", "", "1.5", "99999999999999999999"] {
            let refused = problem(&client.get(&format!("{path}?limit={limit}")), 422, "validation_failed");
            assert_eq!(refused["errors"][0]["pointer"], "?limit");
        }
        for cursor in ["x", "", "bm8", "e30", "%00", "eyJhIjoxfQ"] {
            let refused = problem(&client.get(&format!("{path}?cursor={cursor}")), 422, "validation_failed");
            assert_eq!(refused["errors"][0]["pointer"], "?cursor");
        }
        for limit in [1, 200] {
            let page = client.get(&format!("{path}?limit={limit}&other=1")).expect(200);
            assert!(
                page["data"].is_array() && page["next_cursor"].as_str().is_none_or(|c| !c.is_empty()),
                "{page}"
            );
        }
    }
    for (query, pointer) in [("after=x", "?after"), ("after=1.x", "?after"), ("until=noon", "?until")] {
        let refused =
            problem(&client.get(&format!("/v1/sessions/queries/events?{query}")), 422, "validation_failed");
        assert_eq!(refused["errors"][0]["pointer"], pointer);
    }
    let lines = client.with_header("accept", "application/x-ndjson");
    problem(&lines.get("/v1/sessions/queries/events?limit=0"), 422, "validation_failed");
}

#[test]
fn every_response_has_a_request_id() {
    let client = client();
    client.post("/v1/sessions", json!({"id": "named"})).expect(201);
    let mut ids = std::collections::HashSet::new();
    let requests = [
        ("GET", "/healthz", 200),
        ("GET", "/v1/models", 200),
        ("GET", "/v1/sessions", 200),
        ("POST", "/v1/sessions", 201),
        ("GET", "/v1/sessions/named", 200),
        ("GET", "/v1/sessions/named/events?until=idle", 200),
        ("GET", "/v1/sessions/none", 404),
        ("GET", "/nowhere", 404),
        ("PUT", "/v1/sessions", 405),
        ("POST", "/v1/sessions/named/messages", 400),
        ("GET", "/v1/sessions?limit=x", 422),
        ("GET", "/v1/sessions/named/ws", 400),
        ("GET", "/fixtures/panic", 500),
    ];
    for (method, path, status) in requests {
        let answer = client.send(method, path, &[]);
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        let id = answer.header("x-request-id").unwrap_or_else(|| panic!("{method} {path}: no request id"));
        assert!(ids.insert(id.to_owned()), "{id} is not unique");
        let own = client.with_header("x-request-id", "my-own_1").send(method, path, &[]);
        assert_eq!(own.header("x-request-id"), Some("my-own_1"), "{method} {path}");
        if status >= 400 {
            assert_eq!(own.header("content-type"), Some("application/problem+json"), "{method} {path}");
            assert_eq!(own.json()["request_id"], "my-own_1", "{method} {path}");
        }
        // Ids that could break a log or a header are replaced.
        let odd = client.with_header("x-request-id", "a b<script>").send(method, path, &[]);
        assert!(odd.header("x-request-id").unwrap().starts_with("req_"), "{method} {path}");
    }
    assert_eq!(client.delete("/v1/sessions/named").header("x-request-id").map(str::is_empty), Some(false));
    // The line about the panic.
    world().server.expect_log("my-own_1");
}

fn keyed(client: &Client, key: &str) -> Client {
    client.with_header("idempotency-key", key)
}

/// Checks that a repeated POST returns the same response, and that a different body is refused.
#[track_caller]
fn repeats(client: &Client, path: &str, body: &Value, status: u16) -> Value {
    let client = keyed(client, &format!("key-for{path}"));
    let first = client.post(path, body.clone());
    assert_eq!(
        (first.status, first.header("idempotent-replayed")),
        (status, None),
        "{path}: {}",
        first.text()
    );
    let again = client.post(path, body.clone());
    assert_eq!(
        (again.status, again.header("idempotent-replayed")),
        (status, Some("true")),
        "{path}: {}",
        again.text()
    );
    assert_eq!(again.json(), first.json(), "{path}");
    let mut other = body.clone();
    other["more"] = json!(1);
    problem(&client.post(path, other), 422, "idempotency_key_reused");
    first.json()
}

#[test]
fn the_key_of_a_new_session_is_bound_to_its_body_unless_it_was_refused() {
    let client = keyed(&client(), "tied");
    let refused = client.post("/v1/sessions", json!({"id": "tied-1", "agent": "unknown"}));
    problem(&refused, 404, "unknown_agent");
    client.post("/v1/sessions", json!({"id": "tied-1"})).expect(201);
    problem(&client.post("/v1/sessions", json!({"id": "tied-2"})), 422, "idempotency_key_reused");
    problem(&client.get("/v1/sessions/tied-2"), 404, "not_found");
    let again = client.post("/v1/sessions", json!({"id": "tied-1"}));
    assert_eq!((again.status, again.header("idempotent-replayed")), (201, Some("true")));
}

#[test]
fn a_repeated_post_runs_once() {
    let (world, client, admin) = (world(), client(), world().server.admin());
    let made = repeats(&client, "/v1/sessions", &json!({"title": "once", "user": "repeater"}), 201);
    assert_eq!(client.get("/v1/sessions?user=repeater").expect(200)["data"].as_array().unwrap().len(), 1);

    let chat = Chat::new(client.clone(), made["id"].as_str().unwrap());
    client.patch(&chat.path(""), json!({"model": "openai/repeated"})).expect(200);
    for reply in ["one", "two", "three"] {
        world.model.script("repeated", Script::text([reply]));
    }
    let answer = repeats(&client, &chat.path("/messages"), &json!({"content": "1"}), 200);
    assert_eq!(answer["reply"]["text"], "one");
    let accepted = client.with_header("prefer", "respond-async");
    let receipt = repeats(&accepted, &chat.path("/messages?async"), &json!({"content": "2"}), 202);
    chat.until_idle();
    assert_eq!(chat.get(&format!("/turns/{}", receipt["turn_id"].as_str().unwrap()))["reply"]["text"], "two");
    let stream = keyed(&client, "streamed").post_stream(&chat.path("/messages"), json!({"content": "3"}));
    assert_eq!(stream.header("idempotent-replayed"), None);
    let first: Vec<Event> = stream.collect();
    assert_eq!(first.last().unwrap().event, "turn.completed");
    let stream = keyed(&client, "streamed").post_stream(&chat.path("/messages"), json!({"content": "3"}));
    assert_eq!(stream.header("idempotent-replayed"), Some("true"));
    assert_eq!(stream.collect::<Vec<_>>(), first);
    assert_eq!(world.received("repeated").len(), 3);
    let other = keyed(&client, "streamed").post(&chat.path("/messages"), json!({"content": "4"}));
    problem(&other, 422, "idempotency_key_reused");

    repeats(&client, &chat.path("/abort"), &json!({}), 200);
    let fork = repeats(&client, &chat.path("/fork"), &json!({}), 201);
    assert_ne!(fork["id"], made["id"]);
    assert_eq!(client.get("/v1/sessions?user=repeater").expect(200)["data"].as_array().unwrap().len(), 2);
    let tenant = repeats(&admin, "/v1/admin/tenants", &json!({"name": "once"}), 201);
    let key = repeats(
        &admin,
        &format!("/v1/admin/tenants/{}/keys", tenant["id"].as_str().unwrap()),
        &json!({}),
        201,
    );
    client.with_key(key["key"].as_str().unwrap()).get("/v1/sessions").expect(200);
    // A refused request may be corrected under the same key.
    problem(
        &keyed(&client, "corrected").post(&chat.path("/fork"), json!({"at_message": "x"})),
        422,
        "validation_failed",
    );
    keyed(&client, "corrected").post(&chat.path("/fork"), json!({})).expect(201);
    for key in ["", "with space", &"x".repeat(256)] {
        problem(
            &keyed(&client, key).post(&chat.path("/messages"), json!({"content": "5"})),
            400,
            "invalid_request",
        );
        problem(&keyed(&client, key).post("/v1/sessions", json!({})), 400, "invalid_request");
    }
}

#[test]
fn a_failing_directory_is_reported_as_an_internal_error() {
    let mut server = Server::start(json!({}));
    server.edit("DROP TABLE idempotency; DROP TABLE sessions");
    let keyed = server.client().with_header("idempotency-key", "k");
    problem(&keyed.post("/v1/memory", json!({"facts": []})), 503, "unavailable");
    problem(&server.client().get("/v1/sessions"), 503, "unavailable");
    server.expect_log("no such table: idempotency");
}

#[test]
fn a_repetition_during_the_first_request_is_refused() {
    let (world, gate) = (world(), Gate::new());
    let chat = world.chat("openai/still-running");
    world.model.script("still-running", Script::text(["a"]).hold(&gate).say("b"));
    let client = keyed(&chat.client, "running");
    let mut stream = client.post_stream(&chat.path("/messages"), json!({"content": "1"}));
    stream.until_type("message.delta");
    let again = client.post(&chat.path("/messages"), json!({"content": "1"}));
    problem(&again, 409, "idempotency_in_progress");
    assert!(again.header("retry-after").is_some());
    problem(&client.post(&chat.path("/messages"), json!({"content": "2"})), 422, "idempotency_key_reused");
    gate.open();
    assert_eq!(stream.last().unwrap().event, "turn.completed");
    let again = client.post(&chat.path("/messages"), json!({"content": "1"}));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.expect(200)["reply"]["text"], "ab");
}

/// A random generator with a fixed seed, so that each run sends the same requests.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }

    fn one_of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.roll(choices.len())]
    }
}

#[test]
fn random_requests_are_refused_and_never_break_anything() {
    let world = world();
    let chat = world.chat("demo/echo");
    let mut dice = Dice(0x5eed_0123_4567_89ab);
    let methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "PROPFIND"];
    let ids =
        [chat.id.as_str(), "none", "..", "%2e%2e", "a%00b", "%F0%9F%8C%8D", "x%2Fy", "'; DROP TABLE log; --"];
    let rests = [
        "",
        "/messages",
        "/events",
        "/ws",
        "/fork",
        "/abort",
        "/steer",
        "/turns/x",
        "/turns/..",
        "/queue/x",
        "/approvals/c",
        "/answers/c",
        "/compact",
        "/artifacts/r",
    ];
    let tops = [
        "/v1/sessions",
        "/v1/usage",
        "/v1/tickets",
        "/v1/admin/tenants",
        "/v1/admin/tenants/x/keys/y",
        "/healthz",
        "/openapi.json",
        "/v1//sessions",
        "/%",
        "/v1/sessions?",
    ];
    let queries = [
        "",
        "",
        "?limit=-1",
        "?limit=5&limit=6",
        "?cursor=AAAA",
        "?after=9999999999999999999",
        "?after=1.1&until=idle",
        "?user=%00",
        "?user=a%2Fb",
        "?%ff=%fe",
        "?ticket=x",
        "?=&&=?",
    ];
    let nested = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
    let deep = format!(r#"{{"metadata": {}1{}}}"#, r#"{"a":"#.repeat(400), "}".repeat(400));
    let bodies = [
        "",
        "{}",
        "[]",
        "null",
        "1e999",
        "\"text\"",
        "{\"content\":\"\\ud800\"}",
        "{\"content\":\"\\u0000\"}",
        r#"{"id":"..","content":"x","role":"root"}"#,
        r#"{"content":"x","budget":{"max_steps":99999999999}}"#,
        r#"{"content":"x","tools":[null]}"#,
        r#"{"content":"/fail 999","on_busy":"reject"}"#,
        r#"{"session":"%"}"#,
        r#"{"state":{"__proto__":{"x":1}},"title":null}"#,
        "\u{feff}{}",
        &nested,
        &deep,
    ];
    let headers = [
        ("accept", "text/event-stream"),
        ("accept", "image/png"),
        ("accept", ""),
        ("content-type", ""),
        ("content-type", "application/json;;;"),
        ("content-type", "text/json"),
        ("idempotency-key", "k"),
        ("idempotency-key", "\u{e9}"),
        ("last-event-id", "-1"),
        ("last-event-id", "1.99999999999999999999"),
        ("prefer", "respond-async, wait=x"),
        ("upgrade", "websocket"),
        ("x-edge-harness-forward", "{}"),
        ("x-edge-harness-internal", "\"import\""),
        ("range", "bytes=5-1"),
        ("if-match", "*"),
        ("x-request-id", "\t"),
    ];
    let mut refused = 0;
    for n in 0..180 {
        let method = dice.one_of(&methods);
        let path = match dice.roll(3) {
            0 => dice.one_of(&tops).to_owned(),
            _ => format!("/v1/sessions/{}{}", dice.one_of(&ids).replace(' ', "%20"), dice.one_of(&rests)),
        };
        let path = format!("{path}{}", dice.one_of(&queries));
        let body = if method == "GET" || method == "HEAD" { "" } else { dice.one_of(&bodies) };
        let mut sent = vec![("authorization".to_owned(), format!("Bearer {}", crate::support::DEV_API_KEY))];
        if dice.roll(4) > 0 {
            sent.push(("content-type".into(), "application/json".into()));
        }
        if path.contains("admin") {
            sent[0].1 = format!("Bearer {}", crate::support::ADMIN_KEY);
        }
        for _ in 0..dice.roll(3) {
            let (name, value) = headers[dice.roll(headers.len())];
            sent.push((name.into(), value.into()));
        }
        // The session is not deleted, so that most routes have something to work on.
        if method == "DELETE" && path.starts_with(&chat.path("")) && !path.contains("/queue") {
            continue;
        }
        let what = format!("request {n}: {method} {path} {sent:?} {:.80}", body);
        let answer = http::send(world.server.address(), method, &path, &sent, body.as_bytes())
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        let header = |name: &str| http::header(&answer.headers, name).map(str::to_owned);
        let (status, kind) = (answer.status, header("content-type").unwrap_or_default());
        assert!((101..500).contains(&status), "{what}: {status}");
        assert!(header("x-request-id").is_some() || status == 101, "{what}: {status} without an id");
        // An event stream may be endless; everything else ends.
        if status < 300 && (kind.starts_with("text/event-stream") || status == 101) {
            continue;
        }
        if method == "HEAD" {
            continue;
        }
        let answer = answer.finish().unwrap_or_else(|e| panic!("{what}: {e}"));
        if status >= 400 {
            refused += 1;
            assert_eq!(kind, "application/problem+json", "{what}: {}", answer.text());
            let code = answer.json()["code"].as_str().unwrap().to_owned();
            assert!(
                !code.is_empty() && code.bytes().all(|b| b == b'_' || b.is_ascii_lowercase()),
                "{what}: {code}"
            );
        }
    }
    assert!(refused > 100, "only {refused} were refused");
    assert_eq!(chat.say("/say still here")["reply"]["text"], "still here");
    chat.log_types();
}
