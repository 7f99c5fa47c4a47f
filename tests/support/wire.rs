//! Scripts as bytes of real wire formats: OpenAI chat completions and Anthropic Messages.

use super::script::{Gate, Script, Step, Usage};
use serde_json::{Value, json};
use std::time::Duration;

/// What happens on the connection, in order.
pub enum Frame {
    Event(String),
    Hold(Gate),
    Pause(Duration),
    Cut,
}

/// A provider's wire format.
#[derive(Clone, Copy)]
pub enum Wire {
    OpenAi,
    Anthropic,
}

impl Wire {
    pub fn of(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default();
        if path.ends_with("/chat/completions") {
            Some(Self::OpenAi)
        } else if path.ends_with("/messages") {
            Some(Self::Anthropic)
        } else {
            None
        }
    }

    pub fn stream(self, script: &Script, request: &Value) -> Vec<Frame> {
        match self {
            Self::OpenAi => openai_stream(script, request),
            Self::Anthropic => anthropic_stream(script, request),
        }
    }

    /// Returns the response to a request without streaming.
    pub fn whole(self, script: &Script, request: &Value) -> Value {
        match self {
            Self::OpenAi => openai_whole(script, request),
            Self::Anthropic => anthropic_whole(script, request),
        }
    }
}

fn openai_stream(script: &Script, request: &Value) -> Vec<Frame> {
    let chunk = |choices: Value| {
        let chunk = json!({"id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 1_790_000_000,
            "model": request["model"], "choices": choices});
        Frame::Event(format!("data: {chunk}\n\n"))
    };
    let delta = |delta: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]));
    let mut frames = vec![delta(json!({"role": "assistant", "content": ""}))];
    for step in &script.steps {
        frames.push(match step {
            Step::Text(text) => delta(json!({ "content": text })),
            Step::Reasoning(text) => delta(json!({ "reasoning_content": text })),
            Step::Tool { index, id, name } => delta(json!({"tool_calls": [{"index": index, "id": id,
                "type": "function", "function": {"name": name, "arguments": ""}}]})),
            Step::Arguments { index, piece } => {
                delta(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
            }
            Step::Hold(gate) => Frame::Hold(gate.clone()),
            Step::Pause(time) => Frame::Pause(*time),
            Step::Raw(bytes) => Frame::Event(bytes.clone()),
            Step::Cut => {
                frames.push(Frame::Cut);
                return frames;
            }
            Step::Error(body) => {
                frames.push(Frame::Event(format!("data: {}\n\n", json!({ "error": body }))));
                return frames;
            }
        });
    }
    frames.push(chunk(json!([{"index": 0, "delta": {}, "finish_reason": openai_finish(script)}])));
    if let (Some(usage), true) = (script.usage, request["stream_options"]["include_usage"] == true) {
        let mut last = json!({"id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 1_790_000_000,
            "model": request["model"], "choices": []});
        last["usage"] = openai_usage(usage);
        frames.push(Frame::Event(format!("data: {last}\n\n")));
    }
    frames.push(Frame::Event("data: [DONE]\n\n".into()));
    frames
}

fn openai_whole(script: &Script, request: &Value) -> Value {
    let said = Said::of(script);
    let mut message = json!({"role": "assistant", "content": said.text});
    if !said.calls.is_empty() {
        let call = |(id, name, arguments): &(String, String, String)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        message["tool_calls"] = said.calls.iter().map(call).collect();
    }
    let mut answer = json!({"id": "chatcmpl-test", "object": "chat.completion", "created": 1_790_000_000,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": openai_finish(script)}]});
    if let Some(usage) = script.usage {
        answer["usage"] = openai_usage(usage);
    }
    answer
}

fn openai_finish(script: &Script) -> &str {
    script.finish.as_deref().unwrap_or(if script.has_tools() { "tool_calls" } else { "stop" })
}

fn openai_usage(usage: Usage) -> Value {
    json!({"prompt_tokens": usage.input, "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output, "prompt_tokens_details": {"cached_tokens": usage.cached}})
}

fn anthropic_stream(script: &Script, request: &Value) -> Vec<Frame> {
    let mut out = AnthropicStream { frames: Vec::new(), blocks: 0, open: None };
    let usage = script.usage.unwrap_or(Usage { input: 0, output: 0, cached: 0 });
    out.event(json!({"type": "message_start", "message": {"id": "msg_test", "type": "message",
        "role": "assistant", "content": [], "model": request["model"], "stop_reason": null,
        "stop_sequence": null, "usage": anthropic_usage(Usage { output: 1, ..usage })}}));
    out.event(json!({"type": "ping"}));
    // Blocks are never interleaved on this wire, so the pieces of each call are joined.
    for step in &script.steps {
        match step {
            Step::Text(text) => {
                let at = out.block("text", json!({"type": "text", "text": ""}));
                out.delta(at, json!({"type": "text_delta", "text": text}));
            }
            Step::Reasoning(text) => {
                let start = json!({"type": "thinking", "thinking": "", "signature": ""});
                let at = out.block("thinking", start);
                out.delta(at, json!({"type": "thinking_delta", "thinking": text}));
            }
            Step::Tool { index, id, name } => {
                out.close();
                let start = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                let at = out.block("tool_use", start);
                for step in &script.steps {
                    match step {
                        Step::Arguments { index: of, piece } if of == index => {
                            out.delta(at, json!({"type": "input_json_delta", "partial_json": piece}));
                        }
                        _ => {}
                    }
                }
            }
            Step::Arguments { .. } => {}
            Step::Hold(gate) => out.frames.push(Frame::Hold(gate.clone())),
            Step::Pause(time) => out.frames.push(Frame::Pause(*time)),
            Step::Raw(bytes) => out.frames.push(Frame::Event(bytes.clone())),
            Step::Cut => {
                out.frames.push(Frame::Cut);
                return out.frames;
            }
            Step::Error(body) => {
                out.event(json!({"type": "error", "error": body}));
                return out.frames;
            }
        }
    }
    out.close();
    out.event(json!({"type": "message_delta",
        "delta": {"stop_reason": anthropic_finish(script), "stop_sequence": null},
        "usage": {"output_tokens": usage.output}}));
    out.event(json!({"type": "message_stop"}));
    out.frames
}

struct AnthropicStream {
    frames: Vec<Frame>,
    blocks: usize,
    /// The kind of the open block.
    open: Option<&'static str>,
}

impl AnthropicStream {
    fn event(&mut self, event: Value) {
        let kind = event["type"].as_str().unwrap_or_default();
        self.frames.push(Frame::Event(format!("event: {kind}\ndata: {event}\n\n")));
    }

    /// Returns the index of an open block of this kind.
    fn block(&mut self, kind: &'static str, start: Value) -> usize {
        if self.open != Some(kind) {
            self.close();
            self.event(json!({"type": "content_block_start", "index": self.blocks, "content_block": start}));
            self.open = Some(kind);
        }
        self.blocks
    }

    fn delta(&mut self, index: usize, delta: Value) {
        self.event(json!({"type": "content_block_delta", "index": index, "delta": delta}));
    }

    fn close(&mut self) {
        if let Some(kind) = self.open.take() {
            if kind == "thinking" {
                self.delta(self.blocks, json!({"type": "signature_delta", "signature": "c2lnbmVk"}));
            }
            self.event(json!({"type": "content_block_stop", "index": self.blocks}));
            self.blocks += 1;
        }
    }
}

fn anthropic_whole(script: &Script, request: &Value) -> Value {
    let said = Said::of(script);
    let mut content = Vec::new();
    if !said.text.is_empty() {
        content.push(json!({"type": "text", "text": said.text}));
    }
    for (id, name, arguments) in &said.calls {
        let input = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
        content.push(json!({"type": "tool_use", "id": id, "name": name, "input": Value::clone(&input)}));
    }
    let mut answer = json!({"id": "msg_test", "type": "message", "role": "assistant", "content": content,
        "model": request["model"], "stop_reason": anthropic_finish(script), "stop_sequence": null});
    if let Some(usage) = script.usage {
        answer["usage"] = anthropic_usage(usage);
    }
    answer
}

fn anthropic_finish(script: &Script) -> &str {
    script.finish.as_deref().unwrap_or(if script.has_tools() { "tool_use" } else { "end_turn" })
}

fn anthropic_usage(usage: Usage) -> Value {
    json!({"input_tokens": usage.input - usage.cached, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached, "output_tokens": usage.output})
}

/// All content of a script, joined.
#[derive(Default)]
struct Said {
    text: String,
    calls: Vec<(String, String, String)>,
}

impl Said {
    fn of(script: &Script) -> Self {
        let mut said = Self::default();
        for step in &script.steps {
            match step {
                Step::Text(text) => said.text += text,
                Step::Tool { id, name, .. } => said.calls.push((id.clone(), name.clone(), String::new())),
                Step::Arguments { index, piece } => said.calls[*index].2 += piece,
                _ => {}
            }
        }
        said
    }
}
