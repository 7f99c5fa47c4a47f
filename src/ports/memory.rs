//! What an agent remembers of a user, so that words find it again: an index of entries, each in the
//! collection of one user.
//!
//! Words are analysed and hits are ranked by `memory`, which alone knows how; an index stores terms as
//! they come, counts them, and picks rows by them. All that it tells of a collection (numbers,
//! frequencies, rows) comes from that collection alone, whatever others hold.

use crate::types::{TenantId, Timestamp};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use thiserror::Error;

/// The index does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("memory: {0}")]
pub struct MemoryError(pub String);

/// The result of an index call.
pub type MemoryResult<T> = Result<T, MemoryError>;

/// What a collection holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectionKind {
    /// What was learned: lines of logs and of the long-term memory.
    Facts,
    /// What was said: the turns of sessions.
    Turns,
}

/// Whose memory: everything in an index stands below one of these.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Collection {
    /// The tenant.
    pub tenant: TenantId,
    /// The agent.
    pub agent: String,
    /// The user.
    pub user: String,
    /// What it holds.
    pub kind: CollectionKind,
}

/// Where an entry comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A day's log.
    Log,
    /// The long-term memory. Its entries, and no others, stand in the group [`LONG_TERM`], each under a key
    /// that starts with this name and `#`.
    Memory,
    /// A session.
    Session,
}

/// The group of what comes from the long-term memory.
pub const LONG_TERM: &str = "MEMORY.md";

/// An entry to be added: one turn, or one fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry {
    /// The caller's id, one of its kind in the collection.
    pub key: String,
    /// Where it comes from.
    pub source: Source,
    /// What it stands together with, in order: the session of a turn, the session or the day of a fact.
    /// Entries of one group are each other's neighbours.
    pub group: String,
    /// The session it was said in or drawn from, where there is one.
    pub session: Option<String>,
    /// When it was said or learned.
    pub at: Timestamp,
    /// Who said it: a name, `user` or `assistant`.
    pub speaker: Option<String>,
    /// Its text in one or more parts, each of which can be found by itself. Never empty.
    pub parts: Vec<NewPart>,
}

/// A part of an entry: one row of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPart {
    /// The text.
    pub text: String,
    /// Its terms, separated by one space each; a term that stands there twice counts once. A term has
    /// at least one character and holds lower-case ASCII letters and digits, `_`, and characters
    /// beyond ASCII; nothing else.
    pub terms: String,
    /// How many words it has, which is its length to the ranking.
    pub length: u32,
}

/// What the ranking needs to know of a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// How many parts (rows) it holds.
    pub documents: u64,
    /// The sum of their lengths.
    pub length: u64,
    /// How many groups they stand in.
    pub groups: u64,
    /// In how many parts each term that was asked for stands, in the order of asking.
    pub frequency: Vec<u64>,
}

/// Picks parts of a collection by the terms they hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TermQuery {
    /// At least one of these holds, of which all terms are there. Neither is ever empty.
    pub any_of: Vec<Vec<String>>,
    /// None of these terms is there.
    pub none_of: Vec<String>,
    /// At most so many parts, those added last first.
    pub limit: usize,
}

/// A run of neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Their group.
    pub group: String,
    /// Their positions in it.
    pub positions: Range<u32>,
}

/// A part of an entry, as it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The number of this part, which grows with each part that is added to the index. For order and
    /// for paging only: numbers of one collection have gaps.
    pub serial: u64,
    /// The caller's id; all parts of an entry have the same.
    pub key: String,
    /// Where it comes from.
    pub source: Source,
    /// What it stands together with.
    pub group: String,
    /// The session it was said in or drawn from, where there is one.
    pub session: Option<String>,
    /// Its place in its group, from 0, in the order of adding; all parts of an entry have the same.
    pub position: u32,
    /// Which part of the entry this is, from 0.
    pub part: u32,
    /// When it was said or learned.
    pub at: Timestamp,
    /// Who said it.
    pub speaker: Option<String>,
    /// The text of this part.
    pub text: String,
    /// How many words it has.
    pub length: u32,
}

/// Which entries to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Only this group.
    pub group: Option<String>,
    /// Only this session.
    pub session: Option<String>,
    /// Only from this time on.
    pub from: Option<Timestamp>,
    /// Only before this time.
    pub until: Option<Timestamp>,
    /// Only from this source.
    pub source: Option<Source>,
    /// Only parts with a lower serial number: the last one of the page before.
    pub before: Option<u64>,
    /// Only parts with a higher serial number.
    pub after: Option<u64>,
    /// Those added first, first.
    pub oldest_first: bool,
    /// Only the first part (`part` 0) of each entry. Of a group, no more is read than is returned if nothing
    /// else is asked for.
    pub first_parts: bool,
    /// At most so many parts.
    pub limit: usize,
}

/// A group as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// How many entries it has.
    pub entries: u64,
    /// The bytes of all their texts.
    pub bytes: u64,
    /// The serial number of the part that was added last.
    pub last: u64,
    /// When something was last added.
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
    Session(String),
    /// All entries.
    All,
}

/// The index of memories.
#[async_trait(?Send)]
pub trait MemoryIndex {
    /// Looks up where a tenant's memory is, so that the next call does not have to: for those who must not wait
    /// between a check and what they write.
    async fn locate(&self, tenant: &TenantId) -> MemoryResult<()>;

    /// Adds entries behind those of their groups, in this order, and tells how many were added. An
    /// entry whose key the collection has already is left as it is, so that adding again changes
    /// nothing. The index gives out the positions, without gaps and without two alike, whoever else
    /// is adding. Facts of source [`Source::Log`] make their space dirty in the same step (see
    /// [`super::MemorySpaces`]).
    async fn add(&self, collection: &Collection, entries: &[NewEntry]) -> MemoryResult<usize>;

    /// The numbers of a collection, with the frequencies of `terms`. Reads one row for each term and
    /// one for the collection.
    async fn statistics(&self, collection: &Collection, terms: &[String]) -> MemoryResult<Statistics>;

    /// The parts that any of `queries` picks, each once, those added last first; in one round trip. Reads two
    /// rows for each query, and two for each part that it picks.
    async fn find(&self, collection: &Collection, queries: &[TermQuery]) -> MemoryResult<Vec<Entry>>;

    /// The first parts (`part` 0) of the entries at `places`, by group and position; in one round
    /// trip. Reads one row for each, two for each place, and one.
    async fn around(&self, collection: &Collection, places: &[Place]) -> MemoryResult<Vec<Entry>>;

    /// The parts that `listing` names, those added last first unless it says otherwise.
    async fn list(&self, collection: &Collection, listing: &Listing) -> MemoryResult<Vec<Entry>>;

    /// Up to `limit` groups that have entries, behind the name `after`, by name.
    async fn groups(
        &self,
        collection: &Collection,
        after: Option<&str>,
        limit: usize,
    ) -> MemoryResult<Vec<Group>>;

    /// Removes entries and tells whether more is left of what was to go: one call does a bounded
    /// amount of work. Without facts of source [`Source::Log`] behind its watermark, a space is not dirty. Positions are not given out again while their group has other entries.
    async fn remove(&self, collection: &Collection, what: &Removal) -> MemoryResult<bool>;

    /// Removes what is kept of a user, or of the whole tenant, spaces included, and tells whether more is
    /// left.
    async fn erase(&self, tenant: &TenantId, user: Option<&str>) -> MemoryResult<bool>;
}
