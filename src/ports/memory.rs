//! The search index of memories: facts and turns, in one collection per user, agent, and kind.
//!
//! `memory` extracts terms from text and ranks the results. An index only stores terms, counts them, and
//! selects rows by them. All results of a call come from one collection, independent of the content of
//! others.

use crate::types::{AgentId, SessionId, StorageQuota, TenantId, Timestamp, UserId};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use thiserror::Error;

/// A failed index call.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MemoryError {
    /// The store failed, with its message.
    #[error("memory: {0}")]
    Unavailable(String),
    /// The tenant has reached a limit. Nothing was added.
    #[error(transparent)]
    Quota(#[from] StorageQuota),
}

/// The result of an index call.
pub type MemoryResult<T> = Result<T, MemoryError>;

/// The kind of entries in a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectionKind {
    /// Facts: entries of daily logs and of `MEMORY.md`.
    Facts,
    /// Turns of sessions.
    Turns,
}

/// The address of a collection. Every entry belongs to exactly one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Collection {
    /// The tenant.
    pub tenant: TenantId,
    /// The agent.
    pub agent: AgentId,
    /// The user.
    pub user: UserId,
    /// The kind of entries.
    pub kind: CollectionKind,
}

/// The origin of an entry.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "MemorySource")]
pub enum Source {
    /// A daily log.
    Log,
    /// `MEMORY.md`.
    // All its entries, and no others, are in the group `LONG_TERM`, with keys that start with this name and `#`.
    Memory,
    /// A session.
    Session,
}

/// The group of all entries from `MEMORY.md`.
pub const LONG_TERM: &str = "MEMORY.md";

/// An entry to add: one turn or one fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry {
    /// The caller's key, unique in the collection.
    pub key: String,
    /// The origin.
    pub source: Source,
    /// The group: the session of a turn, or the session or day of a fact. Entries of a group are ordered and
    /// are each other's neighbors.
    pub group: String,
    /// The session the entry comes from, if any.
    pub session: Option<SessionId>,
    /// When the entry was said or learned.
    pub at: Timestamp,
    /// The author: a name, `user`, or `assistant`.
    pub speaker: Option<String>,
    /// The text, in one or more parts that are indexed separately. Never empty.
    pub parts: Vec<NewPart>,
}

/// One part of an entry, stored as one row of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPart {
    /// The text.
    pub text: String,
    /// The terms, separated by single spaces. A repeated term counts once. A term is not empty and consists
    /// of lower-case ASCII letters, digits, `_`, and non-ASCII characters.
    pub terms: String,
    /// Number of words: the length used by the ranking.
    pub length: u32,
}

/// Statistics of a collection for the ranking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Number of parts (rows).
    pub documents: u64,
    /// Sum of the parts' lengths.
    pub length: u64,
    /// Number of groups.
    pub groups: u64,
    /// Number of parts that contain each requested term, in the order of the request.
    pub frequency: Vec<u64>,
}

/// Selects parts of a collection by their terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TermQuery {
    /// Alternatives. A part matches an alternative if it contains all of its terms. No list is empty.
    pub any_of: Vec<Vec<String>>,
    /// Terms that a matching part must not contain.
    pub none_of: Vec<String>,
    /// Maximum number of parts; the most recently added ones are selected.
    pub limit: usize,
}

/// A range of neighboring entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The group.
    pub group: String,
    /// The positions within the group.
    pub positions: Range<u32>,
}

/// One part of a stored entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Serial number of the part, increasing with each part added to the index. Usable for order and paging
    /// only: the numbers of a collection have gaps.
    pub serial: u64,
    /// The caller's key, common to all parts of an entry.
    pub key: String,
    /// The origin.
    pub source: Source,
    /// The group.
    pub group: String,
    /// The session the entry comes from, if any.
    pub session: Option<SessionId>,
    /// Position of the entry in its group, starting at 0, in the order of addition; common to all parts.
    pub position: u32,
    /// Index of the part within the entry, starting at 0.
    pub part: u32,
    /// When the entry was said or learned.
    pub at: Timestamp,
    /// The author.
    pub speaker: Option<String>,
    /// The text of this part.
    pub text: String,
    /// Number of words.
    pub length: u32,
}

/// Selects entries to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Restricts to this group.
    pub group: Option<String>,
    /// Restricts to this session.
    pub session: Option<SessionId>,
    /// Restricts to this time and later.
    pub from: Option<Timestamp>,
    /// Restricts to earlier times.
    pub until: Option<Timestamp>,
    /// Restricts to this origin.
    pub source: Option<Source>,
    /// Restricts to lower serial numbers, such as that of the last part of the previous page.
    pub before: Option<u64>,
    /// Restricts to higher serial numbers.
    pub after: Option<u64>,
    /// Sorts by serial number, ascending.
    pub oldest_first: bool,
    /// Restricts to the first part of each entry. Together with `group` alone, no more rows are read than
    /// returned.
    pub first_parts: bool,
    /// Maximum number of parts.
    pub limit: usize,
}

/// A group of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The group's name.
    pub name: String,
    /// Number of entries.
    pub entries: u64,
    /// Size of all texts, in bytes.
    pub bytes: u64,
    /// Serial number of the most recently added part.
    pub last: u64,
    /// When an entry was last added.
    pub updated_at: Timestamp,
}

/// What to remove from a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The entries with these keys.
    Keys(Vec<String>),
    /// The entries of a group.
    Group(String),
    /// The entries of a session.
    Session(SessionId),
    /// All entries.
    All,
}

/// The index of memories.
///
/// ```
/// # use edge_harness::ports::{MemoryIndex, memory::{Collection, MemoryResult, Removal}};
/// /// Removes all entries of a collection.
/// async fn clear(index: &dyn MemoryIndex, collection: &Collection) -> MemoryResult<()> {
///     while index.remove(collection, &Removal::All).await? {}
///     Ok(())
/// }
/// ```
#[async_trait(?Send)]
pub trait MemoryIndex {
    /// Looks up the location of a tenant's memory in advance, so that the next call completes without another
    /// wait.
    async fn locate(&self, tenant: &TenantId) -> MemoryResult<()>;

    /// Appends entries to their groups, in this order, and returns how many were added. An entry whose key
    /// exists is left unchanged, so that the call is idempotent. The index assigns positions, unique and
    /// without gaps even among concurrent callers. Facts of source [`Source::Log`] mark their space as dirty
    /// in the same commit (see
    /// [`super::MemorySpaces`]). Entries that would exceed a limit of the tenant are not added; of very many entries,
    /// the first may be.
    async fn add(&self, collection: &Collection, entries: &[NewEntry]) -> MemoryResult<usize>;

    /// Returns the statistics of a collection, with the frequencies of `terms`. Reads one row per term and
    /// one for the collection.
    async fn statistics(&self, collection: &Collection, terms: &[String]) -> MemoryResult<Statistics>;

    /// Returns the parts that match any of `queries`, without duplicates, most recently added first, in one
    /// round trip. Reads two rows per query and two per matching part.
    async fn find(&self, collection: &Collection, queries: &[TermQuery]) -> MemoryResult<Vec<Entry>>;

    /// Returns the first parts of the entries at `places`, ordered by group and position, in one round trip.
    /// Reads one row per entry, two per place, and one more.
    async fn around(&self, collection: &Collection, places: &[Place]) -> MemoryResult<Vec<Entry>>;

    /// Returns the parts selected by `listing`, most recently added first by default.
    async fn list(&self, collection: &Collection, listing: &Listing) -> MemoryResult<Vec<Entry>>;

    /// Lists up to `limit` collections of a tenant, or of one of its users, after `after`, sorted by user, agent and
    /// kind.
    async fn collections(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        after: Option<&Collection>,
        limit: usize,
    ) -> MemoryResult<Vec<Collection>>;

    /// Lists up to `limit` groups after the name `after`, sorted by name.
    async fn groups(
        &self,
        collection: &Collection,
        after: Option<&str>,
        limit: usize,
    ) -> MemoryResult<Vec<Group>>;

    /// Removes a bounded number of entries and returns whether more are left. A space without facts of source
    /// [`Source::Log`] after its watermark is no longer dirty. A group does not reuse positions while it has
    /// entries.
    async fn remove(&self, collection: &Collection, what: &Removal) -> MemoryResult<bool>;

    /// Erases a bounded amount of the memory of a user, or of the whole tenant, including spaces. Returns
    /// whether more is
    /// left.
    async fn erase(&self, tenant: &TenantId, user: Option<&UserId>) -> MemoryResult<bool>;

    /// Removes some of the terms that the index still has of erased entries and of erased sessions, in every database.
    /// Returns whether another call has to follow.
    async fn drop_erased_terms(&self, now: Timestamp) -> MemoryResult<bool>;
}
