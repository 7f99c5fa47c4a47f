//! Pieces of what is being made, which never enter the log, and places in the event stream.

use serde::Serialize;
use std::fmt;

/// A transient piece of what is being made: streamed, never stored.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type")]
pub enum Delta {
    /// More text of the message being written.
    #[serde(rename = "message.delta")]
    Text {
        /// The message's id.
        id: String,
        /// The text.
        delta: String,
    },
    /// More thinking.
    #[serde(rename = "reasoning.delta")]
    Reasoning {
        /// The message's id.
        id: String,
        /// The text.
        delta: String,
    },
    /// More of a call's arguments.
    #[serde(rename = "tool.input_delta")]
    ToolInput {
        /// The message's id.
        id: String,
        /// Which call of the message, from 0.
        index: usize,
        /// The tool.
        name: String,
        /// The piece of JSON text.
        delta: String,
    },
}

impl Delta {
    /// Appends `next` if both are pieces of the same thing; false if they are not.
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

    /// The `type` on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Text { .. } => "message.delta",
            Self::Reasoning { .. } => "reasoning.delta",
            Self::ToolInput { .. } => "tool.input_delta",
        }
    }
}

/// A place in the event stream: behind record `seq`, or `offset` bytes into the text of the
/// message that record `seq` holds or will hold. Written `7` or `7.120`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// A log number.
    pub seq: u64,
    /// UTF-8 bytes of the message's text.
    pub offset: Option<u64>,
}

impl Cursor {
    /// Behind record `seq`; 0 is the start.
    pub fn after(seq: u64) -> Self {
        Self { seq, offset: None }
    }

    /// Reads `7` or `7.120`; `None` for anything else.
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
