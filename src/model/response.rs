//! Builds a response from streamed pieces, and the events that announce the pieces.

use crate::types::{
    CallId, FinishReason, ModelEvent, ModelResponse, Part, ToolCall, Usage,
    json::{MAX_DEPTH, too_deep},
};
use serde_json::{Value, json};

/// The parts of a response received so far, in the order in which they started.
#[derive(Default)]
pub(super) struct ResponseBuilder {
    parts: Vec<PartialPart>,
    calls: usize,
}

enum PartialPart {
    Text(String),
    Reasoning(String, Option<Value>),
    Call(PartialCall),
}

#[derive(Default)]
struct PartialCall {
    /// Number of the call in the provider's stream.
    key: usize,
    /// Position among the calls of this response.
    index: usize,
    id: String,
    name: String,
    args: String,
}

impl ResponseBuilder {
    /// Appends text.
    pub(super) fn push_text(&mut self, piece: &str, out: &mut Vec<ModelEvent>) {
        if piece.is_empty() {
            return;
        }
        match self.parts.last_mut() {
            Some(PartialPart::Text(text)) => text.push_str(piece),
            _ => self.parts.push(PartialPart::Text(piece.to_owned())),
        }
        // Merges the pieces of one network chunk: the cost of an event far exceeds that of its bytes.
        match out.last_mut() {
            Some(ModelEvent::Text(text)) => text.push_str(piece),
            _ => out.push(ModelEvent::Text(piece.to_owned())),
        }
    }

    /// Appends reasoning.
    pub(super) fn push_reasoning(&mut self, piece: &str, out: &mut Vec<ModelEvent>) {
        if piece.is_empty() {
            return;
        }
        match self.parts.last_mut() {
            Some(PartialPart::Reasoning(text, _)) => text.push_str(piece),
            _ => self.parts.push(PartialPart::Reasoning(piece.to_owned(), None)),
        }
        match out.last_mut() {
            Some(ModelEvent::Reasoning(text)) => text.push_str(piece),
            _ => out.push(ModelEvent::Reasoning(piece.to_owned())),
        }
    }

    /// Starts a reasoning block that must be sent back to the provider unchanged.
    pub(super) fn begin_reasoning_block(&mut self, block: Value) {
        self.parts.push(PartialPart::Reasoning(String::new(), Some(block)));
    }

    /// Returns the reasoning block that started last.
    pub(super) fn last_reasoning_block(&mut self) -> Option<&mut Value> {
        self.parts.iter_mut().rev().find_map(|part| match part {
            PartialPart::Reasoning(_, block) => block.as_mut(),
            _ => None,
        })
    }

    /// Appends to the call that the provider numbers `key`, or starts it. A new id under a known number
    /// starts another call, because some servers number every call 0.
    pub(super) fn push_call(
        &mut self,
        key: usize,
        id: &str,
        name: &str,
        args: &str,
        out: &mut Vec<ModelEvent>,
    ) {
        let same = |call: &PartialCall| id.is_empty() || call.id.is_empty() || call.id == id;
        if !self.last_call(key).is_some_and(|call| same(call)) {
            let call = PartialCall { key, index: self.calls, ..PartialCall::default() };
            self.parts.push(PartialPart::Call(call));
            self.calls += 1;
        }
        let Some(call) = self.last_call(key) else { return };
        let starts = call.name.is_empty();
        if call.id.is_empty() {
            call.id.push_str(id);
        }
        if starts {
            call.name.push_str(name);
        }
        call.args.push_str(args);
        match out.last_mut() {
            Some(ModelEvent::ToolInput { index, delta, .. }) if *index == call.index => delta.push_str(args),
            _ if args.is_empty() && !starts => {}
            _ => {
                let (index, name, delta) = (call.index, call.name.clone(), args.to_owned());
                out.push(ModelEvent::ToolInput { index, name, delta });
            }
        }
    }

    /// Appends arguments to a call that has started; does nothing for an unknown call.
    pub(super) fn push_arguments(&mut self, key: usize, args: &str, out: &mut Vec<ModelEvent>) {
        if self.last_call(key).is_some() {
            self.push_call(key, "", "", args, out);
        }
    }

    fn last_call(&mut self, key: usize) -> Option<&mut PartialCall> {
        self.parts.iter_mut().rev().find_map(|part| match part {
            PartialPart::Call(call) if call.key == key => Some(call),
            _ => None,
        })
    }

    /// Adds a call that arrived in one piece.
    pub(super) fn push_whole_call(&mut self, id: &str, name: &str, args: &str, out: &mut Vec<ModelEvent>) {
        // Counts down from the maximum, so that the number never equals that of a streamed call.
        self.push_call(usize::MAX - self.calls, id, name, args, out);
    }

    /// Builds the response. Some servers confuse `Stop` and `ToolCalls`, so the presence of calls decides
    /// between the two.
    pub(super) fn finish(self, mut usage: Usage, finish: FinishReason) -> ModelResponse {
        if usage.total_tokens == 0 {
            usage.total_tokens = usage.input_tokens + usage.output_tokens;
        }
        let finish = match finish {
            FinishReason::Stop | FinishReason::ToolCalls if self.calls > 0 => FinishReason::ToolCalls,
            FinishReason::ToolCalls => FinishReason::Stop,
            other => other,
        };
        let parts = self.parts.into_iter().map(|part| match part {
            PartialPart::Text(text) => Part::Text { text },
            PartialPart::Reasoning(text, provider) => {
                Part::Reasoning { text, provider: provider.filter(|block| !too_deep(block)) }
            }
            PartialPart::Call(call) => Part::ToolCall(tool_call(call.id.into(), call.name, &call.args)),
        });
        ModelResponse { parts: parts.collect(), usage, finish }
    }
}

/// Builds a tool call from its arguments as JSON text; empty text means no arguments. `call_id` is empty when
/// the provider sent none: the caller assigns one.
pub(super) fn tool_call(call_id: CallId, name: String, text: &str) -> ToolCall {
    let parsed = if text.trim().is_empty() { Ok(Value::Null) } else { serde_json::from_str(text) };
    let (args, invalid) = match parsed {
        Ok(args @ Value::Object(_)) => (args, None),
        Ok(Value::Null) => (json!({}), None),
        // Some models send the object encoded as a JSON string.
        Ok(Value::String(inner)) => match serde_json::from_str(&inner) {
            Ok(args @ Value::Object(_)) => (args, None),
            _ => raw(text, "the arguments are not a JSON object".to_owned()),
        },
        Ok(_) => raw(text, "the arguments are not a JSON object".to_owned()),
        Err(e) => raw(text, format!("the arguments are not JSON: {e}")),
    };
    let (args, invalid) = match invalid {
        None if too_deep(&args) => {
            raw(text, format!("the arguments are nested deeper than {MAX_DEPTH} levels"))
        }
        invalid => (args, invalid),
    };
    ToolCall { call_id, name, args, invalid }
}

fn raw(text: &str, why: String) -> (Value, Option<String>) {
    (json!({ "_raw": text }), Some(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn arguments_are_an_object_or_marked_invalid() {
        let args = |text: &str| {
            let call = tool_call("c".into(), "t".into(), text);
            (call.args, call.invalid.is_some())
        };
        assert_eq!(args(""), (json!({}), false));
        assert_eq!(args("null"), (json!({}), false));
        assert_eq!(args(r#"{"a":1}"#), (json!({"a":1}), false));
        assert_eq!(args(r#""{\"a\":1}""#), (json!({"a":1}), false));
        assert_eq!(args(r#"{"a":"#), (json!({"_raw":"{\"a\":"}), true));
        assert_eq!(args("[1]"), (json!({"_raw":"[1]"}), true));
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(64), "]".repeat(64));
        assert_eq!(args(&deep), (json!({ "_raw": deep }), true));
        let inner = Value::String(deep).to_string();
        assert_eq!(args(&inner), (json!({ "_raw": inner }), true));
    }

    #[test]
    fn calls_that_share_a_number_are_distinguished_by_id() {
        let (mut response, mut out) = (ResponseBuilder::default(), Vec::new());
        response.push_call(0, "a", "t", "{}", &mut out);
        response.push_call(0, "b", "t", "", &mut out);
        response.push_call(0, "", "", "{}", &mut out);
        assert_eq!(response.finish(Usage::default(), FinishReason::Stop).parts.len(), 2);
        assert_eq!(out.len(), 2);
    }
}
