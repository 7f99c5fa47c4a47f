//! The bodies of requests that wait for the end of their turns.

use crate::support::{Gate, ModelServer, Script, Server};
use serde_json::json;
use std::thread;

/// Number of requests of each kind that wait: twice as many as the largest bodies that an isolate may hold at once.
const WAITING: usize = 12;

#[test]
fn requests_that_wait_hold_no_bodies() {
    let (model, gate) = (ModelServer::start(), Gate::new());
    let of_model = gate.clone();
    model.choose(move |_| Some(Script::new().hold(&of_model).say("Done.")));
    let server = Server::start(json!({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": model.base_url(),
        "DEFAULT_MODEL": "openai/m", "MEMORY_FLUSH": "never"}));
    // Fields that the server does not know are ignored, so a body can be much larger than its message.
    let body = |size: usize| json!({ "content": "Wait.", "unknown": "x".repeat(size) }).to_string();
    let (small, large) = (body(10), body(15 << 18));
    let client = server.client().with_header("content-type", "application/json");
    thread::scope(|scope| {
        let post = |session: String, body: &str, chunked: bool| {
            let path = format!("/v1/sessions/{session}/messages");
            let client = match chunked {
                true => client.with_header("transfer-encoding", "chunked"),
                false => client.clone(),
            };
            let body = body.to_owned();
            scope.spawn(move || client.send("POST", &path, body.as_bytes()).expect(200));
        };
        // A body that is held leaves no room for the next ones, which get 503.
        for number in 0..WAITING {
            post(format!("large-{number}"), &large, false);
            model.wait_for(number + 1);
        }
        for number in 0..WAITING {
            post(format!("chunked-{number}"), &small, true);
        }
        model.wait_for(2 * WAITING);
        gate.open();
    });
}

/// Some clients and proxies announce a body of zero bytes with every request.
#[test]
fn a_get_may_have_a_body() {
    let server = Server::start(json!({"MEMORY_FLUSH": "never"}));
    let client = server.client();
    client.post("/v1/sessions", json!({"id": "read"})).expect(201);
    let ticket = client.post("/v1/tickets", json!({"session": "read"})).expect(201);
    let events = format!("/v1/sessions/read/events?ticket={}", ticket["ticket"].as_str().unwrap());
    let with_ticket = server.anonymous().with_header("accept", "application/x-ndjson");
    for (client, path) in [(&client, "/v1/sessions/read"), (&client, "/v1/agents"), (&with_ticket, &events)] {
        let announced = client.with_header("content-length", "0").send("GET", path, b"");
        for response in [announced, client.send("GET", path, b"{}")] {
            assert_eq!(response.status, 200, "{path}: {}", response.text());
        }
    }
}

/// With some of its features, `serde_json` reads the values of such fields as JSON text.
#[test]
fn fields_with_names_of_the_parser_are_stored_like_others() {
    let mut server = Server::start(json!({"MEMORY_FLUSH": "never"}));
    let metadata =
        json!({"a": {"$serde_json::private::RawValue": "{"}, "b": {"$serde_json::private::Number": "x"}});
    let body = json!({"id": "named", "metadata": metadata});
    server.client().post("/v1/sessions", body).expect(201);

    server.restart();

    assert_eq!(server.client().get("/v1/sessions/named").expect(200)["metadata"], metadata);
}
