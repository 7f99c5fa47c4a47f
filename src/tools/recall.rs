//! The `recall` tool, which reads messages of the session that are hidden or shortened in the prompt.

use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{Category, Effect, Message, Part};
use schemars::JsonSchema;
use serde::Deserialize;

/// Maximum number of characters of messages, small enough that the result never becomes an artifact.
const MAX_CHARS: usize = 9_000;
/// Maximum number of records to read.
const MAX_RECORDS: usize = 200;

/// The `recall` tool.
pub struct Recall;

/// The arguments of `recall`.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// The number of a single message.
    message: Option<u64>,
    /// The first number of a range, such as the first one above a set of notes.
    from: Option<u64>,
    /// The last number of the range.
    to: Option<u64>,
    /// Offset of the first character to show, starting at 0.
    #[serde(default)]
    offset: usize,
}

impl Tool for Recall {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "recall";
    const DESCRIPTION: &'static str = "Reads earlier messages of this session in full, by number, with tool calls and results. \
         The first line of the result states what follows and how to continue.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    fn resource_keys(&self, _args: &Args) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: Args, cx: ToolContext) -> Result<String, ToolError> {
        let Some(from) = args.message.or(args.from) else {
            return Err(ToolError::new("set `message`, or `from` and `to`"));
        };
        let to = args.message.or(args.to).unwrap_or(u64::MAX);
        let (messages, next) = cx.messages(from, to, MAX_RECORDS)?;
        let Some(last) = messages.last() else {
            return Err(ToolError::new(format!("no message from {from} up to the requested number")));
        };
        let text: String = messages.iter().map(|message| render(message)).collect();
        let total = text.chars().count();
        if args.offset >= total {
            return Err(ToolError::new(format!(
                "offset {} is past the end: there are {total} characters",
                args.offset
            )));
        }
        let shown: String = text.chars().skip(args.offset).take(MAX_CHARS).collect();
        let end = args.offset + shown.chars().count();
        let on = match next {
            _ if end < total => format!("; continue with offset {end}"),
            Some(next) => format!("; continue with from {next}"),
            None => String::new(),
        };
        Ok(format!("messages {from}-{}, characters {}-{end} of {total}{on}\n{shown}", last.seq, args.offset))
    }
}

/// Renders a message with its tool calls and results.
fn render(message: &Message) -> String {
    let who = message.role.name();
    let mut text =
        format!("[{}] {} {who}: {}\n", message.seq, message.created_at.to_rfc3339(), message.prompt_text());
    for part in &message.parts {
        match part {
            Part::ToolCall(call) => text.push_str(&format!("[calls {}: {}]\n", call.name, call.args)),
            Part::ToolResult { name, outcome, .. } => {
                text.push_str(&format!("[result of {name}: {}]\n", outcome.model_text()));
            }
            Part::Text { .. } | Part::File(_) | Part::Reasoning { .. } => {}
        }
    }
    text
}
