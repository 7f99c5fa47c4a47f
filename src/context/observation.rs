//! Notes that take the place of messages: taken piece by piece while the conversation goes on, rewritten
//! when they have grown long.
//!
//! ```text
//! messages ─▶ observer ─▶ notes wait ─▶ notes are shown, messages are not ─▶ reflector ─▶ fewer notes
//! ```
//!
//! What is asked and understood is here; `types::Observed` says what follows from what, and [`strategy`]
//! when it is done.

pub mod guards;
pub mod less;
pub mod observer;
pub mod plan;
pub mod reflector;
pub mod strategy;

use crate::model::one_shot::OneShotModel;
use crate::ports::{Clock, Entropy, Models};
use crate::session::tokens;
use crate::types::{Chunk, Message};
use observer::Notes;
use std::rc::Rc;

/// Most tokens of messages in one question.
const MAX_QUESTION: u64 = 60_000;
/// Notes of fewer percent of what they would replace have lost too much of it.
const MIN_SHARE: u64 = 5;
/// How often a question is asked whose answer is of no use.
const TRIES: usize = 2;

/// When notes take the place of messages, and who takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservationSettings {
    /// Messages of so many tokens are observed; fewer where the model's window is small.
    pub observe_at: u64,
    /// Notes of so many tokens are rewritten.
    pub reflect_at: u64,
    /// The model that takes notes, as `provider/model`; the session's when absent.
    pub observer: Option<String>,
    /// The model that rewrites them; the session's when absent.
    pub reflector: Option<String>,
    /// When nothing was said for so many milliseconds, notes that wait take the place of their messages.
    pub idle_ms: Option<u64>,
}

impl Default for ObservationSettings {
    fn default() -> Self {
        Self { observe_at: 30_000, reflect_at: 40_000, observer: None, reflector: None, idle_ms: None }
    }
}

/// Takes notes, by asking models.
pub struct NoteTaker {
    one_shot: OneShotModel,
    settings: ObservationSettings,
}

impl NoteTaker {
    /// By these settings.
    pub fn new(
        models: Rc<dyn Models>,
        clock: Rc<dyn Clock>,
        entropy: Rc<dyn Entropy>,
        settings: ObservationSettings,
    ) -> Self {
        Self { one_shot: OneShotModel { models, clock, entropy }, settings }
    }

    /// The settings.
    pub fn settings(&self) -> &ObservationSettings {
        &self.settings
    }

    /// The time.
    pub fn clock(&self) -> &dyn Clock {
        self.one_shot.clock.as_ref()
    }

    /// Most tokens of messages that are asked about at once, in a session of this model.
    pub fn most(&self, model: &str) -> u64 {
        let limits = self.one_shot.models.limits(self.settings.observer.as_deref().unwrap_or(model));
        (limits.estimated_window() / 2).min(MAX_QUESTION)
    }

    /// Takes notes on messages that follow `earlier` notes, within `ms` milliseconds: a chunk without place.
    ///
    /// # Errors
    /// Why there are none.
    pub async fn observe(
        &self,
        model: &str,
        earlier: &[Rc<Chunk>],
        messages: &[Rc<Message>],
        ms: u64,
    ) -> Result<Chunk, String> {
        let model = self.settings.observer.as_deref().unwrap_or(model);
        let now = self.one_shot.clock.now();
        let of: u64 = messages.iter().map(|message| tokens::of_message(message)).sum();
        let mut left = TRIES;
        loop {
            let question = observer::question(earlier, messages, self.most(model), now);
            let spent = self.one_shot.clock.now().since(now);
            let answer = self.one_shot.complete(model, question, ms.saturating_sub(spent)).await?;
            let chunk = observer::parse(&answer).map(|notes| self.chunk(notes, of)).and_then(|chunk| {
                // Notes on a few words may be longer than these.
                if chunk.tokens > of.max(1_000) {
                    return Err("the notes are longer than what they are about".to_owned());
                }
                Ok(chunk)
            });
            left -= 1;
            if chunk.is_ok() || left == 0 {
                return chunk;
            }
        }
    }

    /// Rewrites notes into fewer, if can be into less than `target` tokens: the shortest of what a few
    /// tries gave. They have `ms` milliseconds in all.
    ///
    /// # Errors
    /// Why they cannot be rewritten, or that they do not become fewer.
    pub async fn reflect(
        &self,
        model: &str,
        chunks: &[Rc<Chunk>],
        target: u64,
        ms: u64,
    ) -> Result<Chunk, String> {
        let model = self.settings.reflector.as_deref().unwrap_or(model);
        let (Some(first), Some(last)) = (chunks.first(), chunks.last()) else {
            return Err("there are no notes".into());
        };
        let before: u64 = chunks.iter().map(|chunk| chunk.tokens).sum();
        let of = chunks.iter().map(|chunk| chunk.of).sum();
        let began = self.one_shot.clock.now();
        let (mut best, mut failed): (Option<Chunk>, String) = (None, "the notes do not become fewer".into());
        for level in reflector::LEVELS {
            let left = ms.saturating_sub(self.one_shot.clock.now().since(began));
            let question = reflector::question(chunks, level, began);
            let answer = self.one_shot.complete(model, question, left).await;
            match answer.and_then(|answer| reflector::parse(&answer)) {
                Ok(notes) => {
                    let chunk = self.chunk(notes, of);
                    if chunk.tokens * 100 < before * MIN_SHARE {
                        failed = "the new notes leave nearly everything out".into();
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
