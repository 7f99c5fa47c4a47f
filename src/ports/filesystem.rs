//! File trees, and the table that stores them.
//!
//! A [`Filesystem`] is one tree of one tenant and scope, so that no path leads out of it. A [`FileTable`]
//! holds the trees of all tenants.

use super::{BlobError, memory::MemoryError};
use crate::types::{FilePath, PathPrefix, StorageQuota, TenantId, Timestamp};
use async_trait::async_trait;
use bytes::Bytes;
use thiserror::Error;

/// Maximum size of a file, in bytes (4 MiB).
pub const MAX_FILE: usize = 4 << 20;
/// Maximum number of files in a tree.
pub const MAX_FILES: usize = 10_000;

/// Why a file operation failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FileError {
    /// The file does not exist.
    #[error("the file does not exist")]
    NotFound,
    /// The precondition does not hold.
    #[error("the file already exists or has changed")]
    Conflict,
    /// The file is larger than [`MAX_FILE`].
    #[error("the file is too large: {0} bytes; at most {MAX_FILE} are allowed")]
    TooLarge(usize),
    /// The tree has [`MAX_FILES`] files.
    #[error("the workspace has {MAX_FILES} files, which is the maximum; delete some first")]
    Full,
    /// The tenant has reached a limit.
    #[error(transparent)]
    Quota(#[from] StorageQuota),
    /// The file cannot be written by the caller.
    #[error("the file is read-only")]
    ReadOnly,
    /// The call that writes has ended or lost its permit.
    #[error("the call has ended and can no longer write")]
    Closed,
    /// The store failed. The message is for the operator's log.
    #[error("the file store is unavailable: {0}")]
    Unavailable(String),
}

impl From<BlobError> for FileError {
    fn from(error: BlobError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<MemoryError> for FileError {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Quota(quota) => Self::Quota(quota),
            MemoryError::Unavailable(_) => Self::Unavailable(error.to_string()),
        }
    }
}

/// The result of a file operation.
pub type FileResult<T> = Result<T, FileError>;

/// What must hold for a write to take place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// No condition.
    #[default]
    Any,
    /// The file does not exist.
    CreateOnly,
    /// The file exists and has this etag.
    IfMatch(String),
}

impl Precondition {
    /// Returns whether the precondition holds for a file with this etag; `None` for no file.
    pub fn fits(&self, etag: Option<&str>) -> bool {
        match self {
            Self::Any => true,
            Self::CreateOnly => etag.is_none(),
            Self::IfMatch(expected) => etag == Some(expected),
        }
    }
}

/// The metadata of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The file's path.
    pub path: FilePath,
    /// Size in bytes.
    pub bytes: u64,
    /// A value that changes whenever the content changes.
    pub etag: String,
    /// When the file was last written.
    pub updated_at: Timestamp,
}

/// A file with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The metadata.
    pub entry: Entry,
    /// The content.
    pub bytes: Bytes,
}

/// A tree of files.
///
/// ```
/// # use edge_harness::ports::{FileError, Filesystem, filesystem::Precondition};
/// # use edge_harness::types::FilePath;
/// async fn append(files: &dyn Filesystem, path: &FilePath, line: &str) -> Result<(), FileError> {
///     let file = files.read(path).await?;
///     let bytes = [&file.bytes[..], line.as_bytes()].concat();
///     // Fails with `Conflict` if the file was changed in between: then read it again.
///     files.write(path, bytes.into(), &Precondition::IfMatch(file.entry.etag)).await?;
///     Ok(())
/// }
/// ```
#[async_trait(?Send)]
pub trait Filesystem {
    /// Reads a file.
    async fn read(&self, path: &FilePath) -> FileResult<File>;

    /// Reads all of `paths` that exist. Implementations may need fewer round trips than single reads.
    async fn read_many(&self, paths: &[FilePath]) -> FileResult<Vec<File>> {
        let mut files = Vec::new();
        for path in paths {
            match self.read(path).await {
                Ok(file) => files.push(file),
                Err(FileError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(files)
    }

    /// Writes a file if the precondition holds. Check and write are atomic.
    async fn write(&self, path: &FilePath, bytes: Bytes, condition: &Precondition) -> FileResult<Entry>;

    /// Deletes a file. Succeeds if the file does not exist, unless the precondition requires it.
    async fn delete(&self, path: &FilePath, condition: &Precondition) -> FileResult<()>;

    /// Lists up to `limit` files after the path `after`, sorted by path.
    async fn list(&self, prefix: &PathPrefix, after: Option<&str>, limit: usize) -> FileResult<Vec<Entry>>;

    /// Renames a file. Fails if the new path exists.
    async fn rename(&self, from: &FilePath, to: &FilePath) -> FileResult<Entry>;
}

/// The address of a tree: tenant and scope.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tree {
    /// The tenant.
    pub tenant: TenantId,
    /// The scope within the tenant, such as `agents/default/users/ann`.
    pub scope: String,
}

/// The stored form of a file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The content, stored in the row.
    Inline(Bytes),
    /// A key in the object store, below the tenant's files and used by no other row.
    Blob(String),
}

/// A row of the file table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The metadata.
    pub entry: Entry,
    /// The content.
    pub content: Content,
}

/// A query for several trees at once.
pub struct Glance<'a> {
    /// The files whose content is requested.
    pub wanted: &'a [FilePath],
    /// Etags of contents that the caller already has, so that they are not returned.
    pub known: &'a [String],
    /// Maximum number of characters of a text to return.
    pub max_chars: usize,
    /// The folder to list.
    pub folder: &'a PathPrefix,
    /// Maximum number of files to list.
    pub limit: usize,
    /// The files in the subfolders of another folder whose start is requested, too.
    pub heads: Option<Heads<'a>>,
}

/// The starts of all files `<folder><any name>/<file>`.
#[derive(Clone, Copy)]
pub struct Heads<'a> {
    /// The folder.
    pub folder: &'a PathPrefix,
    /// The name of the file in each subfolder.
    pub file: &'a str,
    /// Etags of starts that the caller already has.
    pub known: &'a [String],
    /// Maximum number of characters of a start.
    pub max_chars: usize,
    /// Maximum number of subfolders to look into: the first ones by name. A file of the folder counts like one.
    pub folders: usize,
    /// Maximum number of starts: the first ones by path. An empty file has none.
    pub limit: usize,
}

/// The result of a [`Glance`] for one tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GlanceResult {
    /// The requested files that exist, sorted by path. The content is absent if the caller already has it,
    /// and cut to `max_chars` if it is text stored in the row.
    pub files: Vec<(Entry, Option<Content>)>,
    /// The requested heads that are not among the requested files, sorted by path. The start is absent if the caller
    /// already has it, and empty if the content is no text or not stored in the row.
    pub heads: Vec<(Entry, Option<Bytes>)>,
    /// The first files in the folder, sorted by path. May include requested files.
    pub listed: Vec<FilePath>,
}

/// The table of files, and of object keys without a row: keys reserved for a write, and keys whose row was
/// replaced or deleted. The table keeps both consistent, so that a crash at any point leaves no unreachable
/// object.
///
/// ```
/// # use edge_harness::ports::{FileTable, filesystem::{FileResult, Tree}};
/// # use edge_harness::types::FilePath;
/// async fn exists(table: &dyn FileTable, tree: &Tree, path: FilePath) -> FileResult<bool> {
///     Ok(!table.rows(tree, &[path]).await?.is_empty())
/// }
/// ```
#[async_trait(?Send)]
pub trait FileTable {
    /// Looks up the location of a tenant's rows, if that needs a query, so that the next call needs one query
    /// only.
    async fn locate(&self, _tenant: &TenantId) -> FileResult<()> {
        Ok(())
    }
    /// Returns the rows of those `paths` that exist.
    async fn rows(&self, tree: &Tree, paths: &[FilePath]) -> FileResult<Vec<Row>>;
    /// Queries several trees of a tenant in one round trip. Returns the results in the order of `scopes`.
    async fn glance(
        &self,
        tenant: &TenantId,
        scopes: &[&str],
        glance: &Glance<'_>,
    ) -> FileResult<Vec<GlanceResult>>;
    /// Writes a row atomically and takes its key off the list of free keys. Returns `false` if the
    /// precondition does not hold, or if the row is new and the tree has [`MAX_FILES`] files; an error if the tenant
    /// would exceed a limit.
    async fn put(&self, tree: &Tree, row: &Row, condition: &Precondition) -> FileResult<bool>;
    /// Deletes a row atomically if the precondition holds. Returns whether a row was deleted.
    async fn remove(&self, tree: &Tree, path: &FilePath, condition: &Precondition) -> FileResult<bool>;
    /// Renames a row atomically. Returns `false` if `from` does not exist or `to` exists.
    async fn rename(&self, tree: &Tree, from: &FilePath, to: &FilePath, now: Timestamp) -> FileResult<bool>;
    /// Lists up to `limit` rows after the path `after`, sorted by path, without their content.
    async fn list(
        &self,
        tree: &Tree,
        prefix: &PathPrefix,
        after: Option<&str>,
        limit: usize,
    ) -> FileResult<Vec<Entry>>;

    /// Records a key before its object is written for a file of the tree.
    async fn reserve(&self, tree: &Tree, key: &str, now: Timestamp) -> FileResult<()>;
    /// Lists keys of any tenants that have been without a row since `before`, as `(tenant, key)`, on up to
    /// [`SHARDS_PER_SWEEP`](super::directory::SHARDS_PER_SWEEP) shards.
    async fn free_keys(&self, before: Timestamp, limit: usize) -> FileResult<Vec<(TenantId, String)>>;
    /// Removes keys whose objects were deleted.
    async fn forget(&self, keys: &[(TenantId, String)]) -> FileResult<()>;
    /// Lists up to `limit` scopes that have files after the scope `after`, sorted: all of a tenant, or the scopes
    /// `agents/<agent>/<owner>` for any agent.
    async fn scopes(
        &self,
        tenant: &TenantId,
        owner: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> FileResult<Vec<String>>;
    /// Deletes up to `limit` rows of a tree. Returns the number of deleted rows.
    async fn clear(&self, tree: &Tree, limit: usize) -> FileResult<usize>;
    /// Deletes up to `limit` rows of a tenant, and all its keys. Returns whether rows are left.
    async fn erase(&self, tenant: &TenantId, limit: usize) -> FileResult<bool>;
}
