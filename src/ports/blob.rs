//! The object store for large values.

use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;

/// An object store. Every key starts with the tenant.
#[async_trait(?Send)]
pub trait BlobStore {
    /// Writes an object, replacing any object with the same key.
    ///
    /// # Errors
    /// The store failed, with its message.
    async fn put(&self, key: &str, bytes: Bytes, mime_type: &str) -> Result<(), String>;

    /// Reads an object, or a range within it. Returns `None` if the object does not exist.
    ///
    /// # Errors
    /// The store failed, with its message.
    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>, String>;

    /// Deletes objects. Keys that do not exist are ignored.
    ///
    /// # Errors
    /// The store failed, with its message.
    async fn delete(&self, keys: &[String]) -> Result<(), String>;

    /// Deletes every object whose key starts with `prefix`.
    ///
    /// # Errors
    /// The store failed, with its message.
    async fn delete_prefix(&self, prefix: &str) -> Result<(), String>;
}
