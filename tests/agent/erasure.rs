//! Requests to a session that is being erased.

use crate::http::{exchange, read_data, request, stream, whole};
use crate::scripts::says;
use crate::stage::{NOW, Stage, meta, ms};
use edge_harness::agent::{
    FollowUp, RuntimeContext,
    follow_up::{FollowUpContext, Progress},
};
use edge_harness::http::{Response, session, session::call::SessionRequest};
use edge_harness::platform::in_memory::{ManualClock, ScriptedModels};
use edge_harness::ports::Clock;
use edge_harness::types::{
    BoxError, ErrorCode, Imported, Problem, SessionId, Snapshot, SnapshotMeta, WorkspaceOwner,
    session::{SCHEMA, Totals},
};
use pretty_assertions::assert_eq;
use serde_json::json;
use std::time::Duration;
use std::{cell::RefCell, rc::Rc};

/// Has data whose erasure takes this long.
#[derive(Clone)]
struct SlowToErase(ManualClock, Duration);

#[async_trait::async_trait(?Send)]
impl FollowUp for SlowToErase {
    fn name(&self) -> &'static str {
        "slow_to_erase"
    }

    fn is_due(&self, _cx: &RuntimeContext) -> bool {
        false
    }

    async fn run(&self, _cx: &FollowUpContext) -> Result<Progress, BoxError> {
        Ok(Progress::Done(Vec::new()))
    }

    async fn erase(&self, _of: &WorkspaceOwner, _session: &SessionId) -> Result<bool, BoxError> {
        self.0.sleep(self.1).await;
        Ok(false)
    }
}

/// A session that is being erased, which takes this long.
fn stage(takes: Duration) -> Stage {
    let clock = ManualClock::at(NOW);
    let (models, slow) = (Rc::new(ScriptedModels::new(|_| says("Hello"))), SlowToErase(clock.clone(), takes));
    let stage = Stage::with(clock, models, move |builder| builder.follow_up(slow.clone()));
    stage.post("t1", "one");
    stage.settle();
    let host = stage.host();
    stage.host().spawn(async move { host.erase(&"t".into(), &"s".into()).await.unwrap() });
    stage.tick(ms(10));
    stage
}

/// Sends a request. Its response arrives later.
fn begin(stage: &Stage, asked: SessionRequest) -> Rc<RefCell<Option<Result<Response, Problem>>>> {
    let (host, found) = (stage.host(), Rc::new(RefCell::new(None)));
    let into = Rc::clone(&found);
    stage.host().spawn(async move { *into.borrow_mut() = Some(session::respond(&host, &asked).await) });
    stage.run();
    found
}

fn post(route: &str, body: &serde_json::Value) -> SessionRequest {
    request(route, "", &[], body.to_string())
}

#[test]
fn a_message_begins_a_new_session_when_the_old_one_is_erased() {
    let ui = json!({"id": "s", "messages": [{"role": "user", "parts": [{"type": "text", "text": "two"}]}]});
    for (route, body) in [("POST /messages", json!({"content": "two"})), ("POST /api/chat", ui)] {
        let stage = stage(ms(1_000));
        let response = begin(&stage, post(route, &body));
        assert!(response.borrow().is_none(), "{route} waits");
        stage.live(ms(2_000));
        let response = response.take().unwrap().unwrap();
        if route == "POST /api/chat" {
            let (events, has_ended) = read_data(&stage, &mut stream(response), 1_000);
            assert!(has_ended && events.last().unwrap() == "[DONE]", "{events:?}");
        } else {
            assert_eq!(whole(response)["status"], "completed");
        }
        let started = stage.records().into_iter().filter(|record| record["type"] == "turn.started");
        let said: Vec<_> = started.map(|record| record["message"]["parts"][0]["text"].clone()).collect();
        assert_eq!(said, ["two"], "{route}");
    }
}

#[test]
fn a_second_erasure_finds_no_session() {
    let stage = stage(ms(1_000));
    let [again, read] = ["DELETE ", "GET "].map(|route| begin(&stage, request(route, "", &[], "")));
    assert!(again.borrow().is_none() && read.borrow().is_none());
    stage.live(ms(3_000));
    for response in [again, read] {
        assert_eq!(response.take().unwrap().map(drop).unwrap_err().code, ErrorCode::NotFound);
    }
}

#[test]
fn a_request_does_not_wait_for_ever() {
    let stage = stage(ms(60_000));
    let read = begin(&stage, request("GET ", "", &[], ""));
    stage.tick(ms(29_000));
    assert!(read.borrow().is_none());
    stage.tick(ms(1_000));
    assert_eq!(read.take().unwrap().map(drop).unwrap_err().code, ErrorCode::Unavailable);
}

#[test]
fn a_snapshot_that_arrives_during_an_erasure_finds_no_session() {
    let stage = stage(ms(1_000));
    let meta = SnapshotMeta { meta: meta(stage.clock.now()), totals: Totals::default() };
    let snapshot = Snapshot {
        schema: SCHEMA,
        meta,
        forked_from: None,
        tenant_policy: Default::default(),
        records: None,
        task: None,
    };
    let (host, found) = (stage.host(), Rc::new(RefCell::new(None)));
    let into = Rc::clone(&found);
    stage.host().spawn(async move { *into.borrow_mut() = Some(host.import(snapshot).await) });
    stage.live(ms(2_000));
    assert!(matches!(found.take(), Some(Ok(Imported::Missing))));
}

#[test]
fn a_session_of_one_turn_is_not_erased_while_a_request_is_in_flight() {
    let (stage, _) = Stage::scripted(|_| says("Hello"), |builder| builder);
    let body = json!({"model": "default", "messages": [{"role": "user", "content": "one"}]});
    let other = stage.host().count_in_flight();
    exchange(&stage, post("POST /v1/chat/completions", &body)).unwrap();
    stage.live(ms(10_000));
    assert!(stage.host().open().unwrap().is_some());
    drop(other);
    stage.clock.advance(ms(60_000));
    stage.wake();
    assert!(stage.host().open().unwrap().is_none());
}
