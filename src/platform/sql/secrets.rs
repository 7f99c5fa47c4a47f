//! The secrets of tenants (`migrations/0023_tenant_secrets.sql`), in the root database. Each change is one batch with its
//! row of the audit trail.

use super::{
    Rows, Sql, Statement,
    audit::{RECORDED, with_change},
    read,
};
use crate::ports::{
    SecretStore,
    directory::DirectoryResult,
    secret_store::{MAX_SECRETS, PutSecret},
};
use crate::types::{AuditEntry, SecretEntry, TenantId, Timestamp};
use async_trait::async_trait;
use serde::Deserialize;

/// The store of secrets in the root database.
pub struct SqlSecrets<S>(pub S);

#[derive(Deserialize)]
struct EntryRow {
    name: String,
    created_at: f64,
    updated_at: f64,
}

#[derive(Deserialize)]
struct ValueRow {
    value: String,
}

#[derive(Deserialize)]
struct Found {}

fn time(number: f64) -> Timestamp {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number below 2^53")]
    Timestamp(number as u64)
}

impl<S: Sql> SqlSecrets<S> {
    async fn batch(&self, statements: &[Statement<'_>]) -> DirectoryResult<Vec<S::Rows>> {
        Ok(self.0.batch(statements).await?)
    }
}

/// Returns whether a statement of a batch returned a row.
fn is_found<R: Rows>(results: &[R], index: usize) -> DirectoryResult<bool> {
    results.get(index).map_or(Ok(false), |rows| Ok(!rows.read::<Found>()?.is_empty()))
}

#[async_trait(?Send)]
impl<S: Sql> SecretStore for SqlSecrets<S> {
    async fn list(&self, tenant: &TenantId) -> DirectoryResult<Vec<SecretEntry>> {
        let sql = "SELECT name, created_at, updated_at FROM tenant_secrets WHERE tenant = ?1 ORDER BY name";
        let rows = self.batch(&[Statement::new(sql, [tenant.as_str().into()])]).await?;
        let entry = |EntryRow { name, created_at, updated_at }| SecretEntry {
            name,
            created_at: time(created_at),
            updated_at: time(updated_at),
        };
        Ok(read::<EntryRow>(&rows, 0)?.into_iter().map(entry).collect())
    }

    async fn encrypted(&self, tenant: &TenantId, name: &str) -> DirectoryResult<Option<String>> {
        let sql = "SELECT value FROM tenant_secrets WHERE tenant = ?1 AND name = ?2";
        let rows = self.batch(&[Statement::new(sql, [tenant.as_str().into(), name.into()])]).await?;
        Ok(read::<ValueRow>(&rows, 0)?.into_iter().next().map(|row| row.value))
    }

    async fn put(
        &self,
        name: &str,
        encrypted: &str,
        now: Timestamp,
        audit: &AuditEntry,
    ) -> DirectoryResult<PutSecret> {
        let tenant = audit.tenant.as_str();
        let found = "SELECT 1 AS found FROM tenant_secrets WHERE tenant = ?1 AND name = ?2";
        // The tenant of development has no row.
        let allowed = format!(
            "(SELECT count(*) FROM tenant_secrets WHERE tenant = ?2 AND name <> ?3) < {MAX_SECRETS} \
             AND NOT EXISTS (SELECT 1 FROM tenants WHERE id = ?2 AND deleted_at IS NOT NULL)"
        );
        let put = format!(
            "INSERT INTO tenant_secrets (tenant, name, created_at, updated_at, value) \
             SELECT ?1, ?3, ?4, ?4, ?5 WHERE {RECORDED} ON CONFLICT (tenant, name) DO UPDATE \
             SET updated_at = excluded.updated_at, value = excluded.value RETURNING 1 AS done"
        );
        let mut batch = vec![Statement::new(found, [tenant.into(), name.into()])];
        let condition = (allowed.as_str(), vec![tenant.into(), name.into()]);
        batch.extend(with_change(audit, condition, (put, vec![name.into(), now.into(), encrypted.into()]))?);
        let results = self.batch(&batch).await?;
        Ok(match (is_found(&results, 0)?, is_found(&results, 2)?) {
            (_, false) => PutSecret::Refused,
            (true, true) => PutSecret::Replaced,
            (false, true) => PutSecret::Created,
        })
    }

    async fn delete(&self, name: &str, audit: &AuditEntry) -> DirectoryResult<bool> {
        let exists = "EXISTS (SELECT 1 FROM tenant_secrets WHERE tenant = ?2 AND name = ?3)";
        let delete = format!(
            "DELETE FROM tenant_secrets WHERE tenant = ?1 AND name = ?3 AND {RECORDED} RETURNING 1 AS done"
        );
        let condition = (exists, vec![audit.tenant.as_str().into(), name.into()]);
        let results = self.batch(&with_change(audit, condition, (delete, vec![name.into()]))?).await?;
        is_found(&results, 1)
    }

    async fn erase(&self, tenant: &TenantId) -> DirectoryResult<()> {
        let sql = "DELETE FROM tenant_secrets WHERE tenant = ?1";
        self.batch(&[Statement::new(sql, [tenant.as_str().into()])]).await.map(drop)
    }
}
