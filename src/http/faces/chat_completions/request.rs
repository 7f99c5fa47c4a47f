//! The request of Chat Completions, and the native message that it becomes. Unknown fields are ignored.

use super::super::openai::{
    self, Function,
    messages::{ChatMessage, ChatRole, Conversation, Effort, may_call_tools},
};
use crate::http::patch::or_default;
use crate::http::session::message::MessageBody;
use crate::types::{Pending, Problem};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
pub(super) struct ChatRequest {
    pub model: String,
    messages: Vec<ChatMessage>,
    pub user: Option<String>,
    metadata: Option<Metadata>,
    #[serde(default, deserialize_with = "or_default")]
    pub stream: bool,
    stream_options: Option<StreamOptions>,
    #[serde(default, deserialize_with = "or_default")]
    tools: Vec<ToolDeclaration>,
    tool_choice: Option<Value>,
    response_format: Option<ResponseFormat>,
    max_completion_tokens: Option<u32>,
    max_tokens: Option<u32>,
    reasoning_effort: Option<Effort>,
    n: Option<u32>,
}

#[derive(Deserialize)]
struct Metadata {
    session_id: Option<String>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default, deserialize_with = "or_default")]
    include_usage: bool,
}

#[derive(Deserialize)]
struct ToolDeclaration {
    function: Function,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponseFormat {
    Text,
    JsonObject,
    JsonSchema { json_schema: JsonSchema },
}

#[derive(Deserialize)]
struct JsonSchema {
    schema: Option<Value>,
}

impl ChatRequest {
    /// Returns the session that the request names in its body.
    pub fn session(&self) -> Option<&str> {
        self.metadata.as_ref()?.session_id.as_deref()
    }

    /// Returns the id of the last call of which the request has the result.
    pub fn answered_call(&self) -> Option<&str> {
        let last = self.messages.last().filter(|message| message.role == ChatRole::Tool)?;
        last.tool_call_id.as_deref()
    }

    /// Returns the agent and the model that the request names.
    pub fn agent_and_model(&self) -> (Option<&str>, Option<&str>) {
        openai::agent_and_model(&self.model)
    }

    /// Returns whether the stream ends with the usage.
    pub fn includes_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|options| options.include_usage)
    }

    /// Returns the conversation, and the native message for its new text. With `may_instruct`, system messages become
    /// instructions; otherwise they are part of the user's message. `waiting` are the calls that wait in the session, if
    /// it exists.
    ///
    /// # Errors
    /// `validation_failed` for what this server cannot do, and for malformed messages.
    pub fn read(
        self,
        may_instruct: bool,
        waiting: Option<&[Pending]>,
    ) -> Result<(Conversation, MessageBody), Problem> {
        if self.n.is_some_and(|n| n != 1) {
            return Err(Problem::field("/n", "this server returns one choice; expected 1"));
        }
        let may_call = may_call_tools(self.tool_choice.as_ref())?;
        let conversation = Conversation::read(self.messages, "/messages", waiting)?;
        let tools = self.tools.into_iter().filter(|_| may_call).map(|tool| tool.function.into());
        let message = MessageBody {
            client_tools: tools.collect(),
            max_output_tokens: self.max_completion_tokens.or(self.max_tokens),
            think: self.reasoning_effort.map(Effort::thinking),
            output_schema: self.response_format.and_then(ResponseFormat::schema),
            ..conversation.message(may_instruct)
        };
        Ok((conversation, message))
    }
}

impl ResponseFormat {
    fn schema(self) -> Option<Value> {
        match self {
            Self::Text => None,
            Self::JsonObject => Some(json!({"type": "object"})),
            Self::JsonSchema { json_schema } => json_schema.schema,
        }
    }
}
