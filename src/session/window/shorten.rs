//! Shortens messages for the prompt. The full message stays in the log, where the `recall` tool reads it.

use crate::types::{
    Message, Part, ToolCall, ToolOutcome,
    text::{ends_around, is_longer},
};
use serde_json::Value;
use std::rc::Rc;

/// Maximum length of a tool's output or argument that is not shortened by [`brief`], in characters.
const BRIEF: usize = 2_400;
/// Length to which a longer output is shortened, in characters: half from its start, half from its end.
const BRIEF_OUTPUT: usize = 2_000;
/// Length to which a longer argument is shortened, in characters.
const BRIEF_ARGUMENT: usize = 40;

/// Shortens long arguments and outputs of tools.
pub fn brief(message: &mut Rc<Message>) {
    let seq = message.seq;
    let is_long = |part: &Part| match part {
        Part::ToolCall(call) => has_long(&call.args, BRIEF),
        Part::ToolResult { outcome, .. } => is_longer(&outcome.model_text(), BRIEF),
        _ => false,
    };
    if !message.parts.iter().any(is_long) {
        return;
    }
    for part in Rc::make_mut(message).parts.iter_mut().filter(|part| is_long(part)) {
        match part {
            Part::ToolCall(ToolCall { args, .. }) => shorten_json(args, BRIEF, BRIEF_ARGUMENT, seq),
            Part::ToolResult { outcome, .. } => shorten_outcome(outcome, BRIEF_OUTPUT, seq),
            _ => {}
        }
    }
}

/// Shortens each part of the message to `chars` characters.
pub fn part(message: &mut Rc<Message>, chars: usize) {
    let seq = message.seq;
    let message = Rc::make_mut(message);
    for part in &mut message.parts {
        match part {
            Part::Text { text } => shorten(text, chars, chars, seq),
            Part::ToolCall(call) => shorten_json(&mut call.args, chars, chars, seq),
            Part::ToolResult { outcome, .. } => {
                if is_longer(&outcome.model_text(), chars) {
                    shorten_outcome(outcome, chars, seq);
                }
            }
            Part::Reasoning { .. } | Part::File(_) => {}
        }
    }
    // Reasoning is returned whole or not at all, because providers sign it.
    let is_short = |part: &Part| match part {
        Part::Reasoning { text, provider } => {
            let hidden = provider.as_ref().map(Value::to_string).unwrap_or_default();
            !is_longer(text, chars) && !is_longer(&hidden, chars)
        }
        _ => true,
    };
    message.parts.retain(is_short);
}

/// Shortens a text of more than `most` characters to `keep` characters.
fn shorten(text: &mut String, most: usize, keep: usize, seq: u64) {
    if !is_longer(text, most) {
        return;
    }
    let note = |left_out, total| {
        format!("{left_out} of {total} characters left out; use recall with message {seq} to read them")
    };
    if let Some(short) = ends_around(text, keep, note) {
        *text = short;
    }
}

fn shorten_json(value: &mut Value, most: usize, keep: usize, seq: u64) {
    match value {
        Value::String(text) => shorten(text, most, keep, seq),
        Value::Array(items) => items.iter_mut().for_each(|item| shorten_json(item, most, keep, seq)),
        Value::Object(map) => map.values_mut().for_each(|item| shorten_json(item, most, keep, seq)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn has_long(value: &Value, chars: usize) -> bool {
    match value {
        Value::String(text) => is_longer(text, chars),
        Value::Array(items) => items.iter().any(|item| has_long(item, chars)),
        Value::Object(map) => map.values().any(|item| has_long(item, chars)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn shorten_outcome(outcome: &mut ToolOutcome, keep: usize, seq: u64) {
    match outcome {
        ToolOutcome::Result { result } => {
            let mut text = match result.take() {
                Value::String(text) => text,
                other => other.to_string(),
            };
            shorten(&mut text, keep, keep, seq);
            *result = Value::String(text);
        }
        ToolOutcome::Timeout { reason, .. }
        | ToolOutcome::Failure { reason, .. }
        | ToolOutcome::Denied { reason, .. }
        | ToolOutcome::Unknown { reason } => shorten(reason, keep, keep, seq),
        ToolOutcome::Artifact { result } => shorten(&mut result.preview, keep, keep, seq),
    }
}
