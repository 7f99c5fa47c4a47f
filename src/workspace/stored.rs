//! A stored tree of files: rows in a table, large content in the object store.
//!
//! Large content is written in three steps: its key is reserved, then the bytes are stored, then the row,
//! which takes over the key. A failure in between leaves an unreferenced key for the collection. The bytes
//! under a key never change, so a reader that has a row finds its bytes, or a newer row.

use super::Guard;
use crate::ports::{
    BlobStore, Clock, Entropy, FileError, FileTable, Filesystem,
    filesystem::{Content, Entry, File, FileResult, MAX_FILE, Precondition, Row, Tree},
};
use crate::types::{BlobId, FilePath, GeneratedId, PathPrefix, TenantId};
use async_trait::async_trait;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::{cell::Cell, rc::Rc};

/// Maximum size of content that is stored in its row, in bytes (256 kB).
pub const MAX_INLINE: usize = 256 << 10;
/// Maximum number of files per query, which keeps a result at a few megabytes.
const READ_BATCH: usize = 16;
/// How often a read is repeated when the bytes of its row were just removed.
const MAX_ATTEMPTS: usize = 3;

/// The stores of files.
pub struct Stores {
    /// Rows.
    pub(super) table: Rc<dyn FileTable>,
    /// Large content.
    pub(super) blobs: Rc<dyn BlobStore>,
    pub(super) clock: Rc<dyn Clock>,
    entropy: Rc<dyn Entropy>,
    /// Number of changes that ended, successfully or not.
    changes: Cell<u64>,
}

impl Stores {
    /// Creates the stores. `clock` is for timestamps, `entropy` for random keys.
    pub fn new(
        table: Rc<dyn FileTable>,
        blobs: Rc<dyn BlobStore>,
        clock: Rc<dyn Clock>,
        entropy: Rc<dyn Entropy>,
    ) -> Self {
        Self { table, blobs, clock, entropy, changes: Cell::new(0) }
    }

    /// Returns the number of changes so far. What was read before is out of date when it grows.
    pub(super) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Runs and counts a change of the table.
    pub(super) async fn change<T>(&self, work: impl Future<Output = T>) -> T {
        // Counted even if the caller drops it: the change may have happened.
        let _counted = Counted(&self.changes);
        work.await
    }
}

/// Counts a change when it ends.
struct Counted<'a>(&'a Cell<u64>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// One stored tree of files.
#[derive(Clone)]
pub struct StoredFiles {
    stores: Rc<Stores>,
    tree: Tree,
    guard: Option<Guard>,
}

impl StoredFiles {
    /// Opens the tree without a guard.
    pub fn new(stores: Rc<Stores>, tree: Tree) -> Self {
        Self { stores, tree, guard: None }
    }

    /// Adds a guard, which is called right before each change. Without its permission the change fails with
    /// [`FileError::Closed`].
    pub fn guarded(self, guard: Guard) -> Self {
        Self { guard: Some(guard), ..self }
    }

    /// Checks the guard. Locates the table first, so that no await separates the check from the write.
    async fn check(&self) -> FileResult<()> {
        self.stores.table.locate(&self.tree.tenant).await?;
        match &self.guard {
            Some(guard) if !guard() => Err(FileError::Closed),
            _ => Ok(()),
        }
    }

    /// Loads a row's content. Returns `None` when the bytes were removed because the row was replaced.
    async fn content(&self, row: Row) -> FileResult<Option<File>> {
        let bytes = match row.content {
            Content::Inline(bytes) => Some(bytes),
            Content::Blob(key) => self.stores.blobs.get(&key, None).await?,
        };
        Ok(bytes.map(|bytes| File { entry: row.entry, bytes }))
    }

    /// Writes large content to the object store; keeps small content inline.
    async fn keep(&self, bytes: Bytes) -> FileResult<Content> {
        if bytes.len() <= MAX_INLINE {
            return Ok(Content::Inline(bytes));
        }
        let Stores { table, blobs, clock, entropy, .. } = &*self.stores;
        let (tenant, now) = (&self.tree.tenant, clock.now());
        let mut random = [0; 10];
        entropy.fill(&mut random);
        let key = format!("{}{}", blob_prefix(tenant), BlobId::generate(now, &random));
        self.check().await?;
        table.reserve(&self.tree, &key, now).await?;
        blobs.put(&key, bytes, "application/octet-stream").await?;
        Ok(Content::Blob(key))
    }
}

/// Key prefix of a tenant's large contents.
pub(super) fn blob_prefix(tenant: &TenantId) -> String {
    format!("{tenant}/files/")
}

/// Returns the version tag of a content: half of its SHA-256, in hexadecimal.
pub fn etag(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[async_trait(?Send)]
impl Filesystem for StoredFiles {
    async fn read(&self, path: &FilePath) -> FileResult<File> {
        for _ in 0..MAX_ATTEMPTS {
            let rows = self.stores.table.rows(&self.tree, std::slice::from_ref(path)).await?;
            let row = rows.into_iter().next().ok_or(FileError::NotFound)?;
            if let Some(file) = self.content(row).await? {
                return Ok(file);
            }
        }
        Err(FileError::Unavailable("the content of a file is missing from the object store".into()))
    }

    async fn read_many(&self, paths: &[FilePath]) -> FileResult<Vec<File>> {
        let mut files = Vec::new();
        for paths in paths.chunks(READ_BATCH) {
            for row in self.stores.table.rows(&self.tree, paths).await? {
                let path = row.entry.path.clone();
                let file = match self.content(row).await? {
                    Some(file) => Ok(file),
                    None => self.read(&path).await,
                };
                match file {
                    Ok(file) => files.push(file),
                    Err(FileError::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(files)
    }

    async fn write(&self, path: &FilePath, bytes: Bytes, condition: &Precondition) -> FileResult<Entry> {
        if bytes.len() > MAX_FILE {
            return Err(FileError::TooLarge(bytes.len()));
        }
        let (size, etag) = (bytes.len() as u64, etag(&bytes));
        let content = self.keep(bytes).await?;
        let updated_at = self.stores.clock.now();
        let row = Row { entry: Entry { path: path.clone(), bytes: size, etag, updated_at }, content };
        self.check().await?;
        if self.stores.change(self.stores.table.put(&self.tree, &row, condition)).await? {
            return Ok(row.entry);
        }
        // If a file exists at the path, the write failed because of it, not because the tree is full.
        let is_new = *condition != Precondition::CreateOnly || super::find(self, path).await?.is_none();
        let is_full = !matches!(condition, Precondition::IfMatch(_)) && is_new;
        Err(if is_full { FileError::Full } else { FileError::Conflict })
    }

    async fn delete(&self, path: &FilePath, condition: &Precondition) -> FileResult<()> {
        self.check().await?;
        let removed = self.stores.change(self.stores.table.remove(&self.tree, path, condition)).await?;
        if removed || *condition == Precondition::Any { Ok(()) } else { Err(FileError::Conflict) }
    }

    async fn list(&self, prefix: &PathPrefix, after: Option<&str>, limit: usize) -> FileResult<Vec<Entry>> {
        self.stores.table.list(&self.tree, prefix, after, limit).await
    }

    async fn rename(&self, from: &FilePath, to: &FilePath) -> FileResult<Entry> {
        self.check().await?;
        let now = self.stores.clock.now();
        let moved = self.stores.change(self.stores.table.rename(&self.tree, from, to, now)).await?;
        let at = if moved { to } else { from };
        match (moved, super::find(self, at).await?) {
            (true, Some(entry)) => Ok(entry),
            (false, Some(_)) => Err(FileError::Conflict),
            // The file was moved or removed concurrently.
            (_, None) => Err(FileError::NotFound),
        }
    }
}
