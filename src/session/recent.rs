//! The newest records of a session, kept in memory until the follow-ups and the report after a turn have read them.

use crate::ports::{
    SessionStore, StoreError,
    session_store::{Batch, Page, Select, StoredRecord},
};
use std::{cell::RefCell, collections::VecDeque, rc::Rc};

/// Maximum length of the records in memory, in bytes of JSON: about ten plain turns. An isolate holds a thousand sessions.
const MAX_BYTES: usize = 16_000;

/// A session store that reads records from memory while it has them.
pub(super) struct RecentRecords {
    store: Rc<dyn SessionStore>,
    recent: RefCell<Recent>,
}

/// The last records of the log, without a gap.
#[derive(Default)]
struct Recent {
    records: VecDeque<StoredRecord>,
    bytes: usize,
}

impl Recent {
    fn push(&mut self, record: StoredRecord) {
        self.bytes += record.json.len();
        self.records.push_back(record);
        while self.bytes > MAX_BYTES {
            self.bytes -= self.records.pop_front().map_or(self.bytes, |oldest| oldest.json.len());
        }
    }

    /// Returns the page, unless older records belong to it.
    fn page(&self, select: &Select<'_>) -> Option<Page> {
        let first = self.records.front()?.seq;
        let has_all = select.after.saturating_add(1) >= first;
        if !has_all && !select.newest_first {
            return None;
        }
        let page = select.page(self.records.iter());
        // A full page needs no older record.
        (has_all || page.more).then_some(page)
    }
}

impl RecentRecords {
    /// Keeps the records of later commits to `store`. Nothing else may append to its log.
    pub(super) fn of(store: Rc<dyn SessionStore>) -> Self {
        Self { store, recent: RefCell::default() }
    }

    /// Forgets the records.
    pub(super) fn forget(&self) {
        self.recent.take();
    }
}

impl SessionStore for RecentRecords {
    fn exists(&self) -> Result<bool, StoreError> {
        self.store.exists()
    }

    fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let added = batch.append.clone();
        self.store.commit(batch)?;
        added.into_iter().for_each(|record| self.recent.borrow_mut().push(record));
        Ok(())
    }

    fn last_seq(&self) -> Result<u64, StoreError> {
        self.store.last_seq()
    }

    fn read(&self, select: Select<'_>) -> Result<Page, StoreError> {
        let recent = self.recent.borrow().page(&select);
        recent.map_or_else(|| self.store.read(select), Ok)
    }

    fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.store.get(key)
    }

    fn get_all(&self, keys: &[String]) -> Result<Vec<Option<String>>, StoreError> {
        self.store.get_all(keys)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        self.store.list(prefix)
    }

    fn keys(&self, from: &str, to: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        self.store.keys(from, to, limit)
    }

    fn erase(&self) -> Result<(), StoreError> {
        self.forget();
        self.store.erase()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::in_memory::MemorySessionStore;
    use crate::session::{Session, hub::Hub, window::Bounds};
    use crate::types::{EventKind, Owner, SessionMeta, SessionState, Timestamp, Usage};
    use proptest::prelude::*;

    const KINDS: [&str; 3] = ["turn.started", "usage.updated", "turn.completed"];

    /// Lengths and kinds of the records of a commit, and whether the records are forgotten after it.
    fn commit() -> impl Strategy<Value = (Vec<(usize, usize)>, bool)> {
        let length = prop_oneof![8 => 1..2_000_usize, 1 => 10_000..20_000_usize];
        (prop::collection::vec((length, 0..KINDS.len()), 0..5), prop::bool::weighted(0.1))
    }

    fn select() -> impl Strategy<Value = (u64, Option<u64>, Option<usize>, bool, usize)> {
        (0..40_u64, prop::option::of(0..40_u64), prop::option::of(0..KINDS.len()), any::<bool>(), 1..20_usize)
    }

    proptest! {
        #[test]
        fn reads_are_those_of_the_store(
            commits in prop::collection::vec(commit(), 1..12),
            selects in prop::collection::vec(select(), 1..20),
        ) {
            let store = Rc::new(MemorySessionStore::default());
            let recent = RecentRecords::of(store.clone());
            let mut seq = 0;
            for (records, forgets) in commits {
                let record = |(length, kind): (usize, usize)| {
                    seq += 1;
                    StoredRecord { seq, kind: KINDS[kind].into(), turn: None, json: "x".repeat(length) }
                };
                let append = records.into_iter().map(record).collect();
                recent.commit(Batch { append, ..Batch::default() }).unwrap();
                if forgets {
                    recent.forget();
                }
                for (after, before, kind, newest_first, limit) in &selects {
                    let kinds: Vec<&str> = kind.iter().map(|kind| KINDS[*kind]).collect();
                    let (after, before, newest_first, limit) = (*after, *before, *newest_first, *limit);
                    let select = Select { after, before, kinds: &kinds, turn: None, newest_first, limit };
                    prop_assert_eq!(recent.read(select).unwrap(), store.read(select).unwrap());
                }
            }
        }
    }

    #[test]
    fn the_newest_records_are_read_from_memory() {
        let store = Rc::new(MemorySessionStore::default());
        let recent = RecentRecords::of(store.clone());
        let record = |seq| StoredRecord { seq, kind: "k".into(), turn: None, json: "x".repeat(5_000) };
        recent.commit(Batch { append: (1..=5).map(record).collect(), ..Batch::default() }).unwrap();
        store.erase().unwrap();

        let read = |after| recent.read(Select { after, ..Select::default() }).unwrap().records.len();

        // Three records have room.
        assert_eq!((read(3), read(2), read(1)), (2, 3, 0));
    }

    #[test]
    fn a_retired_session_reads_nothing_that_was_erased() {
        let store = Rc::new(MemorySessionStore::default());
        let owner = Owner { tenant: "t".into(), agent: "a".into(), user: "u".into() };
        let state = SessionState::new(SessionMeta::new("s".into(), owner, Timestamp(1)));
        let session = Session::create(store.clone(), state, Bounds::wide(), Hub::new(None));
        let (purpose, model) = ("judge".into(), "demo/echo".into());
        let used = EventKind::UsageOther { purpose, model, usage: Usage::default(), cost_usd: None };
        // A report is due, so the session keeps the record.
        session.commit(Timestamp(1), |draft| draft.record(None, used)).unwrap();

        session.retire();
        store.erase().unwrap();

        assert_eq!(session.page(Select::default()).unwrap(), (Vec::new(), false));
    }
}
