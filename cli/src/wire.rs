//! What the server sends: sessions, calls that wait, and events. Unknown fields are ignored, and events of unknown
//! types or forms are [`Event::Other`], so that a newer server never breaks this client.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A session.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Session {
    /// The session's id.
    pub id: String,
    /// Its agent.
    pub agent: String,
    /// Its title.
    pub title: Option<String>,
    /// `idle`, `running` or `waiting`.
    pub status: String,
    /// Its mode.
    pub mode: Option<String>,
    /// Its model, if one was chosen.
    pub model: Option<String>,
    /// The turn that runs or waits.
    pub current_turn: Option<String>,
    /// The calls that wait.
    pub pending: Vec<Pending>,
    /// The messages in the queue.
    pub queue: Vec<Queued>,
    /// Number of the last record in its log.
    pub last_seq: u64,
}

/// A message in the queue.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Queued {
    /// The turn of the message.
    pub turn: String,
}

/// A call that waits for a decision or an answer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Pending {
    /// The call's id.
    pub call_id: String,
    /// `approval`, `question`, `plan`, `external` or `subagent`.
    pub kind: String,
    /// The tool.
    pub name: String,
    /// The tool's category in permission rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// The arguments.
    pub args: Value,
    /// Identifies the arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args_hash: Option<String>,
    /// What to show to the person or program that answers.
    pub payload: Value,
    /// `approver` if the decision needs the scope `approve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When the call is denied without a decision or an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The runner that works on the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
}

/// The work of a runner on a call.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Claim {
    /// The name of the runner.
    pub runner: String,
}

/// A call that waits, as the inbox lists it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct InboxCall {
    /// The session of the call.
    pub session: String,
    /// The step of the run that the call is for.
    pub step: Option<String>,
    /// Whether the arguments or the payload are not complete.
    pub truncated: bool,
    /// The call.
    #[serde(flatten)]
    pub call: Pending,
}

/// A change of the inbox.
#[derive(Clone, Debug)]
pub enum InboxEvent {
    /// All calls that wait follow.
    Reset,
    /// A call waits, or its claim has changed.
    Added(Value),
    /// A call no longer waits.
    Removed(Value),
}

impl InboxEvent {
    /// Reads an event; `None` for one of a newer server.
    pub fn parse(name: &str, data: &str) -> Option<Self> {
        let json = serde_json::from_str(data).ok()?;
        match name {
            "pending.reset" => Some(Self::Reset),
            "pending.added" => Some(Self::Added(json)),
            "pending.removed" => Some(Self::Removed(json)),
            _ => None,
        }
    }
}

/// A message of the conversation.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Message {
    /// The message's id.
    pub id: String,
    /// `user`, `assistant` or `tool`.
    pub role: String,
    /// Text, files, tool calls, results.
    pub parts: Vec<Part>,
    /// Whether the message was cut off.
    pub interrupted: bool,
}

impl Message {
    /// Returns the text of the message.
    pub fn text(&self) -> String {
        self.parts.iter().filter(|part| part.kind == "text").map(|part| part.text.as_str()).collect()
    }

    /// Returns the names of the attached files.
    pub fn files(&self) -> Vec<&str> {
        let files = self.parts.iter().filter(|part| part.kind == "file");
        files.map(|part| part.name.as_deref().unwrap_or("a file")).collect()
    }
}

/// A part of a message.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Part {
    /// `text`, `file`, `tool_call`, `tool_result`, `reasoning`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The text of a text part.
    pub text: String,
    /// The name of a file.
    pub name: Option<String>,
}

/// A task of the agent's list.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Task {
    /// What to do.
    pub content: String,
    /// `pending`, `in_progress` or `completed`.
    pub status: String,
}

/// How a turn failed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TurnError {
    /// Stable code.
    pub code: String,
    /// What is wrong.
    pub message: String,
}

/// The outcome of a tool call.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// The call's id.
    pub call_id: String,
    /// `result`, `artifact`, `timeout`, `failure`, `denied` or `unknown`.
    pub outcome: String,
    /// What the tool returned.
    pub result: Value,
    /// Why there is no result.
    pub reason: Option<String>,
    /// How long the call took, in milliseconds.
    pub elapsed_ms: u64,
}

/// The events that this client shows.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(tag = "type")]
#[allow(missing_docs, reason = "docs/events.md describes the fields")]
pub enum Event {
    #[serde(rename = "session.updated")]
    SessionUpdated { changed: Value },
    #[serde(rename = "mode.changed")]
    ModeChanged { mode: Option<String>, previous: Option<String> },
    #[serde(rename = "model.changed")]
    ModelChanged { model: Option<String> },
    #[serde(rename = "task.list_updated")]
    TasksUpdated { tasks: Vec<Task> },
    #[serde(rename = "turn.queued")]
    TurnQueued { position: usize },
    #[serde(rename = "turn.started")]
    TurnStarted { message: Message },
    #[serde(rename = "turn.resumed")]
    TurnResumed { reason: String },
    #[serde(rename = "turn.waiting")]
    TurnWaiting { pending: Vec<Pending> },
    #[serde(rename = "turn.completed")]
    TurnCompleted { stop_reason: String },
    #[serde(rename = "turn.failed")]
    TurnFailed { error: TurnError },
    #[serde(rename = "turn.canceled")]
    TurnCanceled {
        /// The message, if it left the queue and never started.
        message: Option<Message>,
    },
    #[serde(rename = "message.delta")]
    Text { id: String, delta: String },
    #[serde(rename = "reasoning.delta")]
    Reasoning { id: String, delta: String },
    #[serde(rename = "message.completed")]
    MessageCompleted { message: Message },
    #[serde(rename = "tool.started")]
    ToolStarted { call_id: String, name: String, args: Value },
    #[serde(rename = "tool.approval_required")]
    ApprovalRequired { call_id: String },
    #[serde(rename = "tool.suspended")]
    ToolSuspended { call_id: String },
    #[serde(rename = "approval.decided")]
    ApprovalDecided { call_id: String, decision: String, reason: Option<String> },
    #[serde(rename = "answer.given")]
    AnswerGiven { call_id: String, answer: Value },
    #[serde(rename = "tool.completed")]
    ToolCompleted(Outcome),
    #[serde(rename = "usage.updated")]
    UsageUpdated { step: Value },
    #[serde(rename = "compaction.completed")]
    CompactionCompleted {},
    #[serde(rename = "budget.exceeded")]
    BudgetExceeded { limit: String },
    /// Any other event.
    #[default]
    #[serde(other)]
    Other,
}

/// An event of a session's stream.
#[derive(Clone, Debug)]
pub struct Received {
    /// The turn that it belongs to.
    pub turn: Option<String>,
    /// What happened.
    pub event: Event,
    /// The event as the server sent it.
    pub json: Value,
}

impl Received {
    /// Parses the data of an event; `None` if it is not JSON.
    pub fn parse(data: &str) -> Option<Self> {
        let json: Value = serde_json::from_str(data).ok()?;
        let turn = json["turn"].as_str().map(str::to_owned);
        let event = Event::deserialize(&json).unwrap_or_default();
        Some(Self { turn, event, json })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(data: Value) -> Event {
        Received::parse(&data.to_string()).unwrap().event
    }

    #[test]
    fn events_of_newer_servers_are_kept() {
        assert_eq!(parse(json!({"type": "turn.teleported", "to": 7})), Event::Other);
        assert_eq!(parse(json!({"type": "message.delta", "delta": 7})), Event::Other);
        let text = json!({"type": "message.delta", "id": "msg_1", "delta": "hi", "color": "red"});
        assert_eq!(parse(text), Event::Text { id: "msg_1".into(), delta: "hi".into() });
    }

    #[test]
    fn the_text_of_a_message_leaves_out_other_parts() {
        let parts = json!([{"type": "file", "name": "a.txt", "ref": "art_1"}, {"type": "text", "text": "hi"},
            {"type": "hologram", "text": "no"}]);
        let message: Message =
            serde_json::from_value(json!({"id": "m", "role": "user", "parts": parts})).unwrap();
        assert_eq!((message.text().as_str(), message.files()), ("hi", vec!["a.txt"]));
    }
}
