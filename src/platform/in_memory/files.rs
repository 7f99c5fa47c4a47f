//! The table of files in memory.

use crate::ports::{
    FileError, FileTable,
    filesystem::{
        Content, Entry, FileResult, Glance, GlanceResult, Heads, MAX_FILES, Precondition, Row, Tree,
    },
};
use crate::types::{FilePath, PathPrefix, StorageLimits, StorageUse, TenantId, Timestamp};
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::poll_fn;
use std::{
    cell::{Cell, RefCell, RefMut},
    collections::BTreeMap,
    task::{Poll, Waker},
};

/// The rows of files.
#[derive(Default)]
pub struct MemoryFiles {
    /// While set, every call fails.
    pub down: Cell<bool>,
    /// Number of calls after which every call fails; `None` for never.
    pub calls_left: Cell<Option<usize>>,
    /// While set, every call yields once, as a call over the network does.
    pub yields: Cell<bool>,
    /// While set, every call has to look up the tenant's database first.
    pub unplaced: Cell<bool>,
    /// While set, every conditional write loses to a concurrent write.
    pub contested: Cell<bool>,
    /// Number of calls so far.
    pub calls: Cell<usize>,
    /// Number of content bytes returned by glances.
    pub glanced: Cell<usize>,
    /// The limits of every tenant. Memory does not count here.
    pub limits: Cell<StorageLimits>,
    held: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    rows: BTreeMap<(Tree, FilePath), Row>,
    free: BTreeMap<(TenantId, String), Timestamp>,
}

impl MemoryFiles {
    /// Returns all rows and their trees.
    pub fn all(&self) -> Vec<(Tree, Row)> {
        self.state.borrow().rows.iter().map(|((tree, _), row)| (tree.clone(), row.clone())).collect()
    }

    /// Returns the blob keys that no row references.
    pub fn free(&self) -> Vec<String> {
        self.state.borrow().free.keys().map(|(_, key)| key.clone()).collect()
    }

    /// Adds `count` small files, named by number, to a tree.
    pub fn fill(&self, tenant: &TenantId, scope: &str, count: usize) {
        let tree = Tree { tenant: tenant.clone(), scope: scope.to_owned() };
        let paths = (0..count).filter_map(|n| FilePath::parse(&format!("filled/{n:05}")).ok());
        let mut state = self.state.borrow_mut();
        state.rows.extend(paths.map(|path| {
            let (etag, updated_at) = ("0".to_owned(), Timestamp::default());
            let entry = Entry { path: path.clone(), bytes: 1, etag, updated_at };
            ((tree.clone(), path), Row { entry, content: Content::Inline(Bytes::from_static(b"x")) })
        }));
    }

    /// Blocks all calls until [`MemoryFiles::release`].
    pub fn hold(&self) {
        self.held.set(true);
    }

    /// Unblocks the calls.
    pub fn release(&self) {
        self.held.set(false);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    async fn state(&self) -> FileResult<RefMut<'_, State>> {
        self.calls.set(self.calls.get() + 1);
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
        let left = self.calls_left.get();
        self.calls_left.set(left.map(|left| left.saturating_sub(1)));
        if self.down.get() || left == Some(0) {
            return Err(FileError::Unavailable("switched off".into()));
        }
        Ok(self.state.borrow_mut())
    }
}

impl State {
    /// Marks the blob key of a removed row as free.
    fn release(&mut self, tree: &Tree, row: Option<Row>, now: Timestamp) {
        if let Some(Row { content: Content::Blob(key), .. }) = row {
            self.free.insert((tree.tenant.clone(), key), now);
        }
    }

    /// Returns what a tenant stores.
    fn used(&self, tenant: &TenantId) -> StorageUse {
        let own = || self.rows.iter().filter(|((tree, _), _)| tree.tenant == *tenant);
        let file_bytes = own().map(|(_, row)| row.entry.bytes).sum();
        StorageUse { files: own().count() as u64, file_bytes, ..StorageUse::default() }
    }

    fn of<'a>(&'a self, tree: &'a Tree) -> impl Iterator<Item = (&'a FilePath, &'a Row)> {
        self.rows.iter().filter(move |((own, _), _)| own == tree).map(|((_, path), row)| (path, row))
    }

    fn heads(&self, tree: &Tree, wanted: &[FilePath], heads: &Heads<'_>) -> Vec<(Entry, Option<Bytes>)> {
        let inside = self.of(tree).filter_map(|(path, _)| path.as_str().strip_prefix(heads.folder.as_str()));
        let mut names: Vec<_> = inside.map(|path| path.split_once('/').ok_or(path)).collect();
        // A file of the folder is an error here.
        names.dedup_by_key(|name| name.map(|(folder, _)| folder));
        let folders = names.into_iter().take(heads.folders).flatten();
        let paths = folders.filter_map(|(name, _)| {
            FilePath::parse(&format!("{}{name}/{}", heads.folder.as_str(), heads.file)).ok()
        });
        let rows = paths.filter_map(|path| self.rows.get(&key(tree, &path)));
        let rows = rows.filter(|row| row.entry.bytes > 0).take(heads.limit);
        rows.filter(|row| !wanted.contains(&row.entry.path))
            .map(|row| {
                let is_known = heads.known.contains(&row.entry.etag);
                (row.entry.clone(), (!is_known).then(|| text_start(&row.content, heads.max_chars)))
            })
            .collect()
    }

    fn glimpse(&self, tree: &Tree, glance: &Glance<'_>) -> GlanceResult {
        let wanted = self.of(tree).filter(|(path, _)| glance.wanted.contains(path));
        let below = self.of(tree).map(|(path, _)| path).filter(|path| glance.folder.fits(path.as_str()));
        let content = |row: &Row| match &row.content {
            _ if glance.known.contains(&row.entry.etag) => None,
            Content::Inline(bytes) => Some(Content::Inline(start(bytes, glance.max_chars))),
            blob @ Content::Blob(_) => Some(blob.clone()),
        };
        GlanceResult {
            files: wanted.map(|(_, row)| (row.entry.clone(), content(row))).collect(),
            heads: glance.heads.map(|heads| self.heads(tree, glance.wanted, &heads)).unwrap_or_default(),
            listed: below.take(glance.limit).cloned().collect(),
        }
    }
}

/// Returns the first characters of a text that is stored in its row; nothing of other content.
fn text_start(content: &Content, max_chars: usize) -> Bytes {
    match content {
        Content::Inline(bytes) if text(bytes).is_some() => start(bytes, max_chars),
        _ => Bytes::new(),
    }
}

/// Returns the first characters of a text; binary content completely.
fn start(bytes: &Bytes, max_chars: usize) -> Bytes {
    let end =
        text(bytes).and_then(|text| text.char_indices().nth(max_chars)).map_or(bytes.len(), |(end, _)| end);
    bytes.slice(..end)
}

/// Returns the content as text; `None` for what a database would not store as text.
fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

fn key(tree: &Tree, path: &FilePath) -> (Tree, FilePath) {
    (tree.clone(), path.clone())
}

#[async_trait(?Send)]
impl FileTable for MemoryFiles {
    async fn locate(&self, _tenant: &TenantId) -> FileResult<()> {
        if self.unplaced.get() {
            self.state().await?;
        }
        Ok(())
    }

    async fn rows(&self, tree: &Tree, paths: &[FilePath]) -> FileResult<Vec<Row>> {
        let state = self.state().await?;
        Ok(paths.iter().filter_map(|path| state.rows.get(&key(tree, path)).cloned()).collect())
    }

    async fn glance(
        &self,
        tenant: &TenantId,
        scopes: &[&str],
        glance: &Glance<'_>,
    ) -> FileResult<Vec<GlanceResult>> {
        let state = self.state().await?;
        let tree = |scope: &&str| Tree { tenant: tenant.clone(), scope: (*scope).to_owned() };
        let seen: Vec<GlanceResult> =
            scopes.iter().map(|scope| state.glimpse(&tree(scope), glance)).collect();
        let contents =
            seen.iter().flat_map(|glimpse| &glimpse.files).filter_map(|(_, content)| content.as_ref());
        let bytes =
            contents.map(|content| if let Content::Inline(bytes) = content { bytes.len() } else { 0 });
        let heads = seen.iter().flat_map(|glimpse| &glimpse.heads);
        let head_bytes = heads.map(|(_, start)| start.as_ref().map_or(0, Bytes::len));
        self.glanced.set(self.glanced.get() + bytes.chain(head_bytes).sum::<usize>());
        Ok(seen)
    }

    async fn put(&self, tree: &Tree, row: &Row, condition: &Precondition) -> FileResult<bool> {
        let mut state = self.state().await?;
        let key = key(tree, &row.entry.path);
        let old = state.rows.get(&key).map(|row| row.entry.etag.as_str());
        if self.contested.get() && *condition != Precondition::Any {
            return Ok(false);
        }
        let is_full = old.is_none() && state.of(tree).count() >= MAX_FILES;
        if is_full || !condition.fits(old) {
            return Ok(false);
        }
        let before = state.used(&tree.tenant);
        let replaced = state.rows.get(&key).map_or(0, |row| row.entry.bytes);
        let after = StorageUse {
            files: before.files + u64::from(old.is_none()),
            file_bytes: before.file_bytes + row.entry.bytes - replaced,
            ..before
        };
        if let Some(quota) = self.limits.get().exceeded(&before, &after) {
            return Err(quota.into());
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
        let own = state.of(tree).filter(|(path, _)| fits(path.as_str()));
        Ok(own.take(limit).map(|(_, row)| row.entry.clone()).collect())
    }

    async fn reserve(&self, tree: &Tree, key: &str, now: Timestamp) -> FileResult<()> {
        self.state().await?.free.insert((tree.tenant.clone(), key.to_owned()), now);
        Ok(())
    }

    async fn free_keys(&self, before: Timestamp, limit: usize) -> FileResult<Vec<(TenantId, String)>> {
        let state = self.state().await?;
        let old = state.free.iter().filter(|(_, since)| **since <= before);
        Ok(old.take(limit).map(|(key, _)| key.clone()).collect())
    }

    async fn forget(&self, keys: &[(TenantId, String)]) -> FileResult<()> {
        self.state().await?.free.retain(|key, _| !keys.contains(key));
        Ok(())
    }

    async fn scopes(
        &self,
        tenant: &TenantId,
        owner: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> FileResult<Vec<String>> {
        let state = self.state().await?;
        let mut scopes: Vec<&str> = state
            .rows
            .keys()
            .filter(|(tree, _)| tree.tenant == *tenant)
            .map(|(tree, _)| tree.scope.as_str())
            .collect();
        scopes.dedup();
        let is_owners = |scope: &&str| {
            let of_agent = scope.strip_prefix("agents/").and_then(|rest| rest.split_once('/'));
            owner.is_none_or(|owner| of_agent.is_some_and(|(_, rest)| rest == owner))
        };
        let is_later = |scope: &&str| after.is_none_or(|after| *scope > after);
        Ok(scopes.into_iter().filter(is_owners).filter(is_later).take(limit).map(str::to_owned).collect())
    }

    async fn clear(&self, tree: &Tree, limit: usize) -> FileResult<usize> {
        let mut state = self.state().await?;
        let first: Vec<FilePath> = state.of(tree).take(limit).map(|(path, _)| path.clone()).collect();
        for path in &first {
            let old = state.rows.remove(&key(tree, path));
            let at = old.as_ref().map(|row| row.entry.updated_at).unwrap_or_default();
            state.release(tree, old, at);
        }
        Ok(first.len())
    }

    async fn erase(&self, tenant: &TenantId, limit: usize) -> FileResult<bool> {
        let mut state = self.state().await?;
        let of_tenant = state.rows.keys().filter(|(tree, _)| tree.tenant == *tenant);
        let first: Vec<_> = of_tenant.take(limit).cloned().collect();
        state.rows.retain(|key, _| !first.contains(key));
        state.free.retain(|(owner, _), _| *owner != *tenant);
        Ok(state.rows.keys().any(|(tree, _)| tree.tenant == *tenant))
    }
}
