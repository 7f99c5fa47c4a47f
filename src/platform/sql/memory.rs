//! The memory index (`migrations/0004_memory.sql`, `0011_tenant_storage.sql`, `0015_erased_terms.sql`).
//!
//! All collections share one full-text index. To keep them apart, each term is stored as `c@_term`, where the
//! database replaces `@`, which no term contains, with the collection's number.

mod add;
pub(super) mod copy;
mod find;
mod list;
mod merge;
pub(super) mod remove;

use super::{Databases, Sql, SqlError, Statement, Value, read, storage};
use crate::ports::MemoryIndex;
use crate::ports::directory::SHARDS_PER_SWEEP;
use crate::ports::memory::{
    Collection, CollectionKind, Entry, Group, Listing, MemoryError, MemoryResult, NewEntry, Place, Removal,
    Source, Statistics, TermQuery,
};
use crate::types::{SessionId, StorageLimits, TenantId, Timestamp, UserId, time::in_turn};
use async_trait::async_trait;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The number of the collection identified by the first four parameters.
const COLLECTION: &str =
    "(SELECT id FROM memory_collections WHERE tenant = ?1 AND user = ?2 AND agent = ?3 AND kind = ?4)";

/// The columns of an [`Entry`].
const ENTRY: &str = "serial, key, part, source, grp, position, session, at, speaker, length, text";

/// The memory index.
pub struct SqlMemory<D> {
    databases: D,
    /// The limits of tenants that have none of their own.
    limits: StorageLimits,
}

impl<D: Databases> SqlMemory<D> {
    /// Creates the index in these databases. `limits` are those of tenants that have none of their own.
    pub fn new(databases: D, limits: StorageLimits) -> Self {
        Self { databases, limits }
    }

    /// Runs a batch in the collection's database.
    async fn batch(
        &self,
        collection: &Collection,
        statements: &[Statement<'_>],
    ) -> MemoryResult<Vec<<D::Database as Sql>::Rows>> {
        Ok(self.databases.of(&collection.tenant, &collection.user).await?.batch(statements).await?)
    }

    /// Returns the databases with the memory of a user, or of all users of a tenant.
    async fn databases_of(&self, tenant: &TenantId, user: Option<&UserId>) -> MemoryResult<Vec<D::Database>> {
        Ok(match user {
            Some(user) => vec![self.databases.of(tenant, user).await?],
            None => self.databases.all_of(tenant).await?,
        })
    }
}

impl From<SqlError> for MemoryError {
    fn from(error: SqlError) -> Self {
        Self::Unavailable(error.0)
    }
}

/// Returns the parameters of [`COLLECTION`].
fn named(collection: &Collection) -> Vec<Value<'_>> {
    let Collection { tenant, agent, user, kind } = collection;
    [tenant.as_str(), user, agent, kind_name(*kind)].map(Value::from).into()
}

/// Returns the name of a kind in a row.
fn kind_name(kind: CollectionKind) -> &'static str {
    match kind {
        CollectionKind::Facts => "facts",
        CollectionKind::Turns => "turns",
    }
}

/// Returns the name of a source in a row.
fn source_name(source: Source) -> &'static str {
    match source {
        Source::Log => "log",
        Source::Memory => "memory",
        Source::Session => "session",
    }
}

/// Returns a term as stored in the index. The characters are restricted so that a term cannot be parsed as an
/// operator or belong to another collection.
fn token(term: &str) -> MemoryResult<String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || !c.is_ascii();
    if term.is_empty() || !term.chars().all(fits) {
        // The term itself is user data and must not be logged.
        return Err(MemoryError::Unavailable("a term contains a character that is not allowed".into()));
    }
    Ok(format!("c@_{term}"))
}

#[derive(Deserialize)]
struct EntryRow {
    serial: f64,
    key: String,
    part: f64,
    source: Source,
    grp: String,
    position: f64,
    session: Option<SessionId>,
    at: f64,
    speaker: Option<String>,
    length: f64,
    text: String,
}

impl EntryRow {
    fn read(self) -> Entry {
        let Self { key, source, session, speaker, text, .. } = self;
        Entry {
            serial: self.serial as u64,
            key,
            source,
            group: self.grp,
            session,
            position: self.position as u32,
            part: self.part as u32,
            at: Timestamp(self.at as u64),
            speaker,
            text,
            length: self.length as u32,
        }
    }
}

#[derive(Deserialize)]
struct More {
    more: f64,
}

/// Returns the result of a statement that selects `AS more`.
fn more(results: &[impl super::Rows]) -> MemoryResult<bool> {
    let rows: Vec<More> = read(results, results.len().saturating_sub(1))?;
    Ok(rows.first().is_some_and(|row| row.more > 0.0))
}

#[async_trait(?Send)]
impl<D: Databases> MemoryIndex for SqlMemory<D> {
    async fn locate(&self, tenant: &TenantId) -> MemoryResult<()> {
        Ok(self.databases.locate(tenant).await?)
    }

    async fn add(&self, collection: &Collection, entries: &[NewEntry]) -> MemoryResult<usize> {
        let mut added = 0;
        for load in add::loads(entries)? {
            // Most often the collection exists, so it is only created when nothing was added without.
            let results = self.batch(collection, &load.statements(collection, &self.limits)).await?;
            let mut new = add::count(&results, 0)?;
            if new == 0 {
                let mut statements = load.statements_with_collection(collection, &self.limits);
                statements.push(load.refusal(collection, &self.limits)?);
                let results = self.batch(collection, &statements).await?;
                new = add::count(&results, 1)?;
                if let Some(quota) = results.last().map(storage::read_quota).transpose()?.flatten() {
                    return Err(quota.into());
                }
            }
            added += new;
        }
        Ok(added)
    }

    async fn statistics(&self, collection: &Collection, terms: &[String]) -> MemoryResult<Statistics> {
        let results = self.batch(collection, &find::statistics(collection, terms)?).await?;
        find::read_statistics(&results, terms.len())
    }

    async fn find(&self, collection: &Collection, queries: &[TermQuery]) -> MemoryResult<Vec<Entry>> {
        let statements = find::queries(collection, queries)?;
        if statements.is_empty() {
            return Ok(Vec::new());
        }
        let mut found = BTreeMap::new();
        for rows in self.batch(collection, &statements).await? {
            let rows = super::Rows::read::<EntryRow>(&rows)?.into_iter().map(EntryRow::read);
            found.extend(rows.map(|entry| (entry.serial, entry)));
        }
        Ok(found.into_values().rev().collect())
    }

    async fn around(&self, collection: &Collection, places: &[Place]) -> MemoryResult<Vec<Entry>> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let results = self.batch(collection, &[find::around(collection, places)?]).await?;
        let rows = read::<EntryRow>(&results, 0)?.into_iter().map(EntryRow::read);
        // Places may overlap.
        let found: BTreeMap<_, _> =
            rows.map(|entry| ((entry.group.clone(), entry.position), entry)).collect();
        Ok(found.into_values().collect())
    }

    async fn list(&self, collection: &Collection, listing: &Listing) -> MemoryResult<Vec<Entry>> {
        let results = self.batch(collection, &[list::entries(collection, listing)]).await?;
        Ok(read::<EntryRow>(&results, 0)?.into_iter().map(EntryRow::read).collect())
    }

    async fn collections(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        after: Option<&Collection>,
        limit: usize,
    ) -> MemoryResult<Vec<Collection>> {
        // Each database returns its first ones, so the first ones of all of them are among these.
        let mut found = Vec::new();
        for database in self.databases_of(tenant, user).await? {
            let results = database.batch(&[list::collections(tenant, user, after, limit)]).await?;
            found.extend(list::read_collections(tenant, &results)?);
        }
        found.sort_by(|a, b| list::order(a).cmp(&list::order(b)));
        found.truncate(limit);
        Ok(found)
    }

    async fn groups(
        &self,
        collection: &Collection,
        after: Option<&str>,
        limit: usize,
    ) -> MemoryResult<Vec<Group>> {
        let results = self.batch(collection, &[list::groups(collection, after, limit)]).await?;
        list::read_groups(&results)
    }

    async fn remove(&self, collection: &Collection, what: &Removal) -> MemoryResult<bool> {
        more(&self.batch(collection, &remove::some(collection, what)?).await?)
    }

    async fn erase(&self, tenant: &TenantId, user: Option<&UserId>) -> MemoryResult<bool> {
        for database in self.databases_of(tenant, user).await? {
            if more(&database.batch(&remove::all(tenant, user)).await?)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn drop_erased_terms(&self, now: Timestamp) -> MemoryResult<bool> {
        let (mut more, mut failed) = (false, None);
        for database in in_turn(self.databases.all(), SHARDS_PER_SWEEP, now) {
            // A database that fails does not block the others.
            match merge::step(&database, now).await {
                Ok(is_merging) => more |= is_merging,
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(more), |error| Err(error.into()))
    }
}
