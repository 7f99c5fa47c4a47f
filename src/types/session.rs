//! A session's metadata and state, which are stored separately from the log.

mod state;
mod webhook;

pub use state::{Account, Activity, Background, ChildState, Guidance, SessionState, Totals};
pub use webhook::{Failures, MAX_WEBHOOKS, Webhook, WebhookKey};

use super::{
    AgentId, AgentRef, AgentVersion, Budget, CallId, Message, Mode, Owner, Parent, SessionId,
    SessionPermissions, TenantId, TenantLimits, Timestamp, TurnId, TurnOptions, UserId, WorkspaceOwner,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::rc::Rc;

/// The version of the stored shapes that this program writes, and the newest that it reads. See CONTRIBUTING.md for
/// changes that need a new one.
pub const SCHEMA: u32 = 12;

/// The identity and the settings of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionMeta {
    /// The session's id, unique within its tenant.
    pub id: SessionId,
    /// The tenant. Not part of responses, because every response concerns the caller's own tenant.
    pub tenant: TenantId,
    /// The user that the session belongs to.
    pub user: UserId,
    /// The agent of the session.
    pub agent: AgentId,
    /// The version of the agent.
    #[serde(default, skip_serializing_if = "AgentVersion::is_first")]
    pub agent_version: AgentVersion,
    /// The title; derived from the first message unless a caller set one.
    pub title: Option<String>,
    /// Whether a caller set the title, which then is never derived again.
    #[serde(default)]
    pub title_pinned: bool,
    /// The current mode's id; if absent, the mode that sessions start in.
    pub mode: Option<String>,
    /// The model, as `provider/model`; if absent, the deployment's default.
    pub model: Option<String>,
    /// Data of the caller, returned unchanged.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// State of the caller, readable by tools.
    #[serde(default)]
    pub state: Map<String, Value>,
    /// The permission rules and grants of the session.
    #[serde(default)]
    pub permissions: SessionPermissions,
    /// The limits of each turn, unless its message overrides them.
    pub budget: Budget,
    /// Whether the session is erased when its turn has ended. Only sessions that wait are in the list of sessions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ephemeral: bool,
    /// Whether it works on files of its own instead of those of its user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub isolated: bool,
    /// The link to the parent, if the session belongs to a subagent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// When the session was created.
    pub created_at: Timestamp,
}

impl SessionMeta {
    /// Returns the tenant, the agent and the user.
    pub fn owner(&self) -> Owner {
        Owner { tenant: self.tenant.clone(), agent: self.agent.clone(), user: self.user.clone() }
    }

    /// Returns the workspace that it works on.
    pub fn workspace(&self) -> WorkspaceOwner {
        WorkspaceOwner { owner: self.owner(), session: self.isolated.then(|| self.id.clone()) }
    }

    /// Returns the version of the agent.
    pub fn agent_ref(&self) -> AgentRef {
        AgentRef { id: self.agent.clone(), version: self.agent_version }
    }

    /// Creates a session of `owner` with default settings.
    pub fn new(id: SessionId, owner: Owner, now: Timestamp) -> Self {
        Self {
            id: id.to_owned(),
            tenant: owner.tenant,
            user: owner.user,
            agent: owner.agent,
            agent_version: AgentVersion::FIRST,
            title: None,
            title_pinned: false,
            mode: None,
            model: None,
            metadata: Map::new(),
            state: Map::new(),
            permissions: SessionPermissions::default(),
            budget: Budget::default(),
            ephemeral: false,
            isolated: false,
            parent: None,
            created_at: now,
        }
    }

    /// Puts a new session into its first mode. The session has the mode's model if the tenant may use it.
    pub fn begin_in(&mut self, mode: &Mode, limits: &TenantLimits) {
        self.mode = Some(mode.id.clone());
        self.model = mode.default_model.clone().filter(|model| limits.allow_model(model));
    }
}

/// The activity of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// No turn is running or queued.
    Idle,
    /// A turn is running or queued.
    Running,
    /// The turn waits for a person or a client.
    Waiting,
}

/// An approved plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRef {
    /// Path of the plan file in the workspace.
    pub path: String,
    /// The call that requested the approval.
    pub call_id: CallId,
    /// The etag of the approved file. Absent before version 4: such a plan counts as changed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub etag: String,
}

/// When turns requested a follow-up that has not been served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTimes {
    /// Time of the first request.
    pub first: Timestamp,
    /// Time of the last request.
    pub last: Timestamp,
}

/// Progress of one follow-up, which works through the records of the log after turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FollowUpProgress {
    /// Number of requests by turns.
    #[serde(rename = "asked")]
    pub requested: u64,
    /// Number of requests served.
    #[serde(rename = "answered")]
    pub served: u64,
    /// Times of the requests that have not been served; `None` also if an earlier version stored them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<RequestTimes>,
    /// Sequence number of the last record processed.
    pub seen: u64,
    /// Number of failures since the last success.
    pub failed: u32,
    /// Earliest time of the next attempt.
    pub not_before: Timestamp,
}

impl FollowUpProgress {
    /// Returns whether a request has not been served.
    pub fn is_requested(&self) -> bool {
        self.requested > self.served
    }
}

/// State of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IntervalState {
    /// When the next tick is due.
    pub next_at: Timestamp,
    /// Number of successful ticks.
    pub runs: u64,
    /// Whether the interval has stopped permanently.
    pub stopped: bool,
    /// Number of failures since the last success.
    pub failed: u32,
}

/// Bytes that count against limits of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReservedBytes {
    /// Bytes of queued messages.
    pub queued: u64,
    /// Bytes of attachments.
    pub attached: u64,
}

/// A queued message and the turn it will start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedTurn {
    /// The id of the turn.
    pub turn: TurnId,
    /// The user message.
    pub message: Rc<Message>,
    /// The limits of the turn.
    pub budget: Budget,
    /// The options of the turn.
    #[serde(default)]
    pub options: TurnOptions,
}
