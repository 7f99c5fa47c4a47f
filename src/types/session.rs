//! A session's small state: everything that is not the log.

use super::{
    Budget, EventKind, Gauge, Grants, Message, Mode, Owner, Parent, Rules, SessionPermissions, Task,
    TenantId, Timestamp, TurnOptions, TurnState, Usage,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, rc::Rc};

/// What a session is, as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionMeta {
    /// The session's id, unique within its tenant.
    pub id: String,
    /// The tenant. Never shown: a caller knows its own.
    pub tenant: TenantId,
    /// The user that it belongs to.
    pub user: String,
    /// The agent that answers.
    pub agent: String,
    /// The title; from the first message unless somebody set one.
    pub title: Option<String>,
    /// Whether somebody set the title: it stays then.
    #[serde(default)]
    pub title_pinned: bool,
    /// The mode, by its id; the one that sessions start in when absent.
    pub mode: Option<String>,
    /// The model, as `provider/model`; the deployment's default when absent.
    pub model: Option<String>,
    /// The caller's own data.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// The caller's own state, shown to tools.
    #[serde(default)]
    pub state: Map<String, Value>,
    /// What may be done in this session.
    #[serde(default)]
    pub permissions: SessionPermissions,
    /// The bounds of each turn unless the message says otherwise.
    pub budget: Budget,
    /// Tokens of all turns.
    #[serde(default)]
    pub usage: Usage,
    /// What those cost in US dollars, as far as models have a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Turns that have started.
    #[serde(default)]
    pub turns: u64,
    /// Whose it is and what for, where it is a subagent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

impl SessionMeta {
    /// A session of this owner's that is made now.
    pub fn new(id: &str, owner: Owner, now: Timestamp) -> Self {
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

    /// Puts a session into a mode before anything has happened in it.
    pub fn begin_in(&mut self, mode: &Mode) {
        self.mode = Some(mode.id.clone());
        self.model.clone_from(&mode.default_model);
    }
}

/// Whether a session is doing something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// Nothing runs and nothing is owed.
    Idle,
    /// A turn runs.
    Running,
    /// A turn waits for a person.
    Waiting,
}

/// The state row: rewritten at each commit, so it stays small.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionState {
    /// What the session is.
    pub meta: SessionMeta,
    /// The turn that runs or waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnState>,
    /// Ids of the queued turns, oldest first; each has a row of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<String>,
    /// What takes room elsewhere on behalf of the session.
    #[serde(default)]
    pub held: Held,
    /// Records that wait for the message being streamed to end; they get the numbers behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deferred: Vec<(Option<String>, EventKind)>,
    /// When the directory was last told; it has yet to learn of everything since.
    #[serde(default)]
    pub listed_at: Timestamp,
    /// What is known of how the model counts.
    #[serde(default)]
    pub gauge: Gauge,
    /// The models that modes were left with, by mode; none is the deployment's default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mode_models: BTreeMap<String, Option<String>>,
    /// The plan that was approved last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanRef>,
    /// The tenant's rules, as the last request told them.
    #[serde(default)]
    pub tenant_rules: Rules,
    /// What the agent has set itself to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<Task>,
    /// What turns have handed over to be done behind them, by the name of who does it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub handovers: BTreeMap<String, Handover>,
    /// What is done at intervals, by the name of who does it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub intervals: BTreeMap<String, IntervalState>,
    /// The same, as the session that sent this one out has told them.
    #[serde(default, skip_serializing_if = "Rules::is_empty")]
    pub sent_rules: Rules,
    /// What was granted here, where the other permissions are those of the session that sent this one out.
    #[serde(default, skip_serializing_if = "Grants::is_empty")]
    pub granted: Grants,
    /// When that session has told its rules.
    #[serde(default)]
    pub ruled_at: Timestamp,
    /// Whether that session waits for nothing from here any more: it knows what came of the errand, or has called it
    /// off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reported: bool,
}

/// A plan that somebody has approved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRef {
    /// The file in the workspace.
    pub path: String,
    /// The call that asked for the approval.
    pub call_id: String,
}

/// Work behind turns: the log is what is to be worked on, and this is how far it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Handover {
    /// How many turns have asked for it.
    pub asked: u64,
    /// How many of these it has answered.
    pub answered: u64,
    /// The number of the last record that it has seen.
    pub seen: u64,
    /// Failures since it last succeeded.
    pub failed: u32,
    /// It is not tried before.
    pub not_before: Timestamp,
}

impl Handover {
    /// Whether there is something to do.
    pub fn is_due(&self) -> bool {
        self.asked > self.answered
    }
}

/// How far something that is done at intervals has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IntervalState {
    /// When it is due.
    pub next_at: Timestamp,
    /// How often it succeeded.
    pub runs: u64,
    /// Whether it is over for good.
    pub stopped: bool,
    /// Failures since it last succeeded.
    pub failed: u32,
}

/// Bytes that are bounded for each session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Held {
    /// Of the messages that wait for their turn.
    pub queued: u64,
    /// Of the files that users gave.
    pub attached: u64,
}

impl SessionState {
    /// The state of a session in which nothing has happened.
    pub fn new(meta: SessionMeta) -> Self {
        Self {
            meta,
            turn: None,
            queue: Vec::new(),
            held: Held::default(),
            deferred: Vec::new(),
            listed_at: Timestamp(0),
            gauge: Gauge::default(),
            mode_models: BTreeMap::new(),
            plan: None,
            tenant_rules: Rules::default(),
            tasks: Vec::new(),
            handovers: BTreeMap::new(),
            intervals: BTreeMap::new(),
            sent_rules: Rules::default(),
            granted: Grants::default(),
            ruled_at: Timestamp(0),
            reported: false,
        }
    }

    /// Takes a turn from the queue whose row has so many bytes.
    pub fn unqueue(&mut self, turn: &str, bytes: usize) {
        self.queue.retain(|waiting| waiting != turn);
        let left = if self.queue.is_empty() { 0 } else { self.held.queued };
        self.held.queued = left.saturating_sub(bytes as u64);
    }

    /// What the session is doing.
    pub fn status(&self) -> SessionStatus {
        match &self.turn {
            Some(turn) if turn.waits_for_people() => SessionStatus::Waiting,
            Some(_) => SessionStatus::Running,
            None if self.queue.is_empty() => SessionStatus::Idle,
            None => SessionStatus::Running,
        }
    }
}

/// A message that waits for its turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedTurn {
    /// The turn that it will be.
    pub turn: String,
    /// What the user said.
    pub message: Rc<Message>,
    /// The bounds of the turn.
    pub budget: Budget,
    /// What the caller asked for.
    #[serde(default)]
    pub options: TurnOptions,
}
