//! The memory index in memory. Counts the rows that a database would read.

use crate::ports::{
    MemoryIndex,
    memory::{
        Collection, CollectionKind, Entry, Group, Listing, MemoryError, MemoryResult, NewEntry, Place,
        Removal, Source, Statistics, TermQuery,
    },
    memory_spaces::Intent,
};
use crate::types::{Owner, StorageLimits, StorageUse, TenantId, Timestamp, UserId};
use async_trait::async_trait;
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

/// A memory index.
#[derive(Default)]
pub struct InMemoryIndex {
    /// While set, every call fails.
    pub down: Cell<bool>,
    /// Number of calls that still succeed; all later ones fail, even in the middle of an operation.
    pub dies_after: Cell<Option<u32>>,
    /// Number of rows that D1 would have counted for statistics, queries and neighbors so far
    /// (`tests/http/rows.rs`).
    pub rows_read: Cell<u64>,
    /// The limits of every tenant. The size of files does not count here.
    pub limits: Cell<StorageLimits>,
    /// The state of [`super::InMemorySpaces`], which is erased together with the entries.
    pub(super) spaces: RefCell<BTreeMap<Owner, SpaceState>>,
    state: RefCell<State>,
}

/// The state of a space.
#[derive(Clone, Default)]
pub(super) struct SpaceState {
    pub(super) watermark: u64,
    pub(super) requested_at: Option<Timestamp>,
    pub(super) consolidated_at: Option<Timestamp>,
    pub(super) flushed_at: Option<Timestamp>,
    pub(super) holder: Option<String>,
    pub(super) leased_until: Timestamp,
    pub(super) intent: Option<Intent>,
}

#[derive(Default)]
struct State {
    serial: u64,
    collections: BTreeMap<Collection, Kept>,
}

#[derive(Default)]
struct Kept {
    /// The rows, oldest first.
    rows: Vec<Row>,
    /// The next position of each group. It is kept when entries are removed.
    next: BTreeMap<String, u32>,
}

struct Row {
    entry: Entry,
    terms: BTreeSet<String>,
}

impl Row {
    fn fits(&self, query: &TermQuery) -> bool {
        let has = |term: &String| self.terms.contains(term);
        query.any_of.iter().any(|all| all.iter().all(has)) && !query.none_of.iter().any(has)
    }
}

impl InMemoryIndex {
    pub(super) fn up(&self) -> MemoryResult<()> {
        match self.dies_after.get() {
            Some(0) => self.down.set(true),
            Some(calls) => self.dies_after.set(Some(calls - 1)),
            None => {}
        }
        if self.down.get() { Err(MemoryError::Unavailable("switched off".into())) } else { Ok(()) }
    }

    /// Returns all owners with stored state.
    pub(super) fn owners(&self) -> BTreeSet<Owner> {
        let state = self.state.borrow();
        let owner = |of: &Collection| Owner {
            tenant: of.tenant.clone(),
            agent: of.agent.clone(),
            user: of.user.clone(),
        };
        state.collections.keys().map(owner).collect()
    }

    /// Returns the time of the first logged fact after a watermark.
    pub(super) fn dirty_since(&self, owner: &Owner, watermark: u64) -> Option<Timestamp> {
        let Owner { tenant, agent, user } = owner.clone();
        self.with(&Collection { tenant, agent, user, kind: CollectionKind::Facts }, |kept| {
            let mut entries = kept.rows.iter().map(|row| &row.entry);
            let first = entries.find(|entry| entry.source == Source::Log && entry.serial > watermark);
            first.map(|entry| entry.at)
        })
    }

    /// Returns what a tenant stores.
    fn used(&self, tenant: &TenantId) -> StorageUse {
        let state = self.state.borrow();
        let own = state.collections.iter().filter(|(of, _)| of.tenant == *tenant);
        let texts: Vec<usize> =
            own.flat_map(|(_, kept)| &kept.rows).map(|row| row.entry.text.len()).collect();
        let memory_bytes = texts.iter().sum::<usize>() as u64;
        StorageUse { memory_rows: texts.len() as u64, memory_bytes, ..StorageUse::default() }
    }

    /// Checks that the new ones of these entries do not exceed a limit.
    fn check_limits(&self, collection: &Collection, entries: &[NewEntry]) -> MemoryResult<()> {
        let before = self.used(&collection.tenant);
        let mut after = before;
        self.with(collection, |kept| {
            let mut keys: BTreeSet<&str> = kept.rows.iter().map(|row| row.entry.key.as_str()).collect();
            for part in entries.iter().filter(|new| keys.insert(&new.key)).flat_map(|new| &new.parts) {
                after.memory_rows += 1;
                after.memory_bytes += part.text.len() as u64;
            }
        });
        self.limits.get().exceeded(&before, &after).map_or(Ok(()), |quota| Err(quota.into()))
    }

    fn read(&self, rows: usize) {
        self.rows_read.set(self.rows_read.get() + rows as u64);
    }

    fn with<T>(&self, collection: &Collection, read: impl FnOnce(&Kept) -> T) -> T {
        let state = self.state.borrow();
        match state.collections.get(collection) {
            Some(kept) => read(kept),
            None => read(&Kept::default()),
        }
    }
}

#[async_trait(?Send)]
impl MemoryIndex for InMemoryIndex {
    async fn locate(&self, _tenant: &TenantId) -> MemoryResult<()> {
        self.up()
    }

    async fn add(&self, collection: &Collection, entries: &[NewEntry]) -> MemoryResult<usize> {
        self.up()?;
        self.check_limits(collection, entries)?;
        let mut state = self.state.borrow_mut();
        let State { serial, collections } = &mut *state;
        let kept = collections.entry(collection.clone()).or_default();
        let mut keys: BTreeSet<String> = kept.rows.iter().map(|row| row.entry.key.clone()).collect();
        let mut added = 0;
        for new in entries {
            if !keys.insert(new.key.clone()) {
                continue;
            }
            let next = kept.next.entry(new.group.clone()).or_default();
            let position = *next;
            *next += 1;
            added += 1;
            for (at, part) in new.parts.iter().enumerate() {
                *serial += 1;
                let entry = Entry {
                    serial: *serial,
                    key: new.key.clone(),
                    source: new.source,
                    group: new.group.clone(),
                    session: new.session.clone(),
                    position,
                    part: at as u32,
                    at: new.at,
                    speaker: new.speaker.clone(),
                    text: part.text.clone(),
                    length: part.length,
                };
                let terms = part.terms.split(' ').map(str::to_owned).collect();
                kept.rows.push(Row { entry, terms });
            }
        }
        Ok(added)
    }

    async fn statistics(&self, collection: &Collection, terms: &[String]) -> MemoryResult<Statistics> {
        self.up()?;
        self.read(1 + terms.len());
        Ok(self.with(collection, |kept| {
            let holding =
                |term: &String| kept.rows.iter().filter(|row| row.terms.contains(term)).count() as u64;
            Statistics {
                documents: kept.rows.len() as u64,
                length: kept.rows.iter().map(|row| u64::from(row.entry.length)).sum(),
                groups: kept.rows.iter().map(|row| &row.entry.group).collect::<BTreeSet<_>>().len() as u64,
                frequency: terms.iter().map(holding).collect(),
            }
        }))
    }

    async fn find(&self, collection: &Collection, queries: &[TermQuery]) -> MemoryResult<Vec<Entry>> {
        self.up()?;
        Ok(self.with(collection, |kept| {
            let mut found = BTreeMap::new();
            for query in queries {
                let picked: Vec<&Row> =
                    kept.rows.iter().rev().filter(|row| row.fits(query)).take(query.limit).collect();
                self.read(2 * picked.len() + 2);
                found.extend(picked.into_iter().map(|row| (row.entry.serial, row.entry.clone())));
            }
            found.into_values().rev().collect()
        }))
    }

    async fn around(&self, collection: &Collection, places: &[Place]) -> MemoryResult<Vec<Entry>> {
        self.up()?;
        Ok(self.with(collection, |kept| {
            let within = |entry: &&Entry| {
                places
                    .iter()
                    .any(|place| place.group == entry.group && place.positions.contains(&entry.position))
            };
            let first = kept.rows.iter().map(|row| &row.entry).filter(|entry| entry.part == 0);
            let mut found: Vec<Entry> = first.filter(within).cloned().collect();
            found.sort_by(|a, b| (&a.group, a.position).cmp(&(&b.group, b.position)));
            self.read(found.len() + 2 * places.len() + 1);
            found
        }))
    }

    async fn list(&self, collection: &Collection, listing: &Listing) -> MemoryResult<Vec<Entry>> {
        self.up()?;
        let fits = |entry: &&Entry| {
            listing.group.as_ref().is_none_or(|group| entry.group == *group)
                && listing.session.as_ref().is_none_or(|session| entry.session.as_ref() == Some(session))
                && listing.from.is_none_or(|from| entry.at >= from)
                && listing.until.is_none_or(|until| entry.at < until)
                && listing.source.is_none_or(|source| entry.source == source)
                && listing.before.is_none_or(|before| entry.serial < before)
                && listing.after.is_none_or(|after| entry.serial > after)
                && (!listing.first_parts || entry.part == 0)
        };
        Ok(self.with(collection, |kept| {
            let oldest_first = kept.rows.iter().map(|row| &row.entry).filter(fits);
            match listing.oldest_first {
                true => oldest_first.take(listing.limit).cloned().collect(),
                false => oldest_first.rev().take(listing.limit).cloned().collect(),
            }
        }))
    }

    async fn collections(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        after: Option<&Collection>,
        limit: usize,
    ) -> MemoryResult<Vec<Collection>> {
        self.up()?;
        let state = self.state.borrow();
        let place = |of: &Collection| (of.user.clone(), of.agent.clone(), of.kind);
        let fits = |of: &&Collection| {
            of.tenant == *tenant
                && user.is_none_or(|user| of.user == *user)
                && after.is_none_or(|after| place(of) > place(after))
        };
        let mut found: Vec<_> = state.collections.keys().filter(fits).cloned().collect();
        found.sort_by_key(place);
        found.truncate(limit);
        Ok(found)
    }

    async fn groups(
        &self,
        collection: &Collection,
        after: Option<&str>,
        limit: usize,
    ) -> MemoryResult<Vec<Group>> {
        self.up()?;
        Ok(self.with(collection, |kept| {
            let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
            for Entry { group: name, text, part, serial, at, .. } in kept.rows.iter().map(|row| &row.entry) {
                let group = groups.entry(name).or_insert_with(|| Group {
                    name: name.clone(),
                    entries: 0,
                    bytes: 0,
                    last: 0,
                    updated_at: *at,
                });
                group.entries += u64::from(*part == 0);
                group.bytes += text.len() as u64;
                (group.last, group.updated_at) = (*serial, *at);
            }
            let later =
                groups.into_values().filter(|group| after.is_none_or(|after| group.name.as_str() > after));
            later.take(limit).collect()
        }))
    }

    async fn remove(&self, collection: &Collection, what: &Removal) -> MemoryResult<bool> {
        self.up()?;
        let mut state = self.state.borrow_mut();
        let Some(kept) = state.collections.get_mut(collection) else { return Ok(false) };
        kept.rows.retain(|Row { entry, .. }| match what {
            Removal::Keys(keys) => !keys.contains(&entry.key),
            Removal::Group(group) => entry.group != *group,
            Removal::Session(session) => entry.session.as_ref() != Some(session),
            Removal::All => false,
        });
        let Kept { rows, next } = kept;
        next.retain(|group, _| rows.iter().any(|row| row.entry.group == *group));
        Ok(false)
    }

    async fn erase(&self, tenant: &TenantId, user: Option<&UserId>) -> MemoryResult<bool> {
        self.up()?;
        let goes = |of: &Collection| of.tenant == *tenant && user.is_none_or(|user| of.user == *user);
        self.state.borrow_mut().collections.retain(|collection, _| !goes(collection));
        let goes = |of: &Owner| of.tenant == *tenant && user.is_none_or(|user| of.user == *user);
        self.spaces.borrow_mut().retain(|space, _| !goes(space));
        Ok(false)
    }

    async fn drop_erased_terms(&self, _now: Timestamp) -> MemoryResult<bool> {
        self.up()?;
        Ok(false)
    }
}
