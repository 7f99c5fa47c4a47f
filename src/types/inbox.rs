//! The inbox of a tenant: the calls of its sessions that wait for a person or a client.

use super::{AgentId, CallId, Pending, SessionId, Timestamp, UserId, WaitKind, suspension::Claim};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Largest JSON of the arguments, and of the payload, of a call in the inbox, in bytes.
const MAX_JSON: usize = 4_000;

/// What a call in the inbox waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InboxKind {
    /// Permission to run.
    Approval,
    /// Permission to run a call of a step of a run.
    Step,
    /// An answer to a question.
    Question,
    /// A review of a plan.
    Plan,
    /// The result of a tool that the client runs.
    External,
    /// The user's consent at another server, at the URL of the payload.
    Auth,
}

impl InboxKind {
    /// Returns the kind of a call. `None` for the call of a subagent: the calls of the subagent that wait are listed with its own
    /// session.
    pub fn of(kind: WaitKind) -> Option<Self> {
        Some(match kind {
            WaitKind::Approval => Self::Approval,
            WaitKind::Question => Self::Question,
            WaitKind::Plan => Self::Plan,
            WaitKind::External => Self::External,
            WaitKind::Auth => Self::Auth,
            WaitKind::Subagent => return None,
        })
    }

    /// Returns the name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Step => "step",
            Self::Question => "question",
            Self::Plan => "plan",
            Self::External => "external",
            Self::Auth => "auth",
        }
    }
}

/// A call that waits, as the inbox lists it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct InboxCall {
    /// The session of the call, also of a call of a run.
    pub session: SessionId,
    /// The run, if the session is that of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<SessionId>,
    /// The step of the run that the call is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The title of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The user of the session.
    pub user: UserId,
    /// The agent of the session.
    pub agent: AgentId,
    /// The session of the parent, if the session belongs to a subagent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// Whether `args` or `payload` was too long. It is then the start of its JSON, as a string; `pending` of the session
    /// has all of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// The call.
    #[serde(flatten)]
    pub call: Pending<InboxKind>,
}

impl InboxCall {
    /// Shortens the arguments and the payload.
    pub fn shorten(&mut self) {
        for value in [&mut self.call.args, &mut self.call.payload] {
            let json = value.to_string();
            if json.len() > MAX_JSON {
                let end = json.floor_char_boundary(MAX_JSON);
                *value = Value::String(json.get(..end).unwrap_or_default().to_owned());
                self.truncated = true;
            }
        }
    }
}

/// All calls of a session that wait, sent to the inbox. At-least-once and idempotent: the inbox ignores a notice that is
/// older than one it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboxNotice {
    /// The session.
    pub session: SessionId,
    /// When it was sent. Each notice of a session must have a later time than all before.
    pub sent_at: Timestamp,
    /// The calls.
    pub calls: Vec<InboxCall>,
    /// Whether the session is being erased, so that the inbox must keep nothing of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub erased: bool,
}

/// What a session knows of its entries in the inbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InboxMark {
    /// When the last acknowledged notice was sent.
    pub sent_at: Timestamp,
    /// Whether a later notice may have arrived.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncertain: bool,
    /// The calls that the inbox has acknowledged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ListedCall>,
}

/// What distinguishes a call in the inbox from another state of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ListedCall {
    /// The call.
    pub call_id: CallId,
    /// What it waits for.
    pub kind: InboxKind,
    /// The hash of what it waits for.
    pub args_hash: String,
    /// The runner that works on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
}

/// Selects calls of the inbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxFilter {
    /// Restricts to this user.
    pub user: Option<UserId>,
    /// Restricts to this agent.
    pub agent: Option<AgentId>,
    /// Restricts to this session.
    pub session: Option<SessionId>,
    /// Restricts to this kind.
    pub kind: Option<InboxKind>,
    /// Restricts to calls with this id.
    pub call: Option<CallId>,
}

/// A call of the inbox that is no longer there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RemovedCall {
    /// The session of the call, also of a call of a run.
    pub session: SessionId,
    /// The run, if the session is that of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<SessionId>,
    /// The user of the session.
    pub user: UserId,
    /// The agent of the session.
    pub agent: AgentId,
    /// The call.
    pub call_id: CallId,
    /// What it waited for.
    pub kind: InboxKind,
}

/// A change of the inbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InboxChange {
    /// A call waits, or its entry has changed.
    Added(Box<InboxCall>),
    /// A call no longer waits.
    Removed(RemovedCall),
}

/// The position of a reader of the inbox's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InboxPosition {
    /// The reader has nothing.
    Start,
    /// The reader has the calls up to the change with number `after`. It began with change `since`, and still needs the
    /// removals after it.
    Listing {
        /// The number of the last call that it has.
        after: u64,
        /// The number of the last change when it began.
        since: u64,
    },
    /// The reader has all changes up to this one.
    After(u64),
}

/// A page of changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboxChanges {
    /// Whether the reader must forget what it has: the changes are all calls that wait.
    pub reset: bool,
    /// The changes, with their numbers.
    pub changes: Vec<(u64, InboxChange)>,
    /// The position of the reader after these changes.
    pub next: InboxPosition,
    /// Whether more changes follow.
    pub more: bool,
}
