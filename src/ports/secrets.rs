//! Secrets of a tenant, which definitions of agents name as `${secret:NAME}`. A secret is read when a request is made, and
//! is never stored elsewhere, logged, shown or sent to a model.

use super::directory::DirectoryError;
use crate::types::TenantId;
use async_trait::async_trait;
use thiserror::Error;

/// The start of a reference to a secret.
const OPEN: &str = "${secret:";

/// Why a text with references to secrets could not be completed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SecretError {
    /// There is no such secret.
    #[error("there is no secret {0:?}; store it with PUT /v1/secrets/{0}")]
    Missing(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] DirectoryError),
}

/// The secrets of all tenants.
///
/// ```
/// # use edge_harness::ports::{Secrets, secrets::{SecretError, completed}};
/// # use edge_harness::types::TenantId;
/// /// Returns the header that authenticates a request.
/// async fn authorization(secrets: &dyn Secrets, tenant: &TenantId) -> Result<String, SecretError> {
///     completed(secrets, tenant, "Bearer ${secret:CRM_TOKEN}").await
/// }
/// ```
#[async_trait(?Send)]
pub trait Secrets {
    /// Returns a secret, if it exists.
    async fn get(&self, tenant: &TenantId, name: &str) -> Result<Option<String>, DirectoryError>;
}

/// Returns the names of the secrets that a text refers to, in their order.
pub fn names(text: &str) -> Vec<&str> {
    text.split(OPEN).skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).collect()
}

/// Replaces the references of a text by the secrets. A value of a secret is not searched for references.
///
/// # Errors
/// A secret that does not exist, or a failed store.
pub async fn completed(secrets: &dyn Secrets, tenant: &TenantId, text: &str) -> Result<String, SecretError> {
    let mut parts = text.split(OPEN);
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('}') {
            Some((name, rest)) => {
                let secret = secrets.get(tenant, name).await?;
                whole.push_str(&secret.ok_or_else(|| SecretError::Missing(name.to_owned()))?);
                whole.push_str(rest);
            }
            None => {
                whole.push_str(OPEN);
                whole.push_str(part);
            }
        }
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use pretty_assertions::assert_eq;

    struct Stored;

    #[async_trait(?Send)]
    impl Secrets for Stored {
        async fn get(&self, _: &TenantId, name: &str) -> Result<Option<String>, DirectoryError> {
            Ok((name == "A").then(|| "${secret:A}!".to_owned()))
        }
    }

    #[test]
    fn references_are_replaced_once() {
        let tenant = TenantId::from("acme");
        let whole = |text: &str| block_on(completed(&Stored, &tenant, text));
        assert_eq!(whole("Bearer ${secret:A}, ${secret:A"), Ok("Bearer ${secret:A}!, ${secret:A".to_owned()));
        assert_eq!(whole("plain"), Ok("plain".to_owned()));
        assert_eq!(whole("${secret:B}"), Err(SecretError::Missing("B".into())));
        assert_eq!(names("${secret:A} and ${secret:B}"), ["A", "B"]);
    }
}
