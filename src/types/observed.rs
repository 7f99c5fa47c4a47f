//! Notes that replace observed messages, and notes that are buffered until they do.

use super::Timestamp;
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// Notes on one range of records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Notes")]
pub struct Chunk {
    /// Sequence number of the first record covered.
    pub from: u64,
    /// Sequence number of the last record covered.
    pub to: u64,
    /// When the notes were taken.
    pub at: Timestamp,
    /// The text of the notes.
    pub text: String,
    /// Estimated tokens of the notes.
    pub tokens: u64,
    /// Estimated tokens of the messages covered.
    pub of: u64,
    /// What the assistant was working on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// How the assistant was about to continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

/// An observation or reflection started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(inline)]
pub struct NotesStarted {
    /// Sequence number of the first record to be covered by new notes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub from: u64,
    /// Estimated tokens of the messages, or of the notes to be rewritten.
    pub tokens: u64,
}

/// Notes were taken or rewritten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(inline)]
pub struct NotesTaken {
    /// Generation number, starting at 1, if the notes were rewritten; 0 for new notes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub generation: u64,
    /// The notes.
    pub chunk: Rc<Chunk>,
}

impl NotesTaken {
    /// Creates the event for new notes.
    pub fn new(chunk: Rc<Chunk>) -> Self {
        Self { generation: 0, chunk }
    }
}

/// An observation or reflection failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(inline)]
pub struct NotesFailed {
    /// Why it failed.
    pub reason: String,
    /// Estimated tokens of the visible messages, or of the notes.
    pub tokens: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Why buffered notes replaced their messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The messages had too many tokens.
    Threshold,
    /// The session was idle for so long that the provider's prompt cache has expired.
    Idle,
    /// The model changed, so the prompt is not cached.
    ProviderChange,
    /// The request exceeded the model's context window.
    Overflow,
    /// A caller requested it.
    Request,
}
