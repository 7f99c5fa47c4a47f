//! A tree of files that is kept: rows in a table, large content in the object store.
//!
//! The key of a large content is reserved first, then its bytes are written, then its row; the row
//! takes the key over. So whatever breaks in between leaves a key that nobody has, and those are
//! collected. A row's key is never written again: who has read the row finds the bytes, or a newer row.

use super::Guard;
use crate::ports::{
    BlobStore, Clock, Entropy, FileError, FileTable, Filesystem,
    filesystem::{Content, Entry, File, FileResult, MAX_FILE, Precondition, Row, Tree},
};
use crate::types::{FilePath, PathPrefix, TenantId, id};
use async_trait::async_trait;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::rc::Rc;

/// Most bytes of a content that stands in its row (256 kB).
pub const MAX_INLINE: usize = 256 << 10;
/// Files that one query reads at most: together a few megabytes.
const AT_ONCE: usize = 16;
/// How often a file is read again whose bytes have just gone.
const TRIES: usize = 3;

/// Where files are kept.
pub struct Stores {
    /// The rows.
    pub table: Rc<dyn FileTable>,
    /// Large content.
    pub blobs: Rc<dyn BlobStore>,
    /// The time.
    pub clock: Rc<dyn Clock>,
    /// For keys.
    pub entropy: Rc<dyn Entropy>,
}

/// One tree of files.
#[derive(Clone)]
pub struct StoredFiles {
    stores: Rc<Stores>,
    tree: Tree,
    guard: Option<Guard>,
}

impl StoredFiles {
    /// The tree, whoever writes.
    pub fn new(stores: Rc<Stores>, tree: Tree) -> Self {
        Self { stores, tree, guard: None }
    }

    /// The same tree for somebody whose right to write may end: `guard` is asked right before each
    /// step that changes anything.
    pub fn guarded(self, guard: Guard) -> Self {
        Self { guard: Some(guard), ..self }
    }

    /// Asks the guard, when nothing else has to be waited for before the statement.
    async fn check(&self) -> FileResult<()> {
        self.stores.table.locate(&self.tree.tenant).await?;
        match &self.guard {
            Some(guard) if !guard() => Err(FileError::Closed),
            _ => Ok(()),
        }
    }

    /// A row's content; `None` when its bytes are gone, because the row is.
    async fn content(&self, row: Row) -> FileResult<Option<File>> {
        let bytes = match row.content {
            Content::Inline(bytes) => Some(bytes),
            Content::Blob(key) => self.stores.blobs.get(&key, None).await.map_err(FileError::Unavailable)?,
        };
        Ok(bytes.map(|bytes| File { entry: row.entry, bytes }))
    }

    /// Brings large content into the object store; what is small stays as it is.
    async fn keep(&self, bytes: Bytes) -> FileResult<Content> {
        if bytes.len() <= MAX_INLINE {
            return Ok(Content::Inline(bytes));
        }
        let Stores { table, blobs, clock, entropy } = &*self.stores;
        let (tenant, now) = (&self.tree.tenant, clock.now());
        let mut random = [0; 10];
        entropy.fill(&mut random);
        let key = format!("{}{}", blobs_of(tenant), id::make(id::FILE, now, &random));
        self.check().await?;
        table.reserve(tenant, &key, now).await?;
        blobs.put(&key, bytes, "application/octet-stream").await.map_err(FileError::Unavailable)?;
        Ok(Content::Blob(key))
    }
}

/// What the keys of a tenant's large files start with.
pub(super) fn blobs_of(tenant: &TenantId) -> String {
    format!("{tenant}/files/")
}

/// What changes with a content: half of its SHA-256, in hex.
pub fn etag(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[async_trait(?Send)]
impl Filesystem for StoredFiles {
    async fn read(&self, path: &FilePath) -> FileResult<File> {
        for _ in 0..TRIES {
            let rows = self.stores.table.rows(&self.tree, std::slice::from_ref(path)).await?;
            let row = rows.into_iter().next().ok_or(FileError::NotFound)?;
            if let Some(file) = self.content(row).await? {
                return Ok(file);
            }
        }
        Err(FileError::Unavailable("the bytes of a file are missing".into()))
    }

    async fn read_many(&self, paths: &[FilePath]) -> FileResult<Vec<File>> {
        let mut files = Vec::new();
        for paths in paths.chunks(AT_ONCE) {
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
        if self.stores.table.put(&self.tree, &row, condition).await? {
            return Ok(row.entry);
        }
        // A write that meets a file of its path was not refused for want of room.
        let is_new = *condition != Precondition::CreateOnly || super::find(self, path).await?.is_none();
        let is_full = !matches!(condition, Precondition::IfMatch(_)) && is_new;
        Err(if is_full { FileError::Full } else { FileError::Conflict })
    }

    async fn delete(&self, path: &FilePath, condition: &Precondition) -> FileResult<()> {
        self.check().await?;
        let removed = self.stores.table.remove(&self.tree, path, condition).await?;
        if removed || *condition == Precondition::Any { Ok(()) } else { Err(FileError::Conflict) }
    }

    async fn list(&self, prefix: &PathPrefix, after: Option<&str>, limit: usize) -> FileResult<Vec<Entry>> {
        self.stores.table.list(&self.tree, prefix, after, limit).await
    }

    async fn rename(&self, from: &FilePath, to: &FilePath) -> FileResult<Entry> {
        self.check().await?;
        let moved = self.stores.table.rename(&self.tree, from, to, self.stores.clock.now()).await?;
        let at = if moved { to } else { from };
        match (moved, super::find(self, at).await?) {
            (true, Some(entry)) => Ok(entry),
            (false, Some(_)) => Err(FileError::Conflict),
            // Where it is not any more: somebody else was faster.
            (_, None) => Err(FileError::NotFound),
        }
    }
}
