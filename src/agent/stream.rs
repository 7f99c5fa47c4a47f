//! Forwards a model's stream to the session's listeners.

use super::RuntimeContext;
use crate::types::{Delta, MessageId, ModelError, ModelErrorKind, ModelEvent, ModelResponse};
use futures::{StreamExt, future::poll_fn, stream::LocalBoxStream};
use std::task::Poll;

/// Maximum number of events taken from the stream at once.
const MAX_BATCH: usize = 256;

/// A model call that failed.
pub(super) struct FailedAttempt {
    /// The error.
    pub error: ModelError,
    /// Whether listeners received part of the response.
    pub shown: bool,
}

/// Streams message `message` to the listeners until the response is complete. Events that arrive together are sent together:
/// waking a reader costs far more than a token.
pub(super) async fn forward(
    cx: &RuntimeContext,
    message: &MessageId,
    mut events: LocalBoxStream<'static, Result<ModelEvent, ModelError>>,
) -> Result<ModelResponse, FailedAttempt> {
    let mut outbox = Outbox { cx, message, waiting: Vec::new(), shown: false };
    // Not a loop of awaits: each would poll the stream once more to find that nothing else has arrived.
    poll_fn(|task| {
        loop {
            for _ in 0..MAX_BATCH {
                let Poll::Ready(event) = events.poll_next_unpin(task) else {
                    outbox.flush();
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
            outbox.flush();
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
}

impl Outbox<'_> {
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
