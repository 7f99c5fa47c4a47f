//! Tasks whose results are no longer wanted.

use super::{Stage, artifact, asked, message, said, status, task};
use crate::types::{ModelEvent, Role};
use futures::{FutureExt, StreamExt};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;

impl Stage {
    /// Starts a task, and drops its response after the first text.
    fn abandon(&self) {
        self.streams(&[json!({"task": task("TASK_STATE_WORKING")}), artifact("a", "Half", false)]);
        let mut events = self.start(json!({}), asked());
        assert!(matches!(events.next().now_or_never(), Some(Some(Ok(ModelEvent::Text(_))))));
    }

    /// One whose network and secrets take a second.
    fn late() -> Self {
        Self { latency: Duration::from_secs(1), ..Self::new() }
    }

    /// Runs what goes on in the background for this many seconds, to its end. Returns the requests so far.
    fn finish(&self, seconds: u32) -> Vec<Value> {
        let mut spawned: Vec<_> = self.spawned.borrow_mut().drain(..).collect();
        for _ in 0..=seconds {
            spawned.retain_mut(|work| work.now_or_never().is_none());
            self.clock.advance(Duration::from_secs(1));
        }
        assert!(spawned.is_empty());
        self.sent().into_iter().map(|(body, _)| body).collect()
    }
}

fn cancels(request: &Value) -> bool {
    request["method"] == "CancelTask" && request["params"]["id"] == "t1"
}

#[test]
fn a_task_whose_result_is_not_wanted_is_canceled() {
    let stage = Stage::new();
    stage.abandon();
    stage.responds(&task("TASK_STATE_CANCELED"));
    let sent = stage.finish(0);
    assert!(sent.len() == 2 && cancels(&sent[1]), "{sent:?}");
}

#[test]
fn a_task_that_is_not_wanted_before_its_id_is_known_is_canceled() {
    // While the message is sent, and while the first event is awaited.
    for waited in [0, 1] {
        let stage = Stage::late();
        stage.streams(&[json!({"task": task("TASK_STATE_WORKING")})]);
        let mut events = stage.start(json!({}), asked());
        for _ in 0..waited {
            assert!(events.next().now_or_never().is_none());
            stage.clock.advance(Duration::from_secs(1));
        }
        assert!(events.next().now_or_never().is_none());
        drop(events);
        stage.responds(&task("TASK_STATE_CANCELED"));
        let sent = stage.finish(5);
        assert!(sent.len() == 2 && cancels(&sent[1]), "after {waited} s: {sent:?}");
    }
}

#[test]
fn a_message_that_is_not_wanted_before_it_is_sent_is_not_sent() {
    let stage = Stage::late();
    let mut events = stage.start(json!({"Authorization": "Bearer ${secret:KEY}"}), asked());
    assert!(events.next().now_or_never().is_none());
    drop(events);
    assert!(stage.finish(5).is_empty());
}

#[test]
fn a_task_whose_answer_is_not_wanted_is_canceled() {
    let stage = Stage::new();
    stage.streams(&[status("TASK_STATE_INPUT_REQUIRED", "Which one?")]);
    let reply = stage.run(asked()).1.unwrap();
    let conversation = vec![said(1, "Find it."), message(1, Role::Assistant, reply.parts), said(2, "That.")];
    let stage = Stage::late();
    stage.streams(&[json!({"task": task("TASK_STATE_INPUT_REQUIRED")})]);
    let mut events = stage.start(json!({}), conversation);
    assert!(events.next().now_or_never().is_none());
    drop(events);
    stage.responds(&task("TASK_STATE_CANCELED"));
    let sent = stage.finish(5);
    assert!(sent.len() == 2 && cancels(&sent[1]), "{sent:?}");
}

#[test]
fn a_cancellation_is_repeated_while_the_agent_cannot_be_reached() {
    let stage = Stage::new();
    stage.abandon();
    stage.http.respond(503, "");
    stage.http.respond(429, "");
    stage.responds(&task("TASK_STATE_CANCELED"));
    let sent = stage.finish(10);
    assert!(sent.len() == 4 && sent[1..].iter().all(cancels), "{sent:?}");
    // Not for ever, and not after a refusal.
    for (status, count) in [(503, 10), (404, 1)] {
        let stage = Stage::new();
        stage.abandon();
        (0..20).for_each(|_| stage.http.respond(status, ""));
        assert_eq!(stage.finish(600).len(), 1 + count, "{status}");
    }
}
