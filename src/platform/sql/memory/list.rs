//! Filtering the rows of a collection, and listing them in insertion order.

use super::{COLLECTION, ENTRY, kind_name, named, source_name};
use crate::platform::sql::{Rows, Statement, Value, read};
use crate::ports::memory::{Collection, CollectionKind, Group, Listing, MemoryResult};
use crate::types::{AgentId, TenantId, Timestamp, UserId};
use serde::Deserialize;

/// A condition on the rows of a collection, and its parameters.
pub(super) struct Filter<'a> {
    pub(super) condition: String,
    pub(super) args: Vec<Value<'a>>,
}

impl<'a> Filter<'a> {
    /// All rows.
    pub(super) fn of(collection: &'a Collection) -> Self {
        Self { condition: format!("collection = {COLLECTION}"), args: named(collection) }
    }

    /// Adds a condition, in which `#` is replaced by the parameter.
    pub(super) fn and(&mut self, condition: &str, value: Value<'a>) {
        self.args.push(value);
        let place = format!("?{}", self.args.len());
        self.condition += &format!(" AND {}", condition.replace('#', &place));
    }

    /// Restricts the rows to a group.
    pub(super) fn group(&mut self, name: &'a str) {
        self.and(&format!("serial IN ({})", in_group()), name.into());
    }

    /// Restricts the rows to a session. A session may also be a group of the same name.
    pub(super) fn session(&mut self, id: &'a str) {
        let condition = format!(
            "session = # AND serial IN ({} UNION ALL \
             SELECT serial FROM memory_entries INDEXED BY memory_entries_by_session \
             WHERE collection = {COLLECTION} AND session = # AND session <> grp)",
            in_group()
        );
        self.and(&condition, id.into());
    }
}

fn in_group() -> String {
    format!(
        "SELECT serial FROM memory_entries INDEXED BY memory_entries_by_place \
         WHERE collection = {COLLECTION} AND grp = #"
    )
}

/// Queries the parts of a listing.
///
/// Times have no index: insertion order is nearly chronological, so rows are read in that order until there
/// are enough. The first parts of a group are indexed by position, which is insertion order too.
pub(super) fn entries<'a>(collection: &'a Collection, listing: &'a Listing) -> Statement<'a> {
    let Listing { group, session, from, until, source, before, after, oldest_first, first_parts, limit } =
        listing;
    let mut filter = Filter::of(collection);
    let (mut table, mut by) = ("memory_entries", "serial");
    if *first_parts {
        filter.condition += " AND part = 0";
    }
    match group {
        Some(group) if *first_parts => {
            filter.and("grp = #", group.as_str().into());
            (table, by) = ("memory_entries INDEXED BY memory_entries_by_place", "position");
        }
        Some(group) => filter.group(group),
        None => {}
    }
    if let Some(session) = session {
        filter.session(session);
    }
    let conditions: [(_, Option<Value<'a>>); 5] = [
        ("at >= #", from.map(Value::from)),
        ("at < #", until.map(Value::from)),
        ("source = #", source.map(|source| source_name(source).into())),
        ("serial < #", before.map(Value::from)),
        ("serial > #", after.map(Value::from)),
    ];
    for (condition, value) in conditions {
        if let Some(value) = value {
            filter.and(condition, value);
        }
    }
    let order = if *oldest_first { "ASC" } else { "DESC" };
    let Filter { condition, args } = filter;
    let sql = format!("SELECT {ENTRY} FROM {table} WHERE {condition} ORDER BY {by} {order} LIMIT {limit}");
    Statement::new(sql, args)
}

/// Queries collections by user, agent and kind.
pub(super) fn collections<'a>(
    tenant: &'a TenantId,
    user: Option<&'a UserId>,
    after: Option<&'a Collection>,
    limit: usize,
) -> Statement<'a> {
    let mut sql = "SELECT user, agent, kind FROM memory_collections WHERE tenant = ?".to_owned();
    let mut args: Vec<Value<'a>> = vec![tenant.as_str().into()];
    if let Some(user) = user {
        sql.push_str(" AND user = ?");
        args.push(user.as_str().into());
    }
    if let Some(after) = after {
        sql.push_str(" AND (user, agent, kind) > (?, ?, ?)");
        args.extend(order(after).map(Value::from));
    }
    sql.push_str(&format!(" ORDER BY user, agent, kind LIMIT {limit}"));
    Statement::new(sql, args)
}

/// Returns what [`collections`] are ordered by.
pub(super) fn order(collection: &Collection) -> [&str; 3] {
    [&collection.user, &collection.agent, kind_name(collection.kind)]
}

/// Reads the results of [`collections`].
pub(super) fn read_collections(tenant: &TenantId, results: &[impl Rows]) -> MemoryResult<Vec<Collection>> {
    #[derive(Deserialize)]
    struct CollectionRow {
        user: UserId,
        agent: AgentId,
        kind: CollectionKind,
    }
    let collection =
        |CollectionRow { user, agent, kind }| Collection { tenant: tenant.clone(), agent, user, kind };
    Ok(read::<CollectionRow>(results, 0)?.into_iter().map(collection).collect())
}

/// Queries groups by name.
pub(super) fn groups<'a>(collection: &'a Collection, after: Option<&'a str>, limit: usize) -> Statement<'a> {
    let mut filter = Filter::of(collection);
    if let Some(after) = after {
        filter.and("name > #", after.into());
    }
    let Filter { condition, args } = filter;
    let sql = format!(
        "SELECT name, entries, bytes, last, updated_at FROM memory_groups \
         WHERE {condition} ORDER BY name LIMIT {limit}"
    );
    Statement::new(sql, args)
}

#[derive(Deserialize)]
struct GroupRow {
    name: String,
    entries: f64,
    bytes: f64,
    last: f64,
    updated_at: f64,
}

/// Reads the results of [`groups`].
pub(super) fn read_groups(results: &[impl Rows]) -> MemoryResult<Vec<Group>> {
    let group = |row: GroupRow| Group {
        name: row.name,
        entries: row.entries as u64,
        bytes: row.bytes as u64,
        last: row.last as u64,
        updated_at: Timestamp(row.updated_at as u64),
    };
    Ok(read::<GroupRow>(results, 0)?.into_iter().map(group).collect())
}
