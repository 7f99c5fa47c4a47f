//! One-shot model calls: a single request outside a turn's loop whose response is read as a whole.

use super::RetryPolicy;
use crate::ports::{Clock, Entropy, Models, within};
use crate::types::{
    BoxError, CallUsage, FinishReason, Message, ModelError, ModelErrorKind, ModelEvent, ModelRequest, Part,
    Role, Timestamp, TurnId, Usage, message::text_of,
};
use futures::{StreamExt, stream::LocalBoxStream};
use std::time::Duration;
use std::{cell::RefCell, rc::Rc};

/// What one-shot calls consumed since it was last recorded, whether or not their response was of use.
#[derive(Debug, Default)]
pub struct Spent(RefCell<Vec<CallUsage>>);

impl Spent {
    /// Adds a call. A provider that reports no usage adds nothing.
    pub fn add(&self, models: &dyn Models, model: &str, usage: Usage) {
        if usage.total_tokens > 0 {
            let cost_usd = models.price(model).map(|price| price.cost(&usage));
            self.0.borrow_mut().push(CallUsage { model: model.to_owned(), usage, cost_usd });
        }
    }

    /// Takes the calls that are not recorded yet.
    pub fn take(&self) -> Vec<CallUsage> {
        self.0.take()
    }
}

/// Builds a request of a single message, without tools.
pub fn request(system: &str, text: String, now: Timestamp) -> ModelRequest {
    let message = Message {
        id: "question".into(),
        seq: 0,
        role: Role::User,
        parts: vec![Part::text(text)],
        created_at: now,
        turn: TurnId::none(),
        interrupted: false,
    };
    ModelRequest {
        system: system.to_owned(),
        messages: vec![Rc::new(message)],
        tools_off: true,
        ..ModelRequest::default()
    }
}

/// Describes a failed call in the operator's log, with the provider's own text.
pub fn for_log(error: &BoxError) -> String {
    error.downcast_ref().map_or_else(|| error.to_string(), ModelError::for_log)
}

/// Reads a response to its end and returns its text and usage.
///
/// # Errors
/// Returns the model's error, or [`ModelErrorKind::Cut`] when the stream stops before its last event.
pub async fn response_text(
    mut events: LocalBoxStream<'static, Result<ModelEvent, ModelError>>,
) -> Result<(String, Usage), ModelError> {
    while let Some(event) = events.next().await {
        if let ModelEvent::Done(response) = event? {
            return Ok((text_of(&response.parts), response.usage));
        }
    }
    Err(ModelError::new(ModelErrorKind::Cut, "the response was cut off"))
}

/// Reads a response to its end and returns its text. Unlike [`response_text`], refuses a response that did not
/// finish normally, for example because it reached the output limit.
async fn finished_text(
    mut events: LocalBoxStream<'static, Result<ModelEvent, ModelError>>,
    spent: impl Fn(Usage),
) -> Result<String, ModelError> {
    while let Some(event) = events.next().await {
        if let ModelEvent::Done(response) = event? {
            spent(response.usage);
            return match response.finish {
                FinishReason::Stop => Ok(text_of(&response.parts)),
                finish => {
                    let why = format!("the response is incomplete: {finish:?}");
                    Err(ModelError::new(ModelErrorKind::Invalid, why))
                }
            };
        }
    }
    Err(ModelError::new(ModelErrorKind::Cut, "the response was cut off"))
}

/// Runs one-shot calls of any configured model, with retries.
#[derive(Clone)]
pub struct OneShotModel {
    /// Configured models.
    pub models: Rc<dyn Models>,
    /// Clock for timeouts and delays between attempts.
    pub clock: Rc<dyn Clock>,
    /// Source of jitter for the delays.
    pub entropy: Rc<dyn Entropy>,
}

impl OneShotModel {
    /// Sends `request` to the model `id` (`provider/model`) and returns the response text. All attempts and
    /// delays together take at most `limit`. `spent` gets the usage of every response.
    ///
    /// # Errors
    /// Returns the message of the last error when no attempt succeeded in time.
    pub async fn complete(
        &self,
        id: &str,
        request: ModelRequest,
        limit: Duration,
        spent: &Spent,
    ) -> Result<String, BoxError> {
        let (model, name) = self.models.resolve(id).map_err(|error| error.message)?;
        let request = ModelRequest { model: name, ..request };
        let call = async {
            let mut attempts = 1;
            loop {
                let used = |usage| spent.add(self.models.as_ref(), id, usage);
                let error = match finished_text(model.stream(request.clone()), used).await {
                    Ok(text) => return Ok(text),
                    Err(error) => error,
                };
                let mut random = [0; 4];
                self.entropy.fill(&mut random);
                match RetryPolicy::default().delay(attempts, &error, u32::from_le_bytes(random)) {
                    Some(delay) => self.clock.sleep(delay).await,
                    None => return Err(error.message.into()),
                }
                attempts += 1;
            }
        };
        within(self.clock.as_ref(), limit, call).await.unwrap_or_else(|unfinished| Err(unfinished.into()))
    }
}
