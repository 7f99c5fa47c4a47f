//! Large things, by key.

use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;

/// An object store. Keys start with the tenant.
#[async_trait(?Send)]
pub trait BlobStore {
    /// Writes an object; one of the same key is replaced.
    ///
    /// # Errors
    /// The store's own message.
    async fn put(&self, key: &str, bytes: Bytes, mime_type: &str) -> Result<(), String>;

    /// Reads an object, or a range of its bytes that lies inside it; `None` when there is none.
    ///
    /// # Errors
    /// The store's own message.
    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>, String>;

    /// Removes these objects; one that is not there counts as removed.
    ///
    /// # Errors
    /// The store's own message.
    async fn delete(&self, keys: &[String]) -> Result<(), String>;

    /// Removes every object whose key starts with `prefix`.
    ///
    /// # Errors
    /// The store's own message.
    async fn delete_prefix(&self, prefix: &str) -> Result<(), String>;
}
