//! What the agent has set itself to do, as the model writes it down.

use serde::{Deserialize, Serialize};

/// How far a task has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Not begun.
    #[default]
    Pending,
    /// At hand; one task at most.
    InProgress,
    /// Done.
    Completed,
}

impl TaskStatus {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
        }
    }
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Unique in its list.
    pub id: String,
    /// What is to be done.
    pub content: String,
    /// How far it has come.
    pub status: TaskStatus,
    /// What is being done, in the words shown while it is: "Running tests".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_form: Option<String>,
}
