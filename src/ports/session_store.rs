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

/// The key of a document that most commits with records write, so that a store may keep the newest records next to it.
pub const ACTIVITY: &str = "state/activity";

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

/// Maximum size of a [`Page`], in bytes of JSON. The sessions of an isolate share 128 MB, and a page that is being
/// processed takes several times its size.
pub const PAGE_BYTES: usize = 1 << 20;

/// Maximum number of records of a [`Page`].
pub const PAGE_RECORDS: usize = 256;

/// Selects records to read.
#[derive(Clone, Copy, Debug)]
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
    /// Maximum number of records of a page, at most [`PAGE_RECORDS`].
    pub limit: usize,
}

impl Default for Select<'_> {
    /// Selects all records.
    fn default() -> Self {
        Self { after: 0, before: None, kinds: &[], turn: None, newest_first: false, limit: PAGE_RECORDS }
    }
}

impl<'a> Select<'a> {
    /// Returns whether a record is selected.
    pub fn selects(&self, seq: u64, kind: &str, turn: Option<&str>) -> bool {
        seq > self.after
            && self.before.is_none_or(|before| seq < before)
            && (self.kinds.is_empty() || self.kinds.contains(&kind))
            && self.turn.is_none_or(|own| turn == Some(own))
    }

    /// Returns the maximum number of records of a page: at least one, so that every read makes progress.
    pub fn page_limit(&self) -> usize {
        self.limit.clamp(1, PAGE_RECORDS)
    }

    /// Returns the selection of the records that follow a page; `None` if it was the last one.
    fn following(self, page: &Page) -> Option<Self> {
        let last = page.records.last().filter(|_| page.more)?.seq;
        Some(match self.newest_first {
            true => Self { before: Some(last), ..self },
            false => Self { after: last, ..self },
        })
    }

    /// Reads a page of a log that is held in memory, in order of sequence numbers.
    pub fn page<'r>(&self, log: impl DoubleEndedIterator<Item = &'r StoredRecord>) -> Page {
        let selected = log.filter(|record| self.selects(record.seq, &record.kind, record.turn.as_deref()));
        let mut page = PageBuilder::new(self);
        match self.newest_first {
            true => selected.rev().all(|record| page.add(record.clone())),
            false => selected.into_iter().all(|record| page.add(record.clone())),
        };
        page.end()
    }
}

/// A part of the selected records: at most [`PAGE_RECORDS`] and [`PAGE_BYTES`]. A larger record is a page of its
/// own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The records; empty only if none is selected.
    pub records: Vec<StoredRecord>,
    /// Whether more of the selected records follow.
    pub more: bool,
}

/// Fills a page in the order of the selection. All stores use it, so that they have the same limits.
#[derive(Debug)]
pub struct PageBuilder {
    page: Page,
    bytes: usize,
    limit: usize,
}

impl PageBuilder {
    /// Creates an empty page for a selection.
    pub fn new(select: &Select<'_>) -> Self {
        Self { page: Page::default(), bytes: 0, limit: select.page_limit() }
    }

    /// Adds a record. Returns `false`, and leaves it out, if the page is full. The first record always fits.
    pub fn add(&mut self, record: StoredRecord) -> bool {
        let bytes = self.bytes + record.json.len();
        let count = self.page.records.len();
        let fits = count == 0 || (!self.page.more && count < self.limit && bytes <= PAGE_BYTES);
        if fits {
            self.bytes = bytes;
            self.page.records.push(record);
        } else {
            self.page.more = true;
        }
        fits
    }

    /// Returns the page.
    pub fn end(self) -> Page {
        self.page
    }
}

/// All selected records. One page of them is in memory at a time.
pub struct Records<'a> {
    store: &'a dyn SessionStore,
    rest: Option<Select<'a>>,
    page: std::vec::IntoIter<StoredRecord>,
}

impl<'a> Records<'a> {
    /// Selects records of a store.
    pub fn new(store: &'a dyn SessionStore, select: Select<'a>) -> Self {
        Self { store, rest: Some(select), page: Vec::new().into_iter() }
    }
}

impl Iterator for Records<'_> {
    type Item = Result<StoredRecord, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.page.next() {
                return Some(Ok(record));
            }
            let select = self.rest.take()?;
            match self.store.read(select) {
                Ok(page) => {
                    self.rest = select.following(&page);
                    self.page = page.records.into_iter();
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The storage of one session: an append-only log and a few small documents.
///
/// ```
/// use edge_harness::{platform::in_memory::MemorySessionStore, ports::{Batch, SessionStore}};
///
/// let store = MemorySessionStore::default();
/// store.commit(Batch { put: vec![("hook/mine".into(), "{}".into())], ..Batch::default() }).unwrap();
/// assert_eq!(store.get("hook/mine").unwrap().as_deref(), Some("{}"));
/// ```
pub trait SessionStore {
    /// Returns whether anything is stored. A store without anything reads as empty.
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

    /// Reads the first page of the selected records; [`Records`] reads all of them.
    ///
    /// # Errors
    /// The store failed.
    fn read(&self, select: Select<'_>) -> Result<Page, StoreError>;

    /// Reads a document.
    ///
    /// # Errors
    /// The store failed.
    fn get(&self, key: &str) -> Result<Option<String>, StoreError>;

    /// Reads the documents with these keys, in their order. A store should do so in one query.
    ///
    /// # Errors
    /// The store failed.
    fn get_all(&self, keys: &[String]) -> Result<Vec<Option<String>>, StoreError> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    /// Reads all documents whose key starts with `prefix`, sorted by key.
    ///
    /// # Errors
    /// The store failed.
    fn list(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError>;

    /// Returns up to `limit` keys of documents from `from` to before `to`, sorted, without reading the documents.
    ///
    /// # Errors
    /// The store failed.
    fn keys(&self, from: &str, to: &str, limit: usize) -> Result<Vec<String>, StoreError>;

    /// Deletes all records and documents.
    ///
    /// # Errors
    /// The store failed.
    fn erase(&self) -> Result<(), StoreError>;
}
