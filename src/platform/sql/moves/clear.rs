//! Removing the rows of a tenant from a shard that it has left or not reached. The objects of its files stay, because
//! the rows on its other shard refer to them.

use crate::platform::sql::{Statement, Value, memory::remove};
use crate::types::TenantId;

/// Number of rows of a table removed at once.
const BATCH_SIZE: usize = 500;

/// Removes a batch of each table. The last statement returns whether there is more.
pub(super) fn page(tenant: &TenantId) -> Vec<Statement<'_>> {
    let files = format!(
        "tenant = ?1 AND (scope, path) IN \
         (SELECT scope, path FROM files WHERE tenant = ?1 ORDER BY scope, path LIMIT {BATCH_SIZE})"
    );
    let rows = [
        // A trigger would add the object of a removed row to the free ones.
        format!("UPDATE files SET kind = 'text' WHERE kind = 'blob' AND {files}"),
        format!("DELETE FROM files WHERE {files}"),
        format!(
            "DELETE FROM sessions WHERE tenant = ?1 AND id IN \
             (SELECT id FROM sessions WHERE tenant = ?1 LIMIT {BATCH_SIZE})"
        ),
        format!(
            "DELETE FROM free_blobs WHERE tenant = ?1 AND blob IN \
             (SELECT blob FROM free_blobs WHERE tenant = ?1 LIMIT {BATCH_SIZE})"
        ),
    ];
    let mut statements: Vec<_> = rows.map(|sql| statement(sql, tenant)).into();
    statements.extend(remove::all(tenant, None));
    let tables = ["sessions", "files", "free_blobs", "memory_collections", "memory_spaces"];
    let left = tables.map(|table| format!("EXISTS (SELECT 1 FROM {table} WHERE tenant = ?1)"));
    statements.push(statement(format!("SELECT {} AS more", left.join(" OR ")), tenant));
    statements
}

/// Removes what is left after the last [`page`].
pub(super) fn rest(tenant: &TenantId) -> Statement<'_> {
    statement("DELETE FROM tenant_storage WHERE tenant = ?1".into(), tenant)
}

fn statement(sql: String, tenant: &TenantId) -> Statement<'_> {
    Statement::new(sql, vec![Value::from(tenant.as_str())])
}
