//! Reads messages of the session itself that are not shown any more, or in part only.

use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{Category, Effect, Message, Part};
use schemars::JsonSchema;
use serde::Deserialize;

/// Characters of messages that one call shows: with its first line it never becomes an artifact.
const LENGTH: usize = 9_000;
/// Records that one call reads.
const RECORDS: usize = 200;

/// `recall`.
pub struct Recall;

/// What to read.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// The number of one message.
    message: Option<u64>,
    /// Instead of one message: the first number of several, such as the first of those above notes.
    from: Option<u64>,
    /// The last number of several.
    to: Option<u64>,
    /// The first character to show, from 0.
    #[serde(default)]
    offset: usize,
}

impl Tool for Recall {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "recall";
    const DESCRIPTION: &'static str = "Reads earlier messages of this session in full, by their numbers: with calls of \
         tools and their results. The first line of the answer says what follows and how to go on.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    fn resource_keys(&self, _args: &Args) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: Args, cx: ToolContext) -> Result<String, ToolError> {
        let Some(from) = args.message.or(args.from) else {
            return Err(ToolError::new("say which: `message`, or `from` and `to`"));
        };
        let to = args.message.or(args.to).unwrap_or(u64::MAX);
        let (messages, next) = cx.messages(from, to, RECORDS)?;
        let Some(last) = messages.last() else {
            return Err(ToolError::new(format!(
                "there is no message from {from} on, up to the number asked for"
            )));
        };
        let text: String = messages.iter().map(|message| told(message)).collect();
        let total = text.chars().count();
        if args.offset >= total {
            return Err(ToolError::new(format!(
                "there is nothing at {}: it has {total} characters",
                args.offset
            )));
        }
        let shown: String = text.chars().skip(args.offset).take(LENGTH).collect();
        let end = args.offset + shown.chars().count();
        let on = match next {
            _ if end < total => format!("; go on with offset {end}"),
            Some(next) => format!("; go on with from {next}"),
            None => String::new(),
        };
        Ok(format!("messages {from}-{}, characters {}-{end} of {total}{on}\n{shown}", last.seq, args.offset))
    }
}

/// A message with all that is in it.
fn told(message: &Message) -> String {
    let who = message.role.name();
    let mut told =
        format!("[{}] {} {who}: {}\n", message.seq, message.created_at.to_rfc3339(), message.prompt_text());
    for part in &message.parts {
        match part {
            Part::ToolCall(call) => told.push_str(&format!("[calls {}: {}]\n", call.name, call.args)),
            Part::ToolResult { name, outcome, .. } => {
                told.push_str(&format!("[result of {name}: {}]\n", outcome.model_text()));
            }
            Part::Text { .. } | Part::File(_) | Part::Reasoning { .. } => {}
        }
    }
    told
}
