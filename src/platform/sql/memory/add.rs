//! Adding entries. A transaction has the same number of statements however many entries it adds.
//!
//! Until the last statement advances `memory_serial`, the rows added by the transaction are those with a
//! higher serial number.

use super::{COLLECTION, named, source_name, token};
use crate::platform::sql::{Rows, Statement, json, read, storage};
use crate::ports::memory::{Collection, CollectionKind, MemoryResult, NewEntry, NewPart, Source};
use crate::types::StorageLimits;
use serde::Deserialize;
use std::collections::HashSet;

/// Maximum length of a parameter in bytes. D1 allows two million.
const MAX_ARGUMENT: usize = 1_900_000;

/// The entries added by one transaction.
#[derive(Default)]
pub(super) struct Load {
    /// The parts as JSON, for [`insert_entries`].
    entries: Vec<String>,
    /// The terms as JSON, for [`insert_terms`].
    terms: Vec<String>,
    bytes: usize,
    logs: bool,
    /// The key of each entry, with the number and the size of its rows.
    sizes: Vec<(String, usize, usize)>,
}

/// Splits entries into loads, in order. Of several entries with the same key the first is used.
pub(super) fn loads(entries: &[NewEntry]) -> MemoryResult<Vec<Load>> {
    let mut loads: Vec<Load> = Vec::new();
    let mut seen = HashSet::new();
    for (number, entry) in entries.iter().enumerate().filter(|(_, entry)| seen.insert(&entry.key)) {
        let text_bytes = entry.parts.iter().map(|part| part.text.len()).sum();
        let sizes = vec![(entry.key.clone(), entry.parts.len(), text_bytes)];
        let mut load = Load { logs: entry.source == Source::Log, sizes, ..Load::default() };
        for (part, text) in entry.parts.iter().enumerate() {
            load.push(number, part, entry, text)?;
        }
        match loads.last_mut().filter(|last| last.bytes + load.bytes <= MAX_ARGUMENT) {
            Some(last) => last.append(load),
            None => loads.push(load),
        }
    }
    Ok(loads)
}

impl Load {
    fn push(&mut self, number: usize, part: usize, entry: &NewEntry, what: &NewPart) -> MemoryResult<()> {
        let NewEntry { key, source, group, session, at, speaker, .. } = entry;
        let NewPart { text, terms, length } = what;
        let source = source_name(*source);
        let row = json(&(number, key, part, source, group, session, at.0, speaker, length, text))?;
        // A part may contain no terms.
        let terms =
            terms.split(' ').filter(|_| !terms.is_empty()).map(token).collect::<Result<Vec<_>, _>>()?;
        let terms = json(&(key, part, terms.join(" ")))?;
        self.bytes += row.len().max(terms.len()) + 1;
        self.entries.push(row);
        self.terms.push(terms);
        Ok(())
    }

    fn append(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.terms.extend(other.terms);
        self.bytes += other.bytes;
        self.logs |= other.logs;
        self.sizes.extend(other.sizes);
    }

    /// Returns the statement that reports why nothing of the load was added.
    pub(super) fn refusal<'a>(
        &self,
        collection: &'a Collection,
        limits: &StorageLimits,
    ) -> MemoryResult<Statement<'a>> {
        let sizes: Vec<_> =
            self.sizes.iter().map(|(key, rows, bytes)| (key.as_str(), *rows, *bytes)).collect();
        Ok(storage::refused_memory(limits, COLLECTION, named(collection), &sizes)?)
    }

    /// Returns the statements of the transaction. The first one inserts the entries. They add nothing if the collection does
    /// not exist.
    pub(super) fn statements<'a>(
        &self,
        collection: &'a Collection,
        limits: &StorageLimits,
    ) -> Vec<Statement<'a>> {
        let list = |items: &[String]| format!("[{}]", items.join(",")).into();
        let with = |argument| named(collection).into_iter().chain([argument]).collect::<Vec<_>>();
        let mut statements = vec![
            Statement::new(insert_entries(limits), with(list(&self.entries))),
            Statement::new(insert_terms(), with(list(&self.terms))),
            Statement::new(count_groups(), named(collection)),
            Statement::new(count_documents(), named(collection)),
        ];
        if collection.kind == CollectionKind::Facts && self.logs {
            statements.push(Statement::new(make_dirty(), named(collection)));
        }
        statements.push(Statement::new(move_serial(), named(collection)));
        statements
    }

    /// Returns the statements of a transaction that also creates the collection, unless its entries are refused. The second
    /// one inserts the entries.
    pub(super) fn statements_with_collection<'a>(
        &self,
        collection: &'a Collection,
        limits: &StorageLimits,
    ) -> Vec<Statement<'a>> {
        let mut statements = self.statements(collection, limits);
        statements.insert(0, Statement::new(INSERT_COLLECTION, named(collection)));
        // Before the serial number moves.
        let last = statements.len() - 1;
        statements.insert(last, Statement::new(remove_new_collection(), named(collection)));
        statements
    }
}

#[derive(Deserialize)]
struct Added {
    part: f64,
}

/// Returns the number of entries that the transaction added. `insert` is the index of the statement that inserts them.
pub(super) fn count(results: &[impl Rows], insert: usize) -> MemoryResult<usize> {
    let added: Vec<Added> = read(results, insert)?;
    Ok(added.iter().filter(|row| row.part == 0.0).count())
}

/// Returns the rows that this transaction has added.
fn added() -> String {
    format!("memory_entries WHERE collection = {COLLECTION} AND serial > (SELECT last FROM memory_serial)")
}

/// A new collection gets its number from the serial of its first entry, so that no number is ever reused.
const INSERT_COLLECTION: &str = "INSERT INTO memory_collections (id, tenant, user, agent, kind) \
                                 SELECT last + 1, ?1, ?2, ?3, ?4 FROM memory_serial WHERE true \
                                 ON CONFLICT (tenant, user, agent, kind) DO NOTHING";

fn insert_entries(limits: &StorageLimits) -> String {
    let quota = storage::memory_quota(limits);
    format!(
        "INSERT INTO memory_entries (collection, serial, key, part, source, grp, position, session, at, \
         speaker, length, text) \
         WITH given AS (SELECT {COLLECTION} AS collection, j.key AS row, value ->> 0 AS entry, \
           value ->> 1 AS key, value ->> 2 AS part, value ->> 3 AS source, value ->> 4 AS grp, \
           value ->> 5 AS session, value ->> 6 AS at, value ->> 7 AS speaker, value ->> 8 AS length, \
           value ->> 9 AS text FROM json_each(?5) AS j), \
         fresh AS (SELECT * FROM given WHERE collection IS NOT NULL \
           AND NOT EXISTS (SELECT 1 FROM memory_entries AS old \
           WHERE old.collection = given.collection AND old.key = given.key AND old.part = 0)) \
         SELECT collection, (SELECT last FROM memory_serial) + row_number() OVER (ORDER BY row), key, part, \
           source, grp, coalesce((SELECT next FROM memory_groups AS g \
             WHERE g.collection = fresh.collection AND g.name = fresh.grp), 0) \
             + dense_rank() OVER (PARTITION BY grp ORDER BY entry) - 1, \
           session, at, speaker, length, text \
         FROM fresh WHERE {quota} IS NULL RETURNING part"
    )
}

fn insert_terms() -> String {
    format!(
        "INSERT INTO memory_terms (rowid, terms) SELECT serial, replace(value ->> 2, '@', collection) \
         FROM json_each(?5) AS j CROSS JOIN memory_entries AS e ON e.collection = {COLLECTION} \
         AND e.key = value ->> 0 AND e.part = value ->> 1 WHERE serial > (SELECT last FROM memory_serial)"
    )
}

/// `max(serial)` and `max(position)` come from the same row, so that the bare column `at` belongs to it as
/// well.
fn count_groups() -> String {
    let added = added();
    format!(
        "INSERT INTO memory_groups (collection, name, next, entries, bytes, last, updated_at) \
         SELECT collection, grp, max(position) + 1, sum(part = 0), sum(octet_length(text)), max(serial), \
         at FROM {added} GROUP BY grp ON CONFLICT (collection, name) DO UPDATE SET \
         next = excluded.next, entries = entries + excluded.entries, bytes = bytes + excluded.bytes, \
         last = excluded.last, updated_at = excluded.updated_at"
    )
}

/// The first entry of each group has position 0, so counting those counts the new groups.
fn count_documents() -> String {
    let added = added();
    format!(
        "UPDATE memory_collections SET documents = documents + parts, length = length + words, \
         groups = groups + begun, bytes = bytes + size \
         FROM (SELECT count(*) AS parts, sum(length) AS words, sum(position = 0 AND part = 0) AS begun, \
           sum(octet_length(text)) AS size \
           FROM {added}) WHERE id = {COLLECTION} AND parts > 0"
    )
}

/// A space that is already dirty keeps its time, because its first fact is older.
fn make_dirty() -> String {
    let added = added();
    format!(
        "INSERT INTO memory_spaces (tenant, user, agent, dirty_since) \
         SELECT ?1, ?2, ?3, at FROM {added} AND source = 'log' ORDER BY serial LIMIT 1 \
         ON CONFLICT (tenant, user, agent) DO UPDATE SET dirty_since = excluded.dirty_since \
         WHERE dirty_since IS NULL"
    )
}

/// A collection whose first entries were refused is removed: the next new one of the database gets the same number.
fn remove_new_collection() -> String {
    let added = added();
    format!(
        "DELETE FROM memory_collections WHERE id = {COLLECTION} \
         AND id > (SELECT last FROM memory_serial) AND NOT EXISTS (SELECT 1 FROM {added})"
    )
}

fn move_serial() -> String {
    let added = added();
    format!(
        "UPDATE memory_serial SET last = newest FROM (SELECT max(serial) AS newest FROM {added}) \
         WHERE newest IS NOT NULL"
    )
}
