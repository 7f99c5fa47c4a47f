//! The input of an AG-UI run. Unknown fields are ignored.

use super::super::exchange::{CallResult, Given, New, SEPARATE, attachment};
use super::super::transcript::{TextOnlyFile, Transcript, with_lines};
use crate::agent::{external_tool::Declared, host::suspensions::CallAnswer};
use crate::http::session::message::MessageBody;
use crate::types::{CallId, Category, Effect, NO_ANSWER, Pending, Problem, WaitKind};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunInput {
    /// The session.
    pub thread_id: String,
    pub run_id: String,
    messages: Vec<Message>,
    #[serde(default)]
    tools: Vec<Tool>,
    #[serde(default)]
    context: Vec<Context>,
    forwarded_props: Option<ForwardedProps>,
    #[serde(default)]
    resume: Vec<Resume>,
}

#[derive(Deserialize)]
struct ForwardedProps {
    agent: Option<String>,
    user: Option<String>,
}

#[derive(Deserialize)]
struct Tool {
    name: String,
    description: Option<String>,
    parameters: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct Context {
    description: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resume {
    interrupt_id: String,
    status: ResumeStatus,
    #[serde(default)]
    payload: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ResumeStatus {
    Resolved,
    Cancelled,
}

#[derive(Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum Message {
    User {
        content: Content,
    },
    #[serde(rename_all = "camelCase")]
    Assistant {
        #[serde(default)]
        content: Option<String>,
        #[serde(default)]
        tool_calls: Vec<ToolCall>,
    },
    #[serde(rename_all = "camelCase")]
    Tool {
        content: Content,
        tool_call_id: String,
        error: Option<String>,
    },
    Developer {
        content: String,
    },
    System {
        content: String,
    },
    /// Only displayed.
    #[serde(alias = "reasoning")]
    Activity {},
}

#[derive(Deserialize)]
struct ToolCall {
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    arguments: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContentPart {
    r#type: String,
    #[serde(default)]
    text: String,
    source: Option<Source>,
    filename: Option<String>,
    mime_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Source {
    r#type: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    mime_type: String,
}

/// What a run asks for.
pub(super) struct Asked {
    pub transcript: Transcript,
    /// What is new; `None` if the client only wants to follow the run.
    pub new: Option<New>,
    pub message: MessageBody,
    /// The calls whose results the client has in its messages.
    pub answered: Vec<CallId>,
}

impl RunInput {
    /// Returns the agent that the input names.
    pub fn agent(&self) -> Option<String> {
        self.forwarded_props.as_ref()?.agent.clone()
    }

    /// Returns the user that the input names.
    pub fn user(&self) -> Option<String> {
        self.forwarded_props.as_ref()?.user.clone()
    }

    /// Returns what is new. With `may_instruct`, the context and the system messages become instructions; otherwise they
    /// are part of the user's message.
    ///
    /// # Errors
    /// `validation_failed` for malformed messages, for a message of the user next to results, and for entries of `resume`
    /// that decide nothing.
    pub fn read(self, may_instruct: bool, pending: &[Pending]) -> Result<Asked, Problem> {
        let mut results = Vec::new();
        for (index, entry) in self.resume.into_iter().enumerate() {
            let id = entry.interrupt_id.clone();
            let waiting = pending.iter().find(|call| *call.call_id == *id);
            // A call that does not wait any more was decided by the same request before, or there is no such call.
            let kind = waiting.map_or_else(|| entry.probable_kind(), |call| call.kind);
            let given = entry.given(kind, &format!("/resume/{index}/payload"))?;
            results.push(CallResult { id, given });
        }
        let mut background: Vec<_> = self
            .context
            .iter()
            .map(|context| format!("{}: {}", context.description, context.value))
            .collect();
        let mut messages = Vec::with_capacity(self.messages.len());
        for (index, message) in self.messages.into_iter().enumerate() {
            match message {
                Message::Developer { content } | Message::System { content } => background.push(content),
                Message::Activity {} => {}
                message => messages.push((index, message)),
            }
        }
        let of_assistant = |(_, message): &(usize, Message)| matches!(message, Message::Assistant { .. });
        let newest = messages.iter().rposition(of_assistant).map_or(0, |index| index + 1);
        let mut answered = Vec::new();
        for (_, message) in &messages[newest..] {
            if let Message::Tool { content, tool_call_id, error } = message
                && let Some(call) = pending.iter().find(|call| *call.call_id == **tool_call_id)
            {
                let answer = match error {
                    Some(error) => CallAnswer::Failure(error.clone()),
                    None => CallAnswer::Answer(Value::String(content.text_with_files())),
                };
                answered.push(call.call_id.clone());
                results.push(CallResult { id: tool_call_id.clone(), given: Given::Answer(answer) });
            }
        }
        let is_user = |(_, message): &&(usize, Message)| matches!(message, Message::User { .. });
        if let Some((index, _)) = messages[newest..].iter().find(is_user)
            && !results.is_empty()
        {
            return Err(Problem::field(format!("/messages/{index}"), SEPARATE));
        }
        let tools = self.tools.into_iter().map(|tool| Declared {
            name: tool.name,
            description: tool.description.unwrap_or_default(),
            parameters: tool.parameters.unwrap_or_default(),
            category: Category::default(),
            effect: Effect::default(),
            idempotent: false,
        });
        let mut body = MessageBody { client_tools: tools.collect(), ..MessageBody::default() };
        let new = if results.is_empty() {
            let count = messages.iter().rev().take_while(is_user).count();
            let (mut texts, mut files) = (Vec::new(), Vec::new());
            for (index, message) in messages.split_off(messages.len() - count) {
                if let Message::User { content } = message {
                    texts.push(content.text());
                    files.extend(content.files(&format!("/messages/{index}/content"))?);
                }
            }
            let background = Some(background.join("\n\n")).filter(|text| !text.is_empty());
            if may_instruct {
                body.instructions = background;
            } else {
                texts.splice(0..0, background);
            }
            body.content = Some(texts.join("\n\n"));
            (count > 0).then_some(New::Message(files))
        } else {
            Some(New::Results(results))
        };
        Ok(Asked { transcript: transcript(messages), new, message: body, answered })
    }
}

impl Resume {
    /// Returns what a call with this answer has waited for.
    fn probable_kind(&self) -> WaitKind {
        let is_decision = self.payload.is_boolean() || self.payload["approved"].is_boolean();
        if is_decision { WaitKind::Approval } else { WaitKind::Question }
    }

    fn given(self, kind: WaitKind, at: &str) -> Result<Given, Problem> {
        let is_canceled = matches!(self.status, ResumeStatus::Cancelled);
        if kind != WaitKind::Approval {
            let answer = match (is_canceled, kind) {
                (false, _) => self.payload,
                (true, WaitKind::Plan) => json!({"action": "rejected"}),
                (true, WaitKind::Auth) => json!({"action": "cancel"}),
                (true, _) => Value::from(NO_ANSWER),
            };
            return Ok(Given::Answer(CallAnswer::Answer(answer)));
        }
        let reason = self.payload.get("reason").and_then(Value::as_str).map(str::to_owned);
        let approved =
            self.payload.as_bool().or_else(|| self.payload.get("approved").and_then(Value::as_bool));
        match (is_canceled, approved) {
            (true, _) => Ok(Given::Decision(false, reason)),
            (false, Some(approved)) => Ok(Given::Decision(approved, reason)),
            (false, None) => {
                Err(Problem::field(at, "expected {\"approved\": true} or {\"approved\": false}"))
            }
        }
    }
}

impl Content {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => {
                let texts = parts.iter().filter(|part| part.r#type == "text").map(|part| part.text.as_str());
                texts.collect::<Vec<_>>().join("\n")
            }
        }
    }

    /// Returns the text, with a line for each file.
    fn text_with_files(&self) -> String {
        let parts = match self {
            Self::Parts(parts) => parts.as_slice(),
            Self::Text(_) => &[],
        };
        let files = parts.iter().filter(|part| part.r#type != "text").map(|part| {
            let of_source = part.source.as_ref().map(|source| source.mime_type.as_str());
            let named = of_source.or(part.mime_type.as_deref()).filter(|kind| !kind.is_empty());
            TextOnlyFile { name: part.filename.as_deref(), mime_type: named.or(Some(&part.r#type)) }
        });
        with_lines(self.text(), files)
    }

    fn files(&self, at: &str) -> Result<Vec<crate::session::artifacts::Content>, Problem> {
        let Self::Parts(parts) = self else { return Ok(Vec::new()) };
        let files = parts.iter().enumerate().filter(|(_, part)| part.r#type != "text");
        let files = files.map(|(index, part)| {
            let source = part.source.as_ref().filter(|source| source.r#type == "data");
            let url = source.map(|source| format!("data:{};base64,{}", source.mime_type, source.value));
            let fault = || Problem::field(format!("{at}/{index}/source"), "expected data with base64");
            url.and_then(|url| attachment(&url, None)).ok_or_else(fault)
        });
        files.collect()
    }
}

fn transcript(messages: Vec<(usize, Message)>) -> Transcript {
    let mut transcript = Transcript::default();
    for (_, message) in messages {
        match message {
            Message::User { content } => transcript.user(&content.text_with_files()),
            Message::Assistant { content, tool_calls } => {
                transcript.assistant(content.unwrap_or_default());
                for ToolCall { id, function } in tool_calls {
                    transcript.call_with_text(id, function.name, function.arguments);
                }
            }
            Message::Tool { content, tool_call_id, .. } => {
                transcript.result(&tool_call_id, content.text_with_files());
            }
            Message::Developer { .. } | Message::System { .. } | Message::Activity {} => {}
        }
    }
    transcript
}
