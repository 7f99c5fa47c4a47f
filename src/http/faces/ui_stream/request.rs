//! The request of the AI SDK's chat transport. Unknown fields, and parts of messages that only a page displays, are
//! ignored.

use super::super::children::ChildCall;
use super::super::exchange::{CallResult, Given, New, SEPARATE, attachment, media_type};
use super::super::transcript::{TextOnlyFile, Transcript, with_lines};
use crate::agent::{external_tool::Declared, host::suspensions::CallAnswer};
use crate::http::session::message::MessageBody;
use crate::types::{CallId, Problem, WaitKind};
use serde::Deserialize;
use serde_json::{Value, json};

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
    #[serde(default)]
    provider_executed: bool,
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
    /// The calls that the page has decided in the message.
    pub decided: Vec<Decided>,
    /// The chunks that mark what the page has answered as done.
    pub answered: Vec<Value>,
}

/// A call that the page has decided.
#[derive(Clone)]
pub(super) struct Decided {
    pub call_id: CallId,
    pub name: String,
    /// Whether the call may run; `None` if the request does not send the decision, because the call was decided before.
    approved: Option<bool>,
}

impl Decided {
    pub fn is_of_subagent(&self) -> bool {
        ChildCall::parse(&self.call_id).is_some()
    }

    /// Returns whether the call runs, as far as the request can tell.
    pub fn runs(&self) -> bool {
        self.approved != Some(false)
    }

    /// Returns the status that is sent as the output of the call; `None` for a declined call.
    pub fn status(&self) -> Option<&'static str> {
        match self.approved {
            Some(true) => Some("approved"),
            Some(false) => None,
            // Another client may have decided otherwise.
            None => Some("decided"),
        }
    }
}

impl ChatRequest {
    /// Returns the names of the tools that the client brings.
    pub fn client_tools(&self) -> Vec<String> {
        self.client_tools.iter().map(|tool| tool.name.clone()).collect()
    }

    /// Returns what is new in the request: the last message of the user, or the decisions and
    /// answers in the last message of the assistant to calls that wait. `waits` returns what a call waits for.
    ///
    /// # Errors
    /// `validation_failed` for a request without a message, and for a message of the user after results that were not
    /// sent.
    pub fn read(self, waits: impl Fn(&CallId) -> Option<WaitKind>) -> Result<Asked, Problem> {
        let mut messages = self.messages;
        messages.extend(self.message);
        let at = format!("/messages/{}", messages.len().saturating_sub(1));
        let Some(last) = messages.pop() else {
            return Err(Problem::field("/messages", "expected a message"));
        };
        let (mut decided, mut answered) = (Vec::new(), Vec::new());
        let (new, message) = match last.role {
            UiRole::User => {
                let before = messages.last().filter(|message| message.role == UiRole::Assistant);
                if before.is_some_and(|before| !before.results(waits).is_empty()) {
                    return Err(Problem::field(at, SEPARATE));
                }
                let body = MessageBody {
                    content: Some(last.text()),
                    client_tools: self.client_tools,
                    ..MessageBody::default()
                };
                (New::Message(last.files(&at)?), body)
            }
            UiRole::Assistant => {
                let results = last.results(waits);
                decided = last.decided(&results);
                answered = last.answered();
                (New::Results(results), MessageBody::default())
            }
            UiRole::System => {
                return Err(Problem::field(at, "the last message must be of the user or the assistant"));
            }
        };
        Ok(Asked { transcript: transcript(messages), new, message, decided, answered })
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

    fn answered(&self) -> Vec<Value> {
        let of_page = self.calls().filter(|(part, _)| !part.provider_executed);
        let chunks = of_page.filter_map(|(part, id)| {
            let mut chunk = json!({"toolCallId": id, "dynamic": true, "providerExecuted": true});
            match part.state.as_deref()? {
                "output-available" => {
                    chunk["type"] = "tool-output-available".into();
                    chunk["output"] = part.output.clone();
                }
                "output-error" => {
                    chunk["type"] = "tool-output-error".into();
                    chunk["errorText"] = part.error_text.as_deref().unwrap_or_default().into();
                }
                _ => return None,
            }
            Some(chunk)
        });
        chunks.collect()
    }

    fn decided(&self, sent: &[CallResult]) -> Vec<Decided> {
        let responded = self.calls().filter(|(part, _)| part.state.as_deref() == Some("approval-responded"));
        let decided = responded.map(|(part, id)| {
            let approved = sent.iter().find_map(|own| match own.given {
                Given::Decision(approved, _) if own.id == id => Some(approved),
                _ => None,
            });
            Decided { call_id: id.into(), name: part.name().to_owned(), approved }
        });
        decided.collect()
    }

    fn results(&self, waits: impl Fn(&CallId) -> Option<WaitKind>) -> Vec<CallResult> {
        let waiting = self.calls().filter_map(|(part, id)| Some((part, id, waits(&id.into())?)));
        let results = waiting.filter_map(|(part, id, kind)| {
            let given = match (part.state.as_deref()?, &part.approval) {
                // A call may wait for an approval and then for an answer. The page can still have the approval when the call
                // waits for the answer.
                ("approval-responded", Some(approval)) if kind == WaitKind::Approval => Given::Decision(
                    approval.approved?,
                    approval.reason.clone().filter(|text| !text.is_empty()),
                ),
                _ if kind == WaitKind::Approval => return None,
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

impl UiPart {
    /// Returns the name of the tool of a call.
    fn name(&self) -> &str {
        self.tool_name.as_deref().or_else(|| self.r#type.strip_prefix("tool-")).unwrap_or_default()
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
                // The agent has not made the calls of its subagents.
                let own = message.calls().filter(|(_, id)| ChildCall::parse(id).is_none());
                for (part, id) in own {
                    transcript.call(id.to_owned(), part.name().to_owned(), part.input.clone());
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
