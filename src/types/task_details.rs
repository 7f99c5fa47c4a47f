//! The details of a background task: what is read only when it is needed, and what clients see.

use super::{
    BackgroundTask, CallId, ChildSettings, ChildStatus, ChildTask, Pending, SessionId, Timestamp, TurnId,
    TurnStatus,
};
use serde::{Deserialize, Serialize};

/// The part of a background task that is read only when it is needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskDetails {
    /// The child's task.
    pub task: ChildTask,
    /// The child's settings.
    pub settings: ChildSettings,
    /// The child's calls that wait for a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<Pending>,
    /// The final status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ChildStatus>,
}

/// A background task as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "BackgroundTask")]
pub struct TaskView {
    /// The task's id.
    pub id: TurnId,
    /// The session of the subagent. Its turn with the task's id works on the task.
    pub session: SessionId,
    /// The kind of subagent.
    pub agent: String,
    /// The name that the model has given to the subagent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What the subagent is asked to do.
    pub task: String,
    /// The call that started it.
    pub call_id: CallId,
    /// The status.
    pub status: TurnStatus,
    /// Whether it was canceled, even if the subagent has not confirmed it yet.
    pub canceled: bool,
    /// When it was started.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Whether the model has been shown the result.
    pub shown: bool,
    /// The calls of the subagent that wait for a person. Decide them in its session.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<Pending>,
    /// The reply of the subagent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl TaskView {
    /// Creates the view of a task.
    pub fn new(task: &BackgroundTask, details: TaskDetails) -> Self {
        let (reply, error) = match details.result {
            Some(ChildStatus { text, error, .. }) => (Some(text).filter(|text| !text.is_empty()), error),
            None => (None, None),
        };
        Self {
            id: task.id.clone(),
            session: task.session.clone(),
            agent: task.agent.clone(),
            label: task.label.clone(),
            task: details.task.task,
            call_id: task.call_id.clone(),
            status: task.status,
            canceled: task.canceled_at.is_some(),
            started_at: task.started_at,
            ended_at: task.ended_at,
            shown: task.shown_in.is_some(),
            pending: details.pending,
            reply,
            error,
        }
    }
}
