//! What a tenant stores in the databases, and its limits.

use serde::{Deserialize, Serialize};
use std::ops::Add;
use thiserror::Error;

/// What a tenant stores on its shards. Artifacts, attachments, and the sessions' own logs are not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct StorageUse {
    /// Number of workspace files.
    pub files: u64,
    /// Their size.
    pub file_bytes: u64,
    /// Number of rows of the memory index: facts, lines of `MEMORY.md`, and parts of turns.
    pub memory_rows: u64,
    /// Size of their texts.
    pub memory_bytes: u64,
    /// Number of sessions, without those of subagents.
    pub sessions: u64,
}

impl Add for StorageUse {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            files: self.files + other.files,
            file_bytes: self.file_bytes + other.file_bytes,
            memory_rows: self.memory_rows + other.memory_rows,
            memory_bytes: self.memory_bytes + other.memory_bytes,
            sessions: self.sessions + other.sessions,
        }
    }
}

/// Limits of what a tenant stores. An absent one limits nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageLimits {
    /// Maximum size of files and memory together, in bytes.
    pub storage_bytes: Option<u64>,
    /// Maximum number of sessions.
    pub sessions: Option<u64>,
    /// Maximum number of files.
    pub files: Option<u64>,
    /// Maximum number of rows of the memory index.
    pub memory_rows: Option<u64>,
}

/// A limit that a write would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StorageQuota {
    /// [`StorageLimits::storage_bytes`].
    #[error("the tenant's limit storage_bytes is reached; delete files or memory")]
    StorageBytes,
    /// [`StorageLimits::sessions`].
    #[error("the tenant's limit sessions is reached; delete sessions")]
    Sessions,
    /// [`StorageLimits::files`].
    #[error("the tenant's limit files is reached; delete files")]
    Files,
    /// [`StorageLimits::memory_rows`].
    #[error("the tenant's limit memory_rows is reached; delete memory")]
    MemoryRows,
}

impl StorageLimits {
    /// Returns the limits with `defaults` for absent ones.
    pub fn or(self, defaults: Self) -> Self {
        Self {
            storage_bytes: self.storage_bytes.or(defaults.storage_bytes),
            sessions: self.sessions.or(defaults.sessions),
            files: self.files.or(defaults.files),
            memory_rows: self.memory_rows.or(defaults.memory_rows),
        }
    }

    /// Returns the limit that a change exceeds. A change that adds nothing to a number may leave it over its limit.
    pub fn exceeded(&self, before: &StorageUse, after: &StorageUse) -> Option<StorageQuota> {
        let bytes = |used: &StorageUse| used.file_bytes + used.memory_bytes;
        let numbers = [
            (StorageQuota::Files, before.files, after.files, self.files),
            (StorageQuota::MemoryRows, before.memory_rows, after.memory_rows, self.memory_rows),
            (StorageQuota::StorageBytes, bytes(before), bytes(after), self.storage_bytes),
            (StorageQuota::Sessions, before.sessions, after.sessions, self.sessions),
        ];
        let is_over = |(_, before, after, limit): &(StorageQuota, u64, u64, Option<u64>)| {
            after > before && limit.is_some_and(|limit| *after > limit)
        };
        numbers.into_iter().find(is_over).map(|(quota, ..)| quota)
    }
}
