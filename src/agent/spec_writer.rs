//! Writes a spec with the model of an agent: one call, outside of any session.

use super::HarnessAgent;
use crate::model::one_shot::{OneShotModel, Spent, for_log, request};
use crate::types::{CallUsage, ModelError, ModelRequest, TenantId, TenantLimits, Usage};
use std::{rc::Rc, time::Duration};

/// Maximum duration of the call, with its repetitions.
pub const TIMEOUT: Duration = Duration::from_mins(2);
/// Maximum number of output tokens, reasoning included.
const MAX_OUTPUT: u32 = 8_000;

const PROMPT: &str = "You write the spec of a job that an agent will do. Respond with the spec in Markdown and nothing \
else. It has these sections, each with a heading of level 2: \"Goal\" says what the job has to achieve, and why. \
\"Constraints\" lists what must stay as it is, and what the agent must not do. \"Acceptance criteria\" lists what can be \
checked when the job is done, with the command that checks it where there is one. Write short, concrete sentences. \
Invent no requirements; list what is unclear in a section \"Open questions\".";

/// The model of an agent, which writes specs.
pub struct SpecWriter {
    agent: Rc<HarnessAgent>,
    model: String,
}

/// What the model has written.
pub struct Written {
    /// The text; otherwise the cause of the failure, for the log.
    pub text: Result<String, String>,
    /// What the calls consumed, even if they failed.
    pub calls: Vec<CallUsage>,
}

impl SpecWriter {
    /// Creates a writer with the agent's own model.
    ///
    /// # Errors
    /// The model is not configured, or outside the limits of the tenant.
    pub fn new(agent: Rc<HarnessAgent>, limits: &TenantLimits) -> Result<Self, ModelError> {
        let model = agent.models.default_model();
        agent.find_model(&model, limits)?;
        Ok(Self { agent, model })
    }

    /// Returns the highest cost of one call in US dollars, without its input; 0 for a model without a price.
    pub fn ceiling(&self) -> f64 {
        let usage = Usage { output_tokens: MAX_OUTPUT.into(), ..Usage::default() };
        self.agent.models.price(&self.model).map_or(0.0, |price| price.cost(&usage))
    }

    /// Writes a spec for a request of a user.
    pub async fn write(&self, tenant: &TenantId, prompt: String) -> Written {
        let HarnessAgent { models, clock, entropy, .. } = &*self.agent;
        let request = ModelRequest {
            max_output_tokens: Some(MAX_OUTPUT),
            tenant: Some(tenant.clone()),
            ..request(PROMPT, prompt, clock.now())
        };
        let one_shot =
            OneShotModel { models: Rc::clone(models), clock: Rc::clone(clock), entropy: Rc::clone(entropy) };
        let spent = Spent::default();
        let text = one_shot.complete(&self.model, request, TIMEOUT, &spent).await;
        let text = text.map(|text| unfenced(&text).to_owned()).map_err(|error| for_log(&error));
        Written { text, calls: spent.take() }
    }
}

/// Removes the fence around a text that is fenced as a whole.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    match inner.and_then(|inner| inner.split_once('\n')) {
        Some((language, inner)) if matches!(language.trim(), "" | "md" | "markdown") => inner.trim(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::unfenced;

    #[test]
    fn a_fence_around_the_whole_text_is_removed() {
        for text in ["# Goal", " ```markdown\n# Goal\n```\n", "```\n# Goal\n```", "```md\r\n# Goal\n```"] {
            assert_eq!(unfenced(text), "# Goal");
        }
        for text in ["```sh\nmake\n```", "```", "``````", "# Goal\n```\nx\n```"] {
            assert_eq!(unfenced(text), text);
        }
    }
}
