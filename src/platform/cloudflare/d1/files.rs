//! The table of files on D1 (`migrations/0002_workspace.sql`, `0005_file_trees.sql`, `0011_tenant_storage.sql`).
//!
//! Each change is one conditional statement, so that the database decides which of several concurrent changes
//! succeeds. D1 returns bytes as lists of numbers, one object each, so content that is not plain text is
//! stored as base64.

use super::{Database, Shards, list, number, time, timestamp};
use crate::platform::sql::{
    Sql, SqlError,
    glance::{self, content_of},
    storage,
};
use crate::ports::{
    FileError, FileTable,
    directory::SHARDS_PER_SWEEP,
    filesystem::{Entry, FileResult, Glance, GlanceResult, Precondition, Row, Tree},
};
use crate::types::{FilePath, PathPrefix, StorageLimits, TenantId, Timestamp, UserId, time::in_turn};
use async_trait::async_trait;
use futures::future::try_join_all;
use serde::{Deserialize, de::IgnoredAny};
use std::{collections::BTreeMap, rc::Rc};
use worker::D1Type;

/// The columns of an [`Entry`].
const ENTRY: &str = "path, etag, bytes, updated_at";
/// The table of files.
pub struct D1Files {
    shards: Rc<Shards>,
    /// The limits of tenants that have none of their own.
    limits: StorageLimits,
}

#[derive(Deserialize)]
struct EntryRow {
    path: FilePath,
    etag: String,
    bytes: f64,
    updated_at: f64,
}

impl EntryRow {
    fn read(self) -> Entry {
        let Self { path, etag, bytes, updated_at } = self;
        Entry { path, etag, bytes: bytes as u64, updated_at: timestamp(updated_at) }
    }
}

#[derive(Deserialize)]
struct FileRow {
    path: FilePath,
    etag: String,
    bytes: f64,
    updated_at: f64,
    kind: String,
    content: String,
}

impl FileRow {
    fn read(self) -> FileResult<Row> {
        let Self { path, etag, bytes, updated_at, kind, content } = self;
        let content = content_of(&kind, content)?;
        Ok(Row { entry: EntryRow { path, etag, bytes, updated_at }.read(), content })
    }
}

#[derive(Deserialize)]
struct ScopeRow {
    scope: String,
}

#[derive(Deserialize)]
struct KeyRow {
    tenant: TenantId,
    blob: String,
}

impl D1Files {
    /// Creates the table, in which each tenant's rows are on its shard. `limits` are those of tenants that have none
    /// of their own.
    pub fn new(shards: Rc<Shards>, limits: StorageLimits) -> Self {
        Self { shards, limits }
    }

    /// Returns the shard of a tree.
    async fn shard(&self, tree: &Tree) -> Result<Database, SqlError> {
        let number = self.shards.number(&tree.tenant, user_of(&tree.scope).as_ref()).await?;
        self.shards.database(&tree.tenant, number)
    }

    /// Returns the shards of the trees of an owner, or of all trees of a tenant.
    async fn shards_of(&self, tenant: &TenantId, owner: Option<&str>) -> Result<Vec<Database>, SqlError> {
        let Some(owner) = owner else { return self.shards.all_of(tenant).await };
        let user = owner.strip_prefix("users/").map(UserId::from);
        let number = self.shards.number(tenant, user.as_ref()).await?;
        Ok(vec![self.shards.database(tenant, number)?])
    }
}

/// Returns the user to whom a scope belongs: `agents/A/users/U`.
fn user_of(scope: &str) -> Option<UserId> {
    let (_agent, owner) = scope.strip_prefix("agents/")?.split_once('/')?;
    owner.strip_prefix("users/").map(UserId::from)
}

impl From<SqlError> for FileError {
    fn from(SqlError(why): SqlError) -> Self {
        Self::Unavailable(why)
    }
}

#[async_trait(?Send)]
impl FileTable for D1Files {
    async fn rows(&self, tree: &Tree, paths: &[FilePath]) -> FileResult<Vec<Row>> {
        let sql = format!(
            "SELECT {ENTRY}, kind, content FROM files WHERE tenant = ?1 AND scope = ?2 \
             AND path IN (SELECT value FROM json_each(?3)) ORDER BY path"
        );
        let paths = list(paths.iter().map(FilePath::as_str));
        let args = [D1Type::Text(&tree.tenant), D1Type::Text(&tree.scope), D1Type::Text(&paths)];
        self.shard(tree).await?.rows::<FileRow>(&sql, &args).await?.into_iter().map(FileRow::read).collect()
    }

    async fn glance(
        &self,
        tenant: &TenantId,
        scopes: &[&str],
        glance: &Glance<'_>,
    ) -> FileResult<Vec<GlanceResult>> {
        let mut by_shard: BTreeMap<usize, Vec<(usize, &str)>> = BTreeMap::new();
        for (part, scope) in scopes.iter().enumerate() {
            let number = self.shards.number(tenant, user_of(scope).as_ref()).await?;
            by_shard.entry(number).or_default().push((part, scope));
        }
        let asked = by_shard.into_iter().map(|(number, scopes)| async move {
            let statement = glance::glance(tenant, &scopes, glance)?;
            self.shards.database(tenant, number)?.query(&statement).await
        });
        let mut seen: Vec<GlanceResult> = scopes.iter().map(|_| GlanceResult::default()).collect();
        for rows in try_join_all(asked).await? {
            glance::read_glance(&rows, glance.wanted, &mut seen)?;
        }
        Ok(seen)
    }

    async fn put(&self, tree: &Tree, row: &Row, condition: &Precondition) -> FileResult<bool> {
        let shard = self.shard(tree).await?;
        let [put, refused] = storage::put_file(&self.limits, tree, row, condition);
        let run =
            |statement| async { Sql::batch(&shard, &[statement]).await.map(|rows| rows.into_iter().next()) };
        if run(put).await?.map_or(Ok(false), |rows| rows.any())? {
            return Ok(true);
        }
        match run(refused).await?.as_ref().map(storage::read_quota).transpose()?.flatten() {
            Some(quota) => Err(quota.into()),
            None => Ok(false),
        }
    }

    async fn remove(&self, tree: &Tree, path: &FilePath, condition: &Precondition) -> FileResult<bool> {
        let expected = match condition {
            Precondition::Any => D1Type::Null,
            Precondition::IfMatch(etag) => D1Type::Text(etag),
            // A file to be removed must exist.
            Precondition::CreateOnly => return Ok(false),
        };
        let sql = "DELETE FROM files WHERE tenant = ?1 AND scope = ?2 AND path = ?3 \
                   AND (?4 IS NULL OR etag = ?4) RETURNING 1 AS done";
        let args =
            [D1Type::Text(&tree.tenant), D1Type::Text(&tree.scope), D1Type::Text(path.as_str()), expected];
        Ok(self.shard(tree).await?.did(sql, &args).await?)
    }

    async fn rename(&self, tree: &Tree, from: &FilePath, to: &FilePath, now: Timestamp) -> FileResult<bool> {
        let sql = "UPDATE files SET path = ?4, updated_at = ?5 \
                   WHERE tenant = ?1 AND scope = ?2 AND path = ?3 AND NOT EXISTS \
                   (SELECT 1 FROM files WHERE tenant = ?1 AND scope = ?2 AND path = ?4) RETURNING 1 AS done";
        let args = [
            D1Type::Text(&tree.tenant),
            D1Type::Text(&tree.scope),
            D1Type::Text(from.as_str()),
            D1Type::Text(to.as_str()),
            time(now),
        ];
        Ok(self.shard(tree).await?.did(sql, &args).await?)
    }

    async fn list(
        &self,
        tree: &Tree,
        prefix: &PathPrefix,
        after: Option<&str>,
        limit: usize,
    ) -> FileResult<Vec<Entry>> {
        let mut sql = format!("SELECT {ENTRY} FROM files WHERE tenant = ? AND scope = ? AND path >= ?");
        let mut args =
            vec![D1Type::Text(&tree.tenant), D1Type::Text(&tree.scope), D1Type::Text(prefix.as_str())];
        let end = prefix.end();
        if let Some(end) = &end {
            sql.push_str(" AND path < ?");
            args.push(D1Type::Text(end));
        }
        if let Some(after) = after {
            sql.push_str(" AND path > ?");
            args.push(D1Type::Text(after));
        }
        sql.push_str(&format!(" ORDER BY path LIMIT {limit}"));
        Ok(self
            .shard(tree)
            .await?
            .rows::<EntryRow>(&sql, &args)
            .await?
            .into_iter()
            .map(EntryRow::read)
            .collect())
    }

    async fn reserve(&self, tree: &Tree, key: &str, now: Timestamp) -> FileResult<()> {
        let sql = "INSERT INTO free_blobs (tenant, blob, since, scope) VALUES (?1, ?2, ?3, ?4)";
        Ok(self
            .shard(tree)
            .await?
            .run(sql, &[D1Type::Text(&tree.tenant), D1Type::Text(key), time(now), D1Type::Text(&tree.scope)])
            .await?)
    }

    async fn free_keys(&self, before: Timestamp, limit: usize) -> FileResult<Vec<(TenantId, String)>> {
        // On its other shard, a moving tenant may have a file for a key that is free here.
        let sql = "SELECT tenant, blob FROM free_blobs WHERE since <= ?1 AND NOT EXISTS (SELECT 1 FROM fences \
                   WHERE fences.tenant = free_blobs.tenant AND open = 0 AND position <> '\"ended\"') ORDER BY since LIMIT ?2";
        let mut free = Vec::new();
        for shard in in_turn(self.shards.all().to_vec(), SHARDS_PER_SWEEP, before) {
            let left = number((limit - free.len()) as u64);
            let found: Vec<KeyRow> = shard.rows(sql, &[time(before), left]).await?;
            free.extend(found.into_iter().map(|row| (row.tenant, row.blob)));
        }
        Ok(free)
    }

    async fn forget(&self, keys: &[(TenantId, String)]) -> FileResult<()> {
        let sql = "DELETE FROM free_blobs WHERE (tenant, blob) IN \
                   (SELECT value ->> 0, value ->> 1 FROM json_each(?1))";
        let keys = serde_json::json!(keys).to_string();
        // The tenants may have been purged, so their shards are not known.
        for shard in self.shards.all() {
            shard.run(sql, &[D1Type::Text(&keys)]).await?;
        }
        Ok(())
    }

    async fn locate(&self, tenant: &TenantId) -> FileResult<()> {
        Ok(self.shards.locate(tenant).await?)
    }

    async fn scopes(
        &self,
        tenant: &TenantId,
        owner: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> FileResult<Vec<String>> {
        let mut sql = "SELECT scope FROM file_trees WHERE tenant = ?".to_owned();
        let mut args = vec![D1Type::Text(tenant)];
        for (condition, value) in [(" AND owner = ?", owner), (" AND scope > ?", after)] {
            if let Some(value) = value {
                sql.push_str(condition);
                args.push(D1Type::Text(value));
            }
        }
        sql.push_str(&format!(" ORDER BY scope LIMIT {limit}"));
        // Each shard returns its first ones, so the first ones of all of them are among these.
        let mut scopes = Vec::new();
        for shard in self.shards_of(tenant, owner).await? {
            let found: Vec<ScopeRow> = shard.rows(&sql, &args).await?;
            scopes.extend(found.into_iter().map(|row| row.scope));
        }
        scopes.sort_unstable();
        scopes.truncate(limit);
        Ok(scopes)
    }

    async fn clear(&self, tree: &Tree, limit: usize) -> FileResult<usize> {
        let own = "tenant = ?1 AND scope = ?2";
        let sql = format!(
            "DELETE FROM files WHERE {own} AND path IN (SELECT path FROM files WHERE {own} LIMIT {limit}) \
             RETURNING 1 AS done"
        );
        let args = [D1Type::Text(&tree.tenant), D1Type::Text(&tree.scope)];
        Ok(self.shard(tree).await?.rows::<IgnoredAny>(&sql, &args).await?.len())
    }

    async fn erase(&self, tenant: &TenantId, limit: usize) -> FileResult<bool> {
        let files = format!(
            "DELETE FROM files WHERE tenant = ?1 AND (scope, path) IN \
             (SELECT scope, path FROM files WHERE tenant = ?1 LIMIT {limit}) RETURNING 1 AS done"
        );
        for shard in self.shards.all_of(tenant).await? {
            let erased: Vec<IgnoredAny> = shard.rows(&files, &[D1Type::Text(tenant)]).await?;
            // The blobs of these rows were already deleted, and their keys have just become free.
            shard.run("DELETE FROM free_blobs WHERE tenant = ?1", &[D1Type::Text(tenant)]).await?;
            if erased.len() == limit {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
