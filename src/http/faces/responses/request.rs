//! The request of Responses, and the native message that it becomes. Unknown fields are ignored.

use super::super::openai::{
    Function,
    messages::{
        ChatMessage, ChatRole, Content, Conversation, Effort, PastCall, PastFunction, may_call_tools,
    },
    session_of_call,
};
use super::echo::{Reasoning, TextOptions, defaults, whole_tool};
use super::id::ResponseId;
use crate::agent::external_tool::Declared;
use crate::http::owner::session_id;
use crate::http::patch::or_default;
use crate::http::session::message::MessageBody;
use crate::types::{FieldError, Pending, Problem, SessionId, json::from_value};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
pub(super) struct ResponseRequest {
    pub model: String,
    input: Input,
    pub instructions: Option<String>,
    pub previous_response_id: Option<String>,
    conversation: Option<ConversationName>,
    store: Option<bool>,
    #[serde(default, deserialize_with = "or_default")]
    pub stream: bool,
    background: Option<bool>,
    #[serde(default, deserialize_with = "or_default")]
    tools: Vec<Value>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    text: Option<TextOptions>,
    reasoning: Option<Reasoning>,
    max_output_tokens: Option<u32>,
    metadata: Option<Map<String, Value>>,
    pub user: Option<String>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    truncation: Option<String>,
    safety_identifier: Option<String>,
    prompt_cache_key: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Items(Vec<Value>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ConversationName {
    Id(String),
    Object { id: String },
}

/// An item that is not a message.
#[derive(Deserialize)]
struct Item {
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
    output: Option<Content>,
    approval_request_id: Option<String>,
    approve: Option<bool>,
    reason: Option<String>,
}

impl ResponseRequest {
    /// Returns the session that the request names, by the conversation or by the response before.
    ///
    /// # Errors
    /// `validation_failed` for both, and for an invalid name; `not_found` for a malformed id of a response.
    pub fn session(&self) -> Result<Option<SessionId>, Problem> {
        let name = self.conversation.as_ref().map(|name| match name {
            ConversationName::Id(id) | ConversationName::Object { id } => id.as_str(),
        });
        match (name, &self.previous_response_id) {
            (Some(_), Some(_)) => {
                let detail = "send either `conversation` or `previous_response_id`";
                Err(Problem::field("/previous_response_id", detail))
            }
            (Some(id), None) => session_id(id, "/conversation").map(Some),
            (None, Some(id)) => ResponseId::parse(id).map(|id| Some(id.session)),
            (None, None) => Ok(None),
        }
    }

    /// Returns the session whose id ends the id of the last call that the request answers.
    pub fn waiting_session(&self) -> Option<SessionId> {
        let Input::Items(items) = &self.input else { return None };
        let last = items.last()?;
        let id = last.get("call_id").or_else(|| last.get("approval_request_id"))?.as_str()?;
        session_of_call(id)
    }

    /// Returns whether the response can be read later.
    pub fn is_stored(&self) -> bool {
        self.store.unwrap_or(true)
    }

    /// Checks that a response in the background can be read later.
    ///
    /// # Errors
    /// `validation_failed` if it is not stored.
    pub fn check_storage(&self) -> Result<(), Problem> {
        if self.is_background() && !self.is_stored() {
            let detail = "a response in the background is read later; leave out `store: false`";
            return Err(Problem::field("/background", detail));
        }
        Ok(())
    }

    /// Returns whether the request does not wait for the response.
    pub fn is_background(&self) -> bool {
        self.background.unwrap_or(false)
    }

    /// Returns the fields of the response that repeat the request.
    pub fn echo(&self) -> Value {
        let mut fields = defaults(&self.model);
        fields["instructions"] = json!(self.instructions);
        fields["previous_response_id"] = json!(self.previous_response_id);
        fields["store"] = self.is_stored().into();
        fields["background"] = self.is_background().into();
        fields["tools"] = self.tools.iter().cloned().map(whole_tool).collect();
        fields["max_output_tokens"] = json!(self.max_output_tokens);
        let given = [
            ("tool_choice", self.tool_choice.clone()),
            ("parallel_tool_calls", self.parallel_tool_calls.map(Value::from)),
            ("text", self.text.as_ref().map(TextOptions::echo)),
            ("reasoning", self.reasoning.as_ref().map(|reasoning| json!(reasoning))),
            ("metadata", self.metadata.clone().map(Value::from)),
            ("user", self.user.clone().map(Value::from)),
            ("temperature", self.temperature.map(Value::from)),
            ("top_p", self.top_p.map(Value::from)),
            ("truncation", self.truncation.clone().map(Value::from)),
            ("safety_identifier", self.safety_identifier.clone().map(Value::from)),
            ("prompt_cache_key", self.prompt_cache_key.clone().map(Value::from)),
        ];
        for (name, value) in given {
            if let Some(value) = value.filter(|value| !value.is_null()) {
                fields[name] = value;
            }
        }
        fields
    }

    /// Returns the conversation, and the native message for its new text. With `may_instruct`, the instructions are
    /// those of the turn; otherwise they are part of the user's message. `waiting` are the calls that wait in the session,
    /// if it exists.
    ///
    /// # Errors
    /// `validation_failed` for what this server cannot do, and for malformed items.
    pub fn read(
        self,
        may_instruct: bool,
        waiting: Option<&[Pending]>,
    ) -> Result<(Conversation, MessageBody), Problem> {
        let may_call = may_call_tools(self.tool_choice.as_ref())?;
        let mut messages = match self.input {
            Input::Text(text) => vec![message(ChatRole::User, Some(Content::Text(text)))],
            Input::Items(items) => read_items(items)?,
        };
        if let Some(instructions) = self.instructions {
            messages.insert(0, message(ChatRole::System, Some(Content::Text(instructions))));
        }
        let conversation = Conversation::read(messages, "/input", waiting)?;
        let tools = self.tools.into_iter().enumerate().map(|(index, tool)| function(index, tool));
        let tools = tools.collect::<Result<Vec<_>, _>>()?;
        let message = MessageBody {
            client_tools: if may_call { tools } else { Vec::new() },
            max_output_tokens: self.max_output_tokens,
            think: self.reasoning.and_then(|reasoning| reasoning.effort).map(Effort::thinking),
            output_schema: self.text.and_then(TextOptions::schema),
            ..conversation.message(may_instruct)
        };
        Ok((conversation, message))
    }
}

fn message(role: ChatRole, content: Option<Content>) -> ChatMessage {
    ChatMessage { role, content, tool_calls: None, tool_call_id: None, approves: None }
}

/// Reads the items of an input as messages.
fn read_items(items: Vec<Value>) -> Result<Vec<ChatMessage>, Problem> {
    let mut messages: Vec<ChatMessage> = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        let at = format!("/input/{index}");
        let fault = |error: FieldError| Problem::fields(vec![error.below(&at)]);
        let missing = |name: &str| Problem::field(format!("{at}/{name}"), "missing");
        let kind = item.get("type").and_then(Value::as_str).unwrap_or("message").to_owned();
        match kind.as_str() {
            "message" => messages.push(from_value(item).map_err(fault)?),
            "function_call" => {
                let Item { call_id, name, arguments, .. } = from_value(item).map_err(fault)?;
                let call = PastCall {
                    id: call_id.ok_or_else(|| missing("call_id"))?,
                    function: PastFunction {
                        name: name.ok_or_else(|| missing("name"))?,
                        arguments: arguments.unwrap_or_default(),
                    },
                };
                match messages.last_mut().filter(|last| last.role == ChatRole::Assistant) {
                    Some(last) => last.tool_calls.get_or_insert_default().push(call),
                    None => {
                        let last = message(ChatRole::Assistant, None);
                        messages.push(ChatMessage { tool_calls: Some(vec![call]), ..last });
                    }
                }
            }
            "function_call_output" => {
                let Item { call_id, output, .. } = from_value(item).map_err(fault)?;
                let result = message(ChatRole::Tool, output);
                let tool_call_id = Some(call_id.ok_or_else(|| missing("call_id"))?);
                messages.push(ChatMessage { tool_call_id, ..result });
            }
            "mcp_approval_response" => {
                let Item { approval_request_id, approve, reason, .. } = from_value(item).map_err(fault)?;
                let id = approval_request_id.ok_or_else(|| missing("approval_request_id"))?;
                let id = id.strip_prefix("mcpr_").unwrap_or(&id).to_owned();
                let approves = Some(approve.ok_or_else(|| missing("approve"))?);
                let decision = message(ChatRole::Tool, reason.map(Content::Text));
                messages.push(ChatMessage { tool_call_id: Some(id), approves, ..decision });
            }
            "item_reference" => {
                let detail = "this server stores conversations, not items; use `previous_response_id`";
                return Err(Problem::field(format!("{at}/type"), detail));
            }
            // Items of earlier responses that the client sends back.
            _ => {}
        }
    }
    Ok(messages)
}

fn function(index: usize, tool: Value) -> Result<Declared, Problem> {
    if tool.get("type").and_then(Value::as_str) != Some("function") {
        let detail = "expected `function`: the other tools of this server belong to its agents";
        return Err(Problem::field(format!("/tools/{index}/type"), detail));
    }
    let read = from_value::<Function>(tool);
    let fault = |error: FieldError| Problem::fields(vec![error.below(&format!("/tools/{index}"))]);
    read.map(Declared::from).map_err(fault)
}
