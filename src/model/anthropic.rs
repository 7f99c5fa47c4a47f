//! Anthropic's Messages API.

mod request;

use super::{
    classify,
    response::ResponseBuilder,
    wire::{Decoder, Endpoint, Text, Wire, cut, parse, post, str_of},
};
use crate::{
    ports::HttpRequest,
    types::{
        FinishReason, MediaKind, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelResponse, Part,
        Usage,
    },
};
use serde::Deserialize;
use serde_json::{Value, json};

/// The wire of `POST {base}/v1/messages`.
pub struct Anthropic;

impl Wire for Anthropic {
    fn encode(&self, endpoint: &Endpoint, request: &ModelRequest) -> Result<HttpRequest, ModelError> {
        let base = endpoint.base_url.trim_end_matches('/');
        let url = format!("{}/v1/messages", base.strip_suffix("/v1").unwrap_or(base));
        let auth = endpoint.key.as_ref().map(|key| ("x-api-key", key.clone()));
        let mut post = post(url, auth, &request::body(request))?;
        post.headers.push(("anthropic-version".to_owned(), "2023-06-01".to_owned()));
        Ok(post)
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::<MessageDecoder>::default()
    }

    /// The API has no block for audio.
    fn carries(&self, kind: MediaKind) -> bool {
        kind != MediaKind::Audio
    }
}

/// Any event of the stream. One flat struct, because serde buffers tagged enums before it picks a variant.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    index: Option<usize>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    content_block: Option<Value>,
    message: Option<Start>,
    usage: Option<Counts>,
    /// Content of a complete message, from a server that does not stream.
    content: Option<Vec<Value>>,
    #[serde(borrow)]
    stop_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    partial_json: Option<Text<'a>>,
    #[serde(borrow)]
    thinking: Option<Text<'a>>,
    #[serde(borrow)]
    signature: Option<Text<'a>>,
    #[serde(borrow)]
    stop_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Start {
    usage: Option<Counts>,
}

#[derive(Deserialize)]
struct Counts {
    input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

/// Decodes a response. Text and reasoning blocks arrive one after another; only calls need their index.
#[derive(Default)]
struct MessageDecoder {
    response: ResponseBuilder,
    usage: Usage,
    /// Input tokens that were neither read from nor written to the cache.
    uncached: u64,
    finish: Option<FinishReason>,
    overflow: bool,
    ended: bool,
}

impl MessageDecoder {
    fn begin(&mut self, index: usize, mut block: Value, out: &mut Vec<ModelEvent>) {
        let text =
            |block: &Value, field: &str| block.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
        match block.get("type").and_then(Value::as_str).unwrap_or_default() {
            "text" => self.response.push_text(&text(&block, "text"), out),
            "tool_use" => {
                let input = match block.get_mut("input").map(Value::take) {
                    Some(Value::Object(map)) if !map.is_empty() => Value::Object(map).to_string(),
                    _ => String::new(),
                };
                self.response.push_call(index, &text(&block, "id"), &text(&block, "name"), &input, out);
            }
            "thinking" => {
                let thinking = text(&block, "thinking");
                self.response.begin_reasoning_block(block);
                self.response.push_reasoning(&thinking, out);
            }
            "redacted_thinking" => self.response.begin_reasoning_block(block),
            // A block of a server-side tool. The harness never offers those.
            _ => {}
        }
    }

    fn delta(&mut self, index: usize, delta: &Delta<'_>, out: &mut Vec<ModelEvent>) {
        self.response.push_text(str_of(&delta.text), out);
        self.response.push_reasoning(str_of(&delta.thinking), out);
        if let Some(json) = &delta.partial_json {
            self.response.push_arguments(index, &json.0, out);
        }
        if let (Some(piece), Some(block)) = (&delta.signature, self.response.last_reasoning_block()) {
            let before = block.get("signature").and_then(Value::as_str).unwrap_or("");
            let signature = format!("{before}{}", piece.0);
            if let Value::Object(fields) = block {
                fields.insert("signature".to_owned(), json!(signature));
            }
        }
    }

    /// Records token counts. They are cumulative: each replaces the previous one.
    fn count(&mut self, counts: &Counts) {
        let set = |field: &mut u64, value: Option<u64>| *field = value.unwrap_or(*field);
        set(&mut self.uncached, counts.input_tokens);
        set(&mut self.usage.cache_read_tokens, counts.cache_read_input_tokens);
        set(&mut self.usage.cache_write_tokens, counts.cache_creation_input_tokens);
        set(&mut self.usage.output_tokens, counts.output_tokens);
    }

    fn stop(&mut self, reason: &str) {
        self.finish = match reason {
            "" => return,
            "tool_use" => Some(FinishReason::ToolCalls),
            "max_tokens" => Some(FinishReason::Length),
            "pause_turn" => Some(FinishReason::Pause),
            "refusal" => Some(FinishReason::ContentFilter),
            _ => Some(FinishReason::Stop),
        };
        self.overflow = reason == "model_context_window_exceeded";
    }
}

impl Decoder for MessageDecoder {
    fn event(&mut self, name: &str, data: &str, out: &mut Vec<ModelEvent>) -> Result<bool, ModelError> {
        let event: Event<'_> = parse(data)?;
        let kind = event.kind.as_ref().map_or(name, |kind| &kind.0);
        if kind == "error" {
            return Err(classify::event(&parse(data)?));
        }
        let index = event.index.unwrap_or(0);
        let start = event.message.as_ref().and_then(|m| m.usage.as_ref());
        start.or(event.usage.as_ref()).into_iter().for_each(|counts| self.count(counts));
        match kind {
            "content_block_delta" => event.delta.iter().for_each(|delta| self.delta(index, delta, out)),
            "content_block_start" => {
                event.content_block.into_iter().for_each(|block| self.begin(index, block, out));
            }
            "message_delta" => event.delta.iter().for_each(|delta| self.stop(str_of(&delta.stop_reason))),
            "message_stop" => self.ended = true,
            "message" => {
                for (index, block) in event.content.into_iter().flatten().enumerate() {
                    self.begin(index, block, out);
                }
                self.stop(str_of(&event.stop_reason));
                self.ended = true;
            }
            // `ping`, `message_start`, `content_block_stop` and unknown events.
            _ => {}
        }
        Ok(self.ended)
    }

    fn finish(self: Box<Self>) -> Result<ModelResponse, ModelError> {
        if !self.ended {
            return Err(cut());
        }
        if self.overflow {
            return Err(ModelError::new(ModelErrorKind::Overflow, "the context window is full"));
        }
        let usage = Usage {
            input_tokens: self.uncached + self.usage.cache_read_tokens + self.usage.cache_write_tokens,
            ..self.usage
        };
        let mut response = self.response.finish(usage, self.finish.unwrap_or_default());
        response.parts.iter_mut().for_each(close_thinking);
        Ok(response)
    }
}

/// Inserts the streamed reasoning into its block, so that the block is sent back as if it had arrived whole.
fn close_thinking(part: &mut Part) {
    if let Part::Reasoning { text, provider: Some(Value::Object(block)) } = part
        && block.get("type").is_some_and(|kind| kind == "thinking")
    {
        block.insert("thinking".to_owned(), json!(text));
    }
}

#[cfg(test)]
mod tests;
