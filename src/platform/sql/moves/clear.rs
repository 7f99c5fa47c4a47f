//! Removing the rows of a move from a shard that they have left or not reached. The objects of files stay, because the
//! rows on the other shard refer to them.

use super::part::{Job, Part};
use super::position::Table;
use crate::platform::sql::{Statement, Value, memory::remove};

/// Number of rows of a table removed at once.
const BATCH_SIZE: usize = 500;

/// Removes a batch of each table. The last statement returns whether there is more.
pub(super) fn page(job: &Job) -> Vec<Statement<'_>> {
    let part = job.part();
    let (mut statements, mut left) = (Vec::new(), Vec::new());
    for table in [Table::Files, Table::Sessions, Table::FreeBlobs] {
        let Some(condition) = part.rows(table) else { continue };
        let (name, key) = (table.name(), table.key().join(", "));
        let batch = format!(
            "tenant = ?1 AND ({key}) IN (SELECT {key} FROM {name} WHERE {condition} ORDER BY {key} LIMIT {BATCH_SIZE})"
        );
        if table == Table::Files {
            // A trigger would add the object of a removed row to the free ones.
            let sql = format!("UPDATE files SET kind = 'text' WHERE kind = 'blob' AND {batch}");
            statements.push(Statement::new(sql, job.args()));
        }
        statements.push(Statement::new(format!("DELETE FROM {name} WHERE {batch}"), job.args()));
        left.push(format!("EXISTS (SELECT 1 FROM {name} WHERE {condition})"));
    }
    if let Some(condition) = part.memory() {
        statements.extend(remove::all(job.tenant(), part.user()));
        let tables = ["memory_collections", "memory_spaces"];
        left.extend(tables.map(|table| format!("EXISTS (SELECT 1 FROM {table} WHERE {condition})")));
    }
    statements.push(Statement::new(format!("SELECT {} AS more", left.join(" OR ")), job.args()));
    statements
}

/// Removes what is left after the last [`page`]: the numbers of a tenant that has nothing on the shard.
pub(super) fn rest(job: &Job) -> Option<Statement<'_>> {
    let sql = "DELETE FROM tenant_storage WHERE tenant = ?1";
    matches!(job.part(), Part::All).then(|| Statement::new(sql, vec![Value::from(job.tenant().as_str())]))
}
