//! The request body of the Messages API.

use crate::model::wire::{RequestBody, WireTool};
use crate::types::{MediaKind, Message, ModelRequest, Part, RequestMedia, Role, Thinking};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;

/// Default output limit in tokens, not counting the reasoning budget.
const MAX_TOKENS: u32 = 8_192;

/// Smallest reasoning budget that the API accepts, and the least that must remain for the rest of the output.
const MIN_BUDGET: u32 = 1_024;

#[derive(Serialize)]
pub(super) struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip)]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Choice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Budget>,
    stream: bool,
}

impl RequestBody for Body<'_> {
    fn tools(&self) -> &[WireTool<'_>] {
        &self.tools
    }
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Marker>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: &'a Value,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Marker>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        content: Cow<'a, str>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Marker>,
    },
    Image {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Marker>,
    },
    Document {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Marker>,
    },
    /// A reasoning block, exactly as it was received.
    #[serde(untagged)]
    Verbatim(&'a Value),
}

/// The content of a file.
#[derive(Serialize)]
struct Source<'a> {
    r#type: &'static str,
    media_type: &'a str,
    data: &'a str,
}

/// Asks the API to cache everything up to and including the block that carries the marker.
#[derive(Clone, Copy, Serialize)]
struct Marker {
    r#type: &'static str,
}

const EPHEMERAL: Option<Marker> = Some(Marker { r#type: "ephemeral" });

#[derive(Serialize)]
struct Choice {
    r#type: &'static str,
}

#[derive(Serialize)]
struct Budget {
    r#type: &'static str,
    budget_tokens: u32,
}

/// Builds the body for `request` with at most four cache markers: after the tools, after the instructions,
/// before the last user message, and at the end of the conversation, where the next step of the turn
/// continues. The tail comes after the last marker.
pub(super) fn body(request: &ModelRequest) -> Body<'_> {
    let last_user = request.messages.iter().rposition(|m| m.role == Role::User).unwrap_or(0);
    let mut messages: Vec<WireMessage<'_>> = Vec::with_capacity(request.messages.len());
    for (at, message) in request.messages.iter().enumerate() {
        let mut content = Vec::with_capacity(message.parts.len() + 1);
        if at == last_user {
            messages.iter_mut().rev().any(mark);
            content.extend(text(&request.volatile));
        }
        content.extend(message.parts.iter().flat_map(|part| blocks(part, &request.media)));
        if content.is_empty() {
            continue;
        }
        let role = if message.role == Role::Assistant { "assistant" } else { "user" };
        match messages.last_mut() {
            // All results of a step belong in one message.
            Some(before) if message.role == Role::Tool && before.role == "user" => {
                before.content.extend(content)
            }
            _ => messages.push(WireMessage { role, content }),
        }
    }
    messages.iter_mut().rev().any(mark);
    let tail = text(&request.tail);
    match messages.last_mut() {
        Some(last) if last.role == "user" => last.content.extend(tail),
        _ if tail.is_none() => {}
        _ => messages.push(WireMessage { role: "user", content: tail.into_iter().collect() }),
    }

    let mut system: Vec<_> = text(&request.system).into_iter().collect();
    system.iter_mut().rev().any(mark_block);
    let last_tool = request.tools.len().saturating_sub(1);
    let tools = request.tools.iter().enumerate().map(|(at, tool)| {
        let (name, description) = (Value::from(tool.name.as_str()), Value::from(tool.description.as_str()));
        WireTool {
            before: format!(r#"{{"name":{name},"description":{description},"input_schema":"#),
            schema: &tool.parameters,
            after: if at == last_tool { r#","cache_control":{"type":"ephemeral"}}"# } else { "}" },
        }
    });
    let (max_tokens, thinking) = budget(request);
    Body {
        model: &request.model,
        max_tokens,
        system,
        messages,
        tools: tools.collect(),
        tool_choice: (request.tools_off && !request.tools.is_empty()).then_some(Choice { r#type: "none" }),
        thinking,
        stream: true,
    }
}

/// Returns the output limit and the reasoning budget within it.
fn budget(request: &ModelRequest) -> (u32, Option<Budget>) {
    let wanted = match request.thinking {
        Thinking::Off => 0,
        Thinking::Low => 1_024,
        Thinking::Medium => 4_096,
        Thinking::High => 16_384,
    };
    let wanted = if may_think(&request.messages) { wanted } else { 0 };
    let max_tokens = request.max_output_tokens.unwrap_or(MAX_TOKENS + wanted);
    let budget_tokens = wanted.min(max_tokens.saturating_sub(MIN_BUDGET));
    let thinking = (budget_tokens >= MIN_BUDGET).then_some(Budget { r#type: "enabled", budget_tokens });
    (max_tokens, thinking)
}

/// Returns whether the request may enable reasoning. It may not in the middle of a step whose assistant
/// message does not start with a reasoning block, for example because another model produced it.
fn may_think(messages: &[std::rc::Rc<Message>]) -> bool {
    match messages.iter().rev().find(|m| m.role != Role::Tool) {
        Some(last) if last.role == Role::Assistant => {
            matches!(last.parts.iter().find_map(block), Some(Block::Verbatim(_)))
        }
        _ => true,
    }
}

/// Converts a part to its blocks. The content of a file follows the line that names it.
fn blocks<'a>(part: &'a Part, media: &'a RequestMedia) -> impl Iterator<Item = Block<'a>> {
    let Part::File(file) = part else { return [block(part), None].into_iter().flatten() };
    let line = Block::Text { text: media.line(file).into(), cache_control: None };
    let content = media.content(file).and_then(|content| {
        let source = Source { r#type: "base64", media_type: &content.mime_type, data: &content.base64 };
        match content.kind {
            MediaKind::Image => Some(Block::Image { source, cache_control: None }),
            MediaKind::Pdf => Some(Block::Document { source, cache_control: None }),
            MediaKind::Audio => None,
        }
    });
    [Some(line), content].into_iter().flatten()
}

/// Converts a part to a block. Returns `None` for what the API rejects: empty text and the reasoning of other
/// providers.
fn block(part: &Part) -> Option<Block<'_>> {
    match part {
        Part::Text { text: words } => text(words),
        Part::File(_) => None,
        Part::Reasoning { provider, .. } => {
            provider.as_ref().filter(|block| is_own_thinking(block)).map(Block::Verbatim)
        }
        Part::ToolCall(call) => Some(Block::ToolUse {
            id: sanitize(&call.call_id),
            name: sanitize(&call.name),
            input: &call.args,
            cache_control: None,
        }),
        Part::ToolResult { call_id, outcome, .. } => Some(Block::ToolResult {
            tool_use_id: sanitize(call_id),
            content: outcome.prompt_text().into(),
            is_error: outcome.is_error(),
            cache_control: None,
        }),
    }
}

fn text(text: &str) -> Option<Block<'_>> {
    (!text.trim().is_empty()).then(|| Block::Text { text: text.into(), cache_control: None })
}

fn is_own_thinking(block: &Value) -> bool {
    let kind = block.get("type").and_then(Value::as_str);
    matches!(kind, Some("thinking" | "redacted_thinking"))
}

/// Replaces characters that the API rejects, in ids and names that come from other providers or that a model
/// invented.
fn sanitize(id: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !id.is_empty() && id.chars().all(fits) {
        return Cow::Borrowed(id);
    }
    if id.is_empty() {
        return Cow::Borrowed("_");
    }
    Cow::Owned(id.chars().map(|c| if fits(c) { c } else { '_' }).collect())
}

/// Sets a cache marker on the last block of a message that can carry one.
fn mark(turn: &mut WireMessage<'_>) -> bool {
    turn.content.iter_mut().rev().any(mark_block)
}

fn mark_block(block: &mut Block<'_>) -> bool {
    match block {
        Block::Text { cache_control, .. }
        | Block::Image { cache_control, .. }
        | Block::Document { cache_control, .. }
        | Block::ToolUse { cache_control, .. }
        | Block::ToolResult { cache_control, .. } => {
            *cache_control = EPHEMERAL;
            true
        }
        Block::Verbatim(_) => false,
    }
}
