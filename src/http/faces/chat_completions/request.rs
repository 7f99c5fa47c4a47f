//! The request of Chat Completions, and the native message that it stands for. Unknown fields are ignored.

use super::super::{openai, transcript::Transcript};
use crate::agent::external_tool::Declared;
use crate::http::session::message::MessageBody;
use crate::session::artifacts::Content as Attachment;
use crate::types::{Problem, Thinking};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
pub(super) struct ChatRequest {
    pub model: String,
    messages: Vec<ChatMessage>,
    pub user: Option<String>,
    metadata: Option<Metadata>,
    #[serde(default)]
    pub stream: bool,
    stream_options: Option<StreamOptions>,
    #[serde(default)]
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
pub(super) struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Deserialize)]
struct ToolDeclaration {
    function: Declared,
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

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
}

#[derive(Clone, Deserialize)]
struct ChatMessage {
    role: ChatRole,
    content: Option<Content>,
    #[serde(default)]
    tool_calls: Option<Vec<PastCall>>,
    tool_call_id: Option<String>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum ChatRole {
    System,
    Developer,
    User,
    Assistant,
    Tool,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Clone, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentPart {
    Text { text: String },
    Refusal { refusal: String },
    ImageUrl { image_url: ImageUrl },
    File { file: FilePart },
}

#[derive(Clone, Deserialize)]
struct ImageUrl {
    url: String,
}

#[derive(Clone, Deserialize)]
struct FilePart {
    file_data: Option<String>,
    filename: Option<String>,
}

#[derive(Clone, Deserialize)]
struct PastCall {
    id: String,
    function: PastFunction,
}

#[derive(Clone, Deserialize)]
struct PastFunction {
    name: String,
    arguments: String,
}

/// What a request asks for.
pub(super) enum Next {
    /// A turn for this message, with these files.
    Message(Box<MessageBody>, Vec<Attachment>),
    /// These results of the client's tools, by the id of the call.
    Results(Vec<(String, String)>),
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

    /// Returns whether the stream ends with the usage.
    pub fn includes_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|options| options.include_usage)
    }

    /// Splits the messages into the earlier conversation and what is new. With `may_instruct`, system messages become
    /// instructions; otherwise they are part of the user's message.
    ///
    /// # Errors
    /// `validation_failed` for what this server cannot do, and for malformed messages.
    pub fn read(self, may_instruct: bool) -> Result<(Transcript, Next), Problem> {
        if self.n.is_some_and(|n| n != 1) {
            return Err(Problem::field("/n", "this server returns one choice; expected 1"));
        }
        let uses_tools = match &self.tool_choice {
            None => true,
            Some(Value::String(choice)) if choice == "auto" => true,
            Some(Value::String(choice)) if choice == "none" => false,
            Some(_) => return Err(Problem::field("/tool_choice", "expected \"auto\" or \"none\"")),
        };
        let is_system =
            |message: &ChatMessage| matches!(message.role, ChatRole::System | ChatRole::Developer);
        let mut instructions = Vec::new();
        let mut messages = Vec::new();
        for (index, message) in self.messages.into_iter().enumerate() {
            match is_system(&message) {
                true => instructions.push(message.text()),
                false => messages.push((index, message)),
            }
        }
        let instructions = instructions.join("\n\n");
        let is_new = |role: ChatRole| move |(_, message): &&(usize, ChatMessage)| message.role == role;
        let results = messages.iter().rev().take_while(is_new(ChatRole::Tool)).count();
        if results > 0 {
            let results = messages.split_off(messages.len() - results).into_iter();
            let results = results.map(|(index, message)| match &message.tool_call_id {
                Some(id) => Ok((id.clone(), message.text())),
                None => Err(Problem::field(format!("/messages/{index}/tool_call_id"), "missing")),
            });
            return Ok((Transcript::default(), Next::Results(results.collect::<Result<_, _>>()?)));
        }
        let new = messages.iter().rev().take_while(is_new(ChatRole::User)).count();
        if new == 0 {
            return Err(Problem::field("/messages", "the last message must be of role `user` or `tool`"));
        }
        let new = messages.split_off(messages.len() - new);
        let (mut text, mut files) = (Vec::new(), Vec::new());
        if !may_instruct && !instructions.is_empty() {
            text.push(instructions.clone());
        }
        for (index, message) in &new {
            text.push(message.text());
            files.extend(message.files(*index)?);
        }
        let body = MessageBody {
            content: Some(text.join("\n\n")),
            client_tools: self.tools.into_iter().filter(|_| uses_tools).map(|tool| tool.function).collect(),
            instructions: may_instruct.then_some(instructions).filter(|text| !text.is_empty()),
            max_output_tokens: self.max_completion_tokens.or(self.max_tokens),
            think: self.reasoning_effort.map(Effort::thinking),
            output_schema: self.response_format.and_then(ResponseFormat::schema),
            ..MessageBody::default()
        };
        Ok((transcript(messages), Next::Message(Box::new(body), files)))
    }

    /// Returns the agent and the model that the request names.
    pub fn agent_and_model(&self) -> (Option<&str>, Option<&str>) {
        openai::agent_and_model(&self.model)
    }
}

fn transcript(messages: Vec<(usize, ChatMessage)>) -> Transcript {
    let mut transcript = Transcript::default();
    for (_, message) in messages {
        let text = message.text();
        match message.role {
            ChatRole::Assistant => {
                transcript.assistant(text);
                for PastCall { id, function: PastFunction { name, arguments } } in
                    message.tool_calls.into_iter().flatten()
                {
                    // A model may have written arguments that are not JSON.
                    let args =
                        serde_json::from_str(&arguments).unwrap_or_else(|_| json!({"_raw": arguments}));
                    transcript.call(id, name, args);
                }
            }
            ChatRole::Tool => transcript.result(message.tool_call_id.as_deref().unwrap_or_default(), text),
            ChatRole::User | ChatRole::System | ChatRole::Developer => transcript.user(&text),
        }
    }
    transcript
}

impl ChatMessage {
    fn text(&self) -> String {
        match &self.content {
            None => String::new(),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                let texts = parts.iter().filter_map(|part| match part {
                    ContentPart::Text { text } | ContentPart::Refusal { refusal: text } => {
                        Some(text.as_str())
                    }
                    ContentPart::ImageUrl { .. } | ContentPart::File { .. } => None,
                });
                texts.collect::<Vec<_>>().join("\n")
            }
        }
    }

    /// Returns the files of message number `index`.
    fn files(&self, index: usize) -> Result<Vec<Attachment>, Problem> {
        let Some(Content::Parts(parts)) = &self.content else { return Ok(Vec::new()) };
        let files = parts.iter().enumerate().filter_map(|(part, content)| {
            let (url, name) = match content {
                ContentPart::Text { .. } | ContentPart::Refusal { .. } => return None,
                ContentPart::ImageUrl { image_url } => (Some(image_url.url.as_str()), None),
                ContentPart::File { file } => (file.file_data.as_deref(), file.filename.clone()),
            };
            let fault = || {
                Problem::field(format!("/messages/{index}/content/{part}"), "expected a data URL with base64")
            };
            Some(url.and_then(|url| attachment(url, name)).ok_or_else(fault))
        });
        files.collect()
    }
}

/// Decodes a data URL (RFC 2397) with base64.
fn attachment(url: &str, name: Option<String>) -> Option<Attachment> {
    let (kind, data) = url.strip_prefix("data:")?.split_once(',')?;
    let mime_type = kind.strip_suffix(";base64")?;
    let bytes = STANDARD.decode(data).ok().filter(|bytes| !bytes.is_empty())?;
    Some(Attachment { bytes: bytes.into(), mime_type: mime_type.to_owned(), name })
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

impl Effort {
    fn thinking(self) -> Thinking {
        match self {
            Self::None | Self::Minimal => Thinking::Off,
            Self::Low => Thinking::Low,
            Self::Medium => Thinking::Medium,
            Self::High | Self::Xhigh => Thinking::High,
        }
    }
}
