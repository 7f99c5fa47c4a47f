//! The store of a session in memory.

use crate::ports::{
    SessionStore, StoreError,
    session_store::{Batch, Page, Select, StoredRecord},
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

/// A log and documents in memory. Like a disk, it outlives the session that uses it.
#[derive(Default)]
pub struct MemorySessionStore {
    log: RefCell<Vec<StoredRecord>>,
    documents: RefCell<BTreeMap<String, String>>,
    fail_commits: Cell<u32>,
    commits: Cell<u32>,
    /// The key of each document that was written.
    written: RefCell<Vec<String>>,
    /// Number of documents read so far.
    pub documents_read: Cell<usize>,
    dies_at: Cell<Option<u32>>,
}

impl MemorySessionStore {
    /// Fails the next `n` commits.
    pub fn fail_commits(&self, n: u32) {
        self.fail_commits.set(n);
    }

    /// Fails all commits after the next `n`, as if the machine had crashed; `None` lets commits succeed
    /// again.
    pub fn die_after(&self, n: Option<u32>) {
        self.dies_at.set(n.map(|n| self.commits.get() + n));
    }

    /// Returns the number of successful commits.
    pub fn commits(&self) -> u32 {
        self.commits.get()
    }

    /// Returns the key of each document written since the last call.
    pub fn take_written(&self) -> Vec<String> {
        self.written.take()
    }

    /// Returns all records.
    pub fn log(&self) -> Vec<StoredRecord> {
        self.log.borrow().clone()
    }
}

impl SessionStore for MemorySessionStore {
    fn exists(&self) -> Result<bool, StoreError> {
        Ok(!self.documents.borrow().is_empty() || !self.log.borrow().is_empty())
    }

    fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        if self.fail_commits.get() > 0 {
            self.fail_commits.set(self.fail_commits.get() - 1);
            return Err(StoreError("switched to fail".into()));
        }
        if self.dies_at.get().is_some_and(|end| self.commits.get() >= end) {
            return Err(StoreError("switched off".into()));
        }
        let mut log = self.log.borrow_mut();
        for record in batch.append {
            if record.seq != log.len() as u64 + 1 {
                return Err(StoreError(format!("record {} does not follow {}", record.seq, log.len())));
            }
            log.push(record);
        }
        let mut documents = self.documents.borrow_mut();
        self.written.borrow_mut().extend(batch.put.iter().map(|(key, _)| key.clone()));
        documents.extend(batch.put);
        for key in &batch.delete {
            documents.remove(key);
        }
        self.commits.set(self.commits.get() + 1);
        Ok(())
    }

    fn last_seq(&self) -> Result<u64, StoreError> {
        Ok(self.log.borrow().len() as u64)
    }

    fn read(&self, select: Select<'_>) -> Result<Page, StoreError> {
        Ok(select.page(self.log.borrow().iter()))
    }

    fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.documents_read.set(self.documents_read.get() + 1);
        Ok(self.documents.borrow().get(key).cloned())
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        let documents = self.documents.borrow();
        let from = documents.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        let listed: Vec<_> = from.map(|(key, json)| (key.clone(), json.clone())).collect();
        self.documents_read.set(self.documents_read.get() + listed.len());
        Ok(listed)
    }

    fn keys(&self, from: &str, to: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let documents = self.documents.borrow();
        let keys = documents.range(from.to_owned()..to.to_owned()).map(|(key, _)| key.clone());
        Ok(keys.take(limit).collect())
    }

    fn erase(&self) -> Result<(), StoreError> {
        self.log.borrow_mut().clear();
        self.documents.borrow_mut().clear();
        Ok(())
    }
}
