//! Entries of the agent's task list.

use serde::{Deserialize, Serialize};

/// The status of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Not started.
    #[default]
    Pending,
    /// In progress; at most one task of a list is.
    InProgress,
    /// Completed.
    Completed,
}

impl TaskStatus {
    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
        }
    }
}

/// One entry of the task list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Task {
    /// Id, unique in its list.
    pub id: String,
    /// What to do.
    pub content: String,
    /// The status.
    pub status: TaskStatus,
    /// The text to show while the task is in progress, such as "Running tests".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_form: Option<String>,
}
