//! Removing: so many entries at a time, each with all its parts, so that it can be added again right away.
//! Triggers keep terms, groups and numbers right (`migrations/0004_memory.sql`).

use super::{COLLECTION, list::Which};
use crate::platform::sql::memory_spaces::dirty_since;
use crate::platform::sql::{Statement, Value, json};
use crate::ports::memory::{Collection, CollectionKind, LONG_TERM, MemoryResult, Removal};
use crate::types::TenantId;

/// Left to itself, SQLite would look for the keys in all of a collection.
const DELETE: &str = "DELETE FROM memory_entries INDEXED BY memory_entries_by_key";
/// Entries, and rows of other tables, that go at once.
const AT_ONCE: usize = 500;

/// Removes some of what is to go; the last statement says whether there is more.
pub(super) fn some<'a>(collection: &'a Collection, what: &'a Removal) -> MemoryResult<Vec<Statement<'a>>> {
    let mut which = Which::of(collection);
    which.condition += " AND part = 0";
    match what {
        Removal::Keys(keys) => which.and("key IN (SELECT value FROM json_each(#))", json(keys)?.into()),
        Removal::Group(name) => which.group(name),
        Removal::Session(id) => which.session(id),
        Removal::All => {}
    }
    let Which { condition, args } = which;
    let delete = format!(
        "{DELETE} WHERE collection = {COLLECTION} AND key IN \
         (SELECT key FROM memory_entries WHERE {condition} LIMIT {AT_ONCE})"
    );
    let mut statements = vec![Statement::new(delete, args.clone())];
    if collection.kind == CollectionKind::Facts && may_be_logs(what) {
        // What a log has lost need not be consolidated.
        let dirty_since = dirty_since("watermark");
        let sql = format!(
            "UPDATE memory_spaces SET dirty_since = {dirty_since} \
             WHERE tenant = ?1 AND user = ?2 AND agent = ?3 AND dirty_since IS NOT NULL"
        );
        let space: [&str; 3] = [&collection.tenant, &collection.user, &collection.agent];
        statements.push(Statement::new(sql, space.map(Value::from)));
    }
    let more = format!("SELECT EXISTS (SELECT 1 FROM memory_entries WHERE {condition}) AS more");
    statements.push(Statement::new(more, args));
    Ok(statements)
}

/// Whether facts of a log may go, and not only lines of the long-term memory, which changes with every turn.
fn may_be_logs(what: &Removal) -> bool {
    let is_line = |key: &String| key.strip_prefix(LONG_TERM).is_some_and(|rest| rest.starts_with('#'));
    match what {
        Removal::Keys(keys) => !keys.iter().all(is_line),
        Removal::Group(name) => name != LONG_TERM,
        Removal::Session(_) | Removal::All => true,
    }
}

/// Removes some of what is kept of a tenant or of its user; the last statement says whether there is more.
pub(super) fn all<'a>(tenant: &'a TenantId, user: Option<&'a str>) -> Vec<Statement<'a>> {
    let condition = if user.is_some() { "tenant = ?1 AND user = ?2" } else { "tenant = ?1" };
    let args: Vec<Value<'a>> = std::iter::once(tenant.as_str()).chain(user).map(Value::from).collect();
    let collections = format!("SELECT id FROM memory_collections WHERE {condition} LIMIT {AT_ONCE}");
    let statements = [
        format!(
            "DELETE FROM memory_spaces WHERE (tenant, user, agent) IN \
             (SELECT tenant, user, agent FROM memory_spaces WHERE {condition} LIMIT {AT_ONCE})"
        ),
        format!(
            "{DELETE} WHERE (collection, key) IN (SELECT collection, key FROM memory_entries \
             WHERE collection IN ({collections}) AND part = 0 LIMIT {AT_ONCE})"
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
    statements.map(|sql| Statement::new(sql, args.clone())).into()
}
