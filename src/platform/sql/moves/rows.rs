//! Copying rows unchanged. The columns are those of the source, so that a new column is copied too.

use super::part::Job;
use super::position::Table;
use crate::platform::sql::{Rows, SqlError, Statement, Value, json, read};
use crate::types::TenantId;
use serde_json::{Map, Value as Json};

/// Maximum size of the files that are read at once, in bytes, not counting the last one.
const MAX_CONTENT: usize = 1_000_000;

/// Queries the rows of a table after a key.
pub(super) fn select<'a>(table: Table, job: &'a Job, after: &'a [String], limit: usize) -> Statement<'a> {
    let (name, columns) = (table.name(), table.key().join(", "));
    let start = |n: usize| after.get(n).map_or("", String::as_str);
    // None of the rows of a table without a condition move.
    let condition = job.part().rows(table).unwrap_or_else(|| "false".to_owned());
    let mut args = job.args();
    let first = args.len() + 1;
    args.extend((0..table.key().len()).map(start).map(Value::from));
    let places: Vec<_> = (first..args.len() + 1).map(|n| format!("?{n}")).collect();
    let page = format!(
        "FROM {name} WHERE {condition} AND ({columns}) > ({}) ORDER BY {columns} LIMIT {limit}",
        places.join(", ")
    );
    let sql = match table {
        // Sums up the sizes without reading the contents.
        Table::Files => format!(
            "WITH page AS (SELECT scope, path, size, sum(size) OVER (ORDER BY scope, path) AS total FROM \
               (SELECT scope, path, CASE kind WHEN 'blob' THEN 0 ELSE bytes END AS size {page})) \
             SELECT files.* FROM page CROSS JOIN files \
             ON files.tenant = ?1 AND files.scope = page.scope AND files.path = page.path \
             WHERE total - size < {MAX_CONTENT} ORDER BY page.scope, page.path"
        ),
        Table::Sessions | Table::FreeBlobs => format!("SELECT * {page}"),
    };
    Statement::new(sql, args)
}

/// Reads the result of [`select`]: each row as JSON for [`insert`], and its key.
pub(super) fn read_page(table: Table, results: &[impl Rows]) -> Result<Vec<(String, Vec<String>)>, SqlError> {
    let rows: Vec<Map<String, Json>> = read(results, 0)?;
    let key = |row: &Map<String, Json>| {
        let column = |name: &&str| row.get(*name).and_then(Json::as_str).map(str::to_owned);
        let key: Option<Vec<String>> = table.key().iter().map(column).collect();
        key.ok_or_else(|| SqlError::new("a row has no key"))
    };
    rows.iter().map(|row| Ok((json(row)?, key(row)?))).collect()
}

/// Returns the statement that adds the rows of a page, a list as JSON. `row` is one of them.
pub(super) fn insert<'a>(table: Table, row: &str, page: &'a str) -> Result<Statement<'a>, SqlError> {
    let columns: Map<String, Json> = serde_json::from_str(row).map_err(SqlError::new)?;
    let names: Vec<_> = columns.keys().map(|name| format!("\"{name}\"")).collect();
    let values: Vec<_> = columns.keys().map(|name| format!("value ->> '{name}'")).collect();
    let sql = format!(
        "INSERT INTO {} ({}) SELECT {} FROM json_each(?1)",
        table.name(),
        names.join(", "),
        values.join(", ")
    );
    Ok(Statement::new(sql, vec![page.into()]))
}

/// Queries the storage limits of a tenant.
pub(super) fn select_limits(tenant: &TenantId) -> Statement<'_> {
    let sql = "SELECT max_bytes, max_sessions, max_files, max_memory_rows, limits_version FROM tenant_storage \
               WHERE tenant = ?1";
    Statement::new(sql, vec![tenant.as_str().into()])
}

/// Returns the statement that copies the result of [`select_limits`], a list as JSON, unless a later version is there.
pub(super) fn insert_limits<'a>(tenant: &'a TenantId, limits: &'a str) -> Statement<'a> {
    let sql = "INSERT INTO tenant_storage (tenant, max_bytes, max_sessions, max_files, max_memory_rows, limits_version) \
               SELECT ?1, value ->> 'max_bytes', value ->> 'max_sessions', value ->> 'max_files', \
               value ->> 'max_memory_rows', value ->> 'limits_version' FROM json_each(?2) WHERE true \
               ON CONFLICT (tenant) DO UPDATE SET max_bytes = excluded.max_bytes, max_sessions = excluded.max_sessions, \
               max_files = excluded.max_files, max_memory_rows = excluded.max_memory_rows, \
               limits_version = excluded.limits_version \
               WHERE excluded.limits_version >= tenant_storage.limits_version";
    Statement::new(sql, [tenant.as_str(), limits].map(Value::from))
}
