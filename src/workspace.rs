//! The files of agents: who works in which tree, and what shows through from below.
//!
//! | tree | whose | who writes |
//! |---|---|---|
//! | the user's | one user's with one agent | the user and the agent |
//! | the shared one | the agent's: what all its users start from | the tenant's administrators |
//! | the template | compiled in | nobody |
//!
//! A reader sees the first of these that has the file and something in it. Writes go to the first.

pub mod bundle;
pub mod composite;
pub mod glance;
pub mod layout;
pub mod overlay;
pub mod pattern;
pub mod scope;
pub mod search;
pub mod stored;
#[cfg(test)]
mod tests;

pub use bundle::Bundle;
pub use composite::Composite;
pub use overlay::Overlay;
pub use scope::FileScope;
pub use stored::{StoredFiles, Stores};

use crate::ports::{
    FileError, Filesystem,
    filesystem::{Entry, File, FileResult, Precondition, Tree},
};
use crate::types::{FilePath, Owner, PathPrefix, TenantId, Timestamp};
use bytes::Bytes;
use overlay::Side;
use serde::Serialize;
use std::rc::Rc;

/// Rows of a tenant that one call erases at most.
const ERASED_AT_ONCE: usize = 1_000;
/// Trees that one call erases at most.
const TREES_AT_ONCE: usize = 100;
/// Objects that one call collects at most.
const COLLECTED_AT_ONCE: usize = 500;
/// How long an object that no file has is left alone, in milliseconds: its file may be about to
/// be written.
pub const COLLECTED_AFTER_MS: u64 = 10 * 60 * 1_000;

/// Says whether somebody may still write.
pub type Guard = Rc<dyn Fn() -> bool>;

/// Puts something in front of a user's own tree: files that are not kept as files, or an eye on writes.
pub type WrapTree = Rc<dyn Fn(&Owner, Rc<dyn Filesystem>) -> Rc<dyn Filesystem>>;

/// Whose a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The user's own.
    User,
    /// The agent's, for all its users.
    Shared,
}

impl From<Side> for Layer {
    fn from(side: Side) -> Self {
        match side {
            Side::Upper => Self::User,
            Side::Lower => Self::Shared,
        }
    }
}

/// The workspaces of all tenants.
pub struct Workspaces {
    stores: Rc<Stores>,
    template: Rc<dyn Filesystem>,
    /// Innermost first.
    wraps: Vec<WrapTree>,
}

impl Workspaces {
    /// Workspaces kept in `stores`, above a template that is compiled in.
    pub fn new(stores: Stores, template: Bundle) -> Self {
        Self { stores: Rc::new(stores), template: Rc::new(template), wraps: Vec::new() }
    }

    /// The same workspaces, with one more layer in front of each user's own tree.
    pub fn with_layer(mut self, wrap: WrapTree) -> Self {
        self.wraps.push(wrap);
        self
    }

    /// The tree of a scope.
    pub fn tree(&self, tenant: &TenantId, scope: &FileScope) -> StoredFiles {
        StoredFiles::new(Rc::clone(&self.stores), scope.of(tenant))
    }

    /// What a user shares with an agent. `guard`, where there is one, is asked before each write.
    pub fn open(&self, tenant: &TenantId, agent: &str, user: &str, guard: Option<Guard>) -> Workspace {
        let owner = Owner { tenant: tenant.to_owned(), agent: agent.to_owned(), user: user.to_owned() };
        let scope = |scope: FileScope| -> Rc<dyn Filesystem> {
            let tree = self.tree(tenant, &scope);
            Rc::new(guard.iter().cloned().fold(tree, StoredFiles::guarded))
        };
        let own = scope(FileScope::User { agent: agent.to_owned(), user: user.to_owned() });
        let own = self.wraps.iter().fold(own, |tree, wrap| wrap(&owner, tree));
        let shared = scope(FileScope::Agent { agent: agent.to_owned() });
        let shared = Rc::new(Overlay { upper: shared, lower: Rc::clone(&self.template) });
        Workspace { layers: Overlay { upper: own, lower: shared } }
    }

    /// Removes files of a tenant; returns whether none is left. Bounded in rows: call it again.
    ///
    /// # Errors
    /// When a store does not answer.
    pub async fn erase(&self, tenant: &TenantId) -> FileResult<bool> {
        let prefix = stored::blobs_of(tenant);
        self.stores.blobs.delete_prefix(&prefix).await.map_err(FileError::Unavailable)?;
        self.stores.table.erase(tenant, ERASED_AT_ONCE).await.map(|left| !left)
    }

    /// Removes the files of a user, with one agent or with all; returns whether none is left. Bounded in
    /// rows: call it again. Large contents go with the next collections.
    ///
    /// # Errors
    /// When the table does not answer.
    pub async fn erase_user(&self, tenant: &TenantId, agent: Option<&str>, user: &str) -> FileResult<bool> {
        let scope = |agent: String| FileScope::User { agent, user: user.to_owned() };
        let table = &self.stores.table;
        let scopes = match agent {
            Some(agent) => vec![scope(agent.to_owned()).of(tenant).scope],
            None => table.scopes(tenant, &scope(String::new()).owner(), TREES_AT_ONCE).await?,
        };
        let (mut room, trees) = (ERASED_AT_ONCE, scopes.len());
        for scope in scopes {
            room -= table.clear(&Tree { tenant: tenant.to_owned(), scope }, room).await?.min(room);
            if room == 0 {
                return Ok(false);
            }
        }
        Ok(trees < TREES_AT_ONCE)
    }

    /// Removes objects that no file has any more; returns whether more are left. Bounded.
    ///
    /// # Errors
    /// When a store does not answer.
    pub async fn collect(&self, now: Timestamp) -> FileResult<bool> {
        let before = Timestamp(now.0.saturating_sub(COLLECTED_AFTER_MS));
        let mut free = self.stores.table.free_keys(before, COLLECTED_AT_ONCE).await?;
        let more = free.len() == COLLECTED_AT_ONCE;
        free.sort();
        for of_tenant in free.chunk_by(|(one, _), (other, _)| one == other) {
            let keys: Vec<String> = of_tenant.iter().map(|(_, key)| key.clone()).collect();
            self.stores.blobs.delete(&keys).await.map_err(FileError::Unavailable)?;
            if let Some((tenant, _)) = of_tenant.first() {
                self.stores.table.forget(tenant, &keys).await?;
            }
        }
        Ok(more)
    }
}

/// What one user shares with one agent.
#[derive(Clone)]
pub struct Workspace {
    layers: Overlay,
}

impl Workspace {
    /// One layer alone.
    pub fn layer(&self, layer: Layer) -> &Rc<dyn Filesystem> {
        match layer {
            Layer::User => &self.layers.upper,
            Layer::Shared => &self.layers.lower,
        }
    }

    /// Reads a file: the user's, or else the shared one.
    ///
    /// # Errors
    /// When there is none, or a store does not answer.
    pub async fn read(&self, path: &FilePath) -> FileResult<(File, Layer)> {
        self.layers.find(path).await.map(|(file, side)| (file, side.into()))
    }

    /// Reads those of these files that are there, sorted by path.
    ///
    /// # Errors
    /// When a store does not answer.
    pub async fn read_many(&self, paths: &[FilePath]) -> FileResult<Vec<File>> {
        self.layers.read_many(paths).await
    }

    /// Writes the user's file. The precondition is about the file that [`Workspace::read`] gives.
    ///
    /// # Errors
    /// When the precondition does not hold, the file is too large, or a store does not answer.
    pub async fn write(&self, path: &FilePath, bytes: Bytes, condition: &Precondition) -> FileResult<Entry> {
        self.layers.write(path, bytes, condition).await
    }

    /// Removes the user's file. A shared one of the same path shows again.
    ///
    /// # Errors
    /// When the precondition does not hold, or a store does not answer.
    pub async fn delete(&self, path: &FilePath, condition: &Precondition) -> FileResult<()> {
        self.layers.delete(path, condition).await
    }

    /// Moves the user's file to where none is.
    ///
    /// # Errors
    /// When there is none, it is a shared one, or its new place is taken; when a store does not answer.
    pub async fn rename(&self, from: &FilePath, to: &FilePath) -> FileResult<Entry> {
        self.layers.rename(from, to).await
    }

    /// Up to `limit` files of both layers behind the path `after`, sorted by path.
    ///
    /// # Errors
    /// When a store does not answer.
    pub async fn list(
        &self,
        prefix: &PathPrefix,
        after: Option<&str>,
        limit: usize,
    ) -> FileResult<Vec<(Entry, Layer)>> {
        let entries = self.layers.entries(prefix, after, limit).await?;
        Ok(entries.into_iter().map(|(entry, side)| (entry, side.into())).collect())
    }

    /// What lists show of a file.
    ///
    /// # Errors
    /// When a store does not answer.
    pub async fn find(&self, path: &FilePath) -> FileResult<Option<(Entry, Layer)>> {
        let first = self.list(&PathPrefix::from(path), None, 1).await?.into_iter().next();
        Ok(first.filter(|(entry, _)| entry.path == *path))
    }
}

/// What lists show of a file, without reading it.
async fn find(tree: &dyn Filesystem, path: &FilePath) -> FileResult<Option<Entry>> {
    // Of all that start with a path, it is the first.
    let first = tree.list(&PathPrefix::from(path), None, 1).await?.into_iter().next();
    Ok(first.filter(|entry| entry.path == *path))
}
