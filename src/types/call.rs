//! What can become of a tool call.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;

/// Why a call was not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DenyReason {
    /// No tool of that name is available.
    UnknownTool,
    /// The arguments do not fit the tool's schema.
    Validation,
    /// The turn's calls or steps are spent.
    Budget,
    /// The turn's time is over.
    Deadline,
    /// A hook or a rule forbids it.
    Permission,
    /// The turn was aborted before the call ran.
    Canceled,
}

/// The closed set of outcomes of a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum ToolOutcome {
    /// The tool answered.
    Result {
        /// Its answer: text, or any JSON.
        result: Value,
    },
    /// The tool did not answer in time.
    Timeout {
        /// What the model is told.
        reason: String,
    },
    /// The tool answered that it failed.
    Failure {
        /// What the model is told.
        reason: String,
    },
    /// The call was not run.
    Denied {
        /// The kind of refusal.
        denied: DenyReason,
        /// What the model is told.
        reason: String,
    },
    /// The call was running when its machine went away, or its answer was lost: it may or may not
    /// have had its effect.
    Unknown {
        /// What the model is told.
        reason: String,
    },
}

impl ToolOutcome {
    /// A refusal.
    pub fn denied(denied: DenyReason, reason: impl Into<String>) -> Self {
        Self::Denied { denied, reason: reason.into() }
    }

    /// A failure.
    pub fn failure(reason: impl Into<String>) -> Self {
        Self::Failure { reason: reason.into() }
    }

    /// Whether the model should see this as an error.
    pub fn is_error(&self) -> bool {
        !matches!(self, Self::Result { .. })
    }

    /// The text that stands in the tool message the model reads.
    pub fn model_text(&self) -> Cow<'_, str> {
        match self {
            Self::Result { result: Value::String(text) } => Cow::Borrowed(text),
            Self::Result { result } => Cow::Owned(result.to_string()),
            Self::Timeout { reason } => Cow::Owned(format!("Error (timeout): {reason}")),
            Self::Failure { reason } => Cow::Owned(format!("Error: {reason}")),
            Self::Denied { reason, .. } => Cow::Owned(format!("Not run: {reason}")),
            Self::Unknown { reason } => Cow::Owned(format!("Outcome unknown: {reason}")),
        }
    }
}
