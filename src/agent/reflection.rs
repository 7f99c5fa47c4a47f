//! A model's critique of its own step, made before the next step. A failure never fails the turn.

use super::RuntimeContext;
use crate::model::one_shot::response_text;
use crate::ports::{Model, within};
use crate::turn::{PricedUsage, machine::MIN_REMAINING};
use crate::types::{ModelRequest, Price};
use std::rc::Rc;
use std::time::Duration;

/// Timeout of a self-critique.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of the stored note, in characters.
const MAX_NOTE: usize = 2_000;

/// The prompt.
pub(super) const QUESTION: &str = "Look back at the last step before you continue: did it achieve its purpose, what \
went wrong, and what is the best next step? Answer in at most five sentences. Begin with the one word \
CONTINUE, or with STOP if more steps would not help.";

/// The result of a self-critique.
pub(super) struct Reflection {
    /// Whether the turn continues.
    pub should_continue: bool,
    /// The model's note.
    pub note: String,
    /// Whether no critique was made; `note` is then the reason.
    pub stub: bool,
    /// The usage of the model call.
    pub spent: PricedUsage,
}

impl Reflection {
    /// Creates the result when no critique can be made. The turn continues.
    pub fn stub(why: &str) -> Self {
        Self { should_continue: true, note: why.into(), stub: true, spent: PricedUsage::default() }
    }
}

/// Asks the model to review its last step, within half of the turn's remaining time.
pub(super) async fn reflect(
    cx: &RuntimeContext,
    provider: Rc<dyn Model>,
    price: Option<Price>,
    request: ModelRequest,
) -> Reflection {
    let deadline = cx.session.state().activity.turn.as_ref().map_or(cx.clock.now(), |turn| turn.deadline);
    let left = deadline.since(cx.clock.now()) / 2;
    if left < MIN_REMAINING {
        return Reflection::stub("there was no time left for it");
    }
    let response =
        within(cx.clock.as_ref(), left.min(TIMEOUT), async { response_text(provider.stream(request)).await });
    match response.await {
        Ok(Ok((text, usage))) => {
            let should_continue = !text.trim_start().to_ascii_uppercase().starts_with("STOP");
            let note = text.chars().take(MAX_NOTE).collect();
            Reflection { should_continue, note, stub: false, spent: PricedUsage { usage, price } }
        }
        Ok(Err(_)) => Reflection::stub("the model failed"),
        Err(unfinished) => Reflection::stub(&unfinished.to_string()),
    }
}
