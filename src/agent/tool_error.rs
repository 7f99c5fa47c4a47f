//! Errors of tools, as the model reads them.

use crate::types::Invalid;
use thiserror::Error;

/// A failure that the model reads.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ToolError {
    pub(super) message: String,
    pub(super) retryable: bool,
}

impl ToolError {
    /// Creates a failure that the model may retry.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), retryable: true }
    }

    /// Creates a failure that no retry can fix: the tool is blocked for the rest of the turn.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { message: message.into(), retryable: false }
    }
}

impl From<Invalid> for ToolError {
    fn from(invalid: Invalid) -> Self {
        Self::new(invalid)
    }
}
