//! The state of a session in parts. Each part is a document of its own, which is rewritten only when it changes.

use super::{FollowUpProgress, IntervalState, PlanRef, ReservedBytes, SessionMeta, SessionStatus, Webhook};
use crate::types::{
    CallId, EventKind, Gauge, Grants, InboxMark, Task, TenantPolicy, Timestamp, ToolSpec, TurnId, TurnState,
    Usage, background::Subagents,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, rc::Rc};

/// The state of a session. Cheap to clone; a change copies only the part that it changes.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionState {
    /// The identity and the settings.
    pub meta: Rc<SessionMeta>,
    /// What guides the agent besides its instructions.
    pub guidance: Rc<Guidance>,
    /// What changes with each step of a turn.
    pub activity: Rc<Activity>,
    /// The state of background jobs that are independent of turns.
    pub background: Rc<Background>,
    /// The state of a child, if the session is one.
    pub child: Option<Rc<ChildState>>,
    /// The background tasks.
    pub subagents: Rc<Subagents>,
    /// What the tenant's ledger has confirmed.
    pub account: Rc<Account>,
    /// The webhooks of turns that have not ended, or whose end is not acknowledged.
    pub webhooks: Rc<Vec<Webhook>>,
}

/// What guides the agent besides its instructions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Guidance {
    /// The model last used in each mode; `None` for the deployment's default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mode_models: BTreeMap<String, Option<String>>,
    /// The most recently approved plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanRef>,
    /// The newest policy of the tenant that the session has received.
    #[serde(rename = "tenant_rules", default)]
    pub tenant_policy: TenantPolicy,
    /// The agent's task list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<Task>,
}

/// What changes with each step of a turn. Rewritten at nearly each commit, so it must stay small.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// The totals of all turns.
    #[serde(default)]
    pub totals: Totals,
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
    /// The correction of token estimates for the current model.
    #[serde(default)]
    pub gauge: Gauge,
    /// Progress of the follow-ups that turns have requested, by name.
    #[serde(rename = "handovers", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub follow_ups: BTreeMap<String, FollowUpProgress>,
}

/// Totals of all turns of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Tokens consumed by all turns.
    #[serde(default)]
    pub usage: Usage,
    /// Cost of those tokens in US dollars, as far as prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Number of turns started.
    #[serde(default)]
    pub turns: u64,
    /// When the session last changed.
    pub updated_at: Timestamp,
}

/// The state of background jobs that are independent of turns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Background {
    /// When the session was last listed in the directory.
    #[serde(default)]
    pub listed_at: Timestamp,
    /// Whether it was listed as running.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub listed_running: bool,
    /// What the tenant's inbox has of the session. Absent until a call waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox: Option<InboxMark>,
    /// State of the intervals, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub intervals: BTreeMap<String, IntervalState>,
    /// When the first document or artifact expires; `None` when none does. The default for
    /// states of older versions runs the purge at once.
    #[serde(default = "at_once")]
    pub purge_at: Option<Timestamp>,
}

fn at_once() -> Option<Timestamp> {
    Some(Timestamp(0))
}

/// The state of a child that concerns its parent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChildState {
    /// Grants added in this session, while its other permissions are the parent's.
    #[serde(default, skip_serializing_if = "Grants::is_empty")]
    pub granted: Grants,
    /// When the parent last sent its rules.
    #[serde(default)]
    pub ruled_at: Timestamp,
    /// Whether the parent has acknowledged the final status of this child's task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reported: bool,
    /// The parent's calls that were canceled before their further tasks arrived. The tasks are refused if they do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<CallId>,
}

/// What the tenant's ledger has confirmed to the session. It is rewritten once per report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Sequence number of the last record whose usage was reported.
    #[serde(default)]
    pub reported: u64,
    /// Until when the session holds a slot, if it does; [`Account::UNCONFIRMED`] if it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot_until: Option<Timestamp>,
    /// Sequence number of the record after which decisions could not be added to the audit trail. Absent if the trail has
    /// all that were reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaudited: Option<u64>,
}

impl Account {
    /// [`Account::slot_until`] of a session that has asked for a slot and may not have received the response.
    pub const UNCONFIRMED: Timestamp = Timestamp(0);
}

impl SessionState {
    /// Returns the tools that the client of the current turn runs.
    pub fn client_tools(&self) -> &[ToolSpec] {
        self.activity.turn.as_ref().map_or(&[], |turn| &turn.options.client_tools)
    }

    /// Creates the state of a new session.
    pub fn new(meta: SessionMeta) -> Self {
        let totals = Totals { updated_at: meta.created_at, ..Totals::default() };
        Self {
            child: meta.parent.as_ref().map(|_| Rc::default()),
            meta: Rc::new(meta),
            guidance: Rc::default(),
            activity: Rc::new(Activity { totals, ..Activity::default() }),
            background: Rc::default(),
            subagents: Rc::default(),
            account: Rc::default(),
            webhooks: Rc::default(),
        }
    }

    /// Returns whether the session has neither a current nor a queued turn with this id.
    pub fn has_ended(&self, turn: &TurnId) -> bool {
        let current = self.activity.turn.as_ref().map(|turn| &turn.id);
        current != Some(turn) && !self.activity.queue.contains(turn)
    }

    /// Returns the webhook that must be notified next, and when.
    pub fn next_webhook(&self) -> Option<(Timestamp, &Webhook)> {
        let due = self.webhooks.iter().filter_map(|webhook| {
            let at = webhook.due_at(self.has_ended(&webhook.key.turn))?;
            Some((at, webhook))
        });
        due.min_by_key(|(at, _)| *at)
    }

    /// Returns whether a webhook can be removed when there are too many: its receiver has not acknowledged the end
    /// of the turn, and has failed.
    pub(crate) fn can_spare(&self, webhook: &Webhook) -> bool {
        webhook.failures.is_some() && self.has_ended(&webhook.key.turn)
    }

    /// Returns the session's activity.
    pub fn status(&self) -> SessionStatus {
        match &self.activity.turn {
            Some(turn) if turn.waits_for_people() => SessionStatus::Waiting,
            Some(_) => SessionStatus::Running,
            None if self.activity.queue.is_empty() => SessionStatus::Idle,
            None => SessionStatus::Running,
        }
    }
}

impl Activity {
    /// Removes a turn, whose row has `bytes` bytes, from the queue.
    pub fn unqueue(&mut self, turn: &TurnId, bytes: usize) {
        self.queue.retain(|waiting| waiting != turn);
        let left = if self.queue.is_empty() { 0 } else { self.reserved.queued };
        self.reserved.queued = left.saturating_sub(bytes as u64);
    }
}
