//! The newest records of a session, kept in memory until the follow-ups and the report after a turn have read them.

use crate::ports::{
    SessionStore, StoreError,
    session_store::{Batch, Page, Select, StoredRecord},
};
use std::{cell::RefCell, collections::VecDeque, rc::Rc};

/// Maximum length of the records in memory, in bytes of JSON. A plain turn has 2.4 kB, and the turns of up to
/// ten seconds share a round of follow-ups, so a dozen fit.
const MAX_BYTES: usize = 32_000;

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
        while self.bytes > MAX_BYTES
            && let Some(oldest) = self.records.pop_front()
        {
            self.bytes -= oldest.json.len();
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
        let bytes: usize = batch.append.iter().map(|record| record.json.len()).sum();
        let added = (bytes <= MAX_BYTES).then(|| batch.append.clone());
        self.store.commit(batch)?;
        match added {
            Some(added) => added.into_iter().for_each(|record| self.recent.borrow_mut().push(record)),
            // Not copied: a record may have megabytes.
            None => self.forget(),
        }
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
    use crate::types::{EventKind, Owner, Record, SessionMeta, SessionState, Timestamp, TurnId, Usage};
    use proptest::prelude::*;
    use serde_json::json;

    const KINDS: [&str; 3] = ["turn.started", "usage.updated", "turn.completed"];

    const TURNS: [&str; 2] = ["t1", "t2"];

    /// What happens at a commit.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Succeeds,
        Fails,
        /// The store has the records from before the session was opened.
        IsEarlier,
        IsForgotten,
    }

    /// Length, kind and turn of a record.
    type Written = (usize, usize, usize);

    fn commit() -> impl Strategy<Value = (Vec<Written>, Step)> {
        let length = prop_oneof![8 => 1..4_000_usize, 1 => 20_000..40_000_usize];
        let step = prop_oneof![
            8 => Just(Step::Succeeds),
            1 => Just(Step::Fails),
            1 => Just(Step::IsEarlier),
            1 => Just(Step::IsForgotten),
        ];
        (prop::collection::vec((length, 0..KINDS.len(), 0..TURNS.len()), 0..5), step)
    }

    fn select() -> impl Strategy<Value = (u64, Option<u64>, Option<usize>, Option<usize>, bool, usize)> {
        let (kind, turn) = (prop::option::of(0..KINDS.len()), prop::option::of(0..TURNS.len()));
        (0..40_u64, prop::option::of(0..40_u64), kind, turn, any::<bool>(), 1..20_usize)
    }

    proptest! {
        #[test]
        fn reads_are_those_of_the_store(
            commits in prop::collection::vec(commit(), 1..12),
            selects in prop::collection::vec(select(), 1..20),
        ) {
            let store = Rc::new(MemorySessionStore::default());
            let mut recent = RecentRecords::of(store.clone());
            for (written, step) in commits {
                let record = |(seq, (length, kind, turn)): (u64, Written)| StoredRecord {
                    seq,
                    kind: KINDS[kind].into(),
                    turn: Some(TURNS[turn].into()),
                    json: "x".repeat(length),
                };
                let append = (store.last_seq().unwrap() + 1..).zip(written).map(record).collect();
                let batch = Batch { append, ..Batch::default() };
                store.fail_commits(u32::from(matches!(step, Step::Fails)));
                match step {
                    Step::Succeeds | Step::IsForgotten => recent.commit(batch).unwrap(),
                    Step::Fails => drop(recent.commit(batch).unwrap_err()),
                    Step::IsEarlier => {
                        store.commit(batch).unwrap();
                        recent = RecentRecords::of(store.clone());
                    }
                }
                if matches!(step, Step::IsForgotten) {
                    recent.forget();
                }
                for (after, before, kind, turn, newest_first, limit) in &selects {
                    let kinds: Vec<&str> = kind.iter().map(|kind| KINDS[*kind]).collect();
                    let turn = turn.map(|turn| TurnId::from(TURNS[turn]));
                    let (after, before, newest_first, limit) = (*after, *before, *newest_first, *limit);
                    let select = Select { after, before, kinds: &kinds, turn: turn.as_ref(), newest_first, limit };
                    prop_assert_eq!(recent.read(select).unwrap(), store.read(select).unwrap());
                }
            }
        }
    }

    #[test]
    fn the_newest_records_are_read_from_memory() {
        let store = Rc::new(MemorySessionStore::default());
        let recent = RecentRecords::of(store.clone());
        let record = |seq| StoredRecord { seq, kind: "k".into(), turn: None, json: "x".repeat(10_000) };
        recent.commit(Batch { append: (1..=3).map(record).collect(), ..Batch::default() }).unwrap();
        recent.commit(Batch { append: (4..=5).map(record).collect(), ..Batch::default() }).unwrap();
        store.erase().unwrap();

        let read = |after| recent.read(Select { after, ..Select::default() }).unwrap().records.len();

        // Three records have room.
        assert_eq!((read(3), read(2), read(1)), (2, 3, 0));
    }

    /// Returns what a session reads whose store was erased after it committed a record of this kind.
    fn after_erasure(kind: EventKind, before_it: impl FnOnce(&Session)) -> Vec<Record> {
        let store = Rc::new(MemorySessionStore::default());
        let owner = Owner { tenant: "t".into(), agent: "a".into(), user: "u".into() };
        let state = SessionState::new(SessionMeta::new("s".into(), owner, Timestamp(1)));
        let session = Session::create(store.clone(), state, Bounds::wide(), Hub::new(None));
        session.commit(Timestamp(1), |draft| draft.record(None, kind)).unwrap();
        before_it(&session);
        store.erase().unwrap();
        session.page(Select::default()).unwrap().0
    }

    /// A kind about which a report is due.
    fn used() -> EventKind {
        let (purpose, model) = ("judge".into(), "demo/echo".into());
        EventKind::UsageOther { purpose, model, usage: Usage::default(), cost_usd: None }
    }

    #[test]
    fn a_session_keeps_only_records_that_will_be_read() {
        let titled = EventKind::SessionUpdated { changed: json!({"title": "t"}) };

        assert_eq!(after_erasure(used(), |_| ()).len(), 1);
        assert!(after_erasure(titled, |_| ()).is_empty());
    }

    #[test]
    fn a_retired_session_reads_nothing_that_was_erased() {
        assert!(after_erasure(used(), Session::retire).is_empty());
    }
}
