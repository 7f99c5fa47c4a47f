//! The workspace: the files of one user with one agent, over the agent's shared files.
//!
//! | tree | owner | written by |
//! |---|---|---|
//! | user | one user with one agent | the user and the agent |
//! | session | an isolated subagent, in place of the user's tree | the subagent |
//! | shared | one agent, for all its users | the tenant's administrators |
//! | template | compiled in | never |
//!
//! A reader sees the first of these trees that has a non-empty file at the path. Writes go to the tree of the user or
//! of the session.

pub mod bundle;
pub mod composite;
pub mod glance;
pub mod layout;
pub mod overlay;
pub mod pace;
pub mod pattern;
pub mod scope;
pub mod search;
pub mod skills;
pub mod stored;
#[cfg(test)]
mod tests;

pub use bundle::Bundle;
pub use composite::Composite;
pub use overlay::Overlay;
pub use scope::FileScope;
pub use stored::{StoredFiles, Stores};

use crate::ports::{
    Filesystem,
    filesystem::{Entry, File, FileError, FileResult, Precondition, Tree},
};
use crate::types::{
    AgentId, FilePath, Owner, PathPrefix, SessionId, TenantId, Timestamp, UserId, WorkspaceOwner,
};
use bytes::Bytes;
use overlay::Side;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use std::{collections::BTreeMap, rc::Rc};

/// Maximum number of rows that one call of [`Workspaces::erase`] removes.
const MAX_ERASED_ROWS: usize = 1_000;
/// Maximum number of trees that one call of [`Workspaces::erase_user`] clears.
const MAX_ERASED_TREES: usize = 100;
/// Maximum number of objects that one call of [`Workspaces::collect`] removes.
const MAX_COLLECTED: usize = 500;
/// Minimum age of an unreferenced object before it is collected. The row of a younger object may be about to
/// be written.
pub const COLLECT_AFTER: Duration = Duration::from_mins(10);

/// Returns whether the holder may still write.
pub type Guard = Rc<dyn Fn() -> bool>;

/// Wraps a user's own tree, for example to add generated files or to observe writes.
pub type WrapTree = Rc<dyn Fn(&Owner, Rc<dyn Filesystem>) -> Rc<dyn Filesystem>>;

/// The layer that a file comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Layer {
    /// The user's own file.
    #[default]
    User,
    /// A shared file of the agent, or one of the template.
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
    /// In the order of application: the first wrap is innermost.
    wraps: Vec<WrapTree>,
}

impl Workspaces {
    /// Creates workspaces over `stores` and a template that is compiled in.
    pub fn new(stores: Stores, template: Bundle) -> Self {
        Self { stores: Rc::new(stores), template: Rc::new(template), wraps: Vec::new() }
    }

    /// Returns the same workspaces, with the files of an agent in the template.
    pub fn with_files(&self, files: &BTreeMap<FilePath, String>) -> Self {
        let own: Rc<dyn Filesystem> = Rc::new(Bundle::of_texts(files));
        let template = Rc::new(Overlay { upper: own, lower: Rc::clone(&self.template) });
        Self { stores: Rc::clone(&self.stores), template, wraps: self.wraps.clone() }
    }

    /// Wraps each user's own tree in one more layer.
    pub fn with_layer(mut self, wrap: WrapTree) -> Self {
        self.wraps.push(wrap);
        self
    }

    /// Checks that the object store can be read.
    ///
    /// # Errors
    /// Returns an error when it is unavailable.
    pub async fn check(&self) -> FileResult<()> {
        let read = self.stores.blobs.get("!check", None).await;
        read.map(drop).map_err(|error| FileError::Unavailable(error.to_string()))
    }

    /// Returns the tree of a scope.
    pub fn tree(&self, tenant: &TenantId, scope: &FileScope) -> StoredFiles {
        StoredFiles::new(Rc::clone(&self.stores), scope.of(tenant))
    }

    /// Lists up to `limit` scopes that have files after the scope `after`, sorted: all of a tenant, or those of one
    /// user with any agent.
    ///
    /// # Errors
    /// Returns an error when the table is unavailable.
    pub async fn scopes(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        after: Option<&str>,
        limit: usize,
    ) -> FileResult<Vec<String>> {
        let owner = user.map(FileScope::owner_of);
        self.stores.table.scopes(tenant, owner.as_deref(), after, limit).await
    }

    /// Returns the tree of a scope that [`Workspaces::scopes`] has listed.
    pub fn scope(&self, tenant: &TenantId, scope: &str) -> StoredFiles {
        let tree = Tree { tenant: tenant.clone(), scope: scope.to_owned() };
        StoredFiles::new(Rc::clone(&self.stores), tree)
    }

    /// Opens the workspace of a user with an agent. If given, `guard` is called before each write.
    pub fn open(&self, tenant: &TenantId, agent: &AgentId, user: &UserId, guard: Option<Guard>) -> Workspace {
        let owner = Owner { tenant: tenant.clone(), agent: agent.clone(), user: user.clone() };
        self.open_for(&owner.into(), guard)
    }

    /// Opens a workspace. If given, `guard` is called before each write.
    pub fn open_for(&self, workspace: &WorkspaceOwner, guard: Option<Guard>) -> Workspace {
        let WorkspaceOwner { owner, session } = workspace;
        let scope = |scope: FileScope| -> Rc<dyn Filesystem> {
            let tree = self.tree(&owner.tenant, &scope);
            Rc::new(guard.iter().cloned().fold(tree, StoredFiles::guarded))
        };
        let own = scope(FileScope::of_workspace(workspace));
        // The additional layers show what belongs to the user.
        let wraps = self.wraps.iter().filter(|_| session.is_none());
        let own = wraps.fold(own, |tree, wrap| wrap(owner, tree));
        let shared = scope(FileScope::Agent { agent: owner.agent.clone() });
        let shared = Rc::new(Overlay { upper: shared, lower: Rc::clone(&self.template) });
        Workspace { layers: Overlay { upper: own, lower: shared } }
    }

    /// Removes files of a tenant and returns whether none are left. Removes a limited number of rows per
    /// call.
    ///
    /// # Errors
    /// Returns an error when a store is unavailable.
    pub async fn erase(&self, tenant: &TenantId) -> FileResult<bool> {
        let prefix = stored::blob_prefix(tenant);
        self.stores.blobs.delete_prefix(&prefix).await?;
        let erased = self.stores.change(self.stores.table.erase(tenant, MAX_ERASED_ROWS)).await;
        erased.map(|left| !left)
    }

    /// Removes the files of a user, with one agent or with all, and returns whether none are left. Removes a
    /// limited number of rows per call; a later [`collect`](Self::collect) removes large contents.
    ///
    /// # Errors
    /// Returns an error when the table is unavailable.
    pub async fn erase_user(
        &self,
        tenant: &TenantId,
        agent: Option<&AgentId>,
        user: &UserId,
    ) -> FileResult<bool> {
        let table = &self.stores.table;
        let scopes = match agent {
            Some(agent) => {
                vec![FileScope::User { agent: agent.clone(), user: user.clone() }.of(tenant).scope]
            }
            None => table.scopes(tenant, Some(&FileScope::owner_of(user)), None, MAX_ERASED_TREES).await?,
        };
        let (mut room, trees) = (MAX_ERASED_ROWS, scopes.len());
        for scope in scopes {
            let tree = Tree { tenant: tenant.to_owned(), scope };
            room -= self.stores.change(table.clear(&tree, room)).await?.min(room);
            if room == 0 {
                return Ok(false);
            }
        }
        Ok(trees < MAX_ERASED_TREES)
    }

    /// Removes the files of a session's own workspace, and returns whether there were any. A later
    /// [`collect`](Self::collect) removes large contents.
    ///
    /// # Errors
    /// Returns an error when the table is unavailable.
    pub async fn erase_session(&self, owner: &Owner, session: &SessionId) -> FileResult<bool> {
        let workspace = WorkspaceOwner { owner: owner.clone(), session: Some(session.clone()) };
        let tree = FileScope::of_workspace(&workspace).of(&owner.tenant);
        let mut any = false;
        loop {
            let erased = self.stores.change(self.stores.table.clear(&tree, MAX_ERASED_ROWS)).await?;
            any |= erased > 0;
            if erased < MAX_ERASED_ROWS {
                return Ok(any);
            }
        }
    }

    /// Removes a limited number of unreferenced objects and returns whether there may be more.
    ///
    /// # Errors
    /// Returns an error when a store is unavailable.
    pub async fn collect(&self, now: Timestamp) -> FileResult<bool> {
        let before = now - COLLECT_AFTER;
        let free = self.stores.table.free_keys(before, MAX_COLLECTED).await?;
        let more = free.len() == MAX_COLLECTED;
        if !free.is_empty() {
            let keys: Vec<String> = free.iter().map(|(_, key)| key.clone()).collect();
            self.stores.blobs.delete(&keys).await?;
            self.stores.table.forget(&free).await?;
        }
        Ok(more)
    }
}

/// The workspace of one user with one agent.
#[derive(Clone)]
pub struct Workspace {
    layers: Overlay,
}

impl Workspace {
    /// Creates the workspace of a single tree, such as the folder of a runner.
    pub fn of(tree: Rc<dyn Filesystem>) -> Self {
        Self { layers: Overlay { upper: tree, lower: Rc::new(Bundle::default()) } }
    }

    /// Returns a single layer.
    pub fn layer(&self, layer: Layer) -> &Rc<dyn Filesystem> {
        match layer {
            Layer::User => &self.layers.upper,
            Layer::Shared => &self.layers.lower,
        }
    }

    /// Reads a file: the user's, or else the shared one.
    ///
    /// # Errors
    /// Returns an error when there is no such file or a store is unavailable.
    pub async fn read(&self, path: &FilePath) -> FileResult<(File, Layer)> {
        self.layers.find(path).await.map(|(file, side)| (file, side.into()))
    }

    /// Reads the files that exist at these paths, sorted by path.
    ///
    /// # Errors
    /// Returns an error when a store is unavailable.
    pub async fn read_many(&self, paths: &[FilePath]) -> FileResult<Vec<File>> {
        self.layers.read_many(paths).await
    }

    /// Writes the user's file. The precondition applies to the file that [`Workspace::read`] returns.
    ///
    /// # Errors
    /// Returns an error when the precondition fails, the file is too large, or a store is unavailable.
    pub async fn write(&self, path: &FilePath, bytes: Bytes, condition: &Precondition) -> FileResult<Entry> {
        self.layers.write(path, bytes, condition).await
    }

    /// Removes the user's file. A shared file at the same path becomes visible again.
    ///
    /// # Errors
    /// Returns an error when the precondition fails or a store is unavailable.
    pub async fn delete(&self, path: &FilePath, condition: &Precondition) -> FileResult<()> {
        self.layers.delete(path, condition).await
    }

    /// Moves the user's file to a free path.
    ///
    /// # Errors
    /// Returns an error when there is no such file, it is a shared one, the new path is taken, or a store is
    /// unavailable.
    pub async fn rename(&self, from: &FilePath, to: &FilePath) -> FileResult<Entry> {
        self.layers.rename(from, to).await
    }

    /// Lists up to `limit` files of both layers after the path `after`, sorted by path.
    ///
    /// # Errors
    /// Returns an error when a store is unavailable.
    pub async fn list(
        &self,
        prefix: &PathPrefix,
        after: Option<&str>,
        limit: usize,
    ) -> FileResult<Vec<(Entry, Layer)>> {
        let entries = self.layers.entries(prefix, after, limit).await?;
        Ok(entries.into_iter().map(|(entry, side)| (entry, side.into())).collect())
    }

    /// Returns the list entry of a file.
    ///
    /// # Errors
    /// Returns an error when a store is unavailable.
    pub async fn find(&self, path: &FilePath) -> FileResult<Option<(Entry, Layer)>> {
        let first = self.list(&PathPrefix::from(path), None, 1).await?.into_iter().next();
        Ok(first.filter(|(entry, _)| entry.path == *path))
    }
}

/// Returns the list entry of a file without reading the file.
async fn find(tree: &dyn Filesystem, path: &FilePath) -> FileResult<Option<Entry>> {
    // In a sorted list, a path precedes every other path that starts with it.
    let first = tree.list(&PathPrefix::from(path), None, 1).await?.into_iter().next();
    Ok(first.filter(|entry| entry.path == *path))
}
