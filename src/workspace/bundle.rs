//! Read-only files: those that are compiled into the Worker, and those of an agent's version.

use super::stored::etag;
use crate::ports::{
    FileError, Filesystem,
    filesystem::{Entry, File, FileResult, Precondition},
};
use crate::types::{FilePath, PathError, PathPrefix, Timestamp};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeMap;

/// A read-only tree.
#[derive(Default)]
pub struct Bundle(BTreeMap<FilePath, File>);

impl Bundle {
    /// Creates a tree of these files.
    ///
    /// # Errors
    /// Returns an error when a path is invalid.
    pub fn new(files: &[(&str, &'static [u8])]) -> Result<Self, PathError> {
        let file = |(path, bytes): &(&str, &'static [u8])| {
            let path = FilePath::parse(path)?;
            let (size, etag) = (bytes.len() as u64, etag(bytes));
            let entry = Entry { path: path.clone(), bytes: size, etag, updated_at: Timestamp::default() };
            Ok((path, File { entry, bytes: Bytes::from_static(bytes) }))
        };
        files.iter().map(file).collect::<Result<_, _>>().map(Self)
    }

    /// Creates a tree of these texts.
    pub fn of_texts(files: &BTreeMap<FilePath, String>) -> Self {
        let file = |(path, text): (&FilePath, &String)| {
            let bytes = Bytes::copy_from_slice(text.as_bytes());
            let (size, etag) = (bytes.len() as u64, etag(&bytes));
            let entry = Entry { path: path.clone(), bytes: size, etag, updated_at: Timestamp::default() };
            (path.clone(), File { entry, bytes })
        };
        Self(files.iter().map(file).collect())
    }
}

#[async_trait(?Send)]
impl Filesystem for Bundle {
    async fn read(&self, path: &FilePath) -> FileResult<File> {
        self.0.get(path).cloned().ok_or(FileError::NotFound)
    }

    async fn write(&self, _path: &FilePath, _bytes: Bytes, _condition: &Precondition) -> FileResult<Entry> {
        Err(FileError::ReadOnly)
    }

    async fn delete(&self, _path: &FilePath, _condition: &Precondition) -> FileResult<()> {
        Err(FileError::ReadOnly)
    }

    async fn list(&self, prefix: &PathPrefix, after: Option<&str>, limit: usize) -> FileResult<Vec<Entry>> {
        let fits =
            |path: &FilePath| prefix.fits(path.as_str()) && after.is_none_or(|after| path.as_str() > after);
        let found = self.0.iter().filter(|(path, _)| fits(path)).take(limit);
        Ok(found.map(|(_, file)| file.entry.clone()).collect())
    }

    async fn rename(&self, _from: &FilePath, _to: &FilePath) -> FileResult<Entry> {
        Err(FileError::ReadOnly)
    }
}
