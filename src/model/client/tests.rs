#![allow(clippy::unwrap_used)]

use super::*;
use crate::model::{OpenAi, testkit::*};
use crate::types::Timestamp;
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use std::time::Duration;

const HI: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n";
const END: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

fn bytes(text: &str) -> BodyStep {
    BodyStep::Bytes(text.as_bytes().to_vec())
}

fn fail(status: u16, script: Option<Vec<BodyStep>>) -> ModelError {
    call(&rig(&OpenAi, status, script).model, ModelRequest::default()).end.unwrap_err()
}

#[test]
fn pieces_of_one_chunk_are_ready_together_and_text_is_merged() {
    let call_piece = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"t\",\"arguments\":\"{}\"}}]}}]}\n\n";
    let rig = rig(&OpenAi, 200, Some(vec![bytes(&[HI, HI, call_piece, HI, END].concat()), BodyStep::Hang]));
    let mut stream = rig.model.stream(ModelRequest::default()).ready_chunks(100);
    let first = block_on(stream.next()).unwrap();
    let input = ModelEvent::ToolInput { index: 0, name: "t".into(), delta: "{}".into() };
    assert_eq!(
        first[..3],
        [Ok(ModelEvent::Text("HiHi".into())), Ok(input), Ok(ModelEvent::Text("Hi".into()))]
    );
}

#[test]
fn the_stream_is_read_ahead_once_there_is_something_to_show() {
    let role = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
    for (script, has_started) in [(vec![bytes(role)], false), (vec![bytes(role), bytes(HI)], true)] {
        let rig = rig(&OpenAi, 200, Some(script.into_iter().chain([BodyStep::Hang]).collect()));
        let mut stream = rig.model.stream(ModelRequest::default());
        // The fake clock lets a silent stream time out at once.
        assert_eq!(block_on(stream.next()).unwrap().is_ok(), has_started);
        let request = &rig.http.seen.borrow()[0];
        assert_eq!(request.read_ahead.as_ref().map(ReadAhead::has_started), Some(has_started));
    }
}

#[test]
fn error_messages_are_redacted_and_truncated() {
    let body = format!("{{\"error\":{{\"message\":\"bad key sk-secret {}\"}}}}", "x".repeat(600));
    let error = fail(401, Some(vec![bytes(&body)]));
    assert_eq!(
        (error.kind, error.status, error.retry_after),
        (ModelErrorKind::Auth, Some(401), Some(Duration::from_secs(3)))
    );
    assert_eq!(
        error.message,
        "fake returned 401: the server's key was refused; the operator has to check it"
    );
    let cause = error.cause.unwrap();
    assert!(cause.starts_with("bad key [redacted] xxx"), "{cause}");
    assert_eq!(cause.chars().count(), 501);

    let large = vec![bytes(&"y".repeat(50_000)), bytes(&"y".repeat(50_000)), BodyStep::Hang];
    assert_eq!(fail(500, Some(large)).kind, ModelErrorKind::Unavailable);

    let offline = fail(0, None);
    assert_eq!(
        (offline.kind, offline.for_log().as_str()),
        (
            ModelErrorKind::Network,
            "fake: the connection failed; try again later (no route with key [redacted])"
        )
    );
}

#[test]
fn bodies_that_are_not_completions_are_errors() {
    assert_eq!(fail(200, Some(vec![bytes("\n<!doctype html>")])).kind, ModelErrorKind::Invalid);
    assert_eq!(fail(302, Some(vec![])).kind, ModelErrorKind::Invalid);
    assert_eq!(fail(200, Some(vec![])).kind, ModelErrorKind::Cut);
    assert_eq!(fail(200, Some(vec![bytes("{\"error\":\"no\"}")])).kind, ModelErrorKind::Unavailable);
    let endless = (0..9).map(|_| BodyStep::Bytes(vec![b'x'; 1 << 20])).chain([BodyStep::Hang]).collect();
    assert_eq!(fail(200, Some(endless)).kind, ModelErrorKind::Invalid);
}

#[test]
fn a_lost_connection_matters_only_before_the_response_is_complete() {
    assert_eq!(fail(200, Some(vec![bytes(HI), BodyStep::Break])).kind, ModelErrorKind::Cut);
    for ending in [BodyStep::Break, BodyStep::Hang] {
        let rig = rig(&OpenAi, 200, Some(vec![bytes(HI), bytes(END), ending]));
        assert!(call(&rig.model, ModelRequest::default()).end.is_ok());
    }
}

#[test]
fn one_timer_detects_a_silent_stream() {
    let script = vec![
        BodyStep::Pause(Duration::from_secs(30)),
        bytes(HI),
        BodyStep::Pause(Duration::from_secs(20)),
        bytes(HI),
        bytes(HI),
        BodyStep::Hang,
    ];
    let rig = rig(&OpenAi, 200, Some(script));
    let outcome = call(&rig.model, ModelRequest::default());
    assert_eq!(outcome.text, "HiHiHi");
    assert_eq!(outcome.end.unwrap_err().kind, ModelErrorKind::Stalled);
    // Silent since 50 s, so the timeout fires at 110 s. The last timer is never awaited.
    assert_eq!(rig.clock.now.get(), Timestamp(110_000));
    assert_eq!(*rig.clock.sleeps.borrow(), [60, 50, 60].map(Duration::from_secs));
    assert_eq!(rig.http.seen.borrow().len(), 1);
}

#[test]
fn headers_have_a_longer_timeout() {
    struct Never;
    #[async_trait::async_trait(?Send)]
    impl Http for Never {
        async fn send(&self, _: crate::ports::HttpRequest) -> Result<HttpResponse, HttpError> {
            futures::future::pending().await
        }
    }
    let mut rig = rig(&OpenAi, 200, None);
    rig.model.http = Rc::new(Never);
    let error = call(&rig.model, ModelRequest::default()).end.unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ModelErrorKind::Stalled, "fake: silent for 120 seconds")
    );
    assert_eq!(rig.clock.now.get(), Timestamp(120_000));
}
