//! The request of the AI SDK's chat transport. Unknown fields, and parts of messages that only a page displays, are
//! ignored.

use super::super::children::ChildCall;
use super::super::exchange::{CallResult, Given, New, attachment, media_type};
use super::super::transcript::{TextOnlyFile, Transcript, with_lines};
use crate::agent::{external_tool::Declared, host::suspensions::CallAnswer};
use crate::http::session::message::MessageBody;
use crate::types::{CallId, Problem};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChatRequest {
    /// The session.
    pub id: String,
    #[serde(default)]
    messages: Vec<UiMessage>,
    message: Option<UiMessage>,
    pub agent: Option<String>,
    pub user: Option<String>,
    #[serde(default)]
    client_tools: Vec<Declared>,
}

#[derive(Deserialize)]
struct UiMessage {
    role: UiRole,
    #[serde(default)]
    parts: Vec<UiPart>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum UiRole {
    System,
    User,
    Assistant,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UiPart {
    r#type: String,
    #[serde(default)]
    text: String,
    url: Option<String>,
    filename: Option<String>,
    media_type: Option<String>,
    tool_call_id: Option<String>,
    tool_name: Option<String>,
    state: Option<String>,
    #[serde(default)]
    input: Value,
    #[serde(default)]
    output: Value,
    error_text: Option<String>,
    approval: Option<UiApproval>,
}

#[derive(Deserialize)]
struct UiApproval {
    approved: Option<bool>,
    reason: Option<String>,
}

/// What a request asks for.
pub(super) struct Asked {
    pub transcript: Transcript,
    pub new: New,
    pub message: MessageBody,
    /// The calls of subagents that the page has decided, and whether they may run. The log does not have their outcomes.
    pub decided: Vec<(CallId, bool)>,
}

impl ChatRequest {
    /// Returns the names of the tools that the client brings.
    pub fn client_tools(&self) -> Vec<String> {
        self.client_tools.iter().map(|tool| tool.name.clone()).collect()
    }

    /// Returns what is new in the request: the last message of the user, or what the last message of the assistant says
    /// to calls for which `waits` is true.
    ///
    /// # Errors
    /// `validation_failed` for a request without a message.
    pub fn read(self, waits: impl Fn(&CallId) -> bool) -> Result<Asked, Problem> {
        let mut messages = self.messages;
        messages.extend(self.message);
        let at = format!("/messages/{}", messages.len().saturating_sub(1));
        let Some(last) = messages.pop() else {
            return Err(Problem::field("/messages", "expected a message"));
        };
        let decided = last.decided_calls_of_subagents();
        let (new, message) = match last.role {
            UiRole::User => {
                let body = MessageBody {
                    content: Some(last.text()),
                    client_tools: self.client_tools,
                    ..MessageBody::default()
                };
                (New::Message(last.files(&at)?), body)
            }
            UiRole::Assistant => (New::Results(last.results(waits)), MessageBody::default()),
            UiRole::System => {
                return Err(Problem::field(at, "the last message must be of the user or the assistant"));
            }
        };
        Ok(Asked { transcript: transcript(messages), new, message, decided })
    }
}

impl UiMessage {
    fn text(&self) -> String {
        let texts = self.parts.iter().filter(|part| part.r#type == "text").map(|part| part.text.as_str());
        texts.collect::<Vec<_>>().join("\n")
    }

    /// Returns the text, with a line for each file.
    fn text_with_files(&self) -> String {
        let files = self.parts.iter().filter(|part| part.r#type == "file").map(|part| {
            let named = part.media_type.as_deref();
            let mime_type = named.or_else(|| media_type(part.url.as_deref()?));
            TextOnlyFile { name: part.filename.as_deref(), mime_type }
        });
        with_lines(self.text(), files)
    }

    fn files(&self, at: &str) -> Result<Vec<crate::session::artifacts::Content>, Problem> {
        let files = self.parts.iter().enumerate().filter(|(_, part)| part.r#type == "file");
        let files = files.map(|(index, part)| {
            let fault =
                || Problem::field(format!("{at}/parts/{index}/url"), "expected a data URL with base64");
            part.url.as_deref().and_then(|url| attachment(url, part.filename.clone())).ok_or_else(fault)
        });
        files.collect()
    }

    fn calls(&self) -> impl Iterator<Item = (&UiPart, &str)> {
        let is_tool = |part: &&UiPart| part.r#type == "dynamic-tool" || part.r#type.starts_with("tool-");
        self.parts.iter().filter(is_tool).filter_map(|part| Some((part, part.tool_call_id.as_deref()?)))
    }

    fn decided_calls_of_subagents(&self) -> Vec<(CallId, bool)> {
        let responded = self.calls().filter(|(part, _)| part.state.as_deref() == Some("approval-responded"));
        let of_children = responded.filter(|(_, id)| ChildCall::parse(id).is_some());
        of_children.filter_map(|(part, id)| Some((id.into(), part.approval.as_ref()?.approved?))).collect()
    }

    fn results(&self, waits: impl Fn(&CallId) -> bool) -> Vec<CallResult> {
        let waiting = self.calls().filter(|(_, id)| waits(&CallId::from(*id)));
        let results = waiting.filter_map(|(part, id)| {
            let given = match (part.state.as_deref()?, &part.approval) {
                ("approval-responded", Some(approval)) => Given::Decision(
                    approval.approved?,
                    approval.reason.clone().filter(|text| !text.is_empty()),
                ),
                ("output-available", _) => Given::Answer(CallAnswer::Answer(part.output.clone())),
                ("output-error", _) => {
                    Given::Answer(CallAnswer::Failure(part.error_text.clone().unwrap_or_default()))
                }
                _ => return None,
            };
            Some(CallResult { id: id.to_owned(), given })
        });
        results.collect()
    }
}

fn transcript(messages: Vec<UiMessage>) -> Transcript {
    let mut transcript = Transcript::default();
    for message in messages {
        match message.role {
            UiRole::User => transcript.user(&message.text_with_files()),
            // A page must not instruct the agent.
            UiRole::System => {}
            UiRole::Assistant => {
                transcript.assistant(message.text_with_files());
                for (part, id) in message.calls() {
                    let name = part.tool_name.as_deref().or_else(|| part.r#type.strip_prefix("tool-"));
                    transcript.call(id.to_owned(), name.unwrap_or_default().to_owned(), part.input.clone());
                    if !part.output.is_null() {
                        let text =
                            part.output.as_str().map_or_else(|| part.output.to_string(), str::to_owned);
                        transcript.result(id, text);
                    }
                }
            }
        }
    }
    transcript
}
