//! Removing entries in batches. An entry is removed with all its parts, so that it can be added again at
//! once. Triggers update terms, groups and counts (`migrations/0004_memory.sql`).

use super::{COLLECTION, list::Filter, merge};
use crate::platform::sql::memory_spaces::dirty_since;
use crate::platform::sql::{Statement, Value, json};
use crate::ports::memory::{Collection, CollectionKind, LONG_TERM, MemoryResult, Removal};
use crate::types::{TenantId, UserId};

/// Without the hint, SQLite would scan the whole collection for the keys.
const DELETE: &str = "DELETE FROM memory_entries INDEXED BY memory_entries_by_key";
/// Number of entries, and of rows of other tables, removed at once.
const BATCH_SIZE: usize = 500;

/// Removes a batch of the matching entries. The last statement returns whether there are more.
pub(super) fn some<'a>(collection: &'a Collection, what: &'a Removal) -> MemoryResult<Vec<Statement<'a>>> {
    let mut filter = Filter::of(collection);
    filter.condition += " AND part = 0";
    match what {
        Removal::Keys(keys) => filter.and("key IN (SELECT value FROM json_each(#))", json(keys)?.into()),
        Removal::Group(name) => filter.group(name),
        Removal::Session(id) => filter.session(id),
        Removal::All => {}
    }
    let Filter { condition, args } = filter;
    let delete = format!(
        "{DELETE} WHERE collection = {COLLECTION} AND key IN \
         (SELECT key FROM memory_entries WHERE {condition} LIMIT {BATCH_SIZE})"
    );
    let mut statements = vec![Statement::new(delete, args.clone())];
    if collection.kind == CollectionKind::Facts && may_be_logs(what) {
        // Removed facts no longer need consolidation.
        let dirty_since = dirty_since("watermark");
        let sql = format!(
            "UPDATE memory_spaces SET dirty_since = {dirty_since} \
             WHERE tenant = ?1 AND user = ?2 AND agent = ?3 AND dirty_since IS NOT NULL"
        );
        let space: [&str; 3] = [&collection.tenant, &collection.user, &collection.agent];
        statements.push(Statement::new(sql, space.map(Value::from)));
    }
    if matches!(what, Removal::Session(_)) {
        statements.push(merge::request());
    }
    let more = format!("SELECT EXISTS (SELECT 1 FROM memory_entries WHERE {condition}) AS more");
    statements.push(Statement::new(more, args));
    Ok(statements)
}

/// Returns whether facts of a daily log may be removed. Lines of the long-term memory change with every turn
/// and need no update of the space.
fn may_be_logs(what: &Removal) -> bool {
    let is_line = |key: &String| key.strip_prefix(LONG_TERM).is_some_and(|rest| rest.starts_with('#'));
    match what {
        Removal::Keys(keys) => !keys.iter().all(is_line),
        Removal::Group(name) => name != LONG_TERM,
        Removal::Session(_) | Removal::All => true,
    }
}

/// Removes a batch of the rows of a tenant or of one user. The last statement returns whether there are more.
pub(in crate::platform::sql) fn all<'a>(
    tenant: &'a TenantId,
    user: Option<&'a UserId>,
) -> Vec<Statement<'a>> {
    let condition = if user.is_some() { "tenant = ?1 AND user = ?2" } else { "tenant = ?1" };
    let args: Vec<Value<'a>> =
        std::iter::once(tenant.as_str()).chain(user.map(UserId::as_str)).map(Value::from).collect();
    let collections = format!("SELECT id FROM memory_collections WHERE {condition} LIMIT {BATCH_SIZE}");
    let statements = [
        format!(
            "DELETE FROM memory_spaces WHERE (tenant, user, agent) IN \
             (SELECT tenant, user, agent FROM memory_spaces WHERE {condition} LIMIT {BATCH_SIZE})"
        ),
        format!(
            "{DELETE} WHERE (collection, key) IN (SELECT collection, key FROM memory_entries \
             WHERE collection IN ({collections}) AND part = 0 LIMIT {BATCH_SIZE})"
        ),
        format!(
            "DELETE FROM memory_collections WHERE id IN ({collections}) \
             AND NOT EXISTS (SELECT 1 FROM memory_entries WHERE collection = id)"
        ),
        format!(
            "SELECT EXISTS (SELECT 1 FROM memory_collections WHERE {condition}) \
             OR EXISTS (SELECT 1 FROM memory_spaces WHERE {condition}) AS more"
        ),
    ];
    let statements = statements.map(|sql| Statement::new(sql, args.clone()));
    std::iter::once(merge::request()).chain(statements).collect()
}
