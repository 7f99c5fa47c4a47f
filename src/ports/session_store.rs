//! Where one session's log and state live. Synchronous: a check and the write behind it are one.

use crate::types::Problem;
use thiserror::Error;

/// The store refused or broke.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("session store: {0}")]
pub struct StoreError(pub String);

/// A failed store is an internal error of the service: the caller sees no detail, the log does.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::internal(error.to_string())
    }
}

/// A stored record: its number and its JSON exactly as clients read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// Contiguous from 1.
    pub seq: u64,
    /// The event's `type`.
    pub kind: String,
    /// The turn that it belongs to.
    pub turn: Option<String>,
    /// The whole record as JSON.
    pub json: String,
}

/// Changes that become durable together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Records to append; their numbers go on from the last one.
    pub append: Vec<StoredRecord>,
    /// Documents to write, by key.
    pub put: Vec<(String, String)>,
    /// Documents to remove.
    pub delete: Vec<String>,
}

/// Which records to read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Select<'a> {
    /// Only records behind this number.
    pub after: u64,
    /// Only records before this number.
    pub before: Option<u64>,
    /// Only these types; all when empty.
    pub kinds: &'a [&'a str],
    /// Only this turn's.
    pub turn: Option<&'a str>,
    /// The newest first.
    pub newest_first: bool,
    /// At most so many.
    pub limit: usize,
}

/// One session's storage: an append-only log and a few small documents.
pub trait SessionStore {
    /// Whether anything was ever stored.
    ///
    /// # Errors
    /// When the store breaks.
    fn exists(&self) -> Result<bool, StoreError>;

    /// Applies a batch atomically.
    ///
    /// # Errors
    /// When the store breaks; then nothing of the batch is there.
    fn commit(&self, batch: Batch) -> Result<(), StoreError>;

    /// The number of the last record; 0 when there is none.
    ///
    /// # Errors
    /// When the store breaks.
    fn last_seq(&self) -> Result<u64, StoreError>;

    /// Reads records.
    ///
    /// # Errors
    /// When the store breaks.
    fn read(&self, select: Select<'_>) -> Result<Vec<StoredRecord>, StoreError>;

    /// Reads a document.
    ///
    /// # Errors
    /// When the store breaks.
    fn get(&self, key: &str) -> Result<Option<String>, StoreError>;

    /// Reads all documents whose key starts with `prefix`, in the order of their keys.
    ///
    /// # Errors
    /// When the store breaks.
    fn list(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError>;

    /// Removes everything.
    ///
    /// # Errors
    /// When the store breaks.
    fn erase(&self) -> Result<(), StoreError>;
}
