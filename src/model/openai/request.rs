//! The request body of chat completions.

use crate::model::wire::{RequestBody, WireTool};
use crate::types::{FileRef, Media, MediaKind, Message, ModelRequest, Part, RequestMedia, Role, Thinking};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;

/// The server that reads the body. Dialects differ in details.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Dialect {
    /// OpenAI and compatible servers.
    OpenAi,
    /// Workers AI's binding: the model is passed separately from the body, `content` is never null, and the
    /// output limit has its older name. Tool calls cannot be forbidden, so the tools are left out instead.
    WorkersAi,
}

#[derive(Serialize)]
pub(in crate::model) struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    messages: Vec<ChatMessage<'a>>,
    #[serde(skip)]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'static str>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
}

impl RequestBody for Body<'_> {
    fn tools(&self) -> &[WireTool<'_>] {
        &self.tools
    }
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum ChatMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Content<'a>,
    },
    Assistant {
        content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: Cow<'a, str>,
    },
}

/// The content of a user's message.
#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(String),
    Parts(Vec<ContentPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentPart<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl },
    File { file: File<'a> },
    InputAudio { input_audio: Audio<'a> },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct File<'a> {
    filename: &'a str,
    file_data: String,
}

#[derive(Serialize)]
struct Audio<'a> {
    data: &'a str,
    format: &'static str,
}

#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    arguments: String,
}

/// Builds the body for `request`. The volatile text precedes the last user message and does not change during
/// a turn, so that the provider's cache covers everything up to there in each call. The tail differs in each
/// call and comes last, where it cannot separate a tool call from its results.
pub(in crate::model) fn body(request: &ModelRequest, dialect: Dialect) -> Body<'_> {
    let open_ai = dialect == Dialect::OpenAi;
    let mut messages = Vec::with_capacity(request.messages.len() + 2);
    let last_user = request.messages.iter().rposition(|m| m.role == Role::User).unwrap_or(0);
    push_system(&request.system, &mut messages);
    for (at, message) in request.messages.iter().enumerate() {
        if at == last_user {
            push_system(&request.volatile, &mut messages);
        }
        push_message(message, &request.media, dialect, &mut messages);
    }
    if request.messages.is_empty() {
        push_system(&request.volatile, &mut messages);
    }
    if !request.tail.is_empty() {
        messages.push(ChatMessage::User { content: Content::Text(request.tail.clone()) });
    }
    let offered = if request.tools_off && !open_ai { &[][..] } else { &request.tools };
    let tools = offered.iter().map(|tool| {
        let (name, description) = (Value::from(tool.name.as_str()), Value::from(tool.description.as_str()));
        WireTool {
            before: format!(
                r#"{{"type":"function","function":{{"name":{name},"description":{description},"parameters":"#
            ),
            schema: &tool.parameters,
            after: "}}",
        }
    });
    Body {
        model: open_ai.then_some(request.model.as_str()),
        messages,
        tools: tools.collect(),
        tool_choice: (request.tools_off && !offered.is_empty()).then_some("none"),
        stream: true,
        stream_options: open_ai.then_some(StreamOptions { include_usage: true }),
        max_completion_tokens: request.max_output_tokens.filter(|_| open_ai),
        max_tokens: request.max_output_tokens.filter(|_| !open_ai),
        reasoning_effort: match request.thinking {
            Thinking::Off => None,
            Thinking::Low => Some("low"),
            Thinking::Medium => Some("medium"),
            Thinking::High => Some("high"),
        },
    }
}

/// Maximum length of a tool name in characters.
const MAX_NAME: usize = 64;

/// Replaces characters that the API rejects, for names that a model invented, such as `functions.echo`.
fn sanitize_name(name: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() {
        return Cow::Borrowed("_");
    }
    if name.len() <= MAX_NAME && name.chars().all(fits) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.chars().take(MAX_NAME).map(|c| if fits(c) { c } else { '_' }).collect())
}

fn push_system<'a>(content: &'a str, messages: &mut Vec<ChatMessage<'a>>) {
    if !content.is_empty() {
        messages.push(ChatMessage::System { content });
    }
}

/// Appends a message: one entry, or one entry per tool result. Reasoning is left out because no compatible
/// server accepts it.
fn push_message<'a>(
    message: &'a Message,
    media: &'a RequestMedia,
    dialect: Dialect,
    messages: &mut Vec<ChatMessage<'a>>,
) {
    if message.role == Role::User && has_files(message, media) {
        let content = Content::Parts(content_parts(message, media));
        return messages.push(ChatMessage::User { content });
    }
    let text = message.prompt_text();
    match message.role {
        Role::User => messages.push(ChatMessage::User { content: Content::Text(text) }),
        Role::Assistant => {
            let call = |call: &'a crate::types::ToolCall| Call {
                id: &call.call_id,
                r#type: "function",
                function: Function { name: sanitize_name(&call.name), arguments: call.args.to_string() },
            };
            let tool_calls: Vec<_> = message.calls().map(call).collect();
            // The API rejects a message without content, such as one whose reasoning was interrupted.
            if tool_calls.is_empty() && text.is_empty() {
                return;
            }
            let empty_is_null = text.is_empty() && dialect == Dialect::OpenAi;
            let content = (!empty_is_null).then_some(text);
            messages.push(ChatMessage::Assistant { content, tool_calls });
        }
        Role::Tool => messages.extend(message.parts.iter().filter_map(|part| match part {
            Part::ToolResult { call_id, outcome, .. } => {
                Some(ChatMessage::Tool { tool_call_id: call_id, content: outcome.prompt_text().into() })
            }
            _ => None,
        })),
    }
}

/// Returns whether the message has files that other models or this one take.
fn has_files(message: &Message, media: &RequestMedia) -> bool {
    message.parts.iter().any(|part| matches!(part, Part::File(file) if media.files.contains_key(&file.r#ref)))
}

/// Returns the text and the files of a user's message, each file after the line that names it.
fn content_parts<'a>(message: &'a Message, media: &'a RequestMedia) -> Vec<ContentPart<'a>> {
    let mut parts = Vec::with_capacity(message.parts.len() + 1);
    for part in &message.parts {
        match part {
            Part::Text { text } => parts.push(ContentPart::Text { text: text.into() }),
            Part::File(file) => {
                parts.push(ContentPart::Text { text: media.line(file).into() });
                parts.extend(media.content(file).map(|content| file_part(file, content)));
            }
            Part::Reasoning { .. } | Part::ToolCall(_) | Part::ToolResult { .. } => {}
        }
    }
    parts
}

fn file_part<'a>(file: &'a FileRef, content: &'a Media) -> ContentPart<'a> {
    match content.kind {
        MediaKind::Image => ContentPart::ImageUrl { image_url: ImageUrl { url: content.data_url() } },
        MediaKind::Pdf => {
            // The API requires a name.
            let filename = file.name.as_deref().unwrap_or("file.pdf");
            ContentPart::File { file: File { filename, file_data: content.data_url() } }
        }
        MediaKind::Audio => {
            let format = if content.mime_type.contains("wav") { "wav" } else { "mp3" };
            ContentPart::InputAudio { input_audio: Audio { data: &content.base64, format } }
        }
    }
}
