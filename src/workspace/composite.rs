//! Mounts several trees under one.

use crate::ports::{
    Filesystem,
    filesystem::{Entry, File, FileResult, Precondition},
};
use crate::types::{FilePath, PathPrefix};
use async_trait::async_trait;
use bytes::Bytes;
use std::rc::Rc;

/// Minimum number of entries per request while a list is assembled.
const PAGE: usize = 50;

/// Trees by path prefix. A path belongs to the tree with the longest matching prefix. Paths are not
/// rewritten.
pub struct Composite {
    /// Longest prefix first. The last prefix is empty and matches every path.
    routes: Vec<(PathPrefix, Rc<dyn Filesystem>)>,
}

impl Composite {
    /// Creates a composite in which `rest` holds every path that has no route.
    pub fn new(rest: Rc<dyn Filesystem>) -> Self {
        Self { routes: vec![(PathPrefix::default(), rest)] }
    }

    /// Routes paths that start with `prefix` to `tree`.
    pub fn route(mut self, prefix: PathPrefix, tree: Rc<dyn Filesystem>) -> Self {
        let longer = |(other, _): &(PathPrefix, _)| other.as_str().len() > prefix.as_str().len();
        let at = self.routes.partition_point(longer);
        self.routes.insert(at, (prefix, tree));
        self
    }

    fn index(&self, path: &FilePath) -> usize {
        // The last prefix matches every path.
        self.routes.iter().position(|(prefix, _)| prefix.fits(path.as_str())).unwrap_or(self.routes.len() - 1)
    }

    fn tree(&self, path: &FilePath) -> FileResult<&dyn Filesystem> {
        let found = self.routes.get(self.index(path));
        found.map(|(_, tree)| &**tree).ok_or(crate::ports::FileError::NotFound)
    }

    /// Returns the part of a list that comes from one tree.
    async fn part(
        &self,
        index: usize,
        tree: &dyn Filesystem,
        prefix: &PathPrefix,
        after: Option<&str>,
        limit: usize,
    ) -> FileResult<Vec<Entry>> {
        let (mut entries, mut after) = (Vec::new(), after.map(str::to_owned));
        let page = limit.max(PAGE);
        while entries.len() < limit {
            let more = tree.list(prefix, after.as_deref(), page).await?;
            let is_last = more.len() < page;
            after = more.last().map(|entry| entry.path.to_string()).or(after);
            // Files at paths that belong to a longer route are unreachable.
            entries.extend(more.into_iter().filter(|entry| self.index(&entry.path) == index));
            if is_last {
                break;
            }
        }
        Ok(entries)
    }
}

#[async_trait(?Send)]
impl Filesystem for Composite {
    async fn read(&self, path: &FilePath) -> FileResult<File> {
        self.tree(path)?.read(path).await
    }

    async fn write(&self, path: &FilePath, bytes: Bytes, condition: &Precondition) -> FileResult<Entry> {
        self.tree(path)?.write(path, bytes, condition).await
    }

    async fn delete(&self, path: &FilePath, condition: &Precondition) -> FileResult<()> {
        self.tree(path)?.delete(path, condition).await
    }

    async fn list(&self, prefix: &PathPrefix, after: Option<&str>, limit: usize) -> FileResult<Vec<Entry>> {
        let mut entries = Vec::new();
        for (index, (route, tree)) in self.routes.iter().enumerate() {
            if route.fits(prefix.as_str()) || prefix.fits(route.as_str()) {
                entries.extend(self.part(index, &**tree, prefix, after, limit).await?);
            }
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        entries.truncate(limit);
        Ok(entries)
    }

    async fn rename(&self, from: &FilePath, to: &FilePath) -> FileResult<Entry> {
        let (source, target) = (self.tree(from)?, self.tree(to)?);
        if self.index(from) == self.index(to) {
            return source.rename(from, to).await;
        }
        let file = source.read(from).await?;
        let entry = target.write(to, file.bytes, &Precondition::CreateOnly).await?;
        match source.delete(from, &Precondition::IfMatch(file.entry.etag)).await {
            Ok(()) => Ok(entry),
            Err(error) => {
                // The source changed or cannot be removed, so the move is undone.
                target.delete(to, &Precondition::IfMatch(entry.etag)).await?;
                Err(error)
            }
        }
    }
}
