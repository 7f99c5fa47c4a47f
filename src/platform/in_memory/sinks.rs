//! Log lines and blobs in memory.

use crate::ports::{BlobError, BlobResult, BlobStore, Log};
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    ops::Range,
};

/// A log that keeps every line.
#[derive(Default)]
pub struct MemoryLog(RefCell<Vec<Value>>);

impl MemoryLog {
    /// Returns all lines, oldest first.
    pub fn lines(&self) -> Vec<Value> {
        self.0.borrow().clone()
    }
}

impl Log for MemoryLog {
    fn line(&self, json: &Value) {
        self.0.borrow_mut().push(json.clone());
    }
}

/// Blobs in memory.
#[derive(Default)]
pub struct MemoryBlobs {
    /// While set, every call fails.
    pub down: Cell<bool>,
    /// The stored objects.
    pub objects: RefCell<BTreeMap<String, Bytes>>,
}

#[async_trait(?Send)]
impl BlobStore for MemoryBlobs {
    async fn put(&self, key: &str, bytes: Bytes, _mime_type: &str) -> BlobResult<()> {
        self.up()?;
        self.objects.borrow_mut().insert(key.to_owned(), bytes);
        Ok(())
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> BlobResult<Option<Bytes>> {
        self.up()?;
        let Some(bytes) = self.objects.borrow().get(key).cloned() else { return Ok(None) };
        let Some(range) = range else { return Ok(Some(bytes)) };
        let place = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let (start, end) = (place(range.start), place(range.end));
        if start > end || end > bytes.len() {
            return Err(BlobError(format!("the range {range:?} is outside {} bytes", bytes.len())));
        }
        Ok(Some(bytes.slice(start..end)))
    }

    async fn delete(&self, keys: &[String]) -> BlobResult<()> {
        self.up()?;
        self.objects.borrow_mut().retain(|key, _| !keys.contains(key));
        Ok(())
    }

    async fn delete_prefix(&self, prefix: &str) -> BlobResult<()> {
        self.up()?;
        self.objects.borrow_mut().retain(|key, _| !key.starts_with(prefix));
        Ok(())
    }
}

impl MemoryBlobs {
    fn up(&self) -> BlobResult<()> {
        if self.down.get() { Err(BlobError("switched off".into())) } else { Ok(()) }
    }
}
