//! Questions beside the conversation: one whole answer that nobody listens to.

use super::RetryPolicy;
use crate::ports::{Clock, Entropy, Models, within};
use crate::types::{
    FinishReason, ModelError, ModelErrorKind, ModelEvent, ModelRequest, Usage, message::text_of,
};
use futures::{StreamExt, stream::LocalBoxStream};
use std::rc::Rc;

/// The text of an answer, and what it used.
///
/// # Errors
/// When the model failed, or its stream ended without an end.
pub async fn whole_answer(
    mut events: LocalBoxStream<'static, Result<ModelEvent, ModelError>>,
) -> Result<(String, Usage), ModelError> {
    while let Some(event) = events.next().await {
        if let ModelEvent::Done(response) = event? {
            return Ok((text_of(&response.parts), response.usage));
        }
    }
    Err(ModelError::new(ModelErrorKind::Cut, "the answer was cut off"))
}

/// The text of an answer that was not cut off.
async fn finished_answer(
    mut events: LocalBoxStream<'static, Result<ModelEvent, ModelError>>,
) -> Result<String, ModelError> {
    while let Some(event) = events.next().await {
        if let ModelEvent::Done(response) = event? {
            return match response.finish {
                FinishReason::Stop => Ok(text_of(&response.parts)),
                finish => {
                    let why = format!("the answer is not whole: {finish:?}");
                    Err(ModelError::new(ModelErrorKind::Invalid, why))
                }
            };
        }
    }
    Err(ModelError::new(ModelErrorKind::Cut, "the answer was cut off"))
}

/// Asks models aside, trying again where that makes sense.
#[derive(Clone)]
pub struct Aside {
    /// The models on offer.
    pub models: Rc<dyn Models>,
    /// The time.
    pub clock: Rc<dyn Clock>,
    /// Chance.
    pub entropy: Rc<dyn Entropy>,
}

impl Aside {
    /// Asks the model `id` (`provider/model`), for `ms` milliseconds at most, tries and waits included.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn ask(&self, id: &str, request: ModelRequest, ms: u64) -> Result<String, String> {
        let (model, name) = self.models.resolve(id).map_err(|error| error.message)?;
        let request = ModelRequest { model: name, ..request };
        let tries = async {
            let mut tried = 1;
            loop {
                let error = match finished_answer(model.stream(request.clone())).await {
                    Ok(text) => return Ok(text),
                    Err(error) => error,
                };
                let mut random = [0; 4];
                self.entropy.fill(&mut random);
                match RetryPolicy::default().delay_ms(tried, &error, u32::from_le_bytes(random)) {
                    Some(delay) => self.clock.sleep(delay).await,
                    None => return Err(error.message),
                }
                tried += 1;
            }
        };
        within(self.clock.as_ref(), ms, tries).await.unwrap_or_else(|unfinished| Err(unfinished.to_string()))
    }
}
