//! The part of a session's log that the model is shown, and its share of the context window.

use serde::{Deserialize, Serialize};

/// The result of a compaction. Each cut is a record of the log; the latest valid one applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(rename = "CompactionCut")]
pub struct Cut {
    /// Number of the cut within the session, starting at 1. A cut with a number out of order was computed for
    /// an outdated context and is ignored.
    pub number: u64,
    /// Messages whose record is below this sequence number are hidden, except the user message of the last
    /// turn.
    pub kept_from: u64,
    /// Tool arguments and results are shortened in messages below this sequence number.
    pub brief_before: u64,
    /// Messages that are shown in part: sequence number, and characters shown of each part. A list, because
    /// it is short and a map costs more code size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parted: Vec<(u64, usize)>,
    /// The summary of the hidden messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

impl Cut {
    /// Returns how many characters are shown of each part of message `seq`; `None` for all.
    pub fn chars(&self, seq: u64) -> Option<usize> {
        self.parted.iter().find(|(parted, _)| *parted == seq).map(|(_, chars)| *chars)
    }
}

/// Why a context is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CompactReason {
    /// Too many messages.
    Messages,
    /// Too many tokens.
    Tokens,
    /// The provider rejected the request as too long.
    Overflow,
    /// A caller requested it.
    Request,
}

/// How much of the model's context window the last request and its response took, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WindowUse {
    /// Tokens taken.
    pub used: u64,
    /// Tokens of the whole window.
    pub limit: u64,
}

/// The correction of token estimates for one model, learned from the provider's counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gauge {
    /// The model, as `provider/model`.
    pub model: String,
    /// Tokens that the provider counts per 1,000 estimated tokens; 0 while unknown.
    pub permille: u64,
    /// Estimated tokens of a request in addition to the conversation: instructions, tools, and so on.
    pub fixed: u64,
    /// The smallest estimate that the provider rejected as too long; 0 if there is none.
    pub too_much: u64,
}
