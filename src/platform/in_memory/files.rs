//! The table of files, in plain memory.

use crate::ports::{
    FileError, FileTable,
    filesystem::{Content, Entry, FileResult, Precondition, Row, Tree},
};
use crate::types::{FilePath, PathPrefix, Timestamp};
use async_trait::async_trait;
use futures::future::poll_fn;
use std::{
    cell::{Cell, RefCell, RefMut},
    collections::BTreeMap,
    task::{Poll, Waker},
};

/// Rows of files.
#[derive(Default)]
pub struct MemoryFiles {
    /// While set, every call fails.
    pub down: Cell<bool>,
    /// While set, every call lets others go first, as a network does.
    pub yields: Cell<bool>,
    held: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    rows: BTreeMap<(Tree, FilePath), Row>,
    free: BTreeMap<(String, String), Timestamp>,
}

impl MemoryFiles {
    /// All rows: where they are and what they hold.
    pub fn all(&self) -> Vec<(Tree, Row)> {
        self.state.borrow().rows.iter().map(|((tree, _), row)| (tree.clone(), row.clone())).collect()
    }

    /// The keys that no row has.
    pub fn free(&self) -> Vec<String> {
        self.state.borrow().free.keys().map(|(_, key)| key.clone()).collect()
    }

    /// From now on calls wait until [`MemoryFiles::release`].
    pub fn hold(&self) {
        self.held.set(true);
    }

    /// Lets calls go on.
    pub fn release(&self) {
        self.held.set(false);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    async fn state(&self) -> FileResult<RefMut<'_, State>> {
        let mut waits = self.yields.get();
        poll_fn(|cx| {
            if self.held.get() {
                self.waiting.borrow_mut().push(cx.waker().clone());
                return Poll::Pending;
            }
            if std::mem::take(&mut waits) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        if self.down.get() {
            return Err(FileError::Unavailable("switched off".into()));
        }
        Ok(self.state.borrow_mut())
    }
}

impl State {
    /// The key of a row that goes belongs to nobody any more.
    fn release(&mut self, tree: &Tree, row: Option<Row>, now: Timestamp) {
        if let Some(Row { content: Content::Blob(key), .. }) = row {
            self.free.insert((tree.tenant.clone(), key), now);
        }
    }
}

fn key(tree: &Tree, path: &FilePath) -> (Tree, FilePath) {
    (tree.clone(), path.clone())
}

#[async_trait(?Send)]
impl FileTable for MemoryFiles {
    async fn rows(&self, tree: &Tree, paths: &[FilePath]) -> FileResult<Vec<Row>> {
        let state = self.state().await?;
        Ok(paths.iter().filter_map(|path| state.rows.get(&key(tree, path)).cloned()).collect())
    }

    async fn put(&self, tree: &Tree, row: &Row, condition: &Precondition) -> FileResult<bool> {
        let mut state = self.state().await?;
        let key = key(tree, &row.entry.path);
        if !condition.fits(state.rows.get(&key).map(|row| row.entry.etag.as_str())) {
            return Ok(false);
        }
        if let Content::Blob(blob) = &row.content {
            state.free.remove(&(tree.tenant.clone(), blob.clone()));
        }
        let old = state.rows.insert(key, row.clone());
        state.release(tree, old, row.entry.updated_at);
        Ok(true)
    }

    async fn remove(&self, tree: &Tree, path: &FilePath, condition: &Precondition) -> FileResult<bool> {
        let mut state = self.state().await?;
        let key = key(tree, path);
        let Some(row) = state.rows.get(&key) else { return Ok(false) };
        if !condition.fits(Some(&row.entry.etag)) {
            return Ok(false);
        }
        let (at, old) = (row.entry.updated_at, state.rows.remove(&key));
        state.release(tree, old, at);
        Ok(true)
    }

    async fn rename(&self, tree: &Tree, from: &FilePath, to: &FilePath, now: Timestamp) -> FileResult<bool> {
        let mut state = self.state().await?;
        if state.rows.contains_key(&key(tree, to)) {
            return Ok(false);
        }
        let Some(mut row) = state.rows.remove(&key(tree, from)) else { return Ok(false) };
        row.entry = Entry { path: to.clone(), updated_at: now, ..row.entry };
        state.rows.insert(key(tree, to), row);
        Ok(true)
    }

    async fn list(
        &self,
        tree: &Tree,
        prefix: &PathPrefix,
        after: Option<&str>,
        limit: usize,
    ) -> FileResult<Vec<Entry>> {
        let state = self.state().await?;
        let fits = |path: &str| prefix.fits(path) && after.is_none_or(|after| path > after);
        let own = state.rows.iter().filter(|((own, path), _)| own == tree && fits(path.as_str()));
        Ok(own.take(limit).map(|(_, row)| row.entry.clone()).collect())
    }

    async fn reserve(&self, tenant: &str, key: &str, now: Timestamp) -> FileResult<()> {
        self.state().await?.free.insert((tenant.to_owned(), key.to_owned()), now);
        Ok(())
    }

    async fn free_keys(&self, before: Timestamp, limit: usize) -> FileResult<Vec<(String, String)>> {
        let state = self.state().await?;
        let old = state.free.iter().filter(|(_, since)| **since <= before);
        Ok(old.take(limit).map(|(key, _)| key.clone()).collect())
    }

    async fn forget(&self, tenant: &str, keys: &[String]) -> FileResult<()> {
        self.state().await?.free.retain(|(owner, key), _| owner != tenant || !keys.contains(key));
        Ok(())
    }

    async fn erase(&self, tenant: &str, limit: usize) -> FileResult<bool> {
        let mut state = self.state().await?;
        let of_tenant = state.rows.keys().filter(|(tree, _)| tree.tenant == tenant);
        let first: Vec<_> = of_tenant.take(limit).cloned().collect();
        state.rows.retain(|key, _| !first.contains(key));
        state.free.retain(|(owner, _), _| owner != tenant);
        Ok(state.rows.keys().any(|(tree, _)| tree.tenant == tenant))
    }
}
