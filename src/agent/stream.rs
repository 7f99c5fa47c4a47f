//! Forwards a model's stream to the session's listeners.

use super::RuntimeContext;
use crate::types::{Delta, MessageId, ModelError, ModelErrorKind, ModelEvent, ModelResponse, Timestamp};
use futures::{
    FutureExt, StreamExt,
    future::{LocalBoxFuture, poll_fn},
    stream::LocalBoxStream,
};
use std::{
    task::{Context, Poll},
    time::Duration,
};

/// Maximum number of events taken from the stream at once.
const MAX_BATCH: usize = 256;

/// Events that arrive within this time after the last ones were sent are sent together. Waking a reader costs far more
/// than a token; a token that arrives alone is sent at once.
const BATCH_WINDOW: Duration = Duration::from_millis(10);

/// A model call that failed.
pub(super) struct FailedAttempt {
    /// The error.
    pub error: ModelError,
    /// Whether listeners received part of the response.
    pub shown: bool,
}

/// Streams message `message` to the listeners until the response is complete.
pub(super) async fn forward(
    cx: &RuntimeContext,
    message: &MessageId,
    mut events: LocalBoxStream<'static, Result<ModelEvent, ModelError>>,
) -> Result<ModelResponse, FailedAttempt> {
    let (waiting, sent_at) = (Vec::new(), Timestamp(0));
    let mut outbox = Outbox { cx, message, waiting, shown: false, sent_at, timer: None };
    // Not a loop of awaits: each would poll the stream once more to find that nothing else has arrived.
    poll_fn(|task| {
        loop {
            for _ in 0..MAX_BATCH {
                let Poll::Ready(event) = events.poll_next_unpin(task) else {
                    outbox.send(task);
                    return Poll::Pending;
                };
                match event.unwrap_or_else(|| Err(cut())) {
                    Ok(ModelEvent::Done(response)) => {
                        outbox.flush();
                        return Poll::Ready(Ok(response));
                    }
                    Ok(event) => outbox.add(event),
                    Err(error) => {
                        outbox.flush();
                        return Poll::Ready(Err(FailedAttempt { error, shown: outbox.shown }));
                    }
                }
            }
            outbox.send(task);
        }
    })
    .await
}

fn cut() -> ModelError {
    ModelError::new(ModelErrorKind::Cut, "the model's stream ended before the response was complete")
}

/// Deltas that are not sent yet.
struct Outbox<'a> {
    cx: &'a RuntimeContext,
    message: &'a MessageId,
    waiting: Vec<Delta>,
    shown: bool,
    sent_at: Timestamp,
    /// Runs only while something waits for the end of the window.
    timer: Option<LocalBoxFuture<'static, ()>>,
}

impl Outbox<'_> {
    /// Sends the waiting deltas, or wakes the task when the window has ended.
    fn send(&mut self, task: &mut Context<'_>) {
        if self.waiting.is_empty() {
            return;
        }
        let now = self.cx.clock.now();
        let rest = BATCH_WINDOW.saturating_sub(now.since(self.sent_at));
        if self.timer.is_none() && !rest.is_zero() {
            self.timer = Some(self.cx.clock.sleep(rest));
        }
        if self.timer.as_mut().is_some_and(|timer| timer.poll_unpin(task).is_pending()) {
            return;
        }
        self.timer = None;
        self.flush();
        self.sent_at = now;
    }

    fn add(&mut self, event: ModelEvent) {
        let id = || self.message.to_owned();
        let delta = match event {
            ModelEvent::Text(delta) => Delta::Text { id: id(), delta },
            ModelEvent::Reasoning(delta) => Delta::Reasoning { id: id(), delta },
            ModelEvent::ToolInput { index, name, delta } => Delta::ToolInput { id: id(), index, name, delta },
            ModelEvent::Done(_) => return,
        };
        if !self.waiting.last_mut().is_some_and(|before| before.join(&delta)) {
            self.waiting.push(delta);
        }
    }

    /// Sends the waiting deltas. Deltas of a turn that has ended are dropped.
    fn flush(&mut self) {
        let (session, permit) = (&self.cx.session, &self.cx.permit);
        if !session.holds(permit) {
            self.waiting.clear();
        }
        for delta in self.waiting.drain(..) {
            session.show(&permit.turn, &delta);
            self.shown = true;
        }
    }
}
