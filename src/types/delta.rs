//! Transient pieces of a streamed message, the progress of tool calls, and positions in the event stream.

use super::{CallId, MessageId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A piece of a message that is being streamed, or of what a tool call does. Deltas are never stored.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(tag = "type")]
pub enum Delta {
    /// More text.
    #[serde(rename = "message.delta")]
    Text {
        /// The message's id.
        id: MessageId,
        /// The piece of text.
        delta: String,
    },
    /// More reasoning.
    #[serde(rename = "reasoning.delta")]
    Reasoning {
        /// The message's id.
        id: MessageId,
        /// The piece of text.
        delta: String,
    },
    /// More of a tool call's arguments.
    #[serde(rename = "tool.input_delta")]
    ToolInput {
        /// The message's id.
        id: MessageId,
        /// Index of the call within the message, starting at 0.
        index: usize,
        /// The tool's name.
        name: String,
        /// The piece of JSON text.
        delta: String,
    },
    /// How far a tool call is.
    #[serde(rename = "tool.progress")]
    ToolProgress(CallProgress),
}

/// How far a tool call is.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[schemars(inline)]
pub struct CallProgress {
    /// The call.
    pub call_id: CallId,
    /// What is known of it.
    #[serde(flatten)]
    pub progress: ToolProgress,
}

/// How far a tool call is. Every field is optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct ToolProgress {
    /// More of the tool's output.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// What the tool does now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How much of `total` is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
    /// How much there is to do, if the tool knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
}

impl Delta {
    /// Appends `next` if both belong to the same part. Returns whether they do.
    pub fn join(&mut self, next: &Self) -> bool {
        match (self, next) {
            (Self::Text { delta, .. }, Self::Text { delta: more, .. })
            | (Self::Reasoning { delta, .. }, Self::Reasoning { delta: more, .. }) => {
                delta.push_str(more);
                true
            }
            (Self::ToolInput { index, delta, .. }, Self::ToolInput { index: same, delta: more, .. })
                if index == same =>
            {
                delta.push_str(more);
                true
            }
            _ => false,
        }
    }

    /// Returns the `type` on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Text { .. } => "message.delta",
            Self::Reasoning { .. } => "reasoning.delta",
            Self::ToolInput { .. } => "tool.input_delta",
            Self::ToolProgress(_) => "tool.progress",
        }
    }
}

/// A position in the event stream: after record `seq`, or `offset` bytes into the text of the message that
/// record `seq` holds or will hold. Written as `7` or `7.120`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// A sequence number of the log.
    pub seq: u64,
    /// Offset in the message's text, in UTF-8 bytes.
    pub offset: Option<u64>,
}

impl Cursor {
    /// Returns the position after record `seq`; 0 is the start of the log.
    pub fn after(seq: u64) -> Self {
        Self { seq, offset: None }
    }

    /// Parses `7` or `7.120`; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| {
            (!text.is_empty() && text.len() <= 19 && text.bytes().all(|b| b.is_ascii_digit()))
                .then(|| text.parse().ok())
                .flatten()
        };
        match text.trim().split_once('.') {
            None => number(text.trim()).map(Self::after),
            Some((seq, offset)) => Some(Self { seq: number(seq)?, offset: Some(number(offset)?) }),
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            None => write!(f, "{}", self.seq),
            Some(offset) => write!(f, "{}.{offset}", self.seq),
        }
    }
}
