//! A background task as the model reads it.

use crate::types::{SessionId, TaskView, TurnId, TurnStatus};
use serde::Serialize;

/// A background task in the result of a tool.
#[derive(Serialize)]
pub(super) struct TaskResult {
    task_id: TurnId,
    agent_key: SessionId,
    agent_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    status: TurnStatus,
    /// Whether it was canceled, and the subagent has not confirmed it yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cancel_requested: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl From<TaskView> for TaskResult {
    fn from(task: TaskView) -> Self {
        Self {
            cancel_requested: task.canceled && task.ended_at.is_none(),
            task_id: task.id,
            agent_key: task.session,
            agent_id: task.agent,
            label: task.label,
            status: task.status,
            reply: task.reply,
            error: task.error,
        }
    }
}
