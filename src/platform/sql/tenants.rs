//! Changes of tenants and their keys (`migrations/0001_directory.sql` and later), each in one batch with its row of the
//! audit trail. The second statement of a batch returns a row if it made the change.

use super::{
    SqlError, Statement, Value,
    audit::{RECORDED, recorded, with_change},
    json,
};
use crate::ports::directory::{ApiKey, Tenant};
use crate::types::{AuditEntry, KeyId, StorageLimits};
use serde::Serialize;

/// A tenant that is not marked as deleted.
const EXISTS: &str = "EXISTS (SELECT 1 FROM tenants WHERE id = ?2 AND deleted_at IS NULL)";

/// Returns the batch that creates a tenant, unless the id is taken.
///
/// # Errors
/// If a value cannot be written as JSON.
pub fn create_tenant<'a>(tenant: &'a Tenant, entry: &'a AuditEntry) -> Result<Vec<Statement<'a>>, SqlError> {
    let JsonColumns { issuer, jwt, rules, limits } = JsonColumns::of(tenant)?;
    let sql = format!(
        "INSERT INTO tenants (id, name, created_at, issuer, jwt, shard, permissions, limits, version, spread, limits_due) \
         SELECT ?1, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12 WHERE {RECORDED} RETURNING 1 AS done"
    );
    let args = vec![
        tenant.name.as_str().into(),
        tenant.created_at.into(),
        issuer,
        jwt,
        text(tenant.shard.as_deref()),
        rules,
        limits,
        tenant.version.into(),
        tenant.spread.map_or(Value::Null, |count| Value::from(count as u64)),
        match tenant.limits.storage() == StorageLimits::default() {
            true => Value::Null,
            false => tenant.version.into(),
        },
    ];
    let free = ("NOT EXISTS (SELECT 1 FROM tenants WHERE id = ?2)", vec![entry.tenant.as_str().into()]);
    with_change(entry, free, (sql, args))
}

/// Returns the batch that updates a tenant whose version is `read_version`.
///
/// # Errors
/// As for [`create_tenant`].
pub fn update_tenant<'a>(
    tenant: &'a Tenant,
    read_version: u64,
    entry: &'a AuditEntry,
) -> Result<Vec<Statement<'a>>, SqlError> {
    let JsonColumns { issuer, jwt, rules, limits } = JsonColumns::of(tenant)?;
    let sql = format!(
        "UPDATE tenants SET name = ?3, issuer = ?4, jwt = ?5, permissions = ?6, limits = ?7, version = ?8, \
         limits_due = CASE WHEN limits IS ?7 THEN limits_due ELSE ?8 END \
         WHERE id = ?1 AND {RECORDED} RETURNING 1 AS done"
    );
    let args = vec![tenant.name.as_str().into(), issuer, jwt, rules, limits, tenant.version.into()];
    let unchanged = "EXISTS (SELECT 1 FROM tenants WHERE id = ?2 AND version = ?3 AND deleted_at IS NULL)";
    let unchanged = (unchanged, vec![entry.tenant.as_str().into(), read_version.into()]);
    with_change(entry, unchanged, (sql, args))
}

/// Returns the statement that notes that the tenant's shards have its storage limits.
pub fn limits_copied(tenant: &Tenant) -> Statement<'_> {
    let sql = "UPDATE tenants SET limits_due = NULL WHERE id = ?1 AND limits_due <= ?2";
    Statement::new(sql, vec![tenant.id.as_str().into(), tenant.version.into()])
}

/// The condition on tenants whose shards may not have their storage limits and do not refuse them.
pub const LIMITS_DUE: &str = "limits_due IS NOT NULL AND NOT EXISTS (SELECT 1 FROM moves \
                              WHERE moves.tenant = tenants.id AND phase IN ('copying', 'cleaning', 'canceling'))";

/// Returns the batch that marks a tenant as deleted and deletes its keys.
///
/// # Errors
/// As for [`create_tenant`].
pub fn delete_tenant(entry: &AuditEntry) -> Result<Vec<Statement<'_>>, SqlError> {
    let mark = format!(
        "UPDATE tenants SET deleted_at = ?3, issuer = NULL, jwt = NULL WHERE id = ?1 AND {RECORDED} \
         RETURNING 1 AS done"
    );
    let exists = (EXISTS, vec![entry.tenant.as_str().into()]);
    let mut batch = with_change(entry, exists, (mark, vec![entry.at.into()]))?;
    let keys = format!("DELETE FROM api_keys WHERE tenant = ?1 AND {RECORDED}");
    batch.push(recorded(entry, keys, Vec::new()));
    Ok(batch)
}

/// Returns the batch that stores a key of an existing tenant under the hash of its secret.
///
/// # Errors
/// As for [`create_tenant`].
pub fn create_key<'a>(
    key: &'a ApiKey,
    hash: &'a str,
    entry: &'a AuditEntry,
) -> Result<Vec<Statement<'a>>, SqlError> {
    let sql = format!(
        "INSERT INTO api_keys (tenant, id, hash, name, scopes, created_at, expires_at) \
         SELECT ?1, ?3, ?4, ?5, ?6, ?7, ?8 WHERE {RECORDED} RETURNING 1 AS done"
    );
    let args = vec![
        key.id.as_str().into(),
        hash.into(),
        key.name.as_str().into(),
        json(&key.scopes)?.into(),
        key.created_at.into(),
        key.expires_at.map_or(Value::Null, Value::from),
    ];
    with_change(entry, (EXISTS, vec![entry.tenant.as_str().into()]), (sql, args))
}

/// Returns the batch that deletes a key.
///
/// # Errors
/// As for [`create_tenant`].
pub fn delete_key<'a>(id: &'a KeyId, entry: &'a AuditEntry) -> Result<Vec<Statement<'a>>, SqlError> {
    let sql =
        format!("DELETE FROM api_keys WHERE tenant = ?1 AND id = ?3 AND {RECORDED} RETURNING 1 AS done");
    let known = "EXISTS (SELECT 1 FROM api_keys WHERE tenant = ?2 AND id = ?3)";
    let known = (known, vec![entry.tenant.as_str().into(), id.as_str().into()]);
    with_change(entry, known, (sql, vec![id.as_str().into()]))
}

/// The columns of a tenant that hold its issuer's name and, as JSON, its issuer, its rules and its limits.
struct JsonColumns<'a> {
    issuer: Value<'a>,
    jwt: Value<'a>,
    rules: Value<'a>,
    limits: Value<'a>,
}

impl<'a> JsonColumns<'a> {
    fn of(tenant: &'a Tenant) -> Result<Self, SqlError> {
        let jwt = tenant.jwt.as_ref();
        let rules = Some(&tenant.permissions).filter(|rules| !rules.is_empty());
        let limits = Some(&tenant.limits).filter(|limits| !limits.is_empty());
        Ok(Self {
            issuer: text(jwt.map(|jwt| jwt.issuer.as_str())),
            jwt: optional(jwt)?,
            rules: optional(rules)?,
            limits: optional(limits)?,
        })
    }
}

fn text(text: Option<&str>) -> Value<'_> {
    text.map_or(Value::Null, Value::from)
}

fn optional<T: Serialize>(value: Option<&T>) -> Result<Value<'static>, SqlError> {
    Ok(value.map(json).transpose()?.map_or(Value::Null, Value::from))
}
