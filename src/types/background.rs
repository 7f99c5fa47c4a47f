//! Background tasks: the tasks of subagents for which no call of the parent waits.

use super::{
    Budget, CallId, ChildKey, ChildTask, SessionId, Spawned, Timestamp, ToolOutcome, TurnId, TurnStatus,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum number of background tasks of which a session keeps a record.
pub const MAX_TASKS: usize = 64;

/// Maximum number of subagents that an agent can send further tasks.
pub const MAX_SPAWNED: usize = 64;

/// Maximum number of results in one request to the model.
pub const MAX_SHOWN: usize = 10;

/// Maximum number of turns in a row that finished tasks start without a message of the user.
pub const MAX_WAKES: u32 = 10;

/// Whether subagents may work in the background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackgroundTasks {
    /// They may not: a call waits for each of them.
    #[default]
    Off,
    /// They may. The agent reads the results in the next turn.
    On,
    /// They may, and a task that ends while the session is idle starts a turn.
    Wake,
}

/// A background task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackgroundTask {
    /// The task's id: the turn of the child's session that works on it.
    pub id: TurnId,
    /// The child's session.
    pub session: SessionId,
    /// The kind of subagent.
    pub agent: String,
    /// The name that the model has given to the subagent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Its number among the tasks of the child.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub number: u32,
    /// The turn that started it.
    pub turn: TurnId,
    /// The call that started it.
    pub call_id: CallId,
    /// Its share of the budget of that turn.
    pub budget: Budget,
    /// When it was started.
    pub started_at: Timestamp,
    /// When it is given up.
    pub expires_at: Timestamp,
    /// Its status, as the child has reported it.
    pub status: TurnStatus,
    /// The hash of the rules that the child has acknowledged; `None` until it has the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notified: Option<String>,
    /// When it was canceled. The child may not have confirmed it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canceled_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The turn in which the model was shown the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown_in: Option<TurnId>,
    /// Whether its end starts a turn if the session is idle. It does so at most once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wakes: bool,
}

impl BackgroundTask {
    /// Returns the key of the task.
    pub fn key(&self) -> ChildKey {
        ChildKey { session: self.session.clone(), call_id: self.call_id.clone() }
    }

    /// Returns whether the task has ended.
    pub fn has_ended(&self) -> bool {
        self.ended_at.is_some()
    }

    /// Returns whether the model must still be shown the result.
    pub fn is_unshown(&self) -> bool {
        self.has_ended() && self.shown_in.is_none()
    }

    /// Returns whether the child works on it, and does not wait for a person.
    pub fn works(&self) -> bool {
        !self.has_ended() && self.status == TurnStatus::Running
    }

    /// Returns whether the session must start a turn for the result.
    pub fn wants_turn(&self) -> bool {
        self.wakes && self.is_unshown()
    }
}

/// The background tasks of a session, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Subagents {
    /// The tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<BackgroundTask>,
    /// Number of turns in a row that were started by finished tasks.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub wakes: u32,
    /// The subagents that the agent can send further tasks. The one that was given a task last comes last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spawned: Vec<Spawned>,
}

impl Subagents {
    /// Returns the tasks that have not ended.
    pub fn open(&self) -> impl Iterator<Item = &BackgroundTask> {
        self.tasks.iter().filter(|task| !task.has_ended())
    }

    /// Returns the task with this id.
    pub fn get(&self, id: &TurnId) -> Option<&BackgroundTask> {
        self.tasks.iter().find(|task| task.id == *id)
    }

    /// Returns the task with this key that has not ended.
    pub fn open_of(&self, key: &ChildKey) -> Option<&BackgroundTask> {
        self.open().find(|task| task.key() == *key)
    }

    /// Returns the subagent in `session`, if the agent can send it further tasks.
    pub fn spawned_in(&self, session: &SessionId) -> Option<&Spawned> {
        self.spawned.iter().find(|own| own.session == *session)
    }

    /// Numbers a task of a subagent that the agent can send further ones. Those that were given no task for the longest time
    /// make room for a new one.
    pub fn give(&mut self, task: &mut ChildTask) {
        let known = self.spawned.iter().position(|own| own.session == task.session);
        let mut own = known.map_or_else(
            || Spawned {
                session: task.session.clone(),
                agent: task.agent.clone(),
                label: task.label.clone(),
                forked: task.forked,
                tasks: task.number(),
            },
            |place| self.spawned.remove(place),
        );
        if let Some(further) = &mut task.further {
            further.number = own.tasks;
        }
        own.tasks += 1;
        self.spawned.push(own);
        let surplus = self.spawned.len().saturating_sub(MAX_SPAWNED);
        self.spawned.drain(..surplus);
    }

    /// Returns how many more tasks may start while at most `at_once` work.
    pub fn room(&self, at_once: usize) -> usize {
        let open = self.open().count();
        let kept = self.tasks.iter().filter(|task| task.shown_in.is_none()).count();
        at_once.saturating_sub(open).min(MAX_TASKS.saturating_sub(kept))
    }

    /// Returns whether a finished task starts a turn as soon as the session is idle.
    pub fn wants_turn(&self) -> bool {
        self.wakes < MAX_WAKES && self.tasks.iter().any(BackgroundTask::wants_turn)
    }
}

/// The answer of a call whose subagent goes on in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promoted {
    /// The task.
    pub promoted: TurnId,
}

impl Promoted {
    /// Returns the outcome of the call that gave the task.
    pub fn outcome(&self, task: &ChildTask) -> ToolOutcome {
        let ChildTask { session, agent, timeout_seconds, .. } = task;
        let result = serde_json::json!({
            "agent_key": session, "agent_id": agent, "session_id": session, "task_id": self.promoted,
            "status": TurnStatus::Running, "timeout_promoted": *timeout_seconds != Some(0),
        });
        ToolOutcome::Result { result }
    }

    /// Returns the answer as JSON.
    pub fn answer(task: TurnId) -> Value {
        serde_json::json!(Self { promoted: task })
    }
}
