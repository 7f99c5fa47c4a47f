//! Passes a model's stream on to those who listen.

use super::RuntimeContext;
use crate::types::{Delta, ModelError, ModelErrorKind, ModelEvent, ModelResponse};
use futures::{
    StreamExt,
    future::{Either, LocalBoxFuture, select},
    stream::LocalBoxStream,
};

/// Pieces that are taken from the model's stream at once, at most.
const MAX_BATCH: usize = 256;

/// What arrives so soon after something was passed on is passed on together, in milliseconds.
/// Each round to a reader costs many times what a token costs; a token that comes alone never waits.
const BATCH_WINDOW_MS: u64 = 10;

/// A try that failed.
pub(super) struct FailedAttempt {
    /// Why.
    pub error: ModelError,
    /// Whether anybody was sent a part of the answer.
    pub shown: bool,
}

/// Streams one try of message `message` to the listeners.
pub(super) async fn forward(
    cx: &RuntimeContext,
    message: &str,
    events: LocalBoxStream<'static, Result<ModelEvent, ModelError>>,
) -> Result<ModelResponse, FailedAttempt> {
    let mut outbox = Outbox { cx, message, waiting: Vec::new(), shown: false };
    let mut events = events.ready_chunks(MAX_BATCH);
    let mut window: Option<LocalBoxFuture<'static, ()>> = None;
    loop {
        let together = match window.take() {
            None => events.next().await,
            Some(timer) => match select(events.next(), timer).await {
                Either::Left((together, timer)) => {
                    window = Some(timer);
                    together
                }
                Either::Right(((), _)) => {
                    window = outbox.flush().then(|| cx.clock.sleep(BATCH_WINDOW_MS));
                    continue;
                }
            },
        };
        let cut = || ModelError::new(ModelErrorKind::Cut, "the model's stream ended before its answer did");
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
        if window.is_none() && outbox.flush() {
            window = Some(cx.clock.sleep(BATCH_WINDOW_MS));
        }
    }
}

/// Pieces on their way to the listeners.
struct Outbox<'a> {
    cx: &'a RuntimeContext,
    message: &'a str,
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

    /// Sends what waits; false if nothing did. After the turn was ended there is nobody to send to.
    fn flush(&mut self) -> bool {
        let (session, permit) = (&self.cx.session, &self.cx.permit);
        if self.waiting.is_empty() || !session.holds(permit) {
            self.waiting.clear();
            return false;
        }
        for delta in self.waiting.drain(..) {
            session.hub().delta(&permit.turn, session.last_seq() + 1, &delta);
        }
        self.shown = true;
        true
    }
}
