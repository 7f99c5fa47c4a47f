//! The responses of the session object, with the object in memory.

use crate::stage::{Stage, check};
use edge_harness::http::{
    ApiBody, ApiRequest, ApiResponse,
    routes::SessionRoute,
    session::{Handler, SessionRequest, socket::SocketState},
};
use edge_harness::ports::{SessionStore, session_store::Batch};
use edge_harness::session::hub::ByteReceiver;
use edge_harness::types::{ErrorCode, Principal, Problem, Scopes};
use futures::{FutureExt, StreamExt, executor::block_on};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;

pub fn principal() -> Principal {
    Principal::new("t", Scopes::all())
}

pub fn call(route: SessionRoute, query: &str, body: &Value) -> SessionRequest {
    let request = ApiRequest { query: query.into(), body: body.to_string().into(), ..ApiRequest::default() };
    SessionRequest { principal: principal(), session: "s".into(), route, item: String::new(), request }
}

/// The response of the session's object; `other` stands in for all other sessions.
pub fn handler(stage: &Stage, other: Option<Rc<Stage>>) -> Handler {
    stage.others.stand_in.replace(other);
    Handler { host: stage.host() }
}

pub fn ask(stage: &Stage, route: SessionRoute, query: &str, body: &Value) -> Result<ApiResponse, Problem> {
    block_on(handler(stage, None).handle(&call(route, query, body)))
}

pub fn whole(response: ApiResponse) -> Value {
    match response.body {
        ApiBody::Bytes(bytes) => serde_json::from_slice(&bytes).unwrap(),
        _ => panic!("no body"),
    }
}

pub fn stream(response: ApiResponse) -> ByteReceiver {
    match response.body {
        ApiBody::Stream(stream) => stream,
        _ => panic!("no stream"),
    }
}

/// The bytes that are available now.
pub fn read(stream: &mut ByteReceiver) -> String {
    let mut out = Vec::new();
    while let Some(Some(bytes)) = stream.next().now_or_never() {
        out.extend_from_slice(&bytes);
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn a_reader_is_pinged_after_a_long_replay() {
    let stage = Stage::demo();
    for turn in 0..3 {
        stage.post(&format!("t{turn}"), &"long ".repeat(200_000));
        stage.settle();
    }
    let mut slow = stream(ask(&stage, SessionRoute::Events, "", &json!({})).unwrap());
    // Longer than pings wait for the first listener.
    for _ in 0..4 {
        stage.tick(15_000);
    }
    let mut text = String::new();
    for _ in 0..50 {
        text.push_str(&read(&mut slow));
        stage.tick(20);
    }
    assert_eq!(text.matches("event: turn.completed").count(), 3);
    assert!(!text.contains(": ping"));
    stage.tick(15_000);
    assert_eq!(read(&mut slow), ": ping\n\n");
}

#[test]
fn a_session_belongs_to_the_user_named_at_its_creation() {
    let named = |query: &str, body: Value| {
        let answer = ask(&Stage::demo(), SessionRoute::Create, query, &body).unwrap();
        whole(answer)["user"].clone()
    };
    assert_eq!(named("", json!({})), "default");
    assert_eq!(named("user=ada", json!({})), "ada");
    assert_eq!(named("user=ada", json!({"user": "bob"})), "bob");

    let stage = Stage::demo();
    ask(&stage, SessionRoute::Create, "user=ada", &json!({})).unwrap();
    let again = |query: &str| ask(&stage, SessionRoute::Create, query, &json!({}));
    assert_eq!(again("user=ada").map(|answer| answer.status).unwrap(), 200);
    assert_eq!(again("user=bob").map(|answer| answer.status).unwrap_err().code, ErrorCode::NotFound);
}

#[test]
fn a_socket_neither_restores_an_erased_session_nor_accepts_oversized_commands() {
    let stage = Stage::demo();
    stage.post("t1", "hello");
    stage.settle();
    let socket = SocketState { principal: principal(), session: "s".into() };
    let send = |content: &str| {
        let text = json!({"type": "message", "content": content}).to_string();
        let answer = block_on(handler(&stage, None).command(&socket, &text, "req_1".into())).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["problem"]["code"].clone()
    };
    assert_eq!(send(&"x".repeat(ApiRequest::MAX_BODY)), "payload_too_large");
    assert_eq!(send("again"), Value::Null);
    stage.settle();
    block_on(stage.host().erase(&"t".into(), "s")).unwrap();
    assert_eq!(send("and again"), "not_found");
    assert!(!stage.store.exists().unwrap());
}

#[test]
fn an_unreadable_session_can_be_erased_by_its_owner_only() {
    let stage = Stage::demo();
    ask(&stage, SessionRoute::Create, "user=ada", &json!({})).unwrap();
    let state = stage.store.get("state").unwrap().unwrap();
    let deep = format!(r#""metadata":{{"a":{}{}}}"#, "[".repeat(500), "]".repeat(500));
    let state = state.replacen(r#""metadata":{}"#, &deep, 1);
    stage.store.commit(Batch { put: vec![("state".into(), state)], ..Batch::default() }).unwrap();
    stage.crash();
    let code = |principal: Principal, route: SessionRoute, query: &str| {
        let call = SessionRequest { principal, ..call(route, query, &json!({})) };
        block_on(handler(&stage, None).handle(&call)).map(|answer| answer.status).map_err(|p| p.code)
    };
    assert_eq!(code(principal(), SessionRoute::Show, ""), Err(ErrorCode::Internal));
    let stranger = Principal { tenant: "other".into(), ..principal() };
    let bob = Principal { user: Some("bob".into()), ..principal() };
    assert_eq!(code(stranger, SessionRoute::Delete, ""), Err(ErrorCode::NotFound));
    assert_eq!(code(bob, SessionRoute::Delete, "user=ada"), Err(ErrorCode::NotFound));
    assert_eq!(code(principal(), SessionRoute::Delete, "user=bob"), Err(ErrorCode::NotFound));
    assert_eq!(code(principal(), SessionRoute::Delete, "user=ada"), Ok(204));
    assert!(!stage.store.exists().unwrap());
    assert_eq!(code(principal(), SessionRoute::Delete, "user=ada"), Err(ErrorCode::NotFound));
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
        let call = call(SessionRoute::Fork, "", &json!({}));
        let answer = block_on(handler(&stage, Some(Rc::clone(&other))).handle(&call)).unwrap();
        assert_eq!((answer.status, &whole(answer)["status"]), (201, &json!("idle")));
        check(&other.store.log());
        stage.settle();
        stage.check();
        assert_eq!(stage.kinds().iter().filter(|kind| *kind == "turn.completed").count(), 3);
    }
}

#[test]
fn invalid_turn_options_are_refused() {
    let (stage, _) = Stage::scripted(|_| Vec::new(), |builder| builder);
    let refused = |more: Value| {
        let mut body = json!({"content": "hello"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let problem = ask(&stage, SessionRoute::PostMessage, "", &body).map(drop).unwrap_err();
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
