//! The folder as a tree of files, as the file tools of the server see it.

use super::super::walk::walk_up_to;
use crate::runner::{root::Root, tool_error::ToolError};
use async_trait::async_trait;
use bytes::Bytes;
use edge_harness::{
    ports::{
        FileError, Filesystem,
        filesystem::{Entry, File, FileResult, MAX_FILE, Precondition},
    },
    types::{FilePath, PathPrefix, Timestamp},
};
use sha2::{Digest as _, Sha256};
use std::{cell::RefCell, io, path::Path};

/// Number of files that one list looks at.
const MAX_FILES: usize = 200_000;

/// The files below the folder. Lists leave out those that Git ignores, and those of Git.
pub(super) struct Folder {
    root: Root,
    /// The subfolder that was listed last, and its files, sorted. A call lists in pages.
    listed: RefCell<Option<(String, Vec<FilePath>)>>,
}

impl Folder {
    pub(super) fn new(root: Root) -> Self {
        Self { root, listed: RefCell::default() }
    }

    fn load(&self, path: &FilePath) -> FileResult<File> {
        let read = self.root.bytes(Path::new(path.as_str())).map_err(refused)?;
        let bytes = read.ok_or_else(|| FileError::Unavailable(format!("`{path}` has more than 8 MiB")))?;
        Ok(File { entry: entry(path.clone(), &bytes), bytes: bytes.into() })
    }

    /// Checks that a file is as the precondition requires.
    fn check(&self, path: &FilePath, condition: &Precondition) -> FileResult<()> {
        let Precondition::IfMatch(etag) = condition else { return Ok(()) };
        match self.load(path) {
            Ok(file) if file.entry.etag == *etag => Ok(()),
            Ok(_) | Err(FileError::NotFound) => Err(FileError::Conflict),
            Err(error) => Err(error),
        }
    }

    /// Returns the files of a subfolder, which ends in a slash or is empty.
    fn files(&self, subfolder: &str) -> FileResult<Vec<FilePath>> {
        let start = Path::new(if subfolder.is_empty() { "." } else { subfolder });
        if !self.root.exists(start) {
            return Ok(Vec::new());
        }
        let walk = walk_up_to(MAX_FILES, &self.root, start.to_str(), None, None).map_err(refused)?;
        if walk.is_cut {
            let name = if subfolder.is_empty() { "the folder" } else { subfolder };
            let fault = format!("{name} has more than {MAX_FILES} files; name a subfolder");
            return Err(FileError::Unavailable(fault));
        }
        // A file whose name is no valid path cannot be named by a call either.
        let paths = walk.files.iter().filter_map(|path| FilePath::parse(path.to_str()?).ok());
        let mut paths: Vec<FilePath> = paths.collect();
        paths.sort_unstable();
        Ok(paths)
    }

    /// Returns the entry of a file without its content; the etag of such an entry fits no content.
    fn listed(&self, path: &FilePath) -> Option<Entry> {
        let bytes = self.root.size(Path::new(path.as_str()))?;
        Some(Entry { path: path.clone(), bytes, etag: String::new(), updated_at: Timestamp::default() })
    }
}

#[async_trait(?Send)]
impl Filesystem for Folder {
    async fn read(&self, path: &FilePath) -> FileResult<File> {
        self.load(path)
    }

    /// Leaves out files that are too large, cannot be read, or have just been removed: a search goes on with the others.
    async fn read_many(&self, paths: &[FilePath]) -> FileResult<Vec<File>> {
        Ok(paths.iter().filter_map(|path| self.load(path).ok()).collect())
    }

    async fn write(&self, path: &FilePath, bytes: Bytes, condition: &Precondition) -> FileResult<Entry> {
        if bytes.len() > MAX_FILE {
            return Err(FileError::TooLarge(bytes.len()));
        }
        let prepared = self.root.prepare(Path::new(path.as_str()), &bytes).map_err(refused)?;
        // As late as possible, because another process may change the file at the same time.
        self.check(path, condition)?;
        match condition {
            Precondition::CreateOnly => prepared.create(),
            Precondition::Any | Precondition::IfMatch(_) => prepared.commit(),
        }
        .map_err(refused)?;
        Ok(entry(path.clone(), &bytes))
    }

    async fn delete(&self, path: &FilePath, condition: &Precondition) -> FileResult<()> {
        self.check(path, condition)?;
        match self.root.remove(Path::new(path.as_str())).map_err(refused) {
            Err(FileError::NotFound) if *condition == Precondition::Any => Ok(()),
            removed => removed,
        }
    }

    async fn list(&self, prefix: &PathPrefix, after: Option<&str>, limit: usize) -> FileResult<Vec<Entry>> {
        // Only a look for one file lists a single entry from the path of a file on. It is found also if Git ignores it, and
        // without a look at the others.
        if limit == 1
            && after.is_none()
            && let Ok(path) = FilePath::parse(prefix.as_str())
        {
            return Ok(self.listed(&path).into_iter().collect());
        }
        let subfolder = prefix.as_str().rfind('/').map_or("", |end| &prefix.as_str()[..=end]);
        let mut listed = self.listed.borrow_mut();
        let paths = match &mut *listed {
            Some((of, paths)) if of == subfolder => paths,
            listed => &listed.insert((subfolder.to_owned(), self.files(subfolder)?)).1,
        };
        let first = after.map_or(0, |after| paths.partition_point(|path| path.as_str() <= after));
        let fits = paths.iter().skip(first).filter(|path| prefix.fits(path.as_str()));
        Ok(fits.filter_map(|path| self.listed(path)).take(limit).collect())
    }

    async fn rename(&self, from: &FilePath, to: &FilePath) -> FileResult<Entry> {
        let file = self.listed(from).ok_or(FileError::NotFound)?;
        self.root.rename(Path::new(from.as_str()), Path::new(to.as_str())).map_err(refused)?;
        Ok(Entry { path: to.clone(), ..file })
    }
}

fn entry(path: FilePath, bytes: &[u8]) -> Entry {
    let etag = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    Entry { path, bytes: bytes.len() as u64, etag, updated_at: Timestamp::default() }
}

/// Converts the error of a file of the folder. What the port has no word for is passed on as a text.
fn refused(error: ToolError) -> FileError {
    match error {
        ToolError::File { source, .. } if source.kind() == io::ErrorKind::NotFound => FileError::NotFound,
        ToolError::File { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
            FileError::Conflict
        }
        error => FileError::Unavailable(error.to_string()),
    }
}
