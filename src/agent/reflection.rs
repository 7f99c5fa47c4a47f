//! Thinks about a step before the next one. Always comes to a result.

use super::{RuntimeContext, preparer::PreparedRequest};
use crate::model::one_shot::response_text;
use crate::ports::within;
use crate::turn::{Spent, machine::MIN_REMAINING_MS};

/// How long a reflection may take, in milliseconds.
const MAX_MS: u64 = 30_000;
/// Longest note that is kept, in characters.
const MAX_NOTE: usize = 2_000;

/// What the model is asked.
pub(super) const QUESTION: &str = "Look back at the last step before you go on: did it do what it was meant to, what \
went wrong, and what is the best next step? Answer in at most five sentences. Begin with the one word \
CONTINUE, or with STOP if more steps would not help.";

/// What came of it.
pub(super) struct Reflection {
    /// Whether the turn goes on.
    pub should_continue: bool,
    /// What the model thought.
    pub note: String,
    /// Set when there was none after all.
    pub stub: bool,
    /// What it used.
    pub spent: Spent,
}

impl Reflection {
    /// None, for this reason. The turn goes on.
    pub fn stub(why: &str) -> Self {
        Self { should_continue: true, note: why.into(), stub: true, spent: Spent::default() }
    }
}

/// Asks the model about its last step, within half of the time that is left.
pub(super) async fn reflect(cx: &RuntimeContext, prepared: PreparedRequest) -> Reflection {
    let PreparedRequest { provider, price, request, .. } = prepared;
    let deadline = cx.session.state().turn.as_ref().map_or(cx.clock.now(), |turn| turn.deadline);
    let left = deadline.since(cx.clock.now()) / 2;
    if left < MIN_REMAINING_MS {
        return Reflection::stub("there is no time left for it");
    }
    let answer =
        within(cx.clock.as_ref(), left.min(MAX_MS), async { response_text(provider.stream(request)).await });
    match answer.await {
        Ok(Ok((text, usage))) => {
            let should_continue = !text.trim_start().to_ascii_uppercase().starts_with("STOP");
            let note = text.chars().take(MAX_NOTE).collect();
            Reflection { should_continue, note, stub: false, spent: Spent { usage, price } }
        }
        Ok(Err(_)) => Reflection::stub("the model failed"),
        Err(unfinished) => Reflection::stub(&unfinished.to_string()),
    }
}
