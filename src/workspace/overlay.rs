//! A writable tree over a read-only one.

use crate::ports::{
    FileError, Filesystem,
    filesystem::{Entry, File, FileResult, Precondition},
};
use crate::types::{FilePath, PathPrefix};
use async_trait::async_trait;
use bytes::Bytes;
use std::{collections::BTreeMap, rc::Rc};

/// The tree that a file comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The writable tree.
    Upper,
    /// The read-only tree.
    Lower,
}

/// A writable tree over a read-only one. A non-empty file of the upper tree hides the one of the lower tree.
/// Preconditions apply to what a reader sees, so the first write to a file of the lower tree copies it up.
#[derive(Clone)]
pub struct Overlay {
    /// The writable tree.
    pub upper: Rc<dyn Filesystem>,
    /// The read-only tree.
    pub lower: Rc<dyn Filesystem>,
}

impl Overlay {
    /// Reads a file and returns which tree it comes from.
    ///
    /// # Errors
    /// Returns an error when there is no such file or a tree cannot be read.
    pub async fn find(&self, path: &FilePath) -> FileResult<(File, Side)> {
        let upper = optional(self.upper.read(path).await)?;
        match upper {
            Some(file) if !file.bytes.is_empty() => Ok((file, Side::Upper)),
            upper => match (upper, optional(self.lower.read(path).await)?) {
                (Some(empty), None) => Ok((empty, Side::Upper)),
                (_, Some(file)) => Ok((file, Side::Lower)),
                (None, None) => Err(FileError::NotFound),
            },
        }
    }

    /// Lists what a reader sees, with the tree of each entry.
    ///
    /// # Errors
    /// Returns an error when a tree cannot be read.
    pub async fn entries(
        &self,
        prefix: &PathPrefix,
        after: Option<&str>,
        limit: usize,
    ) -> FileResult<Vec<(Entry, Side)>> {
        let mut seen: BTreeMap<FilePath, (Entry, Side)> = BTreeMap::new();
        for entry in self.lower.list(prefix, after, limit).await? {
            seen.insert(entry.path.clone(), (entry, Side::Lower));
        }
        for entry in self.upper.list(prefix, after, limit).await? {
            if entry.bytes > 0 || !seen.contains_key(&entry.path) {
                seen.insert(entry.path.clone(), (entry, Side::Upper));
            }
        }
        // Each tree returned its first `limit` entries, so the first `limit` of the merged list are complete.
        Ok(seen.into_values().take(limit).collect())
    }
}

fn optional<T>(found: FileResult<T>) -> FileResult<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(FileError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

#[async_trait(?Send)]
impl Filesystem for Overlay {
    async fn read(&self, path: &FilePath) -> FileResult<File> {
        self.find(path).await.map(|(file, _)| file)
    }

    async fn read_many(&self, paths: &[FilePath]) -> FileResult<Vec<File>> {
        let mut seen: BTreeMap<FilePath, File> = BTreeMap::new();
        for file in self.upper.read_many(paths).await? {
            seen.insert(file.entry.path.clone(), file);
        }
        let hidden = |path: &&FilePath| seen.get(*path).is_some_and(|file| !file.bytes.is_empty());
        let rest: Vec<FilePath> = paths.iter().filter(|path| !hidden(path)).cloned().collect();
        if !rest.is_empty() {
            for file in self.lower.read_many(&rest).await? {
                seen.insert(file.entry.path.clone(), file);
            }
        }
        Ok(seen.into_values().collect())
    }

    async fn write(&self, path: &FilePath, bytes: Bytes, condition: &Precondition) -> FileResult<Entry> {
        match condition {
            Precondition::Any => self.upper.write(path, bytes, condition).await,
            Precondition::CreateOnly => match super::find(&*self.lower, path).await? {
                Some(_) => Err(FileError::Conflict),
                None => self.upper.write(path, bytes, condition).await,
            },
            Precondition::IfMatch(etag) => {
                match self.upper.write(path, bytes.clone(), condition).await {
                    Err(FileError::Conflict) => {}
                    done => return done,
                }
                // The caller may have read the file of the lower tree.
                let below = super::find(&*self.lower, path).await?.filter(|entry| entry.etag == *etag);
                below.ok_or(FileError::Conflict)?;
                let unchanged = match super::find(&*self.upper, path).await? {
                    None => Precondition::CreateOnly,
                    Some(entry) if entry.bytes == 0 => Precondition::IfMatch(entry.etag),
                    Some(_) => return Err(FileError::Conflict),
                };
                self.upper.write(path, bytes, &unchanged).await
            }
        }
    }

    async fn delete(&self, path: &FilePath, condition: &Precondition) -> FileResult<()> {
        self.upper.delete(path, condition).await
    }

    async fn list(&self, prefix: &PathPrefix, after: Option<&str>, limit: usize) -> FileResult<Vec<Entry>> {
        let entries = self.entries(prefix, after, limit).await?;
        Ok(entries.into_iter().map(|(entry, _)| entry).collect())
    }

    async fn rename(&self, from: &FilePath, to: &FilePath) -> FileResult<Entry> {
        if super::find(&*self.lower, to).await?.is_some() {
            return Err(FileError::Conflict);
        }
        match self.upper.rename(from, to).await {
            Err(FileError::NotFound) if super::find(&*self.lower, from).await?.is_some() => {
                Err(FileError::ReadOnly)
            }
            done => done,
        }
    }
}
