//! The store of tenants' secrets, which are encrypted before they are stored.

use super::directory::DirectoryResult;
use crate::types::{AuditEntry, SecretEntry, TenantId, Timestamp};
use async_trait::async_trait;

/// Maximum number of secrets of a tenant.
pub const MAX_SECRETS: usize = 100;

/// What storing a secret did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutSecret {
    /// The tenant did not have the secret before.
    Created,
    /// The value of a secret was replaced.
    Replaced,
    /// Nothing: the tenant has [`MAX_SECRETS`] others, or is being deleted.
    Refused,
}

/// The store of tenants' secrets. Each change adds its row of the audit trail in the same transaction.
///
/// ```
/// # use edge_harness::ports::{SecretStore, directory::DirectoryResult};
/// # use edge_harness::types::TenantId;
/// /// Returns the names of a tenant's secrets.
/// async fn names(secrets: &dyn SecretStore, tenant: &TenantId) -> DirectoryResult<Vec<String>> {
///     Ok(secrets.list(tenant).await?.into_iter().map(|secret| secret.name).collect())
/// }
/// ```
#[async_trait(?Send)]
pub trait SecretStore {
    /// Lists the secrets of a tenant, in the order of their names.
    async fn list(&self, tenant: &TenantId) -> DirectoryResult<Vec<SecretEntry>>;
    /// Returns the encrypted value of a secret.
    async fn encrypted(&self, tenant: &TenantId, name: &str) -> DirectoryResult<Option<String>>;
    /// Stores the encrypted value of a secret.
    async fn put(
        &self,
        name: &str,
        encrypted: &str,
        now: Timestamp,
        audit: &AuditEntry,
    ) -> DirectoryResult<PutSecret>;
    /// Deletes a secret. Returns `false` if it does not exist.
    async fn delete(&self, name: &str, audit: &AuditEntry) -> DirectoryResult<bool>;
    /// Deletes all secrets of a tenant.
    async fn erase(&self, tenant: &TenantId) -> DirectoryResult<()>;
}
