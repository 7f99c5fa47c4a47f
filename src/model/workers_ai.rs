//! Workers AI, through the platform's binding. Older models respond with `{"response": …}`, newer ones with
//! OpenAI's chunks; the decoder reads both.

use super::{
    classify,
    openai::{self, Choice, CompletionDecoder, Counts, Dialect},
    response::ResponseBuilder,
    wire::{Decoder, cut, parse, write_request},
};
use crate::types::{FinishReason, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelResponse};
use serde::Deserialize;
use serde_json::Value;

/// Builds the input for the binding.
///
/// # Errors
/// Returns an error when the request cannot be serialized.
pub(super) fn input(request: &ModelRequest) -> Result<Value, ModelError> {
    serde_json::from_slice(&write_request(&openai::body(request, Dialect::WorkersAi))?)
        .map_err(|e| ModelError::new(ModelErrorKind::Invalid, format!("the request is not JSON: {e}")))
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    /// Text, or a number or object that represents a token.
    response: Option<Value>,
    tool_calls: Option<Vec<Call>>,
    usage: Option<Counts>,
    error: Option<Value>,
    errors: Option<Value>,
}

/// A call that arrives in one piece, either flat or under `function`.
#[derive(Deserialize)]
struct Call {
    id: Option<String>,
    name: Option<String>,
    /// An object, or the same as JSON text.
    arguments: Option<Value>,
    function: Option<Box<Call>>,
}

/// Decodes the stream of Workers AI.
#[derive(Default)]
pub(super) struct WorkersAi {
    inner: CompletionDecoder,
    done: bool,
}

impl Decoder for WorkersAi {
    fn event(&mut self, name: &str, data: &str, out: &mut Vec<ModelEvent>) -> Result<bool, ModelError> {
        if data.trim() == "[DONE]" {
            self.done = true;
            return Ok(true);
        }
        if name == "error" {
            return Err(classify::event(&parse(data)?));
        }
        let chunk: Chunk<'_> = parse(data)?;
        if let Some(error) =
            chunk.error.as_ref().or(chunk.errors.as_ref().filter(|e| **e != Value::Array(vec![])))
        {
            return Err(classify::event(error));
        }
        if let Some(choice) = chunk.choices.iter().flatten().next() {
            self.inner.choice(choice, out)?;
        }
        match chunk.response {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => self.inner.response.push_text(&text, out),
            Some(other) => self.inner.response.push_text(&other.to_string(), out),
        }
        for call in chunk.tool_calls.into_iter().flatten() {
            whole_call(&mut self.inner.response, call, out);
        }
        if let Some(counts) = &chunk.usage {
            self.inner.count(counts);
        }
        Ok(false)
    }

    fn whole(&mut self, body: &str, out: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        self.event("", body, out)?;
        self.done = true;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<ModelResponse, ModelError> {
        // Native responses have no finish reason; they end with `[DONE]`.
        let finish = self.inner.finish.or(self.done.then_some(FinishReason::Stop)).ok_or_else(cut)?;
        Ok(self.inner.response.finish(self.inner.usage, finish))
    }
}

fn whole_call(response: &mut ResponseBuilder, call: Call, out: &mut Vec<ModelEvent>) {
    let id = call.id.unwrap_or_default();
    let (name, arguments) = match call.function {
        Some(function) => (function.name, function.arguments),
        None => (call.name, call.arguments),
    };
    let arguments = match arguments {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
    };
    response.push_whole_call(&id, &name.unwrap_or_default(), &arguments, out);
}

#[cfg(test)]
mod tests;
