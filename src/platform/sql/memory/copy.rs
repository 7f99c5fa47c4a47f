//! Copying the memory of a tenant, or of one of its users, to another database.
//!
//! Serial numbers and the numbers of collections are unique in one database, so the target assigns new ones, in the
//! same order. The index does not store terms in a readable form, so they are computed again from the texts.

use super::{EntryRow, source_name, token};
use crate::platform::sql::{Rows, SqlError, Statement, Value, json, read};
use crate::ports::memory::MemoryError;
use crate::types::{AgentId, TenantId, Timestamp, UserId};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// Computes the terms of a text, separated by spaces, from the text, its time and its speaker.
pub type Terms = fn(&str, Timestamp, Option<&str>) -> String;

/// The last copied entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::platform::sql) struct Cursor {
    user: String,
    agent: String,
    kind: String,
    serial: u64,
}

#[derive(Deserialize)]
struct CopiedRow {
    user: String,
    agent: String,
    kind: String,
    #[serde(flatten)]
    entry: EntryRow,
}

/// Queries entries after a cursor, of all users or of one: up to `limit` of its collection, and as many of the following collections.
pub(in crate::platform::sql) fn select<'a>(
    tenant: &'a TenantId,
    user: Option<&'a UserId>,
    after: &'a Cursor,
    limit: usize,
) -> Vec<Statement<'a>> {
    let own = user.map_or("", |_| " AND c.user = ?5");
    let user = user.map(|user| Value::from(user.as_str()));
    let statement = |collections: &str, condition: &str, last: Option<Value<'a>>| {
        let sql = format!(
            "SELECT c.user, c.agent, c.kind, e.* FROM memory_collections AS c \
             CROSS JOIN memory_entries AS e ON e.collection = c.id \
             WHERE c.tenant = ?1 AND (c.user, c.agent, c.kind) {collections} (?2, ?3, ?4){condition} \
             ORDER BY c.user, c.agent, c.kind, e.serial LIMIT {limit}"
        );
        let named = [tenant.as_str(), &after.user, &after.agent, &after.kind].map(Value::from);
        Statement::new(sql, named.into_iter().chain(last).collect::<Vec<_>>())
    };
    vec![statement("=", " AND e.serial > ?5", Some(after.serial.into())), statement(">", own, user)]
}

/// Reads the results of [`select`]: each row as JSON for [`insert`], and the cursor after it. Further rows of the first
/// collection precede those of the second statement, so no more than `limit` are returned.
pub(in crate::platform::sql) fn read_page(
    results: &[impl Rows],
    limit: usize,
    terms: Terms,
) -> Result<Vec<(String, Cursor)>, SqlError> {
    let mut page = Vec::new();
    for rows in results {
        let room = limit - page.len();
        for CopiedRow { user, agent, kind, entry } in rows.read::<CopiedRow>()?.into_iter().take(room) {
            let e = entry.read();
            let tokens = terms(&e.text, e.at, e.speaker.as_deref());
            let tokens = tokens.split(' ').filter(|term| !term.is_empty()).map(token);
            let tokens: Vec<String> = tokens.collect::<Result<_, MemoryError>>().map_err(SqlError::new)?;
            let first = (&user, &agent, &kind, &e.key, e.part, source_name(e.source), &e.group, e.position);
            let last = (&e.session, e.at.0, &e.speaker, e.length, &e.text, tokens.join(" "));
            page.push((json(&(first, last))?, Cursor { user, agent, kind, serial: e.serial }));
        }
    }
    Ok(page)
}

/// Returns the statements that add the rows of a page, a list as JSON.
pub(in crate::platform::sql) fn insert<'a>(tenant: &'a TenantId, page: &'a str) -> Vec<Statement<'a>> {
    // The values of a row, which `read_page` splits in two, because a tuple is limited to a few.
    let [user, agent, kind, key, part, source, grp, position] =
        [0, 1, 2, 3, 4, 5, 6, 7].map(|n| format!("value ->> '$[0][{n}]'"));
    let [session, at, speaker, length, text, terms] =
        [0, 1, 2, 3, 4, 5].map(|n| format!("value ->> '$[1][{n}]'"));
    let serial = "(SELECT last FROM memory_serial) + j.key + 1";
    let rows = format!(
        "FROM json_each(?2) AS j CROSS JOIN memory_collections AS c \
         ON c.tenant = ?1 AND c.user = {user} AND c.agent = {agent} AND c.kind = {kind}"
    );
    let statements = [
        // Like any new collection, it gets the serial number of its first entry.
        format!(
            "INSERT INTO memory_collections (id, tenant, user, agent, kind) \
             SELECT min({serial}), ?1, {user}, {agent}, {kind} FROM json_each(?2) AS j WHERE true \
             GROUP BY {user}, {agent}, {kind} ON CONFLICT (tenant, user, agent, kind) DO NOTHING"
        ),
        // Before the groups are added, so that the new ones can be counted.
        format!(
            "UPDATE memory_collections SET documents = documents + parts, length = length + words, \
             bytes = bytes + size, groups = groups + begun \
             FROM (SELECT c.id AS collection, count(*) AS parts, sum({length}) AS words, \
               sum(octet_length({text})) AS size, count(DISTINCT CASE WHEN NOT EXISTS \
                 (SELECT 1 FROM memory_groups AS g WHERE g.collection = c.id AND g.name = {grp}) THEN {grp} END) \
                 AS begun {rows} GROUP BY c.id) WHERE id = collection"
        ),
        format!(
            "INSERT INTO memory_entries (collection, serial, key, part, source, grp, position, session, at, \
             speaker, length, text) SELECT c.id, {serial}, {key}, {part}, {source}, {grp}, {position}, {session}, \
             {at}, {speaker}, {length}, {text} {rows}"
        ),
        format!(
            "INSERT INTO memory_terms (rowid, terms) SELECT {serial}, replace({terms}, '@', c.id) {rows}"
        ),
        // In a group, serial numbers and positions increase together, so both maxima are of the same row.
        format!(
            "INSERT INTO memory_groups (collection, name, next, entries, bytes, last, updated_at) \
             SELECT c.id, {grp}, max({position}) + 1, sum({part} = 0), sum(octet_length({text})), \
             max({serial}), {at} {rows} GROUP BY c.id, {grp} ON CONFLICT (collection, name) DO UPDATE SET \
             next = excluded.next, entries = entries + excluded.entries, bytes = bytes + excluded.bytes, \
             last = excluded.last, updated_at = excluded.updated_at"
        ),
        "UPDATE memory_serial SET last = last + json_array_length(?2) WHERE ?1 IS NOT NULL".to_owned(),
    ];
    statements.map(|sql| Statement::new(sql, [tenant.as_str(), page].map(Value::from))).into()
}

/// Queries the spaces after a user and an agent, with a watermark as the key and the part of its entry.
pub(in crate::platform::sql) fn select_spaces<'a>(
    tenant: &'a TenantId,
    user: Option<&'a UserId>,
    (after, agent): (&'a str, &'a str),
    limit: usize,
) -> Statement<'a> {
    let entry = |watermark: &str| {
        format!(
            "(SELECT json_array(key, part) FROM memory_entries WHERE collection = (SELECT id FROM \
             memory_collections AS c WHERE c.tenant = s.tenant AND c.user = s.user AND c.agent = s.agent \
             AND c.kind = 'facts') AND serial <= s.{watermark} ORDER BY serial DESC LIMIT 1)"
        )
    };
    let sql = format!(
        "SELECT user, agent, {} AS seen, {} AS intended, intent_watermark, dirty_since, requested_at, \
         consolidated_at, flushed_at, intent_etag FROM memory_spaces AS s \
         WHERE tenant = ?1 AND (user, agent) > (?2, ?3){} ORDER BY user, agent LIMIT {limit}",
        entry("watermark"),
        entry("intent_watermark"),
        user.map_or("", |_| " AND user = ?4"),
    );
    let user = user.map(UserId::as_str);
    let args = [tenant.as_str(), after, agent].into_iter().chain(user).map(Value::from);
    Statement::new(sql, args.collect::<Vec<_>>())
}

/// Reads the result of [`select_spaces`]: each row as JSON for [`insert_spaces`], and its user and agent.
pub(in crate::platform::sql) fn read_spaces(
    results: &[impl Rows],
) -> Result<Vec<(String, UserId, AgentId)>, SqlError> {
    #[derive(Serialize, Deserialize)]
    struct SpaceRow {
        user: UserId,
        agent: AgentId,
        seen: Option<String>,
        intended: Option<String>,
        intent_watermark: Option<f64>,
        dirty_since: Option<Json>,
        requested_at: Option<Json>,
        consolidated_at: Option<Json>,
        flushed_at: Option<Json>,
        intent_etag: Option<String>,
    }
    let rows: Vec<SpaceRow> = read(results, 0)?;
    rows.into_iter().map(|row| Ok((json(&row)?, row.user, row.agent))).collect()
}

/// Returns the statement that adds spaces. Their leases end, because a holder knows the old serial numbers.
pub(in crate::platform::sql) fn insert_spaces<'a>(tenant: &'a TenantId, page: &'a str) -> Statement<'a> {
    let serial = |entry: &str| {
        format!(
            "coalesce((SELECT serial FROM memory_entries WHERE collection = (SELECT id FROM memory_collections \
             WHERE tenant = ?1 AND user = value ->> 'user' AND agent = value ->> 'agent' AND kind = 'facts') \
             AND key = value ->> '{entry}' ->> 0 AND part = value ->> '{entry}' ->> 1), 0)"
        )
    };
    let sql = format!(
        "INSERT INTO memory_spaces (tenant, user, agent, watermark, intent_watermark, dirty_since, requested_at, \
         consolidated_at, flushed_at, intent_etag) SELECT ?1, value ->> 'user', value ->> 'agent', {}, \
         CASE WHEN value ->> 'intent_watermark' IS NOT NULL THEN {} END, value ->> 'dirty_since', \
         value ->> 'requested_at', value ->> 'consolidated_at', value ->> 'flushed_at', value ->> 'intent_etag' \
         FROM json_each(?2)",
        serial("seen"),
        serial("intended"),
    );
    Statement::new(sql, [tenant.as_str(), page].map(Value::from))
}
