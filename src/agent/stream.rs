//! Forwards a model's stream to the session's listeners.

use super::RuntimeContext;
use crate::types::{Delta, MessageId, ModelError, ModelErrorKind, ModelEvent, ModelResponse, Timestamp};
use futures::{
    StreamExt,
    future::{Either, LocalBoxFuture, select},
    stream::LocalBoxStream,
};
use std::time::Duration;

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
    events: LocalBoxStream<'static, Result<ModelEvent, ModelError>>,
) -> Result<ModelResponse, FailedAttempt> {
    let mut outbox = Outbox { cx, message, waiting: Vec::new(), shown: false };
    let mut events = events.ready_chunks(MAX_BATCH);
    // Runs only while something waits for the end of the window.
    let mut timer: Option<LocalBoxFuture<'static, ()>> = None;
    let mut sent_at = Timestamp(0);
    loop {
        let together = match timer.take() {
            None => events.next().await,
            Some(running) => match select(events.next(), running).await {
                Either::Left((together, running)) => {
                    timer = Some(running);
                    together
                }
                Either::Right(((), _)) => {
                    outbox.flush();
                    sent_at = cx.clock.now();
                    continue;
                }
            },
        };
        let cut = || {
            ModelError::new(ModelErrorKind::Cut, "the model's stream ended before the response was complete")
        };
        for event in together.unwrap_or_else(|| vec![Err(cut())]) {
            match event {
                Ok(ModelEvent::Done(response)) => {
                    outbox.flush();
                    return Ok(response);
                }
                Ok(event) => outbox.add(event),
                Err(error) => {
                    outbox.flush();
                    return Err(FailedAttempt { error, shown: outbox.shown });
                }
            }
        }
        if timer.is_none() && !outbox.waiting.is_empty() {
            let elapsed = cx.clock.now().since(sent_at);
            match BATCH_WINDOW.checked_sub(elapsed).filter(|rest| !rest.is_zero()) {
                Some(rest) => timer = Some(cx.clock.sleep(rest)),
                None => {
                    outbox.flush();
                    sent_at = cx.clock.now();
                }
            }
        }
    }
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
            session.hub().delta(&permit.turn, session.last_seq() + 1, &delta);
            self.shown = true;
        }
    }
}
