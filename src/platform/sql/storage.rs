//! The storage limits of tenants (`migrations/0011_tenant_storage.sql`). A write checks them in its own statement, so
//! that concurrent writes cannot exceed them together.

use super::{Rows, SqlError, Statement, Value, json};
use crate::ports::filesystem::{Content, MAX_FILES, Precondition, Row, Tree};
use crate::types::{StorageLimits, StorageQuota, StorageUse, TenantId, UserId};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use std::borrow::Cow;

/// The bytes of the row that a file replaces.
const OLD_BYTES: &str =
    "coalesce((SELECT bytes FROM files WHERE tenant = ?1 AND scope = ?2 AND path = ?3), 0)";
/// The row with the same path.
const SAME: &str = "SELECT 1 FROM files WHERE tenant = ?1 AND scope = ?2 AND path = ?3";

/// Returns a limit of the tenant, or the default; NULL for no limit.
fn limit(column: &str, default: Option<u64>) -> String {
    let default = default.map_or_else(|| "NULL".to_owned(), |limit| limit.to_string());
    format!("coalesce(s.{column}, {default})")
}

/// Returns an expression for the limit of the tenant `?1` that a write exceeds, or NULL. `files`, `rows` and `bytes` are
/// expressions for what the write adds.
///
/// The tenant is a column of the left side of the join. With `LEFT JOIN tenant_storage AS s ON s.tenant = ?1`, SQLite
/// prepared the statement again for each execution (measured in workerd, November 2026).
fn quota(defaults: &StorageLimits, files: &str, rows: &str, bytes: &str) -> String {
    format!(
        "(SELECT CASE WHEN {files} > 0 AND coalesce(s.files, 0) + {files} > {} THEN 'files' \
         WHEN {rows} > 0 AND coalesce(s.memory_rows, 0) + {rows} > {} THEN 'memory_rows' \
         WHEN {bytes} > 0 AND coalesce(s.file_bytes + s.memory_bytes, 0) + {bytes} > {} THEN 'storage_bytes' END \
         FROM (SELECT ?1 AS tenant) LEFT JOIN tenant_storage AS s USING (tenant))",
        limit("max_files", defaults.files),
        limit("max_memory_rows", defaults.memory_rows),
        limit("max_bytes", defaults.storage_bytes),
    )
}

/// Returns the expression for the rows of the memory index in the table `fresh`.
pub(super) fn memory_quota(defaults: &StorageLimits) -> String {
    let bytes = "(SELECT coalesce(sum(octet_length(text)), 0) FROM fresh)";
    quota(defaults, "0", "(SELECT count(*) FROM fresh)", bytes)
}

/// Returns the statement that reports which limit prevented the addition of entries, given as rows and bytes by key. It
/// returns no row if all of them exist.
pub(super) fn refused_memory<'a>(
    defaults: &StorageLimits,
    collection: &str,
    named: Vec<Value<'a>>,
    entries: &[(&str, usize, usize)],
) -> Result<Statement<'a>, SqlError> {
    let quota = quota(defaults, "0", "(SELECT sum(rows) FROM fresh)", "(SELECT sum(bytes) FROM fresh)");
    let sql = format!(
        "WITH fresh AS (SELECT value ->> 1 AS rows, value ->> 2 AS bytes FROM json_each(?5) \
         WHERE NOT EXISTS (SELECT 1 FROM memory_entries AS old \
           WHERE old.collection = {collection} AND old.key = value ->> 0 AND old.part = 0)) \
         SELECT {quota} AS quota FROM fresh LIMIT 1"
    );
    let args: Vec<_> = named.into_iter().chain([json(&entries)?.into()]).collect();
    Ok(Statement::new(sql, args))
}

#[derive(Deserialize)]
struct Refusal {
    quota: Option<StorageQuota>,
}

/// Reads the limit that a statement selected `AS quota`.
///
/// # Errors
/// If a row has another form.
pub fn read_quota(rows: &impl Rows) -> Result<Option<StorageQuota>, SqlError> {
    Ok(rows.read::<Refusal>()?.into_iter().find_map(|row| row.quota))
}

/// Returns the statement that writes a file and returns a row if it did, and the statement that reports which limit
/// prevented it.
pub fn put_file<'a>(
    defaults: &StorageLimits,
    tree: &'a Tree,
    row: &'a Row,
    condition: &'a Precondition,
) -> [Statement<'a>; 2] {
    let (kind, content) = columns(&row.content);
    let entry = &row.entry;
    let mut args: Vec<Value<'a>> = vec![
        tree.tenant.as_str().into(),
        tree.scope.as_str().into(),
        entry.path.as_str().into(),
        entry.bytes.into(),
        entry.etag.as_str().into(),
        kind.into(),
        Value::Text(content),
        entry.updated_at.into(),
    ];
    let quota = quota(defaults, &format!("(NOT EXISTS ({SAME}))"), "0", &format!("(?4 - {OLD_BYTES})"));
    let mut refused_args = args.get(..4).unwrap_or_default().to_vec();
    let applies = match condition {
        Precondition::Any => "true".to_owned(),
        Precondition::CreateOnly => format!("NOT EXISTS ({SAME})"),
        Precondition::IfMatch(expected) => {
            refused_args.push(expected.as_str().into());
            format!("EXISTS ({SAME} AND etag = ?5)")
        }
    };
    let refused = Statement::new(format!("SELECT {quota} AS quota WHERE {applies}"), refused_args);
    let insert = format!(
        "INSERT INTO files (tenant, scope, path, bytes, etag, kind, content, updated_at) \
         SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE {quota} IS NULL \
         AND (coalesce((SELECT files FROM file_trees WHERE tenant = ?1 AND scope = ?2), 0) < {MAX_FILES} \
           OR EXISTS ({SAME})) ON CONFLICT (tenant, scope, path)"
    );
    let sql = match condition {
        Precondition::Any => format!(
            "{insert} DO UPDATE SET etag = excluded.etag, bytes = excluded.bytes, kind = excluded.kind, \
             content = excluded.content, updated_at = excluded.updated_at RETURNING 1 AS done"
        ),
        Precondition::CreateOnly => format!("{insert} DO NOTHING RETURNING 1 AS done"),
        Precondition::IfMatch(expected) => {
            args.push(expected.as_str().into());
            format!(
                "UPDATE files SET etag = ?5, bytes = ?4, kind = ?6, content = ?7, updated_at = ?8 \
                 WHERE tenant = ?1 AND scope = ?2 AND path = ?3 AND etag = ?9 AND {quota} IS NULL \
                 RETURNING 1 AS done"
            )
        }
    };
    [Statement::new(sql, args), refused]
}

/// Returns the values of the columns `kind` and `content`.
fn columns(content: &Content) -> (&'static str, Cow<'_, str>) {
    match content {
        Content::Blob(key) => ("blob", Cow::Borrowed(key)),
        Content::Inline(bytes) => match std::str::from_utf8(bytes) {
            // SQLite's functions end a text at a NUL.
            Ok(text) if !text.contains('\0') => ("text", Cow::Borrowed(text)),
            _ => ("base64", Cow::Owned(STANDARD.encode(bytes))),
        },
    }
}

/// Returns the statement that copies the limits of a tenant to its shard, unless a later version is there.
pub fn set_limits<'a>(tenant: &'a TenantId, limits: &StorageLimits, version: u64) -> Statement<'a> {
    let value = |limit: Option<u64>| limit.map_or_else(|| "NULL".to_owned(), |limit| limit.to_string());
    let [bytes, sessions, files, rows] =
        [limits.storage_bytes, limits.sessions, limits.files, limits.memory_rows].map(value);
    let sql = format!(
        "INSERT INTO tenant_storage (tenant, max_bytes, max_sessions, max_files, max_memory_rows, limits_version) \
         VALUES (?1, {bytes}, {sessions}, {files}, {rows}, ?2) ON CONFLICT (tenant) DO UPDATE SET \
         max_bytes = excluded.max_bytes, max_sessions = excluded.max_sessions, max_files = excluded.max_files, \
         max_memory_rows = excluded.max_memory_rows, limits_version = excluded.limits_version \
         WHERE excluded.limits_version >= tenant_storage.limits_version"
    );
    Statement::new(sql, vec![tenant.as_str().into(), version.into()])
}

/// Returns the statement that reads what a tenant or one of its users stores; see [`read_use`].
pub fn select_use<'a>(tenant: &'a TenantId, user: Option<&'a UserId>) -> Statement<'a> {
    let Some(user) = user else {
        let sql = "SELECT files, file_bytes, memory_rows, memory_bytes, sessions FROM tenant_storage \
                   WHERE tenant = ?1";
        return Statement::new(sql, vec![tenant.as_str().into()]);
    };
    let sum = |column, rows: &str| format!("(SELECT coalesce(sum({column}), 0) FROM {rows})");
    let (trees, collections) = (
        "file_trees WHERE tenant = ?1 AND owner = 'users/' || ?2",
        "memory_collections WHERE tenant = ?1 AND user = ?2",
    );
    let sql = format!(
        "SELECT {} AS files, {} AS file_bytes, {} AS memory_rows, {} AS memory_bytes, \
         (SELECT count(*) FROM sessions WHERE tenant = ?1 AND user = ?2 AND parent IS NULL) AS sessions",
        sum("files", trees),
        sum("bytes", trees),
        sum("documents", collections),
        sum("bytes", collections),
    );
    Statement::new(sql, vec![tenant.as_str().into(), user.as_str().into()])
}

/// Reads the result of [`select_use`].
///
/// # Errors
/// If a row has another form.
pub fn read_use(rows: &impl Rows) -> Result<StorageUse, SqlError> {
    Ok(rows.read::<UseRow>()?.into_iter().next().map(StorageUse::from).unwrap_or_default())
}

/// The numbers of a [`StorageUse`] as D1 returns them.
#[derive(Deserialize)]
pub(super) struct UseRow {
    files: f64,
    file_bytes: f64,
    memory_rows: f64,
    memory_bytes: f64,
    sessions: f64,
}

impl From<UseRow> for StorageUse {
    fn from(row: UseRow) -> Self {
        Self {
            files: row.files as u64,
            file_bytes: row.file_bytes as u64,
            memory_rows: row.memory_rows as u64,
            memory_bytes: row.memory_bytes as u64,
            sessions: row.sessions as u64,
        }
    }
}
