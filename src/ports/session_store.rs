//! The storage of one session. Calls are synchronous, so that a check and the following write are atomic.

use crate::types::{Problem, TurnId};
use thiserror::Error;

/// A failed storage operation, with the store's message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("session store: {0}")]
pub struct StoreError(pub String);

/// A failed store is an internal error: the detail goes to the log, not to the caller.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::internal(error.to_string())
    }
}

/// A stored record, with its JSON in the form that clients read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// Sequence number: contiguous from 1.
    pub seq: u64,
    /// The event's `type`.
    pub kind: String,
    /// The turn that the record belongs to.
    pub turn: Option<TurnId>,
    /// The complete record as JSON.
    pub json: String,
}

/// Changes that are committed atomically.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Records to append. Their numbers continue after the last record.
    pub append: Vec<StoredRecord>,
    /// Documents to write, by key.
    pub put: Vec<(String, String)>,
    /// Keys of documents to delete.
    pub delete: Vec<String>,
}

/// Selects records to read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Select<'a> {
    /// Restricts to higher sequence numbers.
    pub after: u64,
    /// Restricts to lower sequence numbers.
    pub before: Option<u64>,
    /// Restricts to these event types; all if empty.
    pub kinds: &'a [&'a str],
    /// Restricts to this turn.
    pub turn: Option<&'a TurnId>,
    /// Sorts by sequence number, descending.
    pub newest_first: bool,
    /// Maximum number of records.
    pub limit: usize,
}

impl Select<'_> {
    /// Reads from a log that is held in memory, in order of sequence numbers.
    pub fn read<'a>(&self, log: impl DoubleEndedIterator<Item = &'a StoredRecord>) -> Vec<StoredRecord> {
        let selected = log.filter(|record| {
            record.seq > self.after
                && self.before.is_none_or(|before| record.seq < before)
                && (self.kinds.is_empty() || self.kinds.contains(&record.kind.as_str()))
                && self.turn.is_none_or(|turn| record.turn.as_deref() == Some(turn))
        });
        if self.newest_first {
            selected.rev().take(self.limit).cloned().collect()
        } else {
            selected.take(self.limit).cloned().collect()
        }
    }
}

/// The storage of one session: an append-only log and a few small documents.
pub trait SessionStore {
    /// Returns whether anything was ever stored.
    ///
    /// # Errors
    /// The store failed.
    fn exists(&self) -> Result<bool, StoreError>;

    /// Commits a batch atomically.
    ///
    /// # Errors
    /// The store failed. Nothing of the batch is stored then.
    fn commit(&self, batch: Batch) -> Result<(), StoreError>;

    /// Returns the sequence number of the last record; 0 for an empty log.
    ///
    /// # Errors
    /// The store failed.
    fn last_seq(&self) -> Result<u64, StoreError>;

    /// Reads records.
    ///
    /// # Errors
    /// The store failed.
    fn read(&self, select: Select<'_>) -> Result<Vec<StoredRecord>, StoreError>;

    /// Reads a document.
    ///
    /// # Errors
    /// The store failed.
    fn get(&self, key: &str) -> Result<Option<String>, StoreError>;

    /// Reads all documents whose key starts with `prefix`, sorted by key.
    ///
    /// # Errors
    /// The store failed.
    fn list(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError>;

    /// Deletes all records and documents.
    ///
    /// # Errors
    /// The store failed.
    fn erase(&self) -> Result<(), StoreError>;
}
