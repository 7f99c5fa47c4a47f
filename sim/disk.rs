//! The disk of a session, which survives evictions: its log and documents, with the moment of each write.

use super::ledger::Ledger;
use edge_harness::ports::{
    SessionStore, StoreError,
    session_store::{Batch, Page, Select, StoredRecord},
};
use edge_harness::types::background::Subagents;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

/// A record and the moment at which it became durable.
#[derive(Clone)]
pub struct Written {
    pub record: StoredRecord,
    pub moment: u64,
    pub at: u64,
}

/// The storage of one session.
pub struct Disk {
    pub name: String,
    pub log: RefCell<Vec<Written>>,
    pub documents: RefCell<BTreeMap<String, String>>,
    /// Whether a turn is running or waiting, according to the state document.
    pub busy: Cell<bool>,
    /// Whether background tasks have not ended, or will start a turn.
    pub has_tasks: Cell<bool>,
    /// Whether a turn waits for a person, according to the state document.
    pub waits: Cell<bool>,
    /// Time of the last refused write.
    pub refused_at: Cell<u64>,
    commits: Cell<u64>,
    refusals: RefCell<Vec<(u64, u64)>>,
    ledger: Rc<Ledger>,
}

impl Disk {
    pub fn new(name: String, refusals: Vec<(u64, u64)>, ledger: Rc<Ledger>) -> Rc<Self> {
        Rc::new(Self {
            name,
            log: RefCell::default(),
            documents: RefCell::default(),
            busy: Cell::new(false),
            has_tasks: Cell::new(false),
            waits: Cell::new(false),
            refused_at: Cell::new(0),
            commits: Cell::new(0),
            refusals: RefCell::new(refusals),
            ledger,
        })
    }

    /// Stops refusing writes.
    pub fn heal(&self) {
        self.refusals.borrow_mut().clear();
    }

    pub fn is_empty(&self) -> bool {
        self.log.borrow().is_empty() && self.documents.borrow().is_empty()
    }

    /// 17: an older version of the tenant's policy never replaces a newer one.
    fn check_versions(&self, old: &str, new: &str) {
        let version = |json: &str| {
            let guidance = serde_json::from_str::<serde_json::Value>(json).unwrap_or_default();
            guidance["tenant_rules"]["version"].as_u64().unwrap_or_default()
        };
        if version(new) < version(old) {
            self.ledger.find(17, format!("{} replaces {old} with {new}", self.name));
        }
    }

    fn refuses(&self) -> bool {
        let commits = self.commits.get();
        let mut refusals = self.refusals.borrow_mut();
        let due = refusals.iter_mut().find(|(after, left)| *after <= commits && *left > 0);
        due.map(|(_, left)| *left -= 1).is_some()
    }

    fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        if self.refuses() {
            self.refused_at.set(self.ledger.sched.now());
            self.ledger.refused_at.set(self.ledger.sched.now());
            self.ledger.say(&self.name, || "the disk refuses a write".into());
            return Err(StoreError("the disk refuses".into()));
        }
        let mut log = self.log.borrow_mut();
        // Sequence numbers are the log's key. An invariant checks that they are contiguous.
        let last = log.last().map_or(0, |written| written.record.seq);
        if let Some(first) = batch.append.first().filter(|first| first.seq <= last) {
            return Err(StoreError(format!("record {} already exists", first.seq)));
        }
        let (moment, at) = (self.ledger.moment(), self.ledger.sched.now());
        for record in batch.append {
            self.ledger.say(&self.name, || format!("{} {}", record.seq, record.json));
            let waits = u64::from(super::witness::waits(&record.kind));
            self.ledger.waits.set(self.ledger.waits.get() + waits);
            let spawned = u64::from(record.kind == "subagent.started");
            self.ledger.spawned.set(self.ledger.spawned.get() + spawned);
            let started = u64::from(record.kind == "task.started");
            self.ledger.tasks.set(self.ledger.tasks.get() + started);
            log.push(Written { record, moment, at });
        }
        let mut documents = self.documents.borrow_mut();
        for (key, json) in batch.put {
            if key == "state/activity" {
                self.busy.set(json.contains("\"turn\":{") || json.contains("\"queue\":["));
                self.waits.set(json.contains("\"waiting_since\":"));
            }
            if key == "state/subagents" {
                let tasks: Subagents = serde_json::from_str(&json).expect("tasks");
                self.has_tasks.set(tasks.wants_turn() || tasks.open().next().is_some());
            }
            if let Some(old) = documents.get(&key).filter(|_| key == "state/guidance") {
                self.check_versions(old, &json);
            }
            documents.insert(key, json);
        }
        for key in &batch.delete {
            documents.remove(key);
        }
        self.commits.set(self.commits.get() + 1);
        Ok(())
    }
}

/// An instance's connection to its disk. Fails once the instance is evicted.
pub struct DiskHandle {
    pub disk: Rc<Disk>,
    pub alive: Cell<bool>,
}

impl SessionStore for DiskHandle {
    fn exists(&self) -> Result<bool, StoreError> {
        Ok(!self.disk.is_empty())
    }

    fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        if !self.alive.get() {
            return Err(StoreError("the instance was evicted".into()));
        }
        self.disk.commit(batch)
    }

    fn last_seq(&self) -> Result<u64, StoreError> {
        Ok(self.disk.log.borrow().last().map_or(0, |written| written.record.seq))
    }

    fn read(&self, select: Select<'_>) -> Result<Page, StoreError> {
        Ok(select.page(self.disk.log.borrow().iter().map(|written| &written.record)))
    }

    fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        Ok(self.disk.documents.borrow().get(key).cloned())
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        let documents = self.disk.documents.borrow();
        let from = documents.range(prefix.to_owned()..);
        Ok(from.take_while(|(key, _)| key.starts_with(prefix)).map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    fn keys(&self, from: &str, to: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let documents = self.disk.documents.borrow();
        let keys = documents.range(from.to_owned()..to.to_owned()).map(|(key, _)| key.clone());
        Ok(keys.take(limit).collect())
    }

    fn erase(&self) -> Result<(), StoreError> {
        self.disk.log.borrow_mut().clear();
        self.disk.documents.borrow_mut().clear();
        self.disk.busy.set(false);
        self.disk.has_tasks.set(false);
        self.disk.waits.set(false);
        self.disk.ledger.say(&self.disk.name, || "erased".into());
        Ok(())
    }
}
