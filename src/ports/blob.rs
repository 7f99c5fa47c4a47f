//! Large things, by key.

use async_trait::async_trait;

/// An object store. Keys start with the tenant.
#[async_trait(?Send)]
pub trait BlobStore {
    /// Removes every object whose key starts with `prefix`.
    ///
    /// # Errors
    /// The store's own message.
    async fn delete_prefix(&self, prefix: &str) -> Result<(), String>;
}
