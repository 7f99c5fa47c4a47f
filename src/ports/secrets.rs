//! Secrets of a tenant, which definitions of agents name as `${secret:NAME}`. A secret is read when a request is made, and
//! is never stored elsewhere, logged, shown or sent to a model.

use super::directory::DirectoryError;
use crate::types::TenantId;
use async_trait::async_trait;
use std::collections::BTreeMap;
use thiserror::Error;

/// Why the secrets of a request cannot be read. The model reads the text, so it does not contain the cause.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SecretError {
    /// There is no such secret.
    #[error("there is no secret {0:?}; store it with PUT /v1/secrets/{0}")]
    Missing(String),
    /// The store failed.
    #[error("the secrets cannot be read; try again")]
    Store(#[from] DirectoryError),
}

/// The secrets of all tenants.
///
/// ```
/// # use edge_harness::ports::{Secrets, directory::DirectoryError};
/// # use edge_harness::types::TenantId;
/// /// Returns the header that authenticates a request.
/// async fn authorization(secrets: &dyn Secrets, tenant: &TenantId) -> Result<String, DirectoryError> {
///     let token = secrets.get(tenant, "CRM_TOKEN").await?;
///     Ok(format!("Bearer {}", token.unwrap_or_default()))
/// }
/// ```
#[async_trait(?Send)]
pub trait Secrets {
    /// Returns a secret, if it exists. A failure is logged here, because callers cannot show its cause.
    async fn get(&self, tenant: &TenantId, name: &str) -> Result<Option<String>, DirectoryError>;
}

/// Reads the secrets of a request, by name.
///
/// # Errors
/// A secret that does not exist, or a failed store.
pub async fn read(
    secrets: &dyn Secrets,
    tenant: &TenantId,
    names: impl IntoIterator<Item = &str>,
) -> Result<BTreeMap<String, String>, SecretError> {
    let mut all = BTreeMap::new();
    for name in names {
        let secret = secrets.get(tenant, name).await?;
        all.insert(name.to_owned(), secret.ok_or_else(|| SecretError::Missing(name.to_owned()))?);
    }
    Ok(all)
}
