//! `demo/echo`: a model inside the Worker that needs no account. It understands nothing; it
//! follows directives, one a line, so that every capability of the harness can be tried:
//!
//! | line | what it does |
//! |---|---|
//! | `/tool NAME {json}` | calls the tool; several lines make several calls of one step |
//! | `/then …` | this and the lines behind it, up to the next `/then`, make the next step |
//! | `/say TEXT` | answers TEXT |
//! | `/think TEXT` | thinks TEXT |
//! | `/slow MS N` | streams `word1` to `wordN`, MS milliseconds apart |
//! | `/fail KIND` | fails: `429`, `500`, `overflow`, `cut`, `billing`, `auth`, `stall` |
//! | `/reflect TEXT`, `/judge {json}` | what it answers when it is asked to look back, or to grade |
//! | `remember TEXT`, `recall TEXT` | calls `memory_save`, `memory_search` if they are offered |
//!
//! Asked to extract facts for memory, it takes sentences that begin with `remember …`, `my name is …`,
//! `I prefer …`, `I like …` or `I live in …`; asked to consolidate, it adds what is new;
//! asked to sum up a conversation, it lists what was said first; asked to take notes on one, it writes down how each
//! message begins.
//!
//! Anything else it repeats, and says so. When it must not call tools it sums up what they said. When
//! its answer must fit a schema, `/say {json}` gives one, and `/then /say {json}` the next one if that
//! does not fit.

mod memory;
mod notes;
mod script;
mod summary;

use super::answer::tool_call;
use crate::{
    ports::{Clock, Model},
    types::{
        FinishReason, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelResponse, Part, Usage,
        message::text_of,
    },
};
use futures::{
    StreamExt,
    stream::{self, LocalBoxStream},
};
use script::{Act, Step};
use std::rc::Rc;

/// The id of the only demo model.
pub(super) const ID: &str = "demo/echo";

/// The built-in model.
pub struct Demo {
    clock: Rc<dyn Clock>,
}

impl Demo {
    /// The model, with the clock that `/slow` waits by.
    pub fn new(clock: Rc<dyn Clock>) -> Self {
        Self { clock }
    }
}

impl Model for Demo {
    fn stream(&self, request: ModelRequest) -> LocalBoxStream<'static, Result<ModelEvent, ModelError>> {
        let clock = self.clock.clone();
        let step = script::step(&request);
        let beats = perform(step, &request);
        let wait = move |beat: Beat| {
            let waiting = (beat.after_ms > 0).then(|| clock.sleep(beat.after_ms));
            async move {
                if let Some(waiting) = waiting {
                    waiting.await;
                }
                beat.what
            }
        };
        stream::iter(beats).then(wait).boxed_local()
    }
}

/// One event of the stream, and how long it waits for its turn.
#[derive(Debug, PartialEq)]
struct Beat {
    after_ms: u64,
    what: Result<ModelEvent, ModelError>,
}

/// Turns a step into the events of a stream.
fn perform(step: Step, request: &ModelRequest) -> Vec<Beat> {
    let mut beats = Vec::new();
    let mut parts = Vec::new();
    let mut thoughts = String::new();
    let mut words: Vec<(u64, String)> = Vec::new();
    let mut calls = Vec::new();
    let mut failure = None;
    for act in step.acts {
        match act {
            Act::Think(text) => add_line(&mut thoughts, &text),
            Act::Say(text) => {
                new_line(&mut words);
                words.extend(text.split_inclusive(' ').map(|word| (0, word.to_owned())));
            }
            Act::Slow { ms, n } => {
                new_line(&mut words);
                let word = |i: u64| (ms, format!("word{i}{}", if i < n { " " } else { "" }));
                words.extend((1..=n).map(word));
            }
            Act::Call { name, args } => calls.push((name, args)),
            Act::Fail(kind) => failure = Some(kind),
        }
    }
    let now = |what| Beat { after_ms: 0, what };

    if !thoughts.is_empty() {
        beats.push(now(Ok(ModelEvent::Reasoning(thoughts.clone()))));
        parts.push(Part::Reasoning { text: thoughts, provider: None });
    }
    if matches!(failure.as_deref(), Some("cut" | "stall")) && words.is_empty() {
        words.push((0, "This answer breaks off in the ".to_owned()));
    }
    let text: String = words.iter().map(|(_, word)| word.as_str()).collect();
    if !text.is_empty() {
        parts.push(Part::text(text));
    }
    beats.extend(
        words.into_iter().map(|(after_ms, word)| Beat { after_ms, what: Ok(ModelEvent::Text(word)) }),
    );
    if let Some(kind) = failure {
        beats.push(now(Err(failed(&kind))));
        return beats;
    }
    let finish = match (calls.is_empty(), step.goes_on) {
        (false, _) => FinishReason::ToolCalls,
        // Without calls the turn would end here; a pause makes the caller send it back. An empty
        // answer leaves no trace to count, so it cannot be a step.
        (true, true) if !parts.is_empty() => FinishReason::Pause,
        (true, _) => FinishReason::Stop,
    };
    for (index, (name, args)) in calls.into_iter().enumerate() {
        let (name_too, delta) = (name.clone(), args.clone());
        beats.push(now(Ok(ModelEvent::ToolInput { index, name: name_too, delta })));
        // The same conversation always gives the same ids, and a longer one others.
        let id = format!("call_{}_{index}", request.messages.len());
        parts.push(Part::ToolCall(tool_call(id, name, &args)));
    }
    let usage = usage(request, &parts);
    beats.push(now(Ok(ModelEvent::Done(ModelResponse { parts, usage, finish }))));
    beats
}

fn add_line(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(line);
}

fn new_line(words: &mut [(u64, String)]) {
    if let Some((_, last)) = words.last_mut() {
        last.push('\n');
    }
}

fn failed(kind: &str) -> ModelError {
    use ModelErrorKind::*;
    let (kind, status, message) = match kind {
        "429" => (RateLimited, Some(429), "too many requests, as asked for"),
        "500" => (Unavailable, Some(500), "broken, as asked for"),
        "overflow" => (Overflow, Some(400), "the context window overflowed, as asked for"),
        "cut" => (Cut, None, "the stream was cut, as asked for"),
        "stall" => (Stalled, None, "the stream stalled, as asked for"),
        "billing" => (Billing, Some(402), "out of credit, as asked for"),
        "auth" => (Auth, Some(401), "the key was refused, as asked for"),
        _ => (Invalid, Some(400), "/fail knows 429, 500, overflow, cut, stall, billing and auth"),
    };
    ModelError { status, ..ModelError::new(kind, format!("demo: {message}")) }
}

/// Four bytes count as a token.
fn usage(request: &ModelRequest, parts: &[Part]) -> Usage {
    let tokens = |bytes: usize| bytes.div_ceil(4) as u64;
    let history: usize = request.messages.iter().map(|m| m.weight()).sum();
    let input_tokens = tokens(request.system.len() + request.volatile.len() + request.tail.len() + history);
    let (mut thought, mut calls) = (0, 0);
    for part in parts {
        match part {
            Part::Reasoning { text, .. } => thought += text.len(),
            Part::ToolCall(call) => calls += call.name.len() + call.args.to_string().len(),
            _ => {}
        }
    }
    let output_tokens = tokens(text_of(parts).len() + thought + calls);
    Usage {
        input_tokens,
        output_tokens,
        reasoning_tokens: tokens(thought),
        total_tokens: input_tokens + output_tokens,
        ..Usage::default()
    }
}

#[cfg(test)]
mod tests;
