//! Observation: replaces older messages by notes, which are taken piece by piece during the conversation and
//! rewritten when they have become long.
//!
//! ```text
//! messages ─▶ observer ─▶ buffered notes ─▶ active notes, which hide their messages ─▶ reflector ─▶ fewer notes
//! ```
//!
//! This module makes the model calls; `session::window::Observed` holds the state and its transitions, and
//! [`strategy`] decides when to call.

pub mod guards;
pub mod observer;
pub mod reflector;
pub mod selection;
pub mod shrink;
pub mod strategy;

use crate::model::one_shot::{OneShotModel, Spent};
use crate::ports::{Clock, Entropy, Models};
use crate::session::tokens;
use crate::types::{BoxError, Chunk, Message};
use observer::Notes;
use std::rc::Rc;
use std::time::Duration;

/// Maximum number of tokens of messages in one request.
const MAX_INPUT: u64 = 60_000;
/// Rewritten notes below this percentage of the originals are rejected, because they have lost too much.
const MIN_SHARE: u64 = 5;
/// Maximum number of attempts when a response is unusable.
const MAX_ATTEMPTS: usize = 2;

/// When notes replace messages, and which models take them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservationSettings {
    /// Takes notes when the messages reach this many tokens; earlier if the model's window is small.
    pub observe_at: u64,
    /// Rewrites the notes when they reach this many tokens.
    pub reflect_at: u64,
    /// Model that takes notes, as `provider/model`; the session's model when absent.
    pub observer: Option<String>,
    /// Model that rewrites notes; the session's model when absent.
    pub reflector: Option<String>,
    /// Activates buffered notes after this time without a message.
    pub idle_after: Option<Duration>,
}

impl Default for ObservationSettings {
    fn default() -> Self {
        Self { observe_at: 30_000, reflect_at: 40_000, observer: None, reflector: None, idle_after: None }
    }
}

/// Takes and rewrites notes by model calls.
pub struct NoteTaker {
    one_shot: OneShotModel,
    settings: ObservationSettings,
}

impl NoteTaker {
    /// Creates a note taker with these settings.
    pub fn new(
        models: Rc<dyn Models>,
        clock: Rc<dyn Clock>,
        entropy: Rc<dyn Entropy>,
        settings: ObservationSettings,
    ) -> Self {
        Self { one_shot: OneShotModel { models, clock, entropy }, settings }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &ObservationSettings {
        &self.settings
    }

    /// Returns the clock.
    pub fn clock(&self) -> &dyn Clock {
        self.one_shot.clock.as_ref()
    }

    /// Returns the maximum number of tokens of messages per request, in a session of this model.
    pub fn max_input(&self, model: &str) -> u64 {
        let limits = self.one_shot.models.limits(self.settings.observer.as_deref().unwrap_or(model));
        (limits.estimated_window() / 2).min(MAX_INPUT)
    }

    /// Takes notes on messages that follow `earlier` notes, within `limit`. The chunk has no range yet.
    ///
    /// # Errors
    /// Returns why no notes could be taken.
    pub async fn observe(
        &self,
        model: &str,
        earlier: &[Rc<Chunk>],
        messages: &[Rc<Message>],
        limit: Duration,
        spent: &Spent,
    ) -> Result<Chunk, BoxError> {
        let model = self.settings.observer.as_deref().unwrap_or(model);
        let now = self.one_shot.clock.now();
        let of: u64 = messages.iter().map(|message| tokens::of_message(message)).sum();
        let mut attempts = MAX_ATTEMPTS;
        loop {
            let request = observer::notes_request(earlier, messages, self.max_input(model), now);
            let left = limit.saturating_sub(self.one_shot.clock.now().since(now));
            let response = self.one_shot.complete(model, request, left, spent).await?;
            let chunk = observer::parse(&response)
                .map(|notes| self.chunk(notes, of))
                .map_err(BoxError::from)
                .and_then(|chunk| {
                    // Notes on a few words may be longer than the words.
                    if chunk.tokens > of.max(1_000) {
                        return Err("the notes are longer than the messages".into());
                    }
                    Ok(chunk)
                });
            attempts -= 1;
            if chunk.is_ok() || attempts == 0 {
                return chunk;
            }
        }
    }

    /// Rewrites notes into fewer, if possible below `target` tokens. Returns the shortest result of a few
    /// attempts, which together take at most `limit`.
    ///
    /// # Errors
    /// Returns why no shorter notes were produced.
    pub async fn reflect(
        &self,
        model: &str,
        chunks: &[Rc<Chunk>],
        target: u64,
        limit: Duration,
        spent: &Spent,
    ) -> Result<Chunk, BoxError> {
        let model = self.settings.reflector.as_deref().unwrap_or(model);
        let (Some(first), Some(last)) = (chunks.first(), chunks.last()) else {
            return Err("there are no notes".into());
        };
        let before: u64 = chunks.iter().map(|chunk| chunk.tokens).sum();
        let of = chunks.iter().map(|chunk| chunk.of).sum();
        let began = self.one_shot.clock.now();
        let (mut best, mut failed): (Option<Chunk>, BoxError) =
            (None, "the rewritten notes are not shorter".into());
        for level in reflector::LEVELS {
            let left = limit.saturating_sub(self.one_shot.clock.now().since(began));
            let request = reflector::rewrite_request(chunks, level, began);
            let response = self.one_shot.complete(model, request, left, spent).await;
            match response.and_then(|response| Ok(reflector::parse(&response)?)) {
                Ok(notes) => {
                    let chunk = self.chunk(notes, of);
                    if chunk.tokens * 100 < before * MIN_SHARE {
                        failed = "the rewritten notes leave out nearly everything".into();
                    } else if chunk.tokens < best.as_ref().map_or(before, |best| best.tokens) {
                        best = Some(chunk);
                    }
                }
                Err(why) => failed = why,
            }
            if best.as_ref().is_some_and(|best| best.tokens < target) {
                break;
            }
        }
        let best = best.ok_or(failed)?;
        let (task, suggestion) = (last.task.clone(), last.suggestion.clone());
        Ok(Chunk { from: first.from, to: last.to, task, suggestion, ..best })
    }

    fn chunk(&self, notes: Notes, of: u64) -> Chunk {
        let Notes { text, task, suggestion } = notes;
        let tokens = tokens::of_text(&text);
        Chunk { from: 0, to: 0, at: self.one_shot.clock.now(), text, tokens, of, task, suggestion }
    }
}
