//! The limits on what callers can store in a session: parts, deferred records, queued messages, files and
//! cost.

use crate::http::{request, respond};
use crate::stage::{NOW, Stage, ms};
use edge_harness::http::{Body, Response};
use edge_harness::platform::in_memory::{ManualClock, ScriptedModels, models::answer};
use edge_harness::ports::{Batch, Model, Models, SessionStore};
use edge_harness::types::{ErrorCode, ModelError, Part, Price, Problem};
use futures::{FutureExt, StreamExt, executor::block_on};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;

fn ask(stage: &Stage, route: &str, body: &[u8]) -> Result<Response, Problem> {
    respond(stage, &request(route, "", &[("prefer", "respond-async")], body.to_vec()))
}

fn post(stage: &Stage, body: &Value) -> Result<Value, Problem> {
    ask(stage, "POST /messages", body.to_string().as_bytes()).map(json_of)
}

fn dequeue(stage: &Stage, turn: &str) -> Result<Response, Problem> {
    ask(stage, &format!("DELETE /queue/{turn}"), b"")
}

fn patch(stage: &Stage, body: &Value) -> Result<Value, Problem> {
    ask(stage, "PATCH /v1/sessions/s", body.to_string().as_bytes()).map(json_of)
}

fn json_of(response: Response) -> Value {
    match response.into_body() {
        Body::Bytes(bytes) => serde_json::from_slice(&bytes).unwrap(),
        _ => Value::Null,
    }
}

fn fault<T: std::fmt::Debug>(refused: Result<T, Problem>) -> (String, String) {
    let problem = refused.unwrap_err();
    assert_eq!(problem.code, ErrorCode::ValidationFailed);
    (problem.errors[0].pointer.clone(), problem.errors[0].detail.clone())
}

/// A stage with a session in which a message is being streamed.
fn streaming() -> Stage {
    let stage = Stage::demo();
    post(&stage, &json!({"content": "/slow 1000 1000"})).unwrap();
    stage.run();
    stage.tick(ms(1_100));
    assert!(stage.session().hub().is_streaming());
    stage
}

fn state_bytes(stage: &Stage) -> usize {
    stage.store.get("state/activity").unwrap().unwrap().len()
}

#[test]
fn the_parts_of_a_message_are_bounded() {
    let (stage, models) = Stage::scripted(|_| answer(vec![Part::text("x")]), |builder| builder);
    post(&stage, &json!({"content": "hello"})).unwrap();
    stage.settle();
    let file = json_of(ask(&stage, "POST /attachments", b"x").unwrap());
    let part = json!({"type": "file", "ref": file["ref"]});
    let text = json!({"type": "text", "text": "x"});
    let parts = |files: usize, texts: usize| {
        let files = (0..files).map(|_| part.clone());
        json!({"parts": files.chain((0..texts).map(|_| text.clone())).collect::<Vec<_>>()})
    };
    let refused = |detail: &str| ("/parts".to_owned(), detail.to_owned());
    assert_eq!(fault(post(&stage, &parts(0, 101))), refused("expected at most 100 parts"));
    assert_eq!(fault(post(&stage, &parts(21, 0))), refused("expected at most 20 files"));
    assert_eq!(fault(post(&stage, &parts(0, 0))), refused("the message has no text and no file"));
    post(&stage, &parts(20, 80)).unwrap();
    stage.settle();
    assert_eq!(models.requests().pop().unwrap().messages.pop().unwrap().parts.len(), 100);
}

#[test]
fn the_text_of_a_message_is_bounded() {
    let stage = streaming();
    let refused = |place: &str, bytes: usize| {
        (place.to_owned(), format!("the text has {bytes} bytes; expected at most 1048576 (1 MiB)"))
    };
    let max: usize = 1 << 20;
    // Bytes, not characters.
    let text = |bytes: usize| format!("{}{}", "é".repeat(bytes / 2), "x".repeat(bytes % 2));
    let part = json!({"type": "text", "text": text(max / 2 + 1)});
    for on_busy in ["queue", "steer"] {
        let large = json!({"content": text(max + 1), "on_busy": on_busy});
        assert_eq!(fault(post(&stage, &large)), refused("/content", max + 1));
        let parts = json!({"parts": [part, part], "on_busy": on_busy});
        assert_eq!(fault(post(&stage, &parts)), refused("/parts", max + 2));
    }
    let steered = ask(&stage, "POST /steer", json!({"content": text(max + 1)}).to_string().as_bytes());
    assert_eq!(fault(steered.map(drop)), refused("/content", max + 1));
    post(&stage, &json!({"content": text(max)})).unwrap();
}

#[test]
fn the_number_of_deferred_records_is_bounded() {
    let stage = streaming();
    let attach = |n: usize| ask(&stage, "POST /attachments", n.to_string().as_bytes());
    for n in 0..1_000 {
        attach(n).unwrap();
    }
    let objects = stage.blobs.objects.borrow().len();
    for refused in [
        attach(1_000).map(json_of),
        patch(&stage, &json!({"title": "new"})),
        post(&stage, &json!({"content": "next"})),
    ] {
        let problem = refused.unwrap_err();
        assert_eq!((problem.code, problem.retry_after_s), (ErrorCode::RateLimited, Some(1)));
    }
    assert_eq!(stage.blobs.objects.borrow().len(), objects);
    // A commit of the turn is never refused and flushes the deferred records.
    ask(&stage, "POST /abort", b"").unwrap();
    assert_eq!(stage.session().state().activity.deferred.len(), 0);
    patch(&stage, &json!({"title": "new"})).unwrap();
    stage.check();
}

#[test]
fn the_size_of_deferred_records_is_bounded() {
    let stage = streaming();
    let mut responses = Vec::new();
    let mut last = String::new();
    for _ in 0..12 {
        let receipt = post(&stage, &json!({"content": "x".repeat(1_000_000)}));
        let Ok(receipt) = receipt else { break };
        last = receipt["turn_id"].as_str().unwrap().to_owned();
        responses.push(dequeue(&stage, &last).map(drop).map_err(|p| p.code));
    }
    assert!(responses.contains(&Err(ErrorCode::RateLimited)), "{responses:?}");
    assert!(state_bytes(&stage) < 8_000_000, "{}", state_bytes(&stage));
    ask(&stage, "POST /abort", b"").unwrap();
    stage.settle();
    stage.check();
    assert!(stage.session().turn_ended(&last.into()).unwrap().is_some());
    assert_eq!(stage.session().state().activity.reserved.queued, 0);
}

#[test]
fn the_queue_is_bounded_in_bytes() {
    let stage = streaming();
    let large = json!({"content": "x".repeat(1_000_000)});
    let first = post(&stage, &large).unwrap();
    (0..15).for_each(|_| drop(post(&stage, &large).unwrap()));
    let problem = post(&stage, &large).unwrap_err();
    assert_eq!((problem.code, problem.retry_after_s), (ErrorCode::QueueFull, Some(5)));
    assert_eq!(stage.session().state().activity.queue.len(), 16);
    dequeue(&stage, first["turn_id"].as_str().unwrap()).unwrap();
    post(&stage, &large).unwrap();
    ask(&stage, "POST /abort", b"").unwrap();
    stage.settle();
    stage.check();
    assert_eq!(stage.session().state().activity.reserved.queued, 0);
}

#[test]
fn the_files_of_a_session_are_bounded_in_bytes() {
    let stage = Stage::demo();
    post(&stage, &json!({"content": "hello"})).unwrap();
    stage.settle();
    let all: u64 = 256 << 20;
    ask(&stage, "POST /attachments", b"abc").unwrap();
    let state = stage.store.get("state/activity").unwrap().unwrap();
    let full = state.replace("\"attached\":3", &format!("\"attached\":{}", all - 3));
    stage.store.commit(Batch { put: vec![("state/activity".into(), full)], ..Batch::default() }).unwrap();
    stage.crash();
    ask(&stage, "POST /attachments", b"def").unwrap();
    assert_eq!(stage.session().state().activity.reserved.attached, all);
    let problem = ask(&stage, "POST /attachments", b"d").map(drop).unwrap_err();
    assert_eq!(problem.code, ErrorCode::QuotaExceeded);
    assert_eq!(stage.blobs.objects.borrow().len(), 2);
}

/// `scripted/model` has a price; no other model does.
struct Priced(ScriptedModels);

impl Models for Priced {
    fn resolve(&self, id: &str) -> Result<(Rc<dyn Model>, String), ModelError> {
        self.0.resolve(id)
    }

    fn default_model(&self) -> String {
        self.0.default_model()
    }

    fn price(&self, id: &str) -> Option<Price> {
        let price = Price { input: 1.0, output: 1.0, cache_read: None, cache_write: None };
        (id == "scripted/model").then_some(price)
    }
}

#[test]
fn a_cost_limit_requires_a_price() {
    let stage = || {
        let models = Priced(ScriptedModels::new(|_| answer(vec![Part::text("x")])));
        Stage::with(ManualClock::at(NOW), Rc::new(models), |builder| builder)
    };
    let create = |stage: &Stage, body: Value| {
        ask(stage, "POST /v1/sessions", body.to_string().as_bytes()).map(json_of)
    };
    let refused = |max: f64, model: &str| {
        fault(create(&stage(), json!({"model": model, "budget": {"max_cost_usd": max}})))
    };
    let pointer = "/budget/max_cost_usd".to_owned();
    let no_price = "there is no price for model \"scripted/other\"; set MODEL_PRICES".to_owned();
    assert_eq!(refused(-3.0, "scripted/model"), (pointer.clone(), "expected 0 or more".into()));
    assert_eq!(refused(3.0, "scripted/other"), (pointer, no_price.clone()));

    let (bound, free) = (stage(), stage());
    create(&bound, json!({"budget": {"max_cost_usd": 3}})).unwrap();
    assert_eq!(fault(patch(&bound, &json!({"model": "scripted/other"}))), ("/model".into(), no_price));
    patch(&bound, &json!({"model": "scripted/model"})).unwrap();
    patch(&bound, &json!({"model": null})).unwrap();
    create(&free, json!({})).unwrap();
    patch(&free, &json!({"model": "scripted/other"})).unwrap();
}

#[test]
fn the_oldest_reader_makes_room_for_another() {
    let stage = streaming();
    let open = || {
        let answer =
            respond(&stage, &request("GET /events", "", &[("accept", "text/event-stream")], Vec::new()));
        match answer.map(Response::into_body) {
            Ok(Body::Stream(stream)) => stream,
            _ => panic!("expected a stream"),
        }
    };
    let mut streams: Vec<_> = (0..200).map(|_| open()).collect();
    let mut newest = open();
    let mut oldest = streams.remove(0);
    let mut read = Vec::new();
    while let Some(Ok(bytes)) = block_on(oldest.next()) {
        read.extend_from_slice(&bytes);
    }
    let last = String::from_utf8(read).unwrap();
    assert!(last.ends_with(": the session has too many readers; reconnect with the last id\n\n"), "{last}");
    // All others are still connected.
    for stream in streams.iter_mut().chain([&mut newest]) {
        while stream.next().now_or_never().is_some_and(|next| !next.expect("connected").unwrap().is_empty()) {
        }
    }
}
