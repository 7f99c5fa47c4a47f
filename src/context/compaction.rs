//! Compaction: replaces older messages of a long conversation by a summary.
//!
//! [`reduce`] decides what to leave out and is pure; [`prompt`] builds the request for the summary;
//! [`strategy`] executes both.

pub mod prompt;
pub mod reduce;
pub mod strategy;

use crate::model::one_shot::{OneShotModel, Spent};
use crate::ports::{Clock, Entropy, Models};
use crate::types::{BoxError, CompactReason, Message};
use std::rc::Rc;
use std::time::Duration;

/// Timeout of one model call.
const MODEL_TIMEOUT: Duration = Duration::from_secs(40);

/// Default range of the tokens that stay at the end of a conversation.
const KEEP_TOKENS: std::ops::RangeInclusive<u64> = 2_000..=8_000;
/// Minimum number of tokens of a conversation before it is compacted; less if the window is small.
const MIN_CONVERSATION: u64 = 5_000;
/// Range of the tokens of a summary: a quarter of what is available for the conversation.
/// Default maximum number of messages that compaction keeps.
const KEEP_MESSAGES: usize = 20;
const SUMMARY_TOKENS: std::ops::RangeInclusive<u64> = 200..=4_000;

/// When a conversation is compacted, and what stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionSettings {
    /// Compacts at this many messages; 0 disables the limit.
    pub at_messages: usize,
    /// Compacts when a request reaches this many tokens; 0 derives the limit from the model's window and
    /// `reserve`.
    pub at_tokens: u64,
    /// Maximum number of messages that stay at the end.
    pub keep_messages: usize,
    /// Maximum number of tokens of these messages; 0 for a quarter of the request limit, within 2,000 to
    /// 8,000.
    pub keep_tokens: u64,
    /// Tokens of the window that stay free. At least half of the window is always used.
    pub reserve: u64,
    /// Model that summarizes; the session's model when absent.
    pub model: Option<String>,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        Self {
            at_messages: 100,
            at_tokens: 0,
            keep_messages: KEEP_MESSAGES,
            keep_tokens: 0,
            reserve: 20_000,
            model: None,
        }
    }
}

/// The limits of one request, in estimated tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Compacts at this many messages; 0 disables the limit.
    pub at_messages: usize,
    /// Compacts when the request reaches this many tokens.
    pub at_tokens: u64,
    /// Maximum number of messages that stay at the end.
    pub keep_messages: usize,
    /// Maximum number of tokens of these messages.
    pub keep_tokens: u64,
    /// Maximum number of tokens of the summary.
    pub summary: u64,
}

impl CompactionSettings {
    /// Compacts at this many messages, and keeps 20 or half of them; 0 disables the limit.
    pub fn compact_at(&mut self, messages: usize) {
        self.at_messages = messages;
        if messages > 0 {
            self.keep_messages = KEEP_MESSAGES.min(messages / 2);
        }
    }

    /// Computes the limits for a model with a context window of `window` tokens that accepts requests of at
    /// most `most` tokens, of which `fixed` tokens are not part of the conversation.
    pub fn limits(&self, window: u64, most: u64, fixed: u64) -> Limits {
        let by_window = if self.reserve >= window / 2 { window / 2 } else { window - self.reserve };
        let at_tokens = if self.at_tokens > 0 { self.at_tokens } else { by_window };
        // A limit that left no room for the conversation would always be exceeded.
        let least = fixed + MIN_CONVERSATION.min(most.saturating_sub(fixed) / 2);
        let at_tokens = at_tokens.max(least).min(most).max(1);
        let quarter = (at_tokens / 4).clamp(*KEEP_TOKENS.start(), *KEEP_TOKENS.end());
        let left = at_tokens.saturating_sub(fixed);
        let keep = if self.keep_tokens > 0 { self.keep_tokens } else { quarter };
        Limits {
            at_messages: self.at_messages,
            at_tokens,
            keep_messages: self.keep_messages.max(1),
            // The kept messages must leave room for a summary and for new messages.
            keep_tokens: keep.min(left / 2),
            summary: (left / 4).clamp(*SUMMARY_TOKENS.start(), *SUMMARY_TOKENS.end()),
        }
    }
}

impl Limits {
    /// Returns why a conversation must be compacted: it has reached `percent` of one of its limits. Returns
    /// `None` if it has not.
    pub fn reason(&self, messages: usize, tokens: u64, percent: u64) -> Option<CompactReason> {
        if self.at_messages > 0 && messages as u64 * 100 >= self.at_messages as u64 * percent {
            Some(CompactReason::Messages)
        } else {
            (tokens * 100 >= self.at_tokens * percent).then_some(CompactReason::Tokens)
        }
    }
}

/// Summarizes messages that leave the window.
pub struct Summarizer(OneShotModel);

impl Summarizer {
    /// Creates a summarizer that uses these models.
    pub fn new(models: Rc<dyn Models>, clock: Rc<dyn Clock>, entropy: Rc<dyn Entropy>) -> Self {
        Self(OneShotModel { models, clock, entropy })
    }

    /// Summarizes the earlier summary and the messages that leave the window in at most `most` tokens. Calls
    /// `model` once, or up to four times if the messages do not fit into one request.
    ///
    /// # Errors
    /// Returns why there is no summary.
    pub async fn summarize<'a>(
        &self,
        model: &str,
        earlier: Option<&str>,
        leaving: impl Iterator<Item = &'a Rc<Message>> + Clone,
        most: u64,
        spent: &Spent,
    ) -> Result<String, BoxError> {
        let Self(one_shot) = self;
        let room = prompt::room(one_shot.models.limits(model).estimated_window(), most);
        let mut summary = earlier.map(str::to_owned);
        for portion in prompt::portions(leaving, room) {
            let request = prompt::summary_request(summary.as_deref(), &portion, most, one_shot.clock.now());
            let response = one_shot.complete(model, request, MODEL_TIMEOUT, spent).await?;
            summary = Some(prompt::parse_summary(&response, most).ok_or("the summary is empty")?);
        }
        summary.ok_or_else(|| "there is nothing to summarize".into())
    }
}

#[cfg(test)]
mod tests;
