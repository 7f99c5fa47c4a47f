//! Shortens messages for the prompt. The full message stays in the log, where the `recall` tool reads it.

use super::{Message, Part, ToolCall, ToolOutcome, tokens};
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

/// Shortens a text to `chars` characters, half from its start and half from its end.
pub fn ends(text: &str, chars: usize) -> String {
    ends_around(text, chars, |_, _| "…".to_owned()).unwrap_or_else(|| text.to_owned())
}

/// Like [`ends`], with a note in between, made from the number of characters left out and the total. Returns
/// `None` if the text is short enough.
pub fn ends_around(text: &str, chars: usize, note: impl FnOnce(usize, usize) -> String) -> Option<String> {
    if !is_longer(text, chars) {
        return None;
    }
    let total = text.chars().count();
    let head: String = text.chars().take(chars.div_ceil(2)).collect();
    let tail: String = text.chars().skip(total - chars / 2).collect();
    Some(format!("{head}\n[{}]\n{tail}", note(total - chars, total)))
}

/// Shortens a text to at most `most` estimated tokens. Returns it with its number of tokens.
pub fn within(text: String, most: u64) -> (String, u64) {
    let (mut text, mut found) = (text, 0);
    // Each round removes at least a tenth; one round may not suffice, since token density varies.
    for _ in 0..100 {
        found = tokens::of_text(&text);
        if found <= most {
            break;
        }
        let chars = text.chars().count() as u64;
        text = ends(&text, usize::try_from(chars * most / found * 9 / 10).unwrap_or_default());
    }
    (text, found)
}

fn is_longer(text: &str, chars: usize) -> bool {
    text.len() > chars && text.char_indices().nth(chars).is_some()
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
