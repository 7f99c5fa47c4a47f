//! The audit trail (`migrations/0013_audit.sql`).

use super::{Rows, SqlError, Statement, Value, json};
use crate::types::{AuditEntry, AuditId, AuditQuery, TenantId, Timestamp, json};
use serde::Deserialize;

/// The condition of a change whose row the first statement of its batch has added; see [`with_change`].
pub(super) const RECORDED: &str = "EXISTS (SELECT 1 FROM audit WHERE tenant = ?1 AND id = ?2)";

/// Returns a batch in which a change and its row both take effect, or neither. The row is added if `allowed` holds,
/// whose parameters start at `?2`. The change must have the condition [`RECORDED`], whose parameters are the tenant and
/// the id of the row; those of the change start at `?3`.
pub(super) fn with_change<'a>(
    entry: &'a AuditEntry,
    (allowed, allowed_args): (&str, Vec<Value<'a>>),
    (change, change_args): (String, Vec<Value<'a>>),
) -> Result<Vec<Statement<'a>>, SqlError> {
    let row = add_if(std::slice::from_ref(entry), allowed, allowed_args)?;
    Ok(vec![row, recorded(entry, change, change_args)])
}

/// Returns a statement of the same batch, with the parameters of [`RECORDED`].
pub(super) fn recorded<'a>(entry: &'a AuditEntry, sql: String, args: Vec<Value<'a>>) -> Statement<'a> {
    let row = [entry.tenant.as_str().into(), entry.id.as_str().into()];
    Statement::new(sql, row.into_iter().chain(args).collect::<Vec<_>>())
}

/// Returns the statement that adds rows. A row that exists is kept.
///
/// # Errors
/// If a row cannot be written as JSON.
pub fn add(entries: &[AuditEntry]) -> Result<Statement<'static>, SqlError> {
    add_if(entries, "true", Vec::new())
}

fn add_if<'a>(
    entries: &[AuditEntry],
    condition: &str,
    args: Vec<Value<'a>>,
) -> Result<Statement<'a>, SqlError> {
    let rows = entries.iter().map(|entry| {
        let AuditEntry { tenant, id, at, actor, action, object, address, request_id, details } = entry;
        (tenant, id, at.0, actor, action, object, address, request_id, details)
    });
    let columns = (0..9).map(|n| format!("value ->> {n}")).collect::<Vec<_>>().join(", ");
    let sql = format!(
        "INSERT INTO audit (tenant, id, at, actor, action, object, address, request_id, details) \
         SELECT {columns} FROM json_each(?1) WHERE {condition} ON CONFLICT DO NOTHING"
    );
    let rows = json(&rows.collect::<Vec<_>>())?.into();
    Ok(Statement::new(sql, [rows].into_iter().chain(args).collect::<Vec<_>>()))
}

/// Returns the statement that reads the rows of a tenant, newest first; see [`read`].
pub fn select<'a>(tenant: &'a TenantId, query: &AuditQuery) -> Statement<'a> {
    let mut sql = "SELECT tenant, id, at, actor, action, object, address, request_id, details FROM audit \
                   WHERE tenant = ?1"
        .to_owned();
    let mut args: Vec<Value<'a>> = vec![tenant.as_str().into()];
    let (first, end) = query.ids();
    let text = |id: AuditId| id.to_string();
    for (condition, value) in [
        ("id >=", first.map(text)),
        ("id <", end.map(text)),
        ("action =", query.action.map(|action| action.to_string())),
    ] {
        let Some(value) = value else { continue };
        args.push(value.into());
        sql.push_str(&format!(" AND {condition} ?{}", args.len()));
    }
    sql.push_str(&format!(" ORDER BY id DESC LIMIT {}", query.limit));
    Statement::new(sql, args)
}

/// Reads the result of [`select`].
///
/// # Errors
/// If a row has another form.
pub fn read(rows: &impl Rows) -> Result<Vec<AuditEntry>, SqlError> {
    #[derive(Deserialize)]
    struct AuditRow {
        at: f64,
        actor: String,
        details: String,
        #[serde(flatten)]
        rest: serde_json::Map<String, serde_json::Value>,
    }
    let entry = |row: AuditRow| {
        let AuditRow { at, actor, details, mut rest } = row;
        rest.insert("at".to_owned(), serde_json::json!(Timestamp(at as u64)));
        for (name, text) in [("actor", actor), ("details", details)] {
            rest.insert(name.to_owned(), json::from_str(&text)?);
        }
        json::from_value(rest.into())
    };
    rows.read::<AuditRow>()?.into_iter().map(|row| entry(row).map_err(SqlError::new)).collect()
}

/// Returns the statement that deletes up to `limit` rows written at `at` or before. It returns a row for each.
pub fn expire(at: Timestamp, limit: usize) -> Statement<'static> {
    let sql = format!(
        "DELETE FROM audit WHERE (tenant, id) IN (SELECT tenant, id FROM audit WHERE at <= ?1 LIMIT {limit}) \
         RETURNING 1 AS done"
    );
    Statement::new(sql, vec![at.into()])
}
