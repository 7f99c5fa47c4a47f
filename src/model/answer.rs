//! An answer in the making: pieces in, events and whole parts out.

use crate::types::{
    FinishReason, ModelEvent, ModelResponse, Part, ToolCall, Usage,
    json::{MAX_DEPTH, parse, too_deep},
};
use serde_json::{Value, json};

/// The parts of an answer so far, in the order in which they began.
#[derive(Default)]
pub(super) struct Answer {
    drafts: Vec<Draft>,
    calls: usize,
}

enum Draft {
    Text(String),
    Reasoning(String, Option<Value>),
    Call(CallDraft),
}

#[derive(Default)]
struct CallDraft {
    /// The provider's number of the call.
    key: usize,
    /// Ours: its place among the calls of this answer.
    index: usize,
    id: String,
    name: String,
    args: String,
}

impl Answer {
    /// More text.
    pub(super) fn text(&mut self, piece: &str, out: &mut Vec<ModelEvent>) {
        if piece.is_empty() {
            return;
        }
        match self.drafts.last_mut() {
            Some(Draft::Text(text)) => text.push_str(piece),
            _ => self.drafts.push(Draft::Text(piece.to_owned())),
        }
        // Pieces of one network chunk travel on as one event: each costs more than its bytes.
        match out.last_mut() {
            Some(ModelEvent::Text(text)) => text.push_str(piece),
            _ => out.push(ModelEvent::Text(piece.to_owned())),
        }
    }

    /// More thinking.
    pub(super) fn reasoning(&mut self, piece: &str, out: &mut Vec<ModelEvent>) {
        if piece.is_empty() {
            return;
        }
        match self.drafts.last_mut() {
            Some(Draft::Reasoning(text, _)) => text.push_str(piece),
            _ => self.drafts.push(Draft::Reasoning(piece.to_owned(), None)),
        }
        match out.last_mut() {
            Some(ModelEvent::Reasoning(text)) => text.push_str(piece),
            _ => out.push(ModelEvent::Reasoning(piece.to_owned())),
        }
    }

    /// Begins a block of thinking that the provider wants back.
    pub(super) fn begin_reasoning(&mut self, block: Value) {
        self.drafts.push(Draft::Reasoning(String::new(), Some(block)));
    }

    /// The block of thinking that began last.
    pub(super) fn reasoning_block(&mut self) -> Option<&mut Value> {
        self.drafts.iter_mut().rev().find_map(|draft| match draft {
            Draft::Reasoning(_, block) => block.as_mut(),
            _ => None,
        })
    }

    /// More of a call. `key` is the provider's number of it; a new id under the same number is a
    /// new call, because some servers give every call the number 0.
    pub(super) fn call(&mut self, key: usize, id: &str, name: &str, args: &str, out: &mut Vec<ModelEvent>) {
        let same = |call: &CallDraft| id.is_empty() || call.id.is_empty() || call.id == id;
        if !self.last_call(key).is_some_and(|call| same(call)) {
            let call = CallDraft { key, index: self.calls, ..CallDraft::default() };
            self.drafts.push(Draft::Call(call));
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

    /// More of the arguments of a call that has begun; nothing if it never did.
    pub(super) fn more_of_call(&mut self, key: usize, args: &str, out: &mut Vec<ModelEvent>) {
        if self.last_call(key).is_some() {
            self.call(key, "", "", args, out);
        }
    }

    fn last_call(&mut self, key: usize) -> Option<&mut CallDraft> {
        self.drafts.iter_mut().rev().find_map(|draft| match draft {
            Draft::Call(call) if call.key == key => Some(call),
            _ => None,
        })
    }

    /// A call that came whole.
    pub(super) fn whole_call(&mut self, id: &str, name: &str, args: &str, out: &mut Vec<ModelEvent>) {
        // Counted from the top, so that no streamed call has the number.
        self.call(usize::MAX - self.calls, id, name, args, out);
    }

    /// The answer. Whether it has calls decides between the two reasons that servers mix up.
    pub(super) fn finish(self, mut usage: Usage, finish: FinishReason) -> ModelResponse {
        if usage.total_tokens == 0 {
            usage.total_tokens = usage.input_tokens + usage.output_tokens;
        }
        let finish = match finish {
            FinishReason::Stop | FinishReason::ToolCalls if self.calls > 0 => FinishReason::ToolCalls,
            FinishReason::ToolCalls => FinishReason::Stop,
            other => other,
        };
        let parts = self.drafts.into_iter().map(|draft| match draft {
            Draft::Text(text) => Part::Text { text },
            Draft::Reasoning(text, provider) => {
                Part::Reasoning { text, provider: provider.filter(|block| !too_deep(block)) }
            }
            Draft::Call(call) => Part::ToolCall(tool_call(call.id, call.name, &call.args)),
        });
        ModelResponse { parts: parts.collect(), usage, finish }
    }
}

/// A call from its arguments as text. No text means no arguments. The id is empty when the
/// provider gave none: the caller, who knows the turn, makes one.
pub(super) fn tool_call(call_id: String, name: String, text: &str) -> ToolCall {
    let parsed = if text.trim().is_empty() { Ok(Value::Null) } else { parse(text.as_bytes()) };
    let (args, invalid) = match parsed {
        Ok(args @ Value::Object(_)) => (args, None),
        Ok(Value::Null) => (json!({}), None),
        // Some models write the object as a string.
        Ok(Value::String(inner)) => match parse(inner.as_bytes()) {
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
    fn arguments_are_an_object_or_say_why_not() {
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
    fn one_number_for_all_calls_still_makes_two() {
        let (mut answer, mut out) = (Answer::default(), Vec::new());
        answer.call(0, "a", "t", "{}", &mut out);
        answer.call(0, "b", "t", "", &mut out);
        answer.call(0, "", "", "{}", &mut out);
        assert_eq!(answer.finish(Usage::default(), FinishReason::Stop).parts.len(), 2);
        assert_eq!(out.len(), 2);
    }
}
