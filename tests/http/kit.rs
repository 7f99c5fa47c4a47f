//! Tests of the test support itself.

use crate::support::{Client, Gate, Launch, ModelServer, Script, Server, Sse, shared};
use serde_json::{Value, json};

fn ask(model: &ModelServer, path: &str, stream: bool) -> Sse {
    let body = json!({"model": "m", "stream": stream, "stream_options": {"include_usage": true}});
    Client::new(model.address()).post_stream(path, body)
}

fn texts(events: &[Value]) -> String {
    events.iter().filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect()
}

#[test]
fn the_worker_responds() {
    let health = shared().anonymous().get("/healthz").expect(200);
    assert_eq!(health["status"], "ok");
}

#[test]
fn a_kill_leaves_no_process_and_a_restart_keeps_the_port() {
    let mut server = Server::start(json!({}));
    let address = server.address();
    server.kill();
    assert!(std::net::TcpStream::connect(address).is_err());
    server.restart();
    assert_eq!(server.address(), address);
    server.anonymous().get("/healthz").expect(200);
}

#[test]
fn the_scheduled_handler_runs() {
    assert_eq!(shared().scheduled()["outcome"], "ok");
}

#[test]
fn openai_text_is_complete_for_every_split() {
    let model = ModelServer::start();
    let said = Script::text(["Grüße, ", "Welt", " 🌍"]);
    for script in [said.clone(), said.clone().crlf(), said.byte_by_byte()] {
        model.script("m", script.usage(100, 40, 7));
        let events: Vec<_> = ask(&model, "/v1/chat/completions", true).collect();
        assert_eq!(events.last().unwrap().data, "[DONE]");
        let events: Vec<Value> = events[..events.len() - 1].iter().map(|e| e.json()).collect();
        assert_eq!(texts(&events), "Grüße, Welt 🌍");
        assert_eq!(events[events.len() - 2]["choices"][0]["finish_reason"], "stop");
        assert_eq!(events[events.len() - 1]["usage"]["prompt_tokens_details"]["cached_tokens"], 40);
    }
}

#[test]
fn parallel_calls_are_interleaved_on_openai_and_sequential_on_anthropic() {
    let model = ModelServer::start();
    let (first, second) = (json!({"path": "a long enough path"}), json!({"n": 1}));
    let script = Script::new().tools([("c1", "read", first.clone()), ("c2", "count", second.clone())]);
    model.script("m", script.clone());
    model.script("m", script);

    let mut arguments = [String::new(), String::new()];
    let events: Vec<_> = ask(&model, "/v1/chat/completions", true).collect();
    for event in &events[..events.len() - 1] {
        let call = &event.json()["choices"][0]["delta"]["tool_calls"][0];
        if let (Some(index), Some(piece)) = (call["index"].as_u64(), call["function"]["arguments"].as_str()) {
            arguments[usize::try_from(index).unwrap()] += piece;
        }
    }
    assert_eq!(arguments, [first.to_string(), second.to_string()]);

    let events: Vec<_> = ask(&model, "/v1/messages", true).collect();
    let names: Vec<_> =
        events.iter().map(|e| e.event.as_str()).filter(|e| *e != "content_block_delta").collect();
    let block = ["content_block_start", "content_block_stop"];
    assert_eq!(names[..2], ["message_start", "ping"]);
    assert_eq!(names[2..6], [block, block].concat());
    assert_eq!(names[6..], ["message_delta", "message_stop"]);
    assert_eq!(events[events.len() - 2].json()["delta"]["stop_reason"], "tool_use");
}

#[test]
fn a_gate_holds_a_piece_until_the_test_opens_it() {
    let (model, gate) = (ModelServer::start(), Gate::new());
    model.script("m", Script::text(["before"]).hold(&gate).say("after"));
    let mut stream = ask(&model, "/v1/chat/completions", true);
    stream.until(|e| e.data.contains("before"));
    gate.reached();
    gate.open();
    stream.until(|e| e.data.contains("after"));
    assert_eq!(stream.last().unwrap().data, "[DONE]");
}

#[test]
fn the_server_notices_a_disconnect_during_a_stall() {
    let (model, gate) = (ModelServer::start(), Gate::new());
    model.script("m", Script::text(["before"]).hold(&gate));
    let mut stream = ask(&model, "/v1/chat/completions", true);
    stream.until(|e| e.data.contains("before"));
    drop(stream);
    model.wait_for_abort(0);
}

#[test]
fn the_baseline_worker_of_the_benchmark_streams() {
    let (model, gate) = (ModelServer::start(), Gate::new());
    model.script("bench", Script::text(["before"]).hold(&gate).say("after"));
    let bindings = json!({ "OPENAI_BASE_URL": model.base_url() });
    let floor = Server::launch(Launch {
        config: "bench/floor/wrangler.toml".into(),
        main: "worker.js",
        bindings,
        databases: None,
        inspected: false,
        page: false,
    });
    let mut stream = floor.anonymous().post_stream("/turn/a", json!({"content": "hello"}));
    stream.until(|e| e.data.contains("before"));
    gate.open();
    stream.until(|e| e.data.contains("after"));
}

#[test]
fn a_cut_stream_differs_from_a_complete_one() {
    let model = ModelServer::start();
    model.script("m", Script::text(["half"]).cut());
    model.script("m", Script::text(["half"]).error_event(json!({"message": "overloaded"})));
    let mut cut = ask(&model, "/v1/chat/completions", true);
    assert_eq!(cut.by_ref().count(), 2);
    assert!(cut.cut);
    let mut failed = ask(&model, "/v1/chat/completions", true);
    let events: Vec<_> = failed.by_ref().collect();
    assert_eq!(events[2].json()["error"]["message"], "overloaded");
    assert!(!failed.cut);
}

#[test]
fn errors_whole_responses_and_chosen_scripts_arrive() {
    let model = ModelServer::start();
    let client = Client::new(model.address()).with_header("x-api-key", "secret");
    model.script("m", Script::rate_limited(3));
    let limited = client.post("/v1/messages", json!({"model": "m", "stream": true}));
    assert_eq!((limited.status, limited.header("retry-after")), (429, Some("3")));

    model.choose(|request| (request["max_tokens"] == 7).then(|| Script::text(["whole ", "answer"])));
    let whole = client.post("/v1/messages", json!({"model": "m", "max_tokens": 7})).expect(200);
    assert_eq!(whole["content"][0]["text"], "whole answer");
    client.post("/v1/messages", json!({"model": "m"})).expect(400);

    let received = model.wait_for(3);
    assert_eq!(received[1].path, "/v1/messages");
    assert_eq!(received[1].header("x-api-key"), Some("secret"));
    assert_eq!(received[1].body["max_tokens"], 7);
}

#[test]
fn a_websocket_carries_the_key() {
    use tungstenite::handshake::server::{ErrorResponse, Request, Response};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::new(listener.local_addr().unwrap()).with_key("k");
    let server = std::thread::spawn(move || {
        #[allow(clippy::result_large_err, reason = "the library's own signature")]
        let check = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
            assert_eq!(request.headers()["authorization"], "Bearer k");
            Ok(response)
        };
        let mut socket = tungstenite::accept_hdr(listener.accept().unwrap().0, check).unwrap();
        let said = socket.read().unwrap();
        socket.send(said).unwrap();
    });
    let mut socket = client.websocket("/v1/sessions/s/ws");
    socket.send("hello".into()).unwrap();
    assert_eq!(socket.read().unwrap().into_text().unwrap(), "hello");
    server.join().unwrap();
}
