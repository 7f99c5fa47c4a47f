//! The responses of the session object, with the object in memory.

use crate::stage::{Stage, check, ms};
use bytes::Bytes;
use edge_harness::agent::SessionHost;
use edge_harness::http::{
    Body, MAX_BODY, Request, Response,
    session::{self, call::SessionRequest, socket::command},
    upgrade::SocketState,
};
use edge_harness::platform::in_memory::models::answer;
use edge_harness::ports::{SessionStore, session_store::Batch};
use edge_harness::session::hub::{ByteReceiver, Interrupted};
use edge_harness::types::{ErrorCode, Part, Principal, Problem, Scopes};
use futures::{FutureExt, StreamExt, executor::block_on};
use http::{HeaderName, HeaderValue};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{cell::RefCell, rc::Rc};

pub fn principal() -> Principal {
    Principal::new("t", Scopes::all())
}

/// A request to session `s`. `route` is a method and a path, from the root or below the session.
pub fn request(route: &str, query: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> SessionRequest {
    let (method, path) = route.split_once(' ').unwrap();
    let roots = ["/v1/", "/api/", "/ag-ui", "/a2a", "/mcp"];
    let below = if roots.iter().any(|root| path.starts_with(root)) { "" } else { "/v1/sessions/s" };
    let mut request = Request::new(body.into().into());
    *request.method_mut() = method.parse().unwrap();
    *request.uri_mut() = format!("{below}{path}?{query}").parse().unwrap();
    let mut asked =
        SessionRequest { principal: principal(), session: "s".into(), id: "req_1".into(), request };
    headers.iter().for_each(|(name, value)| set_header(&mut asked, name, value));
    asked
}

pub fn set_header(asked: &mut SessionRequest, name: &str, value: &str) {
    let name: HeaderName = name.parse().unwrap();
    asked.request.headers_mut().insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
}

pub fn call(route: &str, query: &str, body: &Value) -> SessionRequest {
    request(route, query, &[], body.to_string())
}

/// The response of the session's object, without other sessions.
pub fn respond(stage: &Stage, asked: &SessionRequest) -> Result<Response, Problem> {
    stage.others.stand_in.replace(None);
    block_on(session::respond(&stage.host(), asked))
}

/// The response of the session's object; `other` is every other session.
pub fn respond_beside(stage: &Stage, other: &Rc<Stage>, asked: &SessionRequest) -> Result<Response, Problem> {
    stage.others.stand_in.replace(Some(Rc::clone(other)));
    block_on(session::respond(&stage.host(), asked))
}

pub fn ask(stage: &Stage, route: &str, query: &str, body: &Value) -> Result<Response, Problem> {
    respond(stage, &call(route, query, body))
}

pub fn status(response: &Response) -> u16 {
    response.status().as_u16()
}

pub fn whole(response: Response) -> Value {
    match response.into_body() {
        Body::Bytes(bytes) => serde_json::from_slice(&bytes).unwrap(),
        _ => panic!("no body"),
    }
}

pub fn stream(response: Response) -> ByteReceiver {
    match response.into_body() {
        Body::Stream(stream) => stream,
        _ => panic!("no stream"),
    }
}

/// Sends a request, and runs the session's tasks until there is a response.
pub fn exchange(stage: &Stage, asked: SessionRequest) -> Result<Response, Problem> {
    exchange_with(stage, stage.host(), asked)
}

/// Like [`exchange`], with the session of this host.
pub fn exchange_with(
    stage: &Stage,
    host: Rc<SessionHost>,
    asked: SessionRequest,
) -> Result<Response, Problem> {
    let found = Rc::new(RefCell::new(None));
    let into = Rc::clone(&found);
    stage.host().spawn(async move { *into.borrow_mut() = Some(session::respond(&host, &asked).await) });
    for _ in 0..1_000 {
        stage.run();
        if let Some(response) = found.take() {
            return response;
        }
        stage.clock.advance(ms(10));
    }
    panic!("no response");
}

/// Reads the data of the events of `span` milliseconds, and whether the stream has ended.
pub fn read_data(stage: &Stage, open: &mut ByteReceiver, span: u64) -> (Vec<String>, bool) {
    let (mut out, mut has_ended) = (Vec::new(), false);
    for _ in 0..span / 10 {
        while let Some(next) = open.next().now_or_never() {
            let Some(bytes) = next else {
                has_ended = true;
                break;
            };
            out.extend_from_slice(&bytes.unwrap());
        }
        stage.tick(ms(10));
    }
    let text = String::from_utf8(out).unwrap();
    let data = |event: &str| event.lines().find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    let events = text.split_terminator("\n\n").filter_map(data);
    (events.collect(), has_ended)
}

/// Reads the events of `span` milliseconds, whose data is JSON.
pub fn read_events(stage: &Stage, open: &mut ByteReceiver, span: u64) -> Vec<Value> {
    let (events, _) = read_data(stage, open, span);
    events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

/// The bytes that are available now.
pub fn read(stream: &mut ByteReceiver) -> String {
    let mut out = Vec::new();
    while let Some(Some(Ok(bytes))) = stream.next().now_or_never() {
        out.extend_from_slice(&bytes);
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn a_stream_ends_soon_after_its_credential() {
    let stage = Stage::demo();
    ask(&stage, "POST /v1/sessions", "", &json!({})).unwrap();
    let mut asked = call("GET /events", "", &json!({}));
    asked.principal.valid_until = stage.host().now() + ms(45_000);
    let mut open = stream(respond(&stage, &asked).unwrap());
    let pass = |ms_each: u64, times: usize| (0..times).for_each(|_| stage.tick(ms(ms_each)));
    // An unavailable directory ends no stream that was found valid less than 45 seconds ago.
    stage.credentials.down.set(true);
    pass(15_000, 2);
    stage.credentials.down.set(false);
    pass(15_000, 2);
    assert!(!read(&mut open).contains("no longer valid"));
    stage.credentials.revoked.set(true);
    pass(15_000, 4);
    assert!(read(&mut open).ends_with("reconnect with a valid one\n\n"));
    assert_eq!(open.next().now_or_never(), Some(None), "the stream has ended");
}

/// Creates a stage whose session has more records than one page.
fn after_three_long_turns() -> Stage {
    let stage = Stage::demo();
    for turn in 0..3 {
        stage.post(&format!("t{turn}"), &"long ".repeat(200_000));
        stage.settle();
    }
    stage
}

#[test]
fn a_reader_is_pinged_after_a_long_replay() {
    let stage = after_three_long_turns();
    let mut slow = stream(ask(&stage, "GET /events", "", &json!({})).unwrap());
    // Longer than pings wait for the first listener.
    for _ in 0..4 {
        stage.tick(ms(15_000));
    }
    let mut text = String::new();
    for _ in 0..50 {
        text.push_str(&read(&mut slow));
        stage.tick(ms(20));
    }
    assert_eq!(text.matches("event: turn.completed").count(), 3);
    assert!(!text.contains(": ping"));
    stage.tick(ms(15_000));
    assert_eq!(read(&mut slow), ": ping\n\n");
}

#[test]
fn stored_records_that_end_early_are_no_whole_body() {
    let stage = after_three_long_turns();
    let mut asked = request("GET /events", "", &[("accept", "application/x-ndjson")], Vec::new());
    asked.principal.valid_until = stage.host().now() + ms(60_000);
    let mut whole = stream(respond(&stage, &asked).unwrap());
    asked.principal.valid_until = stage.host().now();
    let mut cut = stream(respond(&stage, &asked).unwrap());
    stage.credentials.revoked.set(true);
    let rest = |stream: &mut ByteReceiver| {
        let (mut text, mut end) = (String::new(), None);
        for _ in 0..50 {
            while let Some(next) = stream.next().now_or_never() {
                match next {
                    Some(Ok(bytes)) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
                    Some(Err(error)) => end = Some(error),
                    None => return (text, end),
                }
            }
            stage.tick(ms(20));
        }
        panic!("the stream does not end");
    };
    let ((cut, cut_end), (whole, whole_end)) = (rest(&mut cut), rest(&mut whole));
    assert!(cut.len() < whole.len() && whole.starts_with(&cut), "only records");
    assert_eq!((cut_end, whole_end), (Some(Interrupted), None));
}

#[test]
fn a_session_belongs_to_the_user_named_at_its_creation() {
    let named = |query: &str, body: Value| {
        let answer = ask(&Stage::demo(), "POST /v1/sessions", query, &body).unwrap();
        whole(answer)["user"].clone()
    };
    assert_eq!(named("", json!({})), "default");
    assert_eq!(named("user=ada", json!({})), "ada");
    assert_eq!(named("user=ada", json!({"user": "bob"})), "bob");

    let stage = Stage::demo();
    ask(&stage, "POST /v1/sessions", "user=ada", &json!({})).unwrap();
    let again = |query: &str| ask(&stage, "POST /v1/sessions", query, &json!({}));
    assert_eq!(again("user=ada").map(|response| status(&response)).unwrap(), 200);
    assert_eq!(again("user=bob").map(drop).unwrap_err().code, ErrorCode::NotFound);
}

#[test]
fn a_socket_neither_restores_an_erased_session_nor_accepts_oversized_commands() {
    let stage = Stage::demo();
    stage.post("t1", "hello");
    stage.settle();
    let socket = SocketState { principal: principal(), session: "s".into() };
    let send = |content: &str| {
        let text = json!({"type": "message", "content": content}).to_string();
        let answer = block_on(command(&stage.host(), &socket, &text, &"req_1".into())).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["problem"]["code"].clone()
    };
    assert_eq!(send(&"x".repeat(MAX_BODY)), "payload_too_large");
    assert_eq!(send("again"), Value::Null);
    stage.settle();
    block_on(stage.host().erase(&"t".into(), &"s".into())).unwrap();
    assert_eq!(send("and again"), "not_found");
    assert!(!stage.store.exists().unwrap());
}

#[test]
fn an_unreadable_session_can_be_erased_by_its_owner_only() {
    let stage = Stage::demo();
    ask(&stage, "POST /v1/sessions", "user=ada", &json!({})).unwrap();
    let state = stage.store.get("state").unwrap().unwrap();
    let deep = format!(r#""metadata":{{"a":{}{}}}"#, "[".repeat(500), "]".repeat(500));
    let state = state.replacen(r#""metadata":{}"#, &deep, 1);
    stage.store.commit(Batch { put: vec![("state".into(), state)], ..Batch::default() }).unwrap();
    stage.crash();
    let code = |principal: Principal, route: &str, query: &str| {
        let call = SessionRequest { principal, ..call(route, query, &json!({})) };
        respond(&stage, &call).map(|response| status(&response)).map_err(|p| p.code)
    };
    assert_eq!(code(principal(), "GET /v1/sessions/s", ""), Err(ErrorCode::Internal));
    let stranger = Principal { tenant: "other".into(), ..principal() };
    let bob = Principal { user: Some("bob".into()), ..principal() };
    assert_eq!(code(stranger, "DELETE /v1/sessions/s", ""), Err(ErrorCode::NotFound));
    assert_eq!(code(bob.clone(), "DELETE /v1/sessions/s", "user=ada"), Err(ErrorCode::UserMismatch));
    assert_eq!(code(bob, "DELETE /v1/sessions/s", ""), Err(ErrorCode::NotFound));
    assert_eq!(code(principal(), "DELETE /v1/sessions/s", "user=bob"), Err(ErrorCode::NotFound));
    assert_eq!(code(principal(), "DELETE /v1/sessions/s", "user=ada"), Ok(204));
    assert!(!stage.store.exists().unwrap());
    assert_eq!(code(principal(), "DELETE /v1/sessions/s", "user=ada"), Err(ErrorCode::NotFound));
}

#[test]
fn a_fork_during_a_turn_has_no_turn_without_an_end() {
    for said in ["/slow 10 3", "/tool read_it {\"key\": \"k\"}"] {
        let stage = Stage::demo();
        stage.post("t1", said);
        stage.post("t2", "hello");
        stage.post("t3", "hello again");
        stage.run();
        let other = Rc::new(Stage::demo());
        let call = call("POST /fork", "", &json!({}));
        let fork = respond_beside(&stage, &other, &call).unwrap();
        assert_eq!((status(&fork), &whole(fork)["status"]), (201, &json!("idle")));
        check(&other.store.log());
        stage.settle();
        stage.check();
        assert_eq!(stage.kinds().iter().filter(|kind| *kind == "turn.completed").count(), 3);
    }
}

#[test]
fn a_name_that_a_message_lists_twice_in_its_tools_counts_once() {
    let (stage, models) = Stage::scripted(|_| answer(vec![Part::text("hi")]), |builder| builder);
    let body = json!({"content": "hello", "tools": ["read_it", "current_time", "read_it", "current_time"]});
    let mut asked = call("POST /messages", "", &body);
    set_header(&mut asked, "prefer", "respond-async");
    assert_eq!(status(&respond(&stage, &asked).unwrap()), 202);
    let tools = ["current_time", "read_it"];
    let turn = stage.session().state().activity.turn.clone().unwrap();
    assert_eq!(turn.options.tools.unwrap(), tools);
    stage.settle();
    let request = &models.requests()[0];
    assert_eq!(request.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), tools);
}

#[test]
fn invalid_turn_options_are_refused() {
    let (stage, _) = Stage::scripted(|_| Vec::new(), |builder| builder);
    let refused = |more: Value| {
        let mut body = json!({"content": "hello"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let problem = ask(&stage, "POST /messages", "", &body).map(drop).unwrap_err();
        (problem.errors[0].pointer.clone(), problem.errors[0].detail.clone())
    };
    let (pointer, detail) = refused(json!({"output_schema": {"properties": {"a": {"pattern": "^x"}}}}));
    assert_eq!(pointer, "/output_schema/properties/a/pattern");
    assert!(detail.starts_with("`pattern` is not supported"), "{detail}");
    let large = json!({"output_schema": {"description": "x".repeat(64 << 10)}});
    assert_eq!(refused(large), ("/output_schema".into(), "larger than 65536 bytes".into()));
    let cost = |max: f64| refused(json!({"budget": {"max_cost_usd": max}}));
    let no_price = "there is no price for model \"scripted/model\"; set MODEL_PRICES";
    assert_eq!(cost(0.5), ("/budget/max_cost_usd".into(), no_price.into()));
    assert_eq!(cost(-0.5), ("/budget/max_cost_usd".into(), "expected 0 or more".into()));
    assert_eq!(stage.kinds(), [""; 0], "nothing was stored");
}
