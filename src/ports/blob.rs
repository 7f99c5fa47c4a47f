//! The object store for large values.

use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use thiserror::Error;

/// A failed call of the object store, with the store's message for the log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct BlobError(pub String);

/// The result of a call of the object store.
pub type BlobResult<T> = Result<T, BlobError>;

/// An object store. Every key starts with the tenant.
///
/// ```
/// use edge_harness::{platform::in_memory::MemoryBlobs, ports::BlobStore};
/// use futures::executor::block_on;
///
/// let blobs = MemoryBlobs::default();
/// block_on(blobs.put("acme/a", "hello".into(), "text/plain")).unwrap();
/// assert_eq!(block_on(blobs.get("acme/a", Some(1..3))).unwrap().unwrap(), "el");
/// ```
#[async_trait(?Send)]
pub trait BlobStore {
    /// Writes an object, replacing any object with the same key.
    ///
    /// # Errors
    /// When the store fails.
    async fn put(&self, key: &str, bytes: Bytes, mime_type: &str) -> BlobResult<()>;

    /// Reads an object, or a range within it. Returns `None` if the object does not exist.
    ///
    /// # Errors
    /// When the store fails.
    async fn get(&self, key: &str, range: Option<Range<u64>>) -> BlobResult<Option<Bytes>>;

    /// Deletes objects. Keys that do not exist are ignored.
    ///
    /// # Errors
    /// When the store fails.
    async fn delete(&self, keys: &[String]) -> BlobResult<()>;

    /// Deletes every object whose key starts with `prefix`.
    ///
    /// # Errors
    /// When the store fails.
    async fn delete_prefix(&self, prefix: &str) -> BlobResult<()>;
}
