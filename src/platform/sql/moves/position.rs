//! The order in which a move copies rows.

use crate::platform::sql::memory::copy::Cursor;
use crate::types::{AgentId, UserId};
use serde::{Deserialize, Serialize};

/// What a move does next on a shard. Stored in the fence, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Position {
    /// Removes rows that an earlier move may have left.
    Clear,
    /// Copies a table, after the row with this key.
    Rows(Table, Vec<String>),
    /// Copies the index of memories.
    Entries(Cursor),
    /// Copies the memory spaces, after this one. They refer to entries.
    Spaces(UserId, AgentId),
    /// Copies the tenant's storage limits.
    Limits,
    /// Everything is copied.
    End,
    /// The move has ended on this shard.
    Ended,
}

impl Position {
    /// Returns the position at the start of what follows.
    pub(super) fn next(&self) -> Self {
        match self {
            Self::Clear => Self::Rows(Table::Sessions, Vec::new()),
            Self::Rows(Table::Sessions, _) => Self::Rows(Table::Files, Vec::new()),
            Self::Rows(Table::Files, _) => Self::Rows(Table::FreeBlobs, Vec::new()),
            Self::Rows(Table::FreeBlobs, _) => Self::Entries(Cursor::default()),
            Self::Entries(_) => Self::Spaces("".into(), "".into()),
            Self::Spaces(..) => Self::Limits,
            Self::Limits | Self::End => Self::End,
            Self::Ended => Self::Ended,
        }
    }
}

/// A table whose rows are copied unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Table {
    /// The list of sessions.
    Sessions,
    /// Files. Their objects do not move, because the keys of objects contain the tenant and not the shard.
    Files,
    /// Keys of objects without a file. A request that has reserved a key may store its file after the move.
    FreeBlobs,
}

impl Table {
    /// Returns the name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Files => "files",
            Self::FreeBlobs => "free_blobs",
        }
    }

    /// Returns the columns of the primary key after the tenant. All are texts that are not empty.
    pub(super) fn key(self) -> &'static [&'static str] {
        match self {
            Self::Sessions => &["id"],
            Self::Files => &["scope", "path"],
            Self::FreeBlobs => &["blob"],
        }
    }
}
