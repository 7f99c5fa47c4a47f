//! The messages of a client: what is new in them.

use super::super::exchange::{CallResult, Given, New};
use super::super::task_id::TaskId;
use super::modes;
use super::push::PushConfig;
use crate::agent::host::suspensions::CallAnswer;
use crate::http::owner::session_id;
use crate::http::patch::or_default;
use crate::http::session::message::MessageBody;
use crate::session::artifacts::Content as Attachment;
use crate::types::{Pending, Problem, SessionId, WaitKind, json};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::Value;

/// The parameters of a request that sends a message.
#[derive(Deserialize)]
pub(super) struct SendParams {
    pub message: Message,
    #[serde(default)]
    pub configuration: Configuration,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Configuration {
    pub history_length: Option<usize>,
    pub return_immediately: bool,
    pub task_push_notification_config: Option<PushConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Message {
    message_id: String,
    /// The role is only checked: every message of a client is a message of its user.
    #[serde(rename = "role")]
    _role: Role,
    #[serde(default, deserialize_with = "or_default")]
    context_id: String,
    #[serde(default, deserialize_with = "or_default")]
    task_id: String,
    parts: Vec<Part>,
}

/// A role, by its name or by its number: ProtoJSON has both.
#[derive(Deserialize)]
#[serde(try_from = "Value")]
struct Role;

impl TryFrom<Value> for Role {
    type Error = &'static str;

    fn try_from(role: Value) -> Result<Self, Self::Error> {
        match (role.as_str(), role.as_u64()) {
            (Some("ROLE_USER" | "ROLE_AGENT"), _) | (_, Some(1 | 2)) => Ok(Self),
            _ => Err("expected \"ROLE_USER\" or \"ROLE_AGENT\""),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    text: Option<String>,
    raw: Option<String>,
    url: Option<String>,
    data: Option<Value>,
    #[serde(default, deserialize_with = "or_default")]
    filename: String,
    #[serde(default, deserialize_with = "or_default")]
    media_type: String,
}

/// A decision or an answer for a call that waits, as data.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallData {
    call_id: String,
    approved: Option<bool>,
    reason: Option<String>,
    answer: Option<Value>,
}

impl Message {
    /// Returns the task that the message continues.
    ///
    /// # Errors
    /// `not_found` for a malformed id.
    pub fn task(&self) -> Result<Option<TaskId>, Problem> {
        if self.task_id.is_empty() { Ok(None) } else { TaskId::parse(&self.task_id).map(Some) }
    }

    /// Returns the session: of the task, or of the context.
    ///
    /// # Errors
    /// `not_found` for a malformed id of a task, `validation_failed` for a context that is not that of the task.
    pub fn session(&self) -> Result<Option<SessionId>, Problem> {
        let named = match self.context_id.as_str() {
            "" => None,
            id => Some(session_id(id, "/params/message/contextId")?),
        };
        match (self.task()?.map(|task| task.session), named) {
            (Some(of_task), Some(named)) if of_task != named => {
                Err(Problem::field("/params/message/contextId", "not the context of the task"))
            }
            (of_task, named) => Ok(of_task.or(named)),
        }
    }

    /// Returns what is new: a message, or what the client says to the calls of a task that waits.
    ///
    /// # Errors
    /// `validation_failed` for an empty id or malformed parts, or if several calls wait and no part names one;
    /// `unsupported_media_type`.
    pub fn read(self, pending: Option<&[Pending]>) -> Result<(New, MessageBody), Problem> {
        if self.message_id.is_empty() {
            return Err(Problem::field("/params/message/messageId", "expected an id"));
        }
        if let Some(pending) = pending {
            return Ok((New::Results(self.results(pending)?), MessageBody::default()));
        }
        let mut files = Vec::new();
        for (index, part) in self.parts.iter().enumerate() {
            let at = format!("/params/message/parts/{index}");
            if part.url.is_some() {
                return Err(Problem::field(
                    at + "/url",
                    "the server fetches no files; send the bytes as `raw`",
                ));
            }
            if let Some(raw) = &part.raw {
                let bytes = STANDARD.decode(raw).ok().filter(|bytes| !bytes.is_empty());
                let bytes = bytes.ok_or_else(|| Problem::field(at + "/raw", "expected base64"))?;
                let name = Some(part.filename.clone()).filter(|name| !name.is_empty());
                let mime_type = match part.media_type.as_str() {
                    "" => modes::BYTES,
                    given => given,
                };
                modes::check(mime_type)?;
                let mime_type = mime_type.to_owned();
                files.push(Attachment { bytes: bytes.into(), mime_type, name });
            }
        }
        let body = MessageBody { content: Some(self.text()), ..MessageBody::default() };
        Ok((New::Message(files), body))
    }

    /// Returns the text; data is shown as JSON.
    fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match (&part.text, &part.data) {
            (Some(text), _) => Some(text.clone()),
            (None, Some(data)) => Some(data.to_string()),
            (None, None) => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    fn results(&self, pending: &[Pending]) -> Result<Vec<CallResult>, Problem> {
        let mut results = Vec::new();
        for (index, part) in self.parts.iter().enumerate() {
            let Some(data) = &part.data else { continue };
            let at = format!("/params/message/parts/{index}/data");
            let fault = || {
                let expected =
                    "expected {\"callId\": …, \"approved\": true or false} or {\"callId\": …, \"answer\": …}";
                Problem::field(at.clone(), expected)
            };
            let CallData { call_id, approved, reason, answer } =
                json::from_value(data.clone()).map_err(|_| fault())?;
            let given = match (approved, answer) {
                (Some(approved), None) => Given::Decision(approved, reason),
                (None, Some(answer)) => Given::Answer(CallAnswer::Answer(answer)),
                _ => return Err(fault()),
            };
            results.push(CallResult { id: call_id, given });
        }
        if !results.is_empty() {
            return Ok(results);
        }
        let at = "/params/message/parts";
        let [call] = pending else {
            return Err(Problem::field(at, "several calls wait: send a data part with `callId` for each"));
        };
        let text = self.text();
        let given = match call.kind {
            WaitKind::Approval => Given::Decision(
                approves(&text).ok_or_else(|| {
                    Problem::field(
                        at,
                        "expected \"yes\" or \"no\", or a data part with `callId` and `approved`",
                    )
                })?,
                None,
            ),
            WaitKind::Subagent => {
                return Err(Problem::field(
                    at,
                    "the call waits in the session of a subagent: decide it there",
                ));
            }
            WaitKind::Question | WaitKind::Plan | WaitKind::External | WaitKind::Auth => {
                Given::Answer(CallAnswer::Answer(Value::String(text)))
            }
        };
        Ok(vec![CallResult { id: call.call_id.to_string(), given }])
    }
}

/// Reads a decision in words.
fn approves(text: &str) -> Option<bool> {
    match text.trim().trim_end_matches(['.', '!']).to_lowercase().as_str() {
        "yes" | "y" | "ok" | "approve" | "approved" => Some(true),
        "no" | "n" | "decline" | "declined" | "reject" | "rejected" => Some(false),
        _ => None,
    }
}
