//! The request body of chat completions.

use crate::types::{Message, ModelRequest, Part, Role, Thinking};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;

/// Who reads the body: the two differ in small things.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Dialect {
    /// OpenAI and compatible servers.
    OpenAi,
    /// Workers AI's binding: the model stands beside the body; content is never null; the cap on
    /// output has its old name; tools cannot be forbidden, so they are left out then.
    WorkersAi,
}

#[derive(Serialize)]
pub(in crate::model) struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    messages: Vec<Line<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
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

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum Line<'a> {
    System {
        content: &'a str,
    },
    User {
        content: String,
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

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

/// The body for `request`. The volatile text stands right before the last thing the user said, and
/// is the same throughout a turn: everything up to there is the same from call to call, so the
/// provider's cache keeps it. The tail changes with each call and stands behind everything, where no
/// call is parted from its results.
pub(in crate::model) fn body(request: &ModelRequest, dialect: Dialect) -> Body<'_> {
    let open_ai = dialect == Dialect::OpenAi;
    let mut messages = Vec::with_capacity(request.messages.len() + 2);
    let last_user = request.messages.iter().rposition(|m| m.role == Role::User).unwrap_or(0);
    system(&request.system, &mut messages);
    for (at, message) in request.messages.iter().enumerate() {
        if at == last_user {
            system(&request.volatile, &mut messages);
        }
        lines(message, dialect, &mut messages);
    }
    if request.messages.is_empty() {
        system(&request.volatile, &mut messages);
    }
    if !request.tail.is_empty() {
        messages.push(Line::User { content: request.tail.clone() });
    }
    let offered = if request.tools_off && !open_ai { &[][..] } else { &request.tools };
    let tools = offered.iter().map(|tool| Tool {
        r#type: "function",
        function: Spec { name: &tool.name, description: &tool.description, parameters: &tool.parameters },
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

/// Most characters of a tool's name.
const MAX_NAME: usize = 64;

/// A name that a model invented, such as `functions.echo`, may hold what the API refuses to read back.
fn allowed(name: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() {
        return Cow::Borrowed("_");
    }
    if name.len() <= MAX_NAME && name.chars().all(fits) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.chars().take(MAX_NAME).map(|c| if fits(c) { c } else { '_' }).collect())
}

fn system<'a>(content: &'a str, lines: &mut Vec<Line<'a>>) {
    if !content.is_empty() {
        lines.push(Line::System { content });
    }
}

/// A message as one line or, with several results in it, as more. Thinking stays here: no
/// compatible server wants it back.
fn lines<'a>(message: &'a Message, dialect: Dialect, lines: &mut Vec<Line<'a>>) {
    let text = message.prompt_text();
    match message.role {
        Role::User => lines.push(Line::User { content: text }),
        Role::Assistant => {
            let call = |call: &'a crate::types::ToolCall| Call {
                id: &call.call_id,
                r#type: "function",
                function: Function { name: allowed(&call.name), arguments: call.args.to_string() },
            };
            let tool_calls: Vec<_> = message.calls().map(call).collect();
            // An answer of nothing, such as thinking that was interrupted, is refused.
            if tool_calls.is_empty() && text.is_empty() {
                return;
            }
            let empty_is_null = text.is_empty() && dialect == Dialect::OpenAi;
            let content = (!empty_is_null).then_some(text);
            lines.push(Line::Assistant { content, tool_calls });
        }
        Role::Tool => lines.extend(message.parts.iter().filter_map(|part| match part {
            Part::ToolResult { call_id, outcome, .. } => {
                Some(Line::Tool { tool_call_id: call_id, content: outcome.prompt_text().into() })
            }
            _ => None,
        })),
    }
}
