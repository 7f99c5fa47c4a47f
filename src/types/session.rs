//! A session's metadata and state, which are stored separately from the log.

use super::{
    AgentId, Budget, CallId, EventKind, Gauge, Grants, Message, Mode, Owner, Parent, Rules, SessionId,
    SessionPermissions, Task, TenantId, Timestamp, TurnId, TurnOptions, TurnState, Usage, UserId,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, rc::Rc};

/// The version of the stored shapes that this program writes, and the newest that it reads. See CONTRIBUTING.md for
/// changes that need a new one.
pub const SCHEMA: u32 = 2;

/// A session as clients see it.
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
    /// Tokens consumed by all turns.
    #[serde(default)]
    pub usage: Usage,
    /// Cost of those tokens in US dollars, as far as prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Number of turns started.
    #[serde(default)]
    pub turns: u64,
    /// The link to the parent, if the session belongs to a subagent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// When the session was created.
    pub created_at: Timestamp,
    /// When the session last changed.
    pub updated_at: Timestamp,
}

impl SessionMeta {
    /// Creates a session of `owner` with default settings.
    pub fn new(id: SessionId, owner: Owner, now: Timestamp) -> Self {
        Self {
            id: id.to_owned(),
            tenant: owner.tenant,
            user: owner.user,
            agent: owner.agent,
            title: None,
            title_pinned: false,
            mode: None,
            model: None,
            metadata: Map::new(),
            state: Map::new(),
            permissions: SessionPermissions::default(),
            budget: Budget::default(),
            usage: Usage::default(),
            cost_usd: None,
            turns: 0,
            parent: None,
            created_at: now,
            updated_at: now,
        }
    }

    /// Puts a new session into its first mode.
    pub fn begin_in(&mut self, mode: &Mode) {
        self.mode = Some(mode.id.clone());
        self.model.clone_from(&mode.default_model);
    }
}

/// The activity of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// No turn is running or queued.
    Idle,
    /// A turn is running or queued.
    Running,
    /// The turn waits for a person or a client.
    Waiting,
}

/// The state document of a session. Rewritten at each commit, so it must stay small.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionState {
    /// The version of the stored shapes, [`SCHEMA`] when the state was last written. The first version wrote none.
    #[serde(default = "first_schema", skip_serializing_if = "is_first_schema")]
    pub schema: u32,
    /// The session's metadata.
    pub meta: SessionMeta,
    /// The current turn, running or waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnState>,
    /// Ids of the queued turns, oldest first. Each turn has a row of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<TurnId>,
    /// Bytes reserved outside this document.
    #[serde(rename = "held", default)]
    pub reserved: ReservedBytes,
    /// Records held back until the message being streamed is complete, so that they follow it in the log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deferred: Vec<(Option<TurnId>, EventKind)>,
    /// When the session was last listed in the directory.
    #[serde(default)]
    pub listed_at: Timestamp,
    /// The correction of token estimates for the current model.
    #[serde(default)]
    pub gauge: Gauge,
    /// The model last used in each mode; `None` for the deployment's default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mode_models: BTreeMap<String, Option<String>>,
    /// The most recently approved plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanRef>,
    /// The tenant's permission rules as of the last request.
    #[serde(default)]
    pub tenant_rules: Rules,
    /// The agent's task list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<Task>,
    /// Progress of the follow-ups that turns have requested, by name.
    #[serde(rename = "handovers", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub follow_ups: BTreeMap<String, FollowUpProgress>,
    /// State of the intervals, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub intervals: BTreeMap<String, IntervalState>,
    /// The tenant's permission rules as last sent by the parent.
    #[serde(default, skip_serializing_if = "Rules::is_empty")]
    pub sent_rules: Rules,
    /// Grants added in this session, while its other permissions are the parent's.
    #[serde(default, skip_serializing_if = "Grants::is_empty")]
    pub granted: Grants,
    /// When the parent last sent its rules.
    #[serde(default)]
    pub ruled_at: Timestamp,
    /// Whether the parent has acknowledged the final status of this child's task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reported: bool,
    /// When the first document or artifact expires; `None` when none does. The default for
    /// states of older versions runs the purge at once.
    #[serde(default = "at_once")]
    pub purge_at: Option<Timestamp>,
}

fn first_schema() -> u32 {
    1
}

fn is_first_schema(schema: &u32) -> bool {
    *schema == first_schema()
}

fn at_once() -> Option<Timestamp> {
    Some(Timestamp(0))
}

/// An approved plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRef {
    /// Path of the plan file in the workspace.
    pub path: String,
    /// The call that requested the approval.
    pub call_id: CallId,
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
    /// Sequence number of the last record processed.
    pub seen: u64,
    /// Number of failures since the last success.
    pub failed: u32,
    /// Earliest time of the next attempt.
    pub not_before: Timestamp,
}

impl FollowUpProgress {
    /// Returns whether a request has not been served.
    pub fn is_due(&self) -> bool {
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

impl SessionState {
    /// Creates the state of a new session.
    pub fn new(meta: SessionMeta) -> Self {
        Self {
            schema: SCHEMA,
            meta,
            turn: None,
            queue: Vec::new(),
            reserved: ReservedBytes::default(),
            deferred: Vec::new(),
            listed_at: Timestamp(0),
            gauge: Gauge::default(),
            mode_models: BTreeMap::new(),
            plan: None,
            tenant_rules: Rules::default(),
            tasks: Vec::new(),
            follow_ups: BTreeMap::new(),
            intervals: BTreeMap::new(),
            sent_rules: Rules::default(),
            granted: Grants::default(),
            ruled_at: Timestamp(0),
            reported: false,
            purge_at: None,
        }
    }

    /// Removes a turn, whose row has `bytes` bytes, from the queue.
    pub fn unqueue(&mut self, turn: &TurnId, bytes: usize) {
        self.queue.retain(|waiting| waiting != turn);
        let left = if self.queue.is_empty() { 0 } else { self.reserved.queued };
        self.reserved.queued = left.saturating_sub(bytes as u64);
    }

    /// Returns the session's activity.
    pub fn status(&self) -> SessionStatus {
        match &self.turn {
            Some(turn) if turn.waits_for_people() => SessionStatus::Waiting,
            Some(_) => SessionStatus::Running,
            None if self.queue.is_empty() => SessionStatus::Idle,
            None => SessionStatus::Running,
        }
    }
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
