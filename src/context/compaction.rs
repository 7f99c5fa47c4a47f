//! Compaction: what of a long conversation is still shown, and what stands for the rest.
//!
//! [`plan`] says what to leave out, purely; [`question`] what a model is asked for in its place.
//! [`strategy`] carries it out.

pub mod plan;
pub mod question;
pub mod strategy;

use crate::model::one_shot::OneShotModel;
use crate::ports::{Clock, Entropy, Models};
use crate::types::{CompactReason, Message};
use std::rc::Rc;

/// Longest that one question may take, in milliseconds.
const ASK_MS: u64 = 40_000;

/// The least and the most that the end of a conversation that stays as it is has by default, in tokens.
const KEEP_TOKENS: std::ops::RangeInclusive<u64> = 2_000..=8_000;
/// Fewest tokens that a conversation may have before it is made shorter; less where the window is small.
const CONVERSATION: u64 = 5_000;
/// The least and the most that a summary may have, in tokens; a quarter of what is left for the conversation.
const SUMMARY_TOKENS: std::ops::RangeInclusive<u64> = 200..=4_000;

/// When a conversation is made shorter, and what of it stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionSettings {
    /// From so many messages on it is made shorter; 0 for however many.
    pub at_messages: usize,
    /// From so many tokens of the whole request on; 0 for what the model's window and `reserve` say.
    pub at_tokens: u64,
    /// Most messages at its end that stay as they are.
    pub keep_messages: usize,
    /// Most tokens of these; 0 for a quarter of what a request may have, 2,000 to 8,000.
    pub keep_tokens: u64,
    /// Tokens of the window that are kept free. Half of the window is used in any case.
    pub reserve: u64,
    /// The model that sums up; the session's own when absent.
    pub model: Option<String>,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        Self {
            at_messages: 100,
            at_tokens: 0,
            keep_messages: 20,
            keep_tokens: 0,
            reserve: 20_000,
            model: None,
        }
    }
}

/// The bounds of one request, all in tokens by our estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From so many messages on the conversation is made shorter; 0 for however many.
    pub at_messages: usize,
    /// From so many tokens of the whole request on.
    pub at_tokens: u64,
    /// Most messages at the end that stay.
    pub keep_messages: usize,
    /// Most tokens of these.
    pub keep_tokens: u64,
    /// Longest summary.
    pub summary: u64,
}

impl CompactionSettings {
    /// The bounds of requests to a model with this window, of which it takes `most`, and that have `fixed`
    /// tokens beside the conversation.
    pub fn limits(&self, window: u64, most: u64, fixed: u64) -> Limits {
        let by_window = if self.reserve >= window / 2 { window / 2 } else { window - self.reserve };
        let at_tokens = if self.at_tokens > 0 { self.at_tokens } else { by_window };
        // However much stands beside the conversation: a bound that leaves it nothing would always be passed.
        let least = fixed + CONVERSATION.min(most.saturating_sub(fixed) / 2);
        let at_tokens = at_tokens.max(least).min(most).max(1);
        let quarter = (at_tokens / 4).clamp(*KEEP_TOKENS.start(), *KEEP_TOKENS.end());
        let left = at_tokens.saturating_sub(fixed);
        let keep = if self.keep_tokens > 0 { self.keep_tokens } else { quarter };
        Limits {
            at_messages: self.at_messages,
            at_tokens,
            keep_messages: self.keep_messages.max(1),
            // What is kept must leave room for a summary, and for more of the conversation.
            keep_tokens: keep.min(left / 2),
            summary: (left / 4).clamp(*SUMMARY_TOKENS.start(), *SUMMARY_TOKENS.end()),
        }
    }
}

impl Limits {
    /// Why a conversation of so many messages, in a request of so many tokens, is to be made shorter: it has
    /// `percent` of what is a reason to. None when it may stay.
    pub fn reason(&self, messages: usize, tokens: u64, percent: u64) -> Option<CompactReason> {
        if self.at_messages > 0 && messages as u64 * 100 >= self.at_messages as u64 * percent {
            Some(CompactReason::Messages)
        } else {
            (tokens * 100 >= self.at_tokens * percent).then_some(CompactReason::Tokens)
        }
    }
}

/// Sums up what leaves the context.
pub struct Summarizer(OneShotModel);

impl Summarizer {
    /// Asks these models.
    pub fn new(models: Rc<dyn Models>, clock: Rc<dyn Clock>, entropy: Rc<dyn Entropy>) -> Self {
        Self(OneShotModel { models, clock, entropy })
    }

    /// The summary of messages that leave the context, and of what was left out before, in at most so many
    /// tokens: one question to `model`, or up to four when one does not hold all.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn sum_up<'a>(
        &self,
        model: &str,
        earlier: Option<&str>,
        leaving: impl Iterator<Item = &'a Rc<Message>> + Clone,
        most: u64,
    ) -> Result<String, String> {
        let Self(one_shot) = self;
        let room = question::room(one_shot.models.limits(model).estimated_window(), most);
        let mut summary = earlier.map(str::to_owned);
        for portion in question::portions(leaving, room) {
            let asked = question::question(summary.as_deref(), &portion, most, one_shot.clock.now());
            let answer = one_shot.complete(model, asked, ASK_MS).await?;
            summary = Some(question::summary_in(&answer, most).ok_or("the summary is empty")?);
        }
        summary.ok_or_else(|| "there is nothing to sum up".into())
    }
}

#[cfg(test)]
mod tests;
