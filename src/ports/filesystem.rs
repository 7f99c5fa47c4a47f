//! Files by path, and the table that keeps them.
//!
//! A [`Filesystem`] is one tree: everything in it belongs to the same tenant and scope, so a path
//! cannot lead out of it. A [`FileTable`] holds the trees of all tenants.

use crate::types::{FilePath, PathPrefix, TenantId, Timestamp};
use async_trait::async_trait;
use bytes::Bytes;
use thiserror::Error;

/// Most bytes of one file (4 MiB).
pub const MAX_FILE: usize = 4 << 20;
/// Most files of one tree.
pub const MAX_FILES: usize = 10_000;

/// Why nothing came of it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FileError {
    /// There is no such file.
    #[error("there is no such file")]
    NotFound,
    /// The file is not what the caller expected it to be.
    #[error("the file is there already, or was changed meanwhile")]
    Conflict,
    /// The file is larger than [`MAX_FILE`].
    #[error("a file may have {MAX_FILE} bytes, not {0}")]
    TooLarge(usize),
    /// The tree has as many files as it may.
    #[error("there are {MAX_FILES} files already, which is the most: delete some first")]
    Full,
    /// The tree takes no writes.
    #[error("this file can only be read")]
    ReadOnly,
    /// Whoever writes has lost the right to.
    #[error("the call is over, so nothing is written any more")]
    Closed,
    /// A store broke or does not answer. The words are for our log.
    #[error("the file store does not answer: {0}")]
    Unavailable(String),
}

/// The result of a call on files.
pub type FileResult<T> = Result<T, FileError>;

/// What must be true of a file for a write to take place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing.
    #[default]
    Any,
    /// It is not there.
    CreateOnly,
    /// It is there, and this is its etag.
    IfMatch(String),
}

impl Precondition {
    /// Whether a file with this etag, or the lack of one, fits.
    pub fn fits(&self, etag: Option<&str>) -> bool {
        match self {
            Self::Any => true,
            Self::CreateOnly => etag.is_none(),
            Self::IfMatch(expected) => etag == Some(expected),
        }
    }
}

/// A file as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is.
    pub path: FilePath,
    /// Its size.
    pub bytes: u64,
    /// What changes with its content.
    pub etag: String,
    /// When it was last written.
    pub updated_at: Timestamp,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// What lists show of it.
    pub entry: Entry,
    /// Its content.
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
///     // Fails with `Conflict` if somebody else was faster: then read again.
///     files.write(path, bytes.into(), &Precondition::IfMatch(file.entry.etag)).await?;
///     Ok(())
/// }
/// ```
#[async_trait(?Send)]
pub trait Filesystem {
    /// Reads a file.
    async fn read(&self, path: &FilePath) -> FileResult<File>;

    /// Reads those of these files that are there. Cheaper than one after the other where the kind
    /// of tree can do better.
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

    /// Writes a file, if the precondition holds: check and write are one.
    async fn write(&self, path: &FilePath, bytes: Bytes, condition: &Precondition) -> FileResult<Entry>;

    /// Removes a file; one that is not there counts as removed unless the precondition names it.
    async fn delete(&self, path: &FilePath, condition: &Precondition) -> FileResult<()>;

    /// Up to `limit` files behind the path `after`, sorted by path.
    async fn list(&self, prefix: &PathPrefix, after: Option<&str>, limit: usize) -> FileResult<Vec<Entry>>;

    /// Moves a file to where none is.
    async fn rename(&self, from: &FilePath, to: &FilePath) -> FileResult<Entry>;
}

/// Where a tree stands among all: the tenant first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tree {
    /// The tenant.
    pub tenant: TenantId,
    /// The scope below it, such as `agents/default/users/ann`.
    pub scope: String,
}

/// The content of a file, or where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The content itself.
    Inline(Bytes),
    /// Its key in the object store, below the tenant's files. No other row has it.
    Blob(String),
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What lists show of it.
    pub entry: Entry,
    /// The content.
    pub content: Content,
}

/// What is asked of several trees at once.
pub struct Glance<'a> {
    /// The files whose content is wanted.
    pub wanted: &'a [FilePath],
    /// Etags of contents that are known already and need not be sent again.
    pub known: &'a [String],
    /// How much of a text is wanted, in characters.
    pub max_chars: usize,
    /// The files below it are listed.
    pub folder: &'a PathPrefix,
    /// How many of them, at most.
    pub limit: usize,
}

/// What a tree looks like at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Glimpse {
    /// Those of the wanted files that are there, sorted by path. A content is absent where it is known;
    /// one that stands in its row as text ends behind the characters that were asked for.
    pub files: Vec<(Entry, Option<Content>)>,
    /// The first files below the folder, sorted by path, among them wanted ones.
    pub listed: Vec<FilePath>,
}

/// Rows of files, and the keys of objects that no row has: those that were reserved and not used
/// yet, and those whose row was replaced or removed. The table itself keeps the two in step, so
/// that no object is forgotten whenever a machine dies.
#[async_trait(?Send)]
pub trait FileTable {
    /// Finds out where a tenant's rows are, where that is a question: a call right behind it waits for
    /// nothing but its own statement.
    async fn locate(&self, _tenant: &TenantId) -> FileResult<()> {
        Ok(())
    }
    /// The rows of those of these files that are there.
    async fn rows(&self, tree: &Tree, paths: &[FilePath]) -> FileResult<Vec<Row>>;
    /// Looks at several trees of a tenant in one step, and answers in the same order.
    async fn glance(
        &self,
        tenant: &TenantId,
        scopes: &[&str],
        glance: &Glance<'_>,
    ) -> FileResult<Vec<Glimpse>>;
    /// Puts a row, in one step; false when the precondition does not hold, or the row would be new and
    /// the tree has [`MAX_FILES`]. A key of its content is not free any more.
    async fn put(&self, tree: &Tree, row: &Row, condition: &Precondition) -> FileResult<bool>;
    /// Removes a row, if the precondition holds, in one step; false when none was removed.
    async fn remove(&self, tree: &Tree, path: &FilePath, condition: &Precondition) -> FileResult<bool>;
    /// Moves a row to where none is, in one step; false when there is nothing to move, or no room.
    async fn rename(&self, tree: &Tree, from: &FilePath, to: &FilePath, now: Timestamp) -> FileResult<bool>;
    /// Up to `limit` rows behind the path `after`, sorted by path, without their content.
    async fn list(
        &self,
        tree: &Tree,
        prefix: &PathPrefix,
        after: Option<&str>,
        limit: usize,
    ) -> FileResult<Vec<Entry>>;

    /// Notes a key before its object is written.
    async fn reserve(&self, tenant: &TenantId, key: &str, now: Timestamp) -> FileResult<()>;
    /// Keys that no row has since `before`, of any tenant: `(tenant, key)`.
    async fn free_keys(&self, before: Timestamp, limit: usize) -> FileResult<Vec<(TenantId, String)>>;
    /// Forgets keys whose objects are gone.
    async fn forget(&self, tenant: &TenantId, keys: &[String]) -> FileResult<()>;
    /// Up to `limit` scopes `agents/<agent>/<owner>`, of whatever agent, that have files.
    async fn scopes(&self, tenant: &TenantId, owner: &str, limit: usize) -> FileResult<Vec<String>>;
    /// Removes up to `limit` rows of a tree; returns how many there were.
    async fn clear(&self, tree: &Tree, limit: usize) -> FileResult<usize>;
    /// Removes up to `limit` rows of a tenant, and all its keys; returns whether any row is left.
    async fn erase(&self, tenant: &TenantId, limit: usize) -> FileResult<bool>;
}
