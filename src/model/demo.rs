//! `demo/echo`: a rule-based model inside the Worker that needs no account. It follows directives, one per
//! line, so that every capability of the harness can be tried:
//!
//! | line | effect |
//! |---|---|
//! | `/tool NAME {json}` | calls the tool; several lines make several calls in one step |
//! | `/then …` | starts the next step, which lasts until the next `/then` |
//! | `/say TEXT` | replies with TEXT |
//! | `/think TEXT` | streams TEXT as reasoning |
//! | `/slow MS N` | streams `word1` to `wordN`, MS milliseconds apart |
//! | `/fail KIND` | fails: `429`, `500`, `overflow`, `cut`, `billing`, `auth`, `stall` |
//! | `/reflect TEXT`, `/judge {json}` | the response to a self-critique or grading request |
//! | `/plan {json}`, `/repair {json}` | the plan of a run, or the steps of its repairs |
//! | `remember TEXT`, `recall TEXT` | calls `memory_save` or `memory_search` if the tool is offered |
//!
//! It also follows rules for the harness's one-shot requests. To extract facts, it takes sentences that begin
//! with `remember …`, `my name is …`, `I prefer …`, `I like …` or `I live in …`. To consolidate, it appends
//! new facts. To summarize, it lists the first sentence of each message. To take notes, it records the start
//! of each message.
//!
//! It echoes any other message. When tools are off, it lists the results so far. When the response must match
//! a schema, `/say {json}` supplies it, and `/then /say {json}` supplies the next attempt.

mod memory;
mod notes;
mod script;
mod summary;

use super::response::tool_call;
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
use script::{Action, Step};
use std::rc::Rc;
use std::time::Duration;

/// Id of the only demo model.
pub(super) const ID: &str = "demo/echo";

/// The built-in model.
pub struct Demo {
    clock: Rc<dyn Clock>,
}

impl Demo {
    /// Creates the model. `clock` times `/slow`.
    pub fn new(clock: Rc<dyn Clock>) -> Self {
        Self { clock }
    }
}

impl Model for Demo {
    fn stream(&self, request: ModelRequest) -> LocalBoxStream<'static, Result<ModelEvent, ModelError>> {
        let clock = self.clock.clone();
        let step = script::step(&request);
        let events = timed_events(step, &request);
        let wait = move |timed: TimedEvent| {
            let waiting = (!timed.delay.is_zero()).then(|| clock.sleep(timed.delay));
            async move {
                if let Some(waiting) = waiting {
                    waiting.await;
                }
                timed.event
            }
        };
        stream::iter(events).then(wait).boxed_local()
    }
}

/// One event of the stream, and the delay before it.
#[derive(Debug, PartialEq)]
struct TimedEvent {
    delay: Duration,
    event: Result<ModelEvent, ModelError>,
}

/// Converts a step into the timed events of a stream.
fn timed_events(step: Step, request: &ModelRequest) -> Vec<TimedEvent> {
    let mut events = Vec::new();
    let mut parts = Vec::new();
    let mut thoughts = String::new();
    let mut words: Vec<(Duration, String)> = Vec::new();
    let mut calls = Vec::new();
    let mut failure = None;
    for action in step.actions {
        match action {
            Action::Think(text) => add_line(&mut thoughts, &text),
            Action::Say(text) => {
                new_line(&mut words);
                words.extend(text.split_inclusive(' ').map(|word| (Duration::ZERO, word.to_owned())));
            }
            Action::Slow { delay, n } => {
                new_line(&mut words);
                let word = |i: u64| (delay, format!("word{i}{}", if i < n { " " } else { "" }));
                words.extend((1..=n).map(word));
            }
            Action::Call { name, args } => calls.push((name, args)),
            Action::Fail(kind) => failure = Some(kind),
        }
    }
    let now = |event| TimedEvent { delay: Duration::ZERO, event };

    if !thoughts.is_empty() {
        events.push(now(Ok(ModelEvent::Reasoning(thoughts.clone()))));
        parts.push(Part::Reasoning { text: thoughts, provider: None });
    }
    if matches!(failure.as_deref(), Some("cut" | "stall")) && words.is_empty() {
        words.push((Duration::ZERO, "This response is cut off in the ".to_owned()));
    }
    let text: String = words.iter().map(|(_, word)| word.as_str()).collect();
    if !text.is_empty() {
        parts.push(Part::text(text));
    }
    events.extend(
        words.into_iter().map(|(delay, word)| TimedEvent { delay, event: Ok(ModelEvent::Text(word)) }),
    );
    if let Some(kind) = failure {
        events.push(now(Err(failed(&kind))));
        return events;
    }
    let finish = match (calls.is_empty(), step.has_more) {
        (false, _) => FinishReason::ToolCalls,
        // Without calls the turn would end here; a pause makes the harness send the conversation again. An
        // empty response cannot pause, because the number of assistant messages would not grow.
        (true, true) if !parts.is_empty() => FinishReason::Pause,
        (true, _) => FinishReason::Stop,
    };
    for (index, (name, args)) in calls.into_iter().enumerate() {
        let (name_too, delta) = (name.clone(), args.clone());
        events.push(now(Ok(ModelEvent::ToolInput { index, name: name_too, delta })));
        // Ids depend only on the length of the conversation, so a repeated run produces the same ids.
        let id = format!("call_{}_{index}", request.messages.len());
        parts.push(Part::ToolCall(tool_call(id.into(), name, &args)));
    }
    let usage = usage(request, &parts);
    events.push(now(Ok(ModelEvent::Done(ModelResponse { parts, usage, finish }))));
    events
}

fn add_line(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(line);
}

fn new_line(words: &mut [(Duration, String)]) {
    if let Some((_, last)) = words.last_mut() {
        last.push('\n');
    }
}

fn failed(kind: &str) -> ModelError {
    use ModelErrorKind::*;
    let (kind, status, message) = match kind {
        "429" => (RateLimited, Some(429), "too many requests (requested by /fail)"),
        "500" => (Unavailable, Some(500), "internal error (requested by /fail)"),
        "overflow" => (Overflow, Some(400), "the context window overflowed (requested by /fail)"),
        "cut" => (Cut, None, "the stream was cut (requested by /fail)"),
        "stall" => (Stalled, None, "the stream stalled (requested by /fail)"),
        "billing" => (Billing, Some(402), "out of credit (requested by /fail)"),
        "auth" => (Auth, Some(401), "the key was refused (requested by /fail)"),
        _ => (Invalid, Some(400), "/fail accepts 429, 500, overflow, cut, stall, billing and auth"),
    };
    ModelError { status, ..ModelError::new(kind, format!("demo: {message}")) }
}

/// Estimates usage at four bytes per token.
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
