//! The inbox of one tenant, without I/O besides its store: the calls of its sessions that wait, and their changes.
//!
//! A session sends all of its calls that wait whenever they change; see `agent::host::inbox`. The inbox numbers the changes.
//! The number of a call's last change is part of the key of its document, so the list and the feed of changes are the same
//! documents, and a reader that was away reads those with higher numbers. A removed call leaves the number of its removal for
//! [`REMOVALS_KEPT`].

mod key;
#[cfg(test)]
mod tests;

use crate::ports::{Clock, SessionStore, StoreError, session_store::Batch};
use crate::types::{
    InboxCall, InboxChange, InboxChanges, InboxFilter, InboxNotice, InboxPosition, SessionId, Timestamp, json,
};
use futures::{
    channel::oneshot,
    future::{Either, select},
};
use key::{EntryKey, Folder};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{cell::RefCell, collections::BTreeSet, rc::Rc, time::Duration};

/// How long the number of a removal is kept. A reader that was away for longer starts again.
pub const REMOVALS_KEPT: Duration = Duration::from_hours(24);
/// How long the last notice of a session is known that has no calls, so that a late notice does not bring them back.
const NOTICES_KEPT: Duration = Duration::from_hours(24);
/// Maximum number of documents of each kind that one notice removes because of their age. More than it can add.
const SWEPT: usize = 20;
/// Maximum number of changes of a page.
const PAGE: usize = 100;
/// Maximum number of keys that are read at once.
const KEYS_AT_ONCE: usize = 500;

/// The numbers of changes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Numbers {
    /// The number of the last change.
    last: u64,
    /// The number up to which removals may have been forgotten.
    forgotten: u64,
}

/// What the inbox knows of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Listed {
    /// When its newest notice was sent.
    sent_at: Timestamp,
    /// The keys of its calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    keys: Vec<String>,
}

/// The inbox of one tenant. Its state is in the documents of its store, which nothing else shares.
pub struct TenantInbox {
    store: Rc<dyn SessionStore>,
    /// The readers that wait for a change.
    readers: RefCell<Vec<oneshot::Sender<()>>>,
}

impl TenantInbox {
    /// Creates the inbox in a store.
    pub fn new(store: Rc<dyn SessionStore>) -> Self {
        Self { store, readers: RefCell::default() }
    }

    /// Replaces the calls of a session. A notice that is not later than all others is ignored; then returns when the newest one
    /// was sent.
    ///
    /// # Errors
    /// If the store fails. Nothing has changed then.
    pub fn notify(&self, notice: &InboxNotice, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let InboxNotice { session, sent_at, calls, erased } = notice;
        let own = key::session(session);
        let listed: Listed = self.read(&own)?.unwrap_or_default();
        if listed.sent_at >= *sent_at {
            return Ok(Some(listed.sent_at));
        }
        let mut numbers = self.numbers()?;
        let before = numbers.last;
        let mut batch = Batch::default();
        let (mut keys, mut kept) = (Vec::new(), BTreeSet::new());
        for call in calls {
            let json = encode(call)?;
            let known = listed.keys.iter().find(|known| EntryKey::is_of(known, call));
            if let Some(known) = known
                && self.store.get(known)?.as_ref() == Some(&json)
            {
                kept.insert(known);
                keys.push(known.clone());
                continue;
            }
            if let Some(known) = known {
                kept.insert(known);
                batch.delete.push(known.clone());
            }
            numbers.last += 1;
            let entry = EntryKey::new(call).at(Folder::Calls, numbers.last);
            batch.put.push((entry.clone(), json));
            keys.push(entry);
        }
        for gone in listed.keys.iter().filter(|known| !kept.contains(known)) {
            batch.delete.push(gone.clone());
            if let Some((_, entry)) = EntryKey::parse(gone).filter(|_| !erased) {
                numbers.last += 1;
                batch.put.push((entry.at(Folder::Removals, numbers.last), encode(&now)?));
            }
        }
        if *erased {
            self.forget_removals(session, &mut numbers, &mut batch)?;
        }
        if keys.is_empty() {
            batch.put.push((key::quiet(*sent_at, &own), String::new()));
        }
        self.sweep(now, &own, &mut numbers, &mut batch)?;
        batch.put.push((own, encode(&Listed { sent_at: *sent_at, keys })?));
        batch.put.push((key::NUMBERS.to_owned(), encode(&numbers)?));
        self.store.commit(batch)?;
        if numbers.last > before {
            self.readers.borrow_mut().drain(..).for_each(wake);
        }
        Ok(None)
    }

    /// Forgets all removals of a session. Every reader then starts again, because it may need them.
    fn forget_removals(
        &self,
        session: &SessionId,
        numbers: &mut Numbers,
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        let own = InboxFilter { session: Some(session.clone()), ..InboxFilter::default() };
        let removals = self.select(Folder::Removals, &own, 0, usize::MAX)?;
        batch.delete.extend(removals.into_iter().map(|(_, key, _)| key));
        if !batch.delete.is_empty() {
            numbers.last += 1;
            numbers.forgotten = numbers.last;
        }
        Ok(())
    }

    /// Forgets old removals, and the old notices of sessions without calls. The document with the key `notifying` stays: its
    /// session has just sent another notice.
    fn sweep(
        &self,
        now: Timestamp,
        notifying: &str,
        numbers: &mut Numbers,
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        let (from, to) = Folder::Removals.range(0);
        for removal in self.store.keys(&from, &to, SWEPT)? {
            let is_old = self.read::<Timestamp>(&removal)?.is_none_or(|at| at + REMOVALS_KEPT <= now);
            let Some((number, _)) = EntryKey::parse(&removal).filter(|_| is_old) else { break };
            numbers.forgotten = numbers.forgotten.max(number);
            batch.delete.push(removal);
        }
        let (from, to) = key::quiet_before(now - NOTICES_KEPT);
        for quiet in self.store.keys(&from, &to, SWEPT)? {
            if let Some((sent_at, own)) = key::parse_quiet(&quiet) {
                // The session may have sent another notice since.
                let is_last = self.read::<Listed>(&own)?.is_some_and(|listed| listed.sent_at == sent_at);
                batch.delete.extend(Some(own).filter(|own| is_last && own != notifying));
            }
            batch.delete.push(quiet);
        }
        Ok(())
    }

    /// Lists up to `limit` calls in the order of their last change, starting after the change with number `after`.
    ///
    /// # Errors
    /// If the store fails.
    pub fn list(
        &self,
        filter: &InboxFilter,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, InboxCall)>, StoreError> {
        self.calls(self.select(Folder::Calls, filter, after, limit)?)
    }

    /// Reads the changes after a position.
    ///
    /// # Errors
    /// If the store fails.
    pub fn changes(&self, filter: &InboxFilter, position: InboxPosition) -> Result<InboxChanges, StoreError> {
        let numbers = self.numbers()?;
        // Otherwise removals were forgotten that the reader needs, or another inbox has assigned the number.
        let has_removals = |since| (numbers.forgotten..=numbers.last).contains(&since);
        let (reset, after, since) = match position {
            InboxPosition::Listing { after, since } if has_removals(since) => (false, after, since),
            InboxPosition::After(after) if has_removals(after) => (false, after, after),
            _ => (true, 0, numbers.last),
        };
        let calls = self.select(Folder::Calls, filter, after, PAGE)?;
        let is_listing = reset || matches!(position, InboxPosition::Listing { .. });
        if is_listing && let (PAGE, Some((last, ..))) = (calls.len(), calls.last()) {
            let next = InboxPosition::Listing { after: *last, since };
            return Ok(InboxChanges { reset, changes: added(self.calls(calls)?), next, more: true });
        }
        let removals = self.select(Folder::Removals, filter, since, PAGE)?;
        let mut last = numbers.last;
        for page in [&calls, &removals] {
            if let (PAGE, Some((of_page, ..))) = (page.len(), page.last()) {
                last = last.min(*of_page);
            }
        }
        let mut changes = added(self.calls(calls)?);
        let removed =
            |(number, _, entry): (u64, String, EntryKey)| (number, InboxChange::Removed(entry.removed()));
        changes.extend(removals.into_iter().map(removed));
        changes.retain(|(number, _)| *number <= last);
        changes.sort_by_key(|(number, _)| *number);
        Ok(InboxChanges { reset, changes, next: InboxPosition::After(last), more: last < numbers.last })
    }

    /// Reads the calls of these entries.
    fn calls(&self, found: Vec<(u64, String, EntryKey)>) -> Result<Vec<(u64, InboxCall)>, StoreError> {
        let mut calls = Vec::with_capacity(found.len());
        for (number, key, _) in found {
            calls.extend(self.read(&key)?.map(|call| (number, call)));
        }
        Ok(calls)
    }

    /// Reads the changes after a position. If there are none, waits for up to `wait` until there are.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn await_changes(
        &self,
        filter: &InboxFilter,
        mut position: InboxPosition,
        wait: Duration,
        clock: &dyn Clock,
    ) -> Result<InboxChanges, StoreError> {
        let mut timeout = clock.sleep(wait);
        loop {
            let found = self.changes(filter, position)?;
            if found.reset || found.more || !found.changes.is_empty() || wait.is_zero() {
                return Ok(found);
            }
            // No await since the read, so no change is missed.
            let changed = self.next_change();
            position = found.next;
            match select(changed, timeout).await {
                Either::Left((_, left)) => timeout = left,
                Either::Right(_) => return Ok(found),
            }
        }
    }

    /// Completes at the next change.
    fn next_change(&self) -> oneshot::Receiver<()> {
        let (sender, changed) = oneshot::channel();
        let mut readers = self.readers.borrow_mut();
        readers.retain(|reader| !reader.is_canceled());
        readers.push(sender);
        changed
    }

    /// Erases the inbox.
    ///
    /// # Errors
    /// If the store fails.
    pub fn erase(&self) -> Result<(), StoreError> {
        self.store.erase()
    }

    /// Returns up to `limit` entries of a folder after a number.
    fn select(
        &self,
        folder: Folder,
        filter: &InboxFilter,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, String, EntryKey)>, StoreError> {
        let mut found = Vec::new();
        let (mut from, to) = folder.range(after.saturating_add(1));
        loop {
            let keys = self.store.keys(&from, &to, KEYS_AT_ONCE)?;
            let (is_last, last) = (keys.len() < KEYS_AT_ONCE, keys.last().cloned());
            let entries = keys.into_iter().filter_map(|key| {
                let (number, entry) = EntryKey::parse(&key)?;
                entry.fits(filter).then_some((number, key, entry))
            });
            found.extend(entries.take(limit - found.len()));
            match last {
                Some(last) if !is_last && found.len() < limit => from = last + "\0",
                _ => return Ok(found),
            }
        }
    }

    fn numbers(&self) -> Result<Numbers, StoreError> {
        Ok(self.read(key::NUMBERS)?.unwrap_or_default())
    }

    fn read<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StoreError> {
        let json = self.store.get(key)?;
        json.map(|json| json::from_str(&json)).transpose().map_err(|error| {
            StoreError(format!("the document {key:?} of the inbox cannot be parsed: {error}"))
        })
    }
}

fn added(calls: Vec<(u64, InboxCall)>) -> Vec<(u64, InboxChange)> {
    calls.into_iter().map(|(number, call)| (number, InboxChange::Added(Box::new(call)))).collect()
}

/// Wakes a reader, unless it has left.
fn wake(reader: oneshot::Sender<()>) {
    let _ = reader.send(());
}

fn encode(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError(error.to_string()))
}
