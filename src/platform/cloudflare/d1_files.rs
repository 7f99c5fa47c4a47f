//! The table of files over D1 (`migrations/0002_workspace.sql`).
//!
//! Each change is one statement that carries its own condition, so of many that come at once the
//! database picks the one that holds. Bytes would come back as lists of numbers, one object each, so
//! content that is not plain text travels in base64.

use crate::ports::{
    FileError, FileTable,
    filesystem::{Content, Entry, FileResult, Precondition, Row, Tree},
};
use crate::types::{FilePath, PathPrefix, Timestamp};
use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize, de::DeserializeOwned};
use std::borrow::Cow;
use worker::{D1Database, D1Type};

/// The columns of an [`Entry`].
const ENTRY: &str = "path, etag, bytes, updated_at";
const INSERT: &str = "INSERT INTO files (tenant, scope, path, etag, bytes, kind, content, updated_at) \
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (tenant, scope, path)";

/// The table of files.
pub struct D1Files {
    db: D1Database,
}

#[derive(Deserialize)]
struct Done {}

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
        Entry { path, etag, bytes: bytes as u64, updated_at: Timestamp(updated_at as u64) }
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
        let content = match kind.as_str() {
            "blob" => Content::Blob(content),
            "text" => Content::Inline(content.into()),
            _ => Content::Inline(STANDARD.decode(content).map(Bytes::from).map_err(failed)?),
        };
        Ok(Row { entry: EntryRow { path, etag, bytes, updated_at }.read(), content })
    }
}

#[derive(Deserialize)]
struct KeyRow {
    tenant: String,
    blob: String,
}

impl D1Files {
    /// The table in `db`.
    pub fn new(db: D1Database) -> Self {
        Self { db }
    }

    /// Runs a statement, writing or reading, and returns its rows.
    async fn query<T: DeserializeOwned>(&self, sql: &str, args: &[D1Type<'_>]) -> FileResult<Vec<T>> {
        let result = self.db.prepare(sql).bind_refs(args).map_err(failed)?.all().await.map_err(failed)?;
        match result.error() {
            Some(error) => Err(FileError::Unavailable(error)),
            None => result.results().map_err(failed),
        }
    }

    /// Whether a statement that ends in `RETURNING 1 AS done` did anything.
    async fn did(&self, sql: &str, args: &[D1Type<'_>]) -> FileResult<bool> {
        Ok(!self.query::<Done>(sql, args).await?.is_empty())
    }
}

fn failed(error: impl std::fmt::Display) -> FileError {
    FileError::Unavailable(error.to_string())
}

/// A whole number below 2^53, as the database takes it.
fn number(value: u64) -> D1Type<'static> {
    D1Type::Real(value as f64)
}

/// A list as one argument, for `json_each`.
fn list<T: AsRef<str>>(items: impl Iterator<Item = T>) -> String {
    serde_json::Value::from_iter(items.map(|item| item.as_ref().to_owned())).to_string()
}

/// What stands in the columns `kind` and `content`.
fn columns(content: &Content) -> (&'static str, Cow<'_, str>) {
    match content {
        Content::Blob(key) => ("blob", Cow::Borrowed(key)),
        Content::Inline(bytes) => match std::str::from_utf8(bytes) {
            // The database's own functions end a text at a NUL.
            Ok(text) if !text.contains('\0') => ("text", Cow::Borrowed(text)),
            _ => ("base64", Cow::Owned(STANDARD.encode(bytes))),
        },
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
        self.query::<FileRow>(&sql, &args).await?.into_iter().map(FileRow::read).collect()
    }

    async fn put(&self, tree: &Tree, row: &Row, condition: &Precondition) -> FileResult<bool> {
        let Entry { path, bytes, etag, updated_at } = &row.entry;
        let (kind, content) = columns(&row.content);
        let mut args = vec![
            D1Type::Text(&tree.tenant),
            D1Type::Text(&tree.scope),
            D1Type::Text(path.as_str()),
            D1Type::Text(etag),
            number(*bytes),
            D1Type::Text(kind),
            D1Type::Text(&content),
            number(updated_at.0),
        ];
        let sql = match condition {
            Precondition::Any => format!(
                "{INSERT} DO UPDATE SET etag = excluded.etag, bytes = excluded.bytes, kind = excluded.kind, \
                 content = excluded.content, updated_at = excluded.updated_at RETURNING 1 AS done"
            ),
            Precondition::CreateOnly => format!("{INSERT} DO NOTHING RETURNING 1 AS done"),
            Precondition::IfMatch(expected) => {
                args.push(D1Type::Text(expected));
                "UPDATE files SET etag = ?4, bytes = ?5, kind = ?6, content = ?7, updated_at = ?8 \
                 WHERE tenant = ?1 AND scope = ?2 AND path = ?3 AND etag = ?9 RETURNING 1 AS done"
                    .to_owned()
            }
        };
        self.did(&sql, &args).await
    }

    async fn remove(&self, tree: &Tree, path: &FilePath, condition: &Precondition) -> FileResult<bool> {
        let expected = match condition {
            Precondition::Any => D1Type::Null,
            Precondition::IfMatch(etag) => D1Type::Text(etag),
            // What is to be removed must be there.
            Precondition::CreateOnly => return Ok(false),
        };
        let sql = "DELETE FROM files WHERE tenant = ?1 AND scope = ?2 AND path = ?3 \
                   AND (?4 IS NULL OR etag = ?4) RETURNING 1 AS done";
        let args =
            [D1Type::Text(&tree.tenant), D1Type::Text(&tree.scope), D1Type::Text(path.as_str()), expected];
        self.did(sql, &args).await
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
            number(now.0),
        ];
        self.did(sql, &args).await
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
        Ok(self.query::<EntryRow>(&sql, &args).await?.into_iter().map(EntryRow::read).collect())
    }

    async fn reserve(&self, tenant: &str, key: &str, now: Timestamp) -> FileResult<()> {
        let sql = "INSERT INTO free_blobs (tenant, blob, since) VALUES (?1, ?2, ?3)";
        self.query::<Done>(sql, &[D1Type::Text(tenant), D1Type::Text(key), number(now.0)]).await?;
        Ok(())
    }

    async fn free_keys(&self, before: Timestamp, limit: usize) -> FileResult<Vec<(String, String)>> {
        let sql =
            format!("SELECT tenant, blob FROM free_blobs WHERE since <= ?1 ORDER BY since LIMIT {limit}");
        let found: Vec<KeyRow> = self.query(&sql, &[number(before.0)]).await?;
        Ok(found.into_iter().map(|row| (row.tenant, row.blob)).collect())
    }

    async fn forget(&self, tenant: &str, keys: &[String]) -> FileResult<()> {
        let sql = "DELETE FROM free_blobs WHERE tenant = ?1 AND blob IN (SELECT value FROM json_each(?2))";
        let keys = list(keys.iter());
        self.query::<Done>(sql, &[D1Type::Text(tenant), D1Type::Text(&keys)]).await?;
        Ok(())
    }

    async fn erase(&self, tenant: &str, limit: usize) -> FileResult<bool> {
        let files = format!(
            "DELETE FROM files WHERE tenant = ?1 AND (scope, path) IN \
             (SELECT scope, path FROM files WHERE tenant = ?1 LIMIT {limit}) RETURNING 1 AS done"
        );
        let erased: Vec<Done> = self.query(&files, &[D1Type::Text(tenant)]).await?;
        // The objects of these rows went before; their keys have just come free.
        self.query::<Done>("DELETE FROM free_blobs WHERE tenant = ?1", &[D1Type::Text(tenant)]).await?;
        Ok(erased.len() == limit)
    }
}
