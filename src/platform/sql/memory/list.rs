//! Which rows of a collection, and listing them in the order of adding.

use super::{COLLECTION, ENTRY, named, source_name};
use crate::platform::sql::{Rows, Statement, Value, read};
use crate::ports::memory::{Collection, Group, Listing, MemoryResult};
use crate::types::Timestamp;
use serde::Deserialize;

/// A condition on rows of a collection, and the arguments that it stands on.
pub(super) struct Which<'a> {
    pub(super) condition: String,
    pub(super) args: Vec<Value<'a>>,
}

impl<'a> Which<'a> {
    /// All of them.
    pub(super) fn of(collection: &'a Collection) -> Self {
        Self { condition: format!("collection = {COLLECTION}"), args: named(collection) }
    }

    /// Only those that meet this condition as well, in which `#` stands for the value.
    pub(super) fn and(&mut self, condition: &str, value: Value<'a>) {
        self.args.push(value);
        let place = format!("?{}", self.args.len());
        self.condition += &format!(" AND {}", condition.replace('#', &place));
    }

    /// Only those of a group.
    pub(super) fn group(&mut self, name: &'a str) {
        self.and(&format!("serial IN ({})", in_group()), name.into());
    }

    /// Only those of a session, which may be a group of that name as well.
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

/// Asks for the parts that a listing names.
///
/// Times have no index: the order of adding is nearly that of time, so rows are read in it until there are
/// enough. First parts of a group lie in one index by position, which is the order of adding too.
pub(super) fn entries<'a>(collection: &'a Collection, listing: &'a Listing) -> Statement<'a> {
    let Listing { group, session, from, until, source, before, after, oldest_first, first_parts, limit } =
        listing;
    let mut which = Which::of(collection);
    let (mut table, mut by) = ("memory_entries", "serial");
    if *first_parts {
        which.condition += " AND part = 0";
    }
    match group {
        Some(group) if *first_parts => {
            which.and("grp = #", group.as_str().into());
            (table, by) = ("memory_entries INDEXED BY memory_entries_by_place", "position");
        }
        Some(group) => which.group(group),
        None => {}
    }
    if let Some(session) = session {
        which.session(session);
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
            which.and(condition, value);
        }
    }
    let order = if *oldest_first { "ASC" } else { "DESC" };
    let Which { condition, args } = which;
    let sql = format!("SELECT {ENTRY} FROM {table} WHERE {condition} ORDER BY {by} {order} LIMIT {limit}");
    Statement::new(sql, args)
}

/// Asks for groups, by name.
pub(super) fn groups<'a>(collection: &'a Collection, after: Option<&'a str>, limit: usize) -> Statement<'a> {
    let mut which = Which::of(collection);
    if let Some(after) = after {
        which.and("name > #", after.into());
    }
    let Which { condition, args } = which;
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

/// Reads the answer to [`groups`].
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
