//! OpenAI's chat completions API, and servers compatible with it.

mod request;

use super::{
    classify,
    response::ResponseBuilder,
    wire::{Decoder, Endpoint, Text, Wire, cut, parse, post, str_of},
};
use crate::{
    ports::HttpRequest,
    types::{FinishReason, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelResponse, Usage},
};
pub(super) use request::{Dialect, body};
use serde::Deserialize;
use serde_json::Value;

/// The wire of `POST {base}/chat/completions`.
pub struct OpenAi;

impl Wire for OpenAi {
    fn encode(&self, endpoint: &Endpoint, request: &ModelRequest) -> Result<HttpRequest, ModelError> {
        let url = format!("{}/chat/completions", endpoint.base_url.trim_end_matches('/'));
        let auth = endpoint.key.as_ref().map(|key| ("authorization", format!("Bearer {key}")));
        post(url, auth, &body(request, Dialect::OpenAi))
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::<CompletionDecoder>::default()
    }

    fn has_media_api(&self) -> bool {
        true
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    usage: Option<Counts>,
    error: Option<Value>,
}

/// A piece of the response, or all of it when the server does not stream.
#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(borrow, alias = "message")]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Text<'a>>,
    #[serde(borrow)]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow)]
    reasoning: Option<Text<'a>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<CallDelta<'a>>>,
}

#[derive(Deserialize)]
struct CallDelta<'a> {
    index: Option<usize>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    function: Option<FunctionDelta<'a>>,
}

#[derive(Deserialize)]
struct FunctionDelta<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    arguments: Option<Text<'a>>,
}

/// Usage as OpenAI counts it: cached tokens are part of the prompt tokens.
#[derive(Deserialize)]
pub(super) struct Counts {
    prompt_tokens: Option<u64>,
    total_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

/// Decodes a response. The decoder of Workers AI contains this one, because newer models there use the same
/// format.
#[derive(Default)]
pub(super) struct CompletionDecoder {
    pub(super) response: ResponseBuilder,
    pub(super) usage: Usage,
    pub(super) finish: Option<FinishReason>,
}

impl CompletionDecoder {
    pub(super) fn choice(
        &mut self,
        choice: &Choice<'_>,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), ModelError> {
        if let Some(delta) = &choice.delta {
            // Servers name this field one way or the other. Those that send both repeat the same text.
            let thinking = delta.reasoning_content.as_ref().or(delta.reasoning.as_ref());
            self.response.push_reasoning(thinking.map_or("", |t| &t.0), out);
            self.response.push_text(str_of(&delta.content), out);
            for (place, call) in delta.tool_calls.iter().flatten().enumerate() {
                let function = call.function.as_ref();
                let name = function.map_or("", |f| str_of(&f.name));
                let arguments = function.map_or("", |f| str_of(&f.arguments));
                self.response.push_call(call.index.unwrap_or(place), str_of(&call.id), name, arguments, out);
            }
        }
        self.finish = match str_of(&choice.finish_reason) {
            "" => return Ok(()),
            "tool_calls" | "function_call" => Some(FinishReason::ToolCalls),
            "length" => Some(FinishReason::Length),
            "content_filter" => Some(FinishReason::ContentFilter),
            "error" => {
                return Err(ModelError::new(ModelErrorKind::Unavailable, "the response ended in an error"));
            }
            _ => Some(FinishReason::Stop),
        };
        Ok(())
    }

    pub(super) fn count(&mut self, counts: &Counts) {
        let prompt = counts.prompt_tokens_details.as_ref();
        let completion = counts.completion_tokens_details.as_ref();
        self.usage = Usage {
            window: None,
            input_tokens: counts.prompt_tokens.unwrap_or(0),
            output_tokens: counts.completion_tokens.unwrap_or(0),
            cache_read_tokens: prompt.and_then(|p| p.cached_tokens).unwrap_or(0),
            cache_write_tokens: prompt.and_then(|p| p.cache_write_tokens).unwrap_or(0),
            reasoning_tokens: completion.and_then(|c| c.reasoning_tokens).unwrap_or(0),
            total_tokens: counts.total_tokens.unwrap_or(0),
        };
    }
}

impl Decoder for CompletionDecoder {
    fn event(&mut self, name: &str, data: &str, out: &mut Vec<ModelEvent>) -> Result<bool, ModelError> {
        if data.trim() == "[DONE]" {
            return Ok(true);
        }
        if name == "error" {
            return Err(classify::event(&parse(data)?));
        }
        let chunk: Chunk<'_> = parse(data)?;
        if let Some(error) = &chunk.error {
            return Err(classify::event(error));
        }
        if let Some(choice) = chunk.choices.iter().flatten().next() {
            self.choice(choice, out)?;
        }
        if let Some(counts) = &chunk.usage {
            self.count(counts);
        }
        Ok(false)
    }

    fn finish(self: Box<Self>) -> Result<ModelResponse, ModelError> {
        // `[DONE]` does not prove completeness: proxies also send it after broken responses.
        let finish = self.finish.ok_or_else(cut)?;
        Ok(self.response.finish(self.usage, finish))
    }
}

#[cfg(test)]
mod tests;
